"""Run ``crossbyte plan``: say what an index will cost, and how many bits it needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crossbyte.cli import options
from crossbyte.cli.inputs import InputOptions, load_model, parse_size, read_pairs
from crossbyte.cli.output import emit, show_progress
from crossbyte.errors import FitInterrupted, InvalidInput

if TYPE_CHECKING:
    from crossbyte.model.estimator import CMCQ


def plan(
    items: Annotated[int, typer.Option("--items", min=1, help="How many documents the index will have.")],
    data: options.Data = None,
    split: options.Split = None,
    images: options.ImageFile = None,
    texts: options.TextFile = None,
    payloads: options.PayloadFile = None,
    ids: options.Ids = None,
    groups: options.GroupColumn = None,
    train: Annotated[
        int | None, typer.Option("--train", min=1, help="Pairs to fit on; as many as are given if not said.")
    ] = None,
    side: Annotated[
        options.Sides, typer.Option("--side", help="Which sides a document has.")
    ] = options.Sides.BOTH,
    bits: Annotated[int | None, typer.Option("--bits", help="Bits per item, if they are settled.")] = None,
    max_memory: Annotated[
        str | None,
        typer.Option("--max-memory", metavar="SIZE", help="The most bits within this, such as 200MB."),
    ] = None,
    max_disk: Annotated[
        str | None, typer.Option("--max-disk", metavar="SIZE", help="The most bits in a file of this size.")
    ] = None,
    min_recall: Annotated[
        float | None, typer.Option("--min-recall", help="The fewest bits with this recall@10; needs --model.")
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option("--model", metavar="FILE", help="A calibrated model, for its measured quality."),
    ] = None,
    mapping: Annotated[
        options.Mapping | None,
        typer.Option("--mapping", help="The common space if there is no model: cca if not given."),
    ] = None,
    jobs: options.Jobs = None,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Say what an index will cost, before it is built.

    Bytes on disk and in memory, and minutes, from a short pilot on your pairs. Exit
    code 3 if no setting meets the budget or the wanted recall; the message names the nearest.

    Example:
      crossbyte plan photos.npz --items 1000000 --bits 64
      crossbyte plan photos.npz --items 1000000 --max-memory 20MB
      crossbyte plan photos.npz --items 1000000 --min-recall 0.5 --model model.cbm
    """
    from crossbyte.index.plan.plan import plan as plan_index

    if min_recall is not None and model is None:
        raise InvalidInput("--min-recall needs the measured quality of a model; give --model FILE")
    arguments: dict[str, Any] = {"items": items, "n_bits": bits, "min_recall": min_recall, "n_jobs": jobs}
    arguments |= {"train": train, "sides": side.value}
    arguments["max_memory"] = parse_size(max_memory, "--max-memory")
    arguments["max_disk"] = parse_size(max_disk, "--max-disk")
    arguments["model"] = _choose_model(model, mapping)
    pairs = read_pairs(InputOptions(data, split, images, texts, payloads, ids, groups), stored=True)
    arguments |= {"payloads": pairs.payloads, "ids": pairs.ids, "groups": pairs.groups}
    with show_progress("plan", quiet=quiet) as callback, _interrupt_pilot():
        found = plan_index(pairs.images, pairs.texts, callback=callback, **arguments)
    emit(found.to_dict(), [str(found)], as_json=as_json)


@contextmanager
def _interrupt_pilot() -> Iterator[None]:
    """Turn an interrupted pilot into plain Ctrl-C: the user does not know of its model."""
    try:
        yield
    except FitInterrupted:
        raise KeyboardInterrupt from None


def _choose_model(path: Path | None, mapping: options.Mapping | None) -> CMCQ:
    """Load the model, or make an unfitted one; with CCA by default, as a pilot of auto takes minutes."""
    from crossbyte.model.estimator import CMCQ

    if path is None:
        return CMCQ(mapping=(mapping or options.Mapping.CCA).value, random_state=0)
    if mapping is not None:
        raise InvalidInput("a model has its own mapping; leave out --mapping, or --model")
    return load_model(path)
