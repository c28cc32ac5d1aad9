"""Write answers as a TREC run: what trec_eval, ir-measures and their kin read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from crossbyte._fs import Path, stage_files
from crossbyte.errors import InvalidInput
from crossbyte.index.hits import Hits


def write_trec(
    path_or_file: Path | TextIO,
    hits: Sequence[Hits],
    query_ids: Sequence[Any],
    run_name: str = "crossbyte",
    *,
    overwrite: bool = False,
) -> int:
    """Write answers in the TREC run format: ``query Q0 document rank score run``.

    The score is minus the distance, with all digits of float32; ranks begin at 1. Evaluators sort by score
    and break ties in their own ways.

    Parameters
    ----------
    path_or_file : path-like or text file
        A file that is open stays open.
    hits : sequence of Hits
        From :meth:`crossbyte.Index.search`.
    query_ids : sequence of str or int
        One per answer, no two alike.
    run_name : str
    overwrite : bool
        Whether a file at the path may be replaced.

    Returns
    -------
    int
        How many lines were written.

    Raises
    ------
    InvalidInput
        An id is empty or has white space, or stands for two; nothing was written.
    """
    lines = list(_format_lines(hits, query_ids, _check_word(run_name, "run_name")))
    if not isinstance(path_or_file, str | os.PathLike):
        path_or_file.writelines(lines)
        return len(lines)
    with (
        stage_files([path_or_file], overwrite=bool(overwrite)) as temporary,
        open(temporary[0], "x", encoding="utf-8", newline="\n") as file,
    ):
        file.writelines(lines)
    return len(lines)


def _format_lines(hits: Sequence[Hits], query_ids: Sequence[Any], run_name: str) -> Iterator[str]:
    if len(hits) != len(query_ids):
        raise InvalidInput(f"query_ids: expected one per answer ({len(hits)}), got {len(query_ids)}")
    names = [_check_word(query, "query_ids") for query in query_ids]
    _check_distinct(names, "query_ids")
    for name, answer in zip(names, hits, strict=True):
        documents = [_check_word(id, "ids") for id in answer.ids]
        _check_distinct(documents, "ids")
        for place, (document, distance) in enumerate(zip(documents, answer.distances.tolist(), strict=True)):
            # Nine digits tell all numbers of float32 apart; 0 - x, because -0 is a strange score.
            yield f"{name} Q0 {document} {place + 1} {0.0 - distance:.9g} {run_name}\n"


def _check_word(value: Any, name: str) -> str:
    text = str(value)
    if not text or text.split() != [text]:
        raise InvalidInput(f"{name}: a TREC run cannot hold {text!r}: expected an id without white space")
    return text


def _check_distinct(words: Sequence[str], name: str) -> None:
    if len(set(words)) < len(words):
        twice = next(word for word in words if words.count(word) > 1)
        raise InvalidInput(f"{name}: a TREC run cannot tell apart two that are both written {twice!r}")
