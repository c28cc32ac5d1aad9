"""``crossbyte verify``: whether everything in a file is as it was written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crossbyte.cli import options
from crossbyte.cli.inputs import is_index
from crossbyte.cli.output import emit, plural

__all__ = ["verify"]


def verify(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="An index or a model.")],
    as_json: options.AsJson = False,
) -> None:
    """Compare a whole index or model with its checksums.

    Exit code 5 if anything is damaged.

    Example:
      crossbyte verify photos.cb
    """
    from crossbyte.model.cmcq import CMCQ
    from crossbyte.search.index import Index

    if not is_index(path):
        CMCQ.load(path)  # every byte of a model is verified when it is read
        emit({"file": path, "kind": "model", "whole": True}, [f"{path}: whole"], as_json=as_json)
        return
    with Index.open(path) as index:
        index.verify()
        n_documents = len(index)
    document = {"file": path, "kind": "index", "whole": True, "documents": n_documents}
    emit(document, [f"{path}: whole; {plural(n_documents, 'document')}"], as_json=as_json)
