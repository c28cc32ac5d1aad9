"""Run ``crossbyte explain``: say why a document is as near to a query as it is."""

from __future__ import annotations

from typing import Annotated

import typer

from crossbyte.cli import options
from crossbyte.cli.inputs import read_queries, read_vocabulary, resolve_ids
from crossbyte.cli.output import emit
from crossbyte.errors import InvalidInput


def explain(
    path: options.IndexPath,
    document: Annotated[str, typer.Argument(metavar="ID", help="The document to explain.")],
    text: options.QueryWords = None,
    image: options.QueryPicture = None,
    texts: options.QueryTexts = None,
    images: options.QueryImages = None,
    like: options.Like = None,
    row: options.Row = None,
    target: options.Target = None,
    vocabulary: options.Vocabulary = None,
    image_encoder: options.ImageEncoder = None,
    text_encoder: options.TextEncoder = None,
    as_json: options.AsJson = False,
) -> None:
    """Say why a document is as near to a query as it is.

    The shares of the codebooks and the constant add up to the distance.

    Example:
      crossbyte explain photos.cb dogs/rex.jpg --text "a dog on the beach"
      crossbyte explain photos.cb p17 --texts queries.npz:text_query --row 3 --vocabulary words.txt
    """
    from crossbyte.gallery.gallery import Gallery

    with Gallery.open(path, image_encoder=image_encoder, text_encoder=text_encoder) as gallery:
        queries = read_queries(
            gallery, text=text, image=image, texts=texts, images=images, like=like, row=row
        )
        if len(queries.labels) != 1:
            raise InvalidInput(f"expected one query, got {len(queries.labels)}; choose one with --row")
        words = read_vocabulary(vocabulary)
        (id,) = resolve_ids(gallery.index, [document])
        query = {queries.keyword: queries.value[0] if queries.keyword == "like" else queries.value}
        found = gallery.explain(id, **query, target=target and target.value, vocabulary=words)
        unknown = None if text is None else gallery.unknown_words(text)
    notes = (
        [f"the encoder has not learned {', '.join(map(repr, unknown))}: parts of words count alone"]
        if unknown
        else []
    )
    emit(found.to_dict(), [*notes, str(found)], as_json=as_json)
