"""``crossbyte report``: how good a model is, as measured on held-out pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crossbyte.cli import options
from crossbyte.cli.inputs import check_free, model_of
from crossbyte.cli.output import emit
from crossbyte.errors import NotCalibrated

__all__ = ["report"]


def report(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A model, or an index with its model inside.")],
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="PAGE", help="Write the report as a page with plots, too."),
    ] = None,
    overwrite: options.Overwrite = False,
    as_json: options.AsJson = False,
) -> None:
    """Show how good a model is, as `fit` measured it.

    Recall of held-out partners, both ways, beside simpler systems, the uncompressed space and chance.

    Example:
      crossbyte report model.cbm
      crossbyte report photos.cb --html report.html
    """
    check_free(html, overwrite=overwrite)
    try:
        found = model_of(path).report_
    except NotCalibrated as error:
        raise NotCalibrated(f"{path}: the quality of this model was never measured") from error
    document, text = found.to_dict(), [str(found)]
    if html is not None:
        from crossbyte.model.storage import replace_file

        replace_file(str(html), found.to_html().encode())
        document["html"] = html
        text += ["", f"{html}: the report as a page"]
    emit(document, text, as_json=as_json)
