"""Run ``crossbyte audit``: list pairs that look wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from crossbyte.cli import options
from crossbyte.cli.inputs import InputOptions, check_free, load_model, read_pairs
from crossbyte.cli.output import Table, emit, show_progress

_FIGURES = ("surprise", "distance", "usual")


def audit(
    model: Annotated[
        Path, typer.Option("--model", metavar="FILE", help="A model of such pairs, or an index.")
    ],
    data: options.Data = None,
    split: options.Split = None,
    images: options.ImageFile = None,
    texts: options.TextFile = None,
    payloads: options.PayloadFile = None,
    ids: options.Ids = None,
    groups: options.GroupColumn = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write all pairs, the most suspicious first.")
    ] = None,
    top: Annotated[int, typer.Option("--top", min=0, help="How many pairs, and duplicates, are shown.")] = 50,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """List pairs that look wrong, and near-duplicates.

    Pairs whose halves disagree are likely wrong captions. Every pair is judged by a space that
    has not seen it.

    Example:
      crossbyte audit photos.npz --model model.cbm --csv suspicious.csv
    """
    from crossbyte.model.pair_audit import audit_pairs

    check_free(csv, overwrite=overwrite)
    fitted = load_model(model)
    pairs = read_pairs(InputOptions(data, split, images, texts, payloads, ids, groups))
    with show_progress("audit", quiet=quiet) as callback:
        found = audit_pairs(fitted, pairs.images, pairs.texts, groups=pairs.groups, callback=callback)
    if csv is not None:
        found.to_csv(csv, ids=pairs.ids, payloads=pairs.payloads, overwrite=overwrite)
    document = found.to_dict()
    document["rows"] = [_add_ids(entry, pairs.ids) for entry in document["rows"][:top]]
    document["n_duplicates"] = len(document["duplicates"])
    document["duplicates"] = document["duplicates"][:top]
    emit(document, [str(found), "", _make_table(document["rows"])], as_json=as_json)


def _add_ids(entry: dict[str, Any], ids: list[Any] | None) -> dict[str, Any]:
    if ids is None:
        return entry
    better = entry["best_text"]
    return {"id": ids[entry["row"]], **entry, "best_text_id": None if better is None else ids[better]}


def _make_table(rows: list[dict[str, Any]]) -> Table:
    return Table(
        ("row>", "id", "surprise>", "distance>", "usual>", "a better text"), list(map(_format_row, rows))
    )


def _format_row(entry: dict[str, Any]) -> list[str]:
    figures = ["" if entry[name] is None else f"{entry[name]:.3f}" for name in _FIGURES]
    better = entry.get("best_text_id", entry["best_text"])
    return [str(entry["row"]), str(entry.get("id", "")), *figures, "" if better is None else str(better)]
