"""Read one JSON file of captions: COCO's form (images and annotations), Karpathy's splits, or rows.

==================================================================  =======================================
file                                                                captions of a picture
==================================================================  =======================================
``{"images": […], "annotations": [{"image_id", "caption"}, …]}``    the annotations of its id
``{"images": [{"filename", "sentences": [{"raw"}, …]}, …]}``        its sentences
``[{"image": …, "caption": …}, …]``                                 as in JSON lines
``{"a.jpg": "caption", "b.jpg": ["one", "two"]}``                   the text or texts beside its name
==================================================================  =======================================
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from crossbyte.data.captions.raw_documents import DocumentBuilder
from crossbyte.data.captions.scan import PictureFinder, is_picture
from crossbyte.data.captions.tables import Table, parse_captions, skip_if_no_text
from crossbyte.data.safe_open import Limits, open_regular
from crossbyte.data.tables import parse_object, read_lines
from crossbyte.errors import DataFileError

_NAMES = ("file_name", "filename", "image", "path")
_DROPPED = (*_NAMES, "id", "imgid", "sentids", "sentences", "captions")


def looks_like_coco(path: Path) -> bool:
    """Tell whether the beginning of a file mentions images or annotations."""
    try:
        with open_regular(path) as opened:
            start = opened.file.read(2**16)
    except (DataFileError, OSError):
        return False
    return b'"images"' in start or b'"annotations"' in start


def read_captions_json(path: Path, limits: Limits) -> dict[str, Any]:
    """Read the file; a list of rows comes back as ``{"rows": […]}``."""
    whole = limits._replace(line_bytes=limits.text_bytes)  # COCO's own files have one line
    with open_regular(path) as opened:
        text = "".join(read_lines(opened, whole))
    return parse_object(f'{{"rows":{text}}}' if text.lstrip().startswith("[") else text, 1, limits.depth)


def is_coco(content: dict[str, Any]) -> bool:
    """Tell whether there is a list of images."""
    return isinstance(content.get("images"), list)


def find_rows(content: dict[str, Any], title: str) -> Table | None:
    """Return the table that a file of another form holds, or None."""
    rows = content.get("rows")
    if isinstance(rows, list):
        found = [(number, row) for number, row in enumerate(rows, start=1) if isinstance(row, dict)]
    else:
        named = [(name, value) for name, value in content.items() if is_picture(name)]
        found = [
            (number, {"image": name, **(value if isinstance(value, dict) else {"caption": value})})
            for number, (name, value) in enumerate(named, start=1)
        ]
    names = list(dict.fromkeys(name for _, row in found for name in row))
    return Table(names, found, [], is_text=False) if found else None


def gather_coco(builder: DocumentBuilder, finder: PictureFinder, content: dict[str, Any], title: str) -> None:
    """Gather the images of a file with their captions, and the names of their categories."""
    captions, categories = _group_annotations(builder, content, title)
    known = set()
    for number, image in enumerate(content["images"]):
        where = f"{title}, image {number}"
        if not isinstance(image, dict):
            builder.skip(where, f"expected a JSON object, got {type(image).__name__}")
            continue
        known.add(_image_key(image.get("id")))
        _gather_image(builder, finder, where, image, captions, categories)
    for key in captions.keys() - known:
        builder.skip(
            f"{title}, image id {key}", f"{len(captions[key])} captions of an image that is not listed"
        )


def _gather_image(
    builder: DocumentBuilder,
    finder: PictureFinder,
    where: str,
    image: dict[str, Any],
    captions: dict[str, list[str]],
    categories: dict[str, list[str]],
) -> None:
    written = next((image[name] for name in _NAMES if isinstance(image.get(name), str)), None)
    found = None if written is None else finder.find(_join_folder(image, written))
    if found is None or found.name is None:
        reason = "no file_name" if found is None else f"{str(written)[:200]!r}: {found.reason}"
        builder.skip(where, reason)
        return
    key = _image_key(image.get("id"))
    texts = [*captions.get(key, []), *_image_captions(image)]
    payload = {
        name: value for name, value in image.items() if name not in _DROPPED and value not in (None, "")
    }
    if key in categories:
        payload["categories"] = list(dict.fromkeys(categories[key]))
    builder.add(where, found.name, texts, payload)


def _join_folder(image: dict[str, Any], written: str) -> str:
    folder = image.get("filepath")  # Karpathy's name of the folder
    return f"{folder}/{written}" if isinstance(folder, str) and "/" not in written else written


def _image_captions(image: dict[str, Any]) -> list[str]:
    sentences = image.get("sentences", image.get("captions"))
    if not isinstance(sentences, list):
        return parse_captions(sentences)
    return [
        text
        for one in sentences
        for text in parse_captions(one.get("raw", one.get("caption")) if isinstance(one, dict) else one)
    ]


def _group_annotations(
    builder: DocumentBuilder, content: dict[str, Any], title: str
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return captions and names of categories by the image's id."""
    captions: dict[str, list[str]] = defaultdict(list)
    categories: dict[str, list[str]] = defaultdict(list)
    names = _category_names(content)
    listed = content.get("annotations", [])
    for number, annotation in enumerate(listed if isinstance(listed, list) else []):
        where = f"{title}, annotation {number}"
        if not isinstance(annotation, dict) or "image_id" not in annotation:
            builder.skip(where, "expected a JSON object with image_id")
            continue
        key = _image_key(annotation["image_id"])
        texts = parse_captions(annotation.get("caption"))
        captions[key] += texts
        skip_if_no_text(builder, where, annotation.get("caption"))
        if (category := names.get(_image_key(annotation.get("category_id")))) is not None:
            categories[key].append(category)
    return {key: texts for key, texts in captions.items() if texts}, categories


def _category_names(content: dict[str, Any]) -> dict[str, str]:
    listed = content.get("categories", [])
    return {
        _image_key(one.get("id")): one["name"]
        for one in (listed if isinstance(listed, list) else [])
        if isinstance(one, dict) and isinstance(one.get("name"), str)
    }


def _image_key(id: Any) -> str:
    return repr(id)[:80]  # 1 and "1" differ, and no list can be a key
