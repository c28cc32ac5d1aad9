"""Define the options that several commands have, so that they are called and described alike."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Side(StrEnum):
    """One side of the documents."""

    IMAGE = "image"
    TEXT = "text"


class Sides(StrEnum):
    """One side of the documents, or both."""

    BOTH = "both"
    IMAGE = "image"
    TEXT = "text"


class SearchTarget(StrEnum):
    """What a search looks for."""

    IMAGE = "image"
    TEXT = "text"
    DOCUMENT = "document"


class Codes(StrEnum):
    """What a document with both an image and a text gets: one code, or one for each side."""

    DOCUMENT = "document"
    SIDES = "sides"


class Mapping(StrEnum):
    """Common spaces."""

    AUTO = "auto"
    CCA = "cca"
    CONTRASTIVE = "contrastive"
    JOINT = "joint"
    SPARSE = "sparse"


AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Jobs = Annotated[int | None, typer.Option("--jobs", help="Threads; all cores if not given.")]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="local|ADDRESS",
        help="Work on Ray, started here or at an address: docs/cluster.md.",
    ),
]
DocumentCodes = Annotated[
    Codes | None,
    typer.Option(
        "--codes",
        help="One code for a document with both halves, or one for each; default: what the model has.",
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that are there already.")]
IndexPath = Annotated[Path, typer.Argument(metavar="INDEX", help="An index file.")]

# Documents
Data = Annotated[
    Path | None,
    typer.Argument(
        metavar="DATA",
        help="A folder of pictures with captions, or a dataset of features: docs/files.md.",
    ),
]
Split = Annotated[str | None, typer.Option("--split", help="Which split of DATA, such as train or query.")]
ImageFile = Annotated[
    str | None, typer.Option("--images", metavar="FILE[:KEY]", help="Image features, instead of DATA.")
]
TextFile = Annotated[
    str | None, typer.Option("--texts", metavar="FILE[:KEY]", help="Text features, instead of DATA.")
]
PayloadFile = Annotated[
    Path | None,
    typer.Option("--payloads", metavar="FILE", help="A payload per row: .csv, .jsonl or .parquet."),
]
Ids = Annotated[
    str | None,
    typer.Option(
        "--ids", metavar="COLUMN|FILE", help="Payload column with the ids, or a file of an id per line."
    ),
]
GroupColumn = Annotated[
    str | None, typer.Option("--groups", metavar="COLUMN", help="Payload column with the groups.")
]

# Pictures and texts themselves
Encoders = Annotated[
    list[str] | None,
    typer.Option(
        "--encoder",
        metavar="ENCODER",
        help="A name of `encoders list`, a CLIP folder or a .onnx file; may be repeated.",
    ),
]
ImageEncoder = Annotated[
    str | None,
    typer.Option("--image-encoder", metavar="ENCODER", help="What makes features of pictures."),
]
TextEncoder = Annotated[
    str | None,
    typer.Option("--text-encoder", metavar="ENCODER", help="What makes features of texts."),
]
ImageColumn = Annotated[
    str | None, typer.Option("--image-column", metavar="COLUMN", help="The column that names the pictures.")
]
TextColumns = Annotated[
    list[str] | None,
    typer.Option("--text-column", metavar="COLUMN", help="A column of captions; may be repeated."),
]
IdColumn = Annotated[
    str | None, typer.Option("--id-column", metavar="COLUMN", help="The column with the ids.")
]
Thumbnails = Annotated[
    bool, typer.Option("--thumbnails/--no-thumbnails", help="Keep small pictures beside the index.")
]

# Queries
QueryWords = Annotated[str | None, typer.Option("--text", metavar="WORDS", help="Ask with words.")]
QueryPicture = Annotated[Path | None, typer.Option("--image", metavar="FILE", help="Ask with a picture.")]
QueryTexts = Annotated[
    str | None, typer.Option("--texts", metavar="FILE[:KEY]", help="Text features to ask with.")
]
QueryImages = Annotated[
    str | None, typer.Option("--images", metavar="FILE[:KEY]", help="Image features to ask with.")
]
Like = Annotated[
    list[str] | None, typer.Option("--like", metavar="ID", help="A document to ask with; may be repeated.")
]
Row = Annotated[int | None, typer.Option("--row", min=0, help="Ask with this one row of the file (from 0).")]
Target = Annotated[
    SearchTarget | None,
    typer.Option(
        "--target", help="What is searched; if not given, the other side of the query, or that of --like."
    ),
]
Vocabulary = Annotated[
    Path | None,
    typer.Option(
        "--vocabulary", metavar="FILE", help="Names of the text features: a line each, or a dataset."
    ),
]
