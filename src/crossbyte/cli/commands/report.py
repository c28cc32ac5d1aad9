"""Run ``crossbyte report``: show how good a model is, or write the report of the laboratory's runs."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crossbyte.cli import options
from crossbyte.cli.commands.evaluate import describe_damaged_results
from crossbyte.cli.inputs import check_free, is_index, load_model, read_word_settings
from crossbyte.cli.output import describe_words, emit
from crossbyte.errors import InvalidInput, NotCalibrated

if TYPE_CHECKING:
    from crossbyte.model.estimator import CMCQ


def report(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="FILE|DIR",
            help="A model, an index (of shards, too) with its model inside, or a folder of `evaluate`.",
        ),
    ],
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="PAGE", help="Write a model's report as a page with plots, too."),
    ] = None,
    overwrite: options.Overwrite = False,
    as_json: options.AsJson = False,
) -> None:
    """Show how good a model is, as `fit` measured it, or write the report of `evaluate`.

    Of a model: recall of held-out partners, both ways, beside simpler systems, the uncompressed space and
    chance. Of a folder: the paper's tables and figures from the runs in it, as a page and as Markdown, in
    that folder; a report that is there is replaced.

    Example:
      crossbyte report model.cbm
      crossbyte report photos.cb --html report.html
      crossbyte report runs/
    """
    from crossbyte.gallery.gallery import is_sharded

    if path.is_dir() and not is_sharded(path):
        _report_runs(path, html, as_json=as_json)
    else:
        _report_model(path, html, overwrite=overwrite, as_json=as_json)


def _report_runs(folder: Path, html: Path | None, *, as_json: bool) -> None:
    if html is not None:
        raise InvalidInput(f"--html is for models; the report of {folder} is always a page, in that folder")
    from crossbyte.lab.report.study import read_study
    from crossbyte.lab.report.write import write_study

    study = read_study(folder)
    written = write_study(study, folder)
    notes = describe_damaged_results(study)
    emit({"written": written, "notes": notes}, [*map(str, written), *notes], as_json=as_json)


def _load_model(path: Path) -> CMCQ:
    """Load the model of a file, or that of a folder of shards."""
    if not path.is_dir():
        return load_model(path)
    from crossbyte.gallery.gallery import open_index

    with closing(open_index(path)) as index:
        return index.model


def _report_model(path: Path, html: Path | None, *, overwrite: bool, as_json: bool) -> None:
    check_free(html, overwrite=overwrite)
    try:
        found = _load_model(path).report_
    except NotCalibrated as error:
        raise NotCalibrated(f"{path}: the quality of this model was never measured") from error
    words = read_word_settings(path) if path.is_dir() or is_index(path) else None
    measured = {} if words is None else words["measured"]
    document, text = found.to_dict() | {"words": measured or None}, [str(found), *describe_words(measured)]
    if html is not None:
        from crossbyte._fs import replace_file

        replace_file(str(html), found.to_html().encode())
        document["html"] = html
        text += ["", f"{html}: the report as a page"]
    emit(document, text, as_json=as_json)
