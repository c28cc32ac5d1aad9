"""Run ``crossbyte info``: say what is in an index or a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crossbyte._format import readable_bytes
from crossbyte.cli import options
from crossbyte.cli.inputs import describe_word_settings, is_index
from crossbyte.cli.output import Table, describe_bytes, describe_words, emit

if TYPE_CHECKING:
    from crossbyte.model.estimator import CMCQ

_IN_USE = ("mapping", "n_components", "correlation", "cross_penalty", "cross_term", "ridge")


def info(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="An index, a folder of shards, or a model.")],
    as_json: options.AsJson = False,
) -> None:
    """Say what is in an index or a model.

    The file itself tells which of the two it is.

    Example:
      crossbyte info photos.cb
    """
    from crossbyte.gallery.gallery import is_sharded

    document = _describe_index(path) if is_sharded(path) or is_index(path) else _describe_model_file(path)
    emit(document, _format_info(document), as_json=as_json)


def _describe_index(path: Path) -> dict[str, Any]:
    from crossbyte.gallery.gallery import open_index

    with closing(open_index(path)) as index:
        document = {"file": path, "kind": "index", "model": _describe_model(index.model), **index.stats()}
        return document | {"words": describe_word_settings(index)}


def _describe_model_file(path: Path) -> dict[str, Any]:
    from crossbyte.model.estimator import CMCQ

    model = CMCQ.load(path)
    size = {"bytes": {"file": path.stat().st_size}}
    return {"file": path, "kind": "model", "model": _describe_model(model), "disk": size}


def _describe_model(model: CMCQ) -> dict[str, Any]:
    return {
        "bits": model.n_bits,
        "mapping": model.mapping_,
        "components": model.n_components_,
        "image_features": model.n_features_in_,
        "text_features": model.n_text_features_,
        "training_pairs": len(model.fitted_.image_codes),
        "calibrated": model.calibration_ is not None,
        "codes": "document" if model.fitted_.has_document_codes else "sides",
        "parameters": {name: value for name, value in model.get_params().items() if name != "callback"},
        "in_use": {name: getattr(model, f"{name}_") for name in _IN_USE},
    }


def _format_info(document: dict[str, Any]) -> Iterator[str | Table]:
    model = document["model"]
    size = readable_bytes(document["disk"]["bytes"]["file"])
    yield f"{document['file']}: a crossbyte {document['kind']}, {size}"
    yield (
        f"model: {describe_bytes(model)}, {model['mapping']} space of {model['components']} "
        f"dimensions; images of {model['image_features']:,} and texts of {model['text_features']:,} "
        f"features; learned from {model['training_pairs']:,} pairs; "
        f"{'calibrated' if model['calibrated'] else 'not calibrated'}"
    )
    if document["kind"] == "index":
        yield from _format_index(document)
    else:
        yield f"it has {_count_codes(model['codes'])} for a document with both an image and a text"


def _format_index(document: dict[str, Any]) -> Iterator[str | Table]:
    items = document["items"]
    alone = [
        f"; {document['codings'][side]:,} with {name} alone"
        for side, name in (("image", "an image"), ("text", "a text"))
        if document["codings"].get(side)
    ]
    yield (
        f"documents: {document['documents']:,} ({items['image']:,} images, {items['text']:,} texts"
        f"{''.join(alone)}), {document['deleted']:,} deleted ones still in the file; generation "
        f"{document['generation']}"
    )
    codings = ", ".join(f"{count:,} {coding}" for coding, count in document["codings"].items() if count)
    yield f"coded as: {codings or 'nothing yet'}"
    codes = _count_codes(document["codes"])
    yield f"format {document['format']}: {codes} for a new document with both an image and a text"
    fields = ", ".join(f"{name} ({'/'.join(types)})" for name, types in document["fields"].items())
    yield f"payload fields: {fields or 'none'}"
    words = document["words"]
    searched = "none, vectors alone" if words is None else f"of {', '.join(words['fields'])}"
    yield f"words that are searched: {searched}"
    yield ""
    if words is not None:
        for section in describe_words(words["measured"]):
            yield from (section, "")
    if "shards" in document:
        shards = [
            [each["name"], f"{each['documents']:,}", readable_bytes(each["disk"])]
            for each in document["shards"]
        ]
        yield Table(("shard", "documents>", "bytes>"), shards)
        yield ""
    yield Table(("where", "part", "bytes>", "per item>"), list(_list_sizes(document)))


def _count_codes(codes: str) -> str:
    return "one code" if codes == "document" else "two codes"


def _list_sizes(document: dict[str, Any]) -> Iterator[list[str]]:
    for where in ("disk", "memory"):
        for part, n_bytes in document[where]["bytes"].items():
            per_item = document[where]["per_item"][part]
            yield [where, part, readable_bytes(n_bytes), f"{per_item:,.2f}"]
