"""Read captions from files beside each picture: NAME.txt, and img2dataset's NAME.json."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from crossbyte.data.captions.raw_documents import DocumentBuilder
from crossbyte.data.captions.scan import FolderScan
from crossbyte.data.captions.tables import parse_captions
from crossbyte.data.safe_open import Limits, open_regular
from crossbyte.data.tables import parse_object, read_lines
from crossbyte.errors import DataFileError

T = TypeVar("T")

_MAX_BESIDE = 2**20  # bytes of a text or description beside one picture


def gather_sidecars(scan: FolderScan, limits: Limits) -> tuple[DocumentBuilder, str]:
    """Take every picture with what lies beside it; returns the form too."""
    gathering = DocumentBuilder(scan)
    small = limits._replace(text_bytes=min(limits.text_bytes, _MAX_BESIDE))
    beside = {name.casefold(): name for name in scan.others}
    used: set[str] = set()
    for picture in scan.pictures:
        texts, described = _sidecar_of(beside, picture, ".txt"), _sidecar_of(beside, picture, ".json")
        used.update(name for name in (texts, described) if name)
        _gather_picture(gathering, scan, picture, texts, described, small)
    _skip_unused(gathering, scan, used)
    return gathering, _name_form(used)


def _sidecar_of(beside: dict[str, str], picture: str, ending: str) -> str | None:
    stem = picture.rpartition(".")[0].casefold()
    return beside.get(stem + ending) or beside.get(picture.casefold() + ending)


def _name_form(used: set[str]) -> str:
    if any(name.lower().endswith(".json") for name in used):
        return "img2dataset"
    return "sidecar" if used else "images"


def _gather_picture(
    gathering: DocumentBuilder,
    scan: FolderScan,
    picture: str,
    texts: str | None,
    described: str | None,
    limits: Limits,
) -> None:
    payload: dict[str, Any] = _try_read(gathering, scan, described, _read_object, limits) or {}
    captions = parse_captions(payload.pop("caption", None))
    if texts is not None and not captions:
        read = _try_read(gathering, scan, texts, _read_captions, limits)
        captions = read or []
        if read == []:
            gathering.skip(texts, "no caption in it; the picture is kept without a text")
    payload = {name: value for name, value in payload.items() if value not in (None, "")}
    gathering.add(picture, picture, captions, payload)


def _try_read(
    gathering: DocumentBuilder,
    scan: FolderScan,
    name: str | None,
    read: Callable[[Path, Limits], T],
    limits: Limits,
) -> T | None:
    """Read a file beside a picture, or list it; the picture stays."""
    try:
        return None if name is None else read(scan.others[name], limits)
    except (DataFileError, OSError) as error:
        gathering.skip(str(name), f"{error}; the picture is kept without it")
        return None


def _read_captions(path: Path, limits: Limits) -> list[str]:
    with open_regular(path) as opened:
        return [text for line in read_lines(opened, limits) for text in parse_captions(line)]


def _read_object(path: Path, limits: Limits) -> dict[str, Any]:
    """Read a file that is one JSON object, on however many lines."""
    with open_regular(path) as opened:
        return parse_object("".join(read_lines(opened, limits)), 1, limits.depth)


def _skip_unused(gathering: DocumentBuilder, scan: FolderScan, used: set[str]) -> None:
    for name in scan.others:
        if name.lower().endswith(".txt") and name not in used:
            gathering.skip(name, "no picture of this name beside it")
