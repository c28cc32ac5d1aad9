"""One run: fit, code, search, score. A system never sees what it is scored by."""

from __future__ import annotations

import math
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

import crossbyte
from crossbyte.blocks import row_blocks
from crossbyte.data.collections.collection import Collection
from crossbyte.evaluation.protocols import Database, Task, Trial
from crossbyte.evaluation.results import Result
from crossbyte.evaluation.runs import Run
from crossbyte.evaluation.systems import system_of
from crossbyte.methods.label_rows import shared_label
from crossbyte.methods.protocol import Method
from crossbyte.metrics import Scorer
from crossbyte.strict_json import plain_json

__all__ = ["QUERY_DEPTHS", "fitted", "measured"]

QUERY_DEPTHS = (1, 5, 10)
"""Depths of recall that are kept for every query, where there are true partners."""

_BLOCK_ENTRIES = 2**24  # distances at a time: 64 MB
_MOST_QUERIES = 1_024


class Clock:
    """Processor seconds by what they were spent on.

    Runs have one thread each, so that these are what a run takes on a core of its own, whatever else the
    machine does beside it.
    """

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(("fit", "code", "search"), 0.0)

    @contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        """Add the time of the block."""
        began = time.process_time()
        yield
        self.seconds[what] += time.process_time() - began


def fitted(run: Run, trial: Trial) -> tuple[Method, float]:
    """Let the system of a run learn; seconds beside it."""
    method = system_of(run)
    clock = Clock()
    labels = trial.train.labels if run.similarity == "labels" else None
    with clock("fit"):
        method.fit(trial.train.images, trial.train.texts, labels)
    return method, clock.seconds["fit"]


def measured(run: Run, collection: Collection, trial: Trial, method: Method, fit_seconds: float) -> Result:
    """Code the database, ask every query, and score the answers."""
    clock = Clock()
    clock.seconds["fit"] = fit_seconds
    scorers = {task.name: _scored(task, trial.database, method, clock) for task in trial.tasks}
    return Result(
        run=run,
        about=_plain(asdict(method.about)),
        data=_data(run, collection, trial),
        versions=_versions(),
        seconds={name: round(value, 4) for name, value in clock.seconds.items()},
        scores={name: _plain(scorer.scores()) for name, scorer in scorers.items()},
        chance={name: _plain(scorer.chance()) for name, scorer in scorers.items()},
        details=_plain(method.details) | {"parameters": _plain(method.parameters)},
        per_query={name: _per_query(scorer) for name, scorer in scorers.items()},
        finished=round(time.time(), 3),
    )


def _scored(task: Task, database: Database, method: Method, clock: Clock) -> Scorer:
    with clock("code"):
        items = database.items(method, task.searched)
        queries = method.queries(task.asks, task.queries)
    n_queries, n_items = task.queries.shape[0], len(database.part)
    scorer = Scorer(n_items, labels_relevant=task.labels is not None, partners=task.partners is not None)
    for rows in row_blocks(n_queries, max(1, min(_MOST_QUERIES, _BLOCK_ENTRIES // n_items))):
        with clock("search"):
            distances = method.distances(task.searched, queries[rows], items)
        partners = None if task.partners is None else task.partners[rows]
        scorer.add(distances, _relevant(task, database, rows), partners)
    return scorer


def _relevant(task: Task, database: Database, rows: slice) -> NDArray[np.bool_] | None:
    """Whether query and item share a label: (n, N)."""
    if task.labels is None or database.labels is None:
        return None
    return shared_label(task.labels[rows], database.labels)


def _per_query(scorer: Scorer) -> dict[str, Any]:
    """What tests and intervals over queries need, with six digits: longer files would say no more."""
    names = [f"recall@{depth}" for depth in QUERY_DEPTHS] if scorer.partners else []
    found = scorer.per_query(*names)
    found["rank"] = found.pop("recall_rank")
    return {name: np.round(values, 6).tolist() for name, values in found.items() if values is not None}


def _data(run: Run, collection: Collection, trial: Trial) -> dict[str, Any]:
    train = trial.train
    return {
        "name": collection.name,
        "about": collection.about,
        "digest": run.data_digest,
        "n_train": len(train),
        "n_items": len(trial.database.part),
        "n_queries": trial.tasks[0].queries.shape[0],
        "image_dim": train.images.shape[1],
        "text_dim": train.texts.shape[1],
        **trial.notes,
    }


def _versions() -> dict[str, str]:
    faiss = sys.modules.get("faiss")  # only where a system has used it
    found = {
        "crossbyte": crossbyte.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    return found | ({} if faiss is None else {"faiss": str(faiss.__version__)})


def _plain(value: Any) -> Any:
    """Make JSON of mappings of arrays and numbers; what is not finite becomes null."""
    return plain_json(_finite(value), "a result")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
