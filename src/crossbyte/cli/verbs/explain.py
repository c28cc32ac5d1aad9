"""``crossbyte explain``: why a document is as near to a query as it is."""

from __future__ import annotations

from typing import Annotated

import typer

from crossbyte.cli import options
from crossbyte.cli.inputs import read_queries, read_vocabulary, resolve_ids
from crossbyte.cli.output import emit
from crossbyte.errors import InvalidInput

__all__ = ["explain"]


def explain(
    path: options.IndexPath,
    document: Annotated[str, typer.Argument(metavar="ID", help="The document to explain.")],
    texts: options.QueryTexts = None,
    images: options.QueryImages = None,
    like: options.Like = None,
    row: options.Row = None,
    target: options.Target = None,
    vocabulary: options.Vocabulary = None,
    as_json: options.AsJson = False,
) -> None:
    """Say why a document is as near to a query as it is.

    The shares of the codebooks and the constant add up to the distance.

    Example:
      crossbyte explain photos.cb p17 --texts queries.npz:text_query --row 3 --vocabulary words.txt
    """
    from crossbyte.search.index import Index

    with Index.open(path) as index:
        queries = read_queries(index, texts, images, like, row, None)
        if len(queries.labels) != 1:
            raise InvalidInput(f"expected one query, got {len(queries.labels)}; choose one with --row")
        words = read_vocabulary(vocabulary)
        (id,) = resolve_ids(index, [document])
        asked = {queries.keyword: queries.value[0] if queries.keyword == "like" else queries.value}
        found = index.explain(id, **asked, target=target and target.value, vocabulary=words)
    emit(found.to_dict(), [str(found)], as_json=as_json)
