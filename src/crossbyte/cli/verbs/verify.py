"""``crossbyte verify``: whether everything in a file is as it was written."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from crossbyte._format import plural
from crossbyte.cli import options
from crossbyte.cli.inputs import is_index
from crossbyte.cli.output import emit

__all__ = ["verify"]


def verify(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="An index, a folder of shards, or a model.")],
    as_json: options.AsJson = False,
) -> None:
    """Compare a whole index or model with its checksums.

    Exit code 5 if anything is damaged.

    Example:
      crossbyte verify photos.cb
    """
    from crossbyte.gallery.opening import is_sharded, open_index
    from crossbyte.model.cmcq import CMCQ

    if not is_sharded(path) and not is_index(path):
        CMCQ.load(path)  # every byte of a model is verified when it is read
        emit({"file": path, "kind": "model", "whole": True}, [f"{path}: whole"], as_json=as_json)
        return
    with closing(open_index(path)) as index:
        index.verify()
        n_documents = len(index)
    document = {"file": path, "kind": "index", "whole": True, "documents": n_documents}
    emit(document, [f"{path}: whole; {plural(n_documents, 'document')}"], as_json=as_json)
