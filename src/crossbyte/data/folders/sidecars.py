"""Documents from files beside each picture: captions in NAME.txt, and img2dataset's NAME.json."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from crossbyte.data.files.jsonl import parse_object
from crossbyte.data.files.limits import Limits
from crossbyte.data.files.lines import read_lines
from crossbyte.data.files.opening import open_regular
from crossbyte.data.folders.from_tables import captions_in
from crossbyte.data.folders.gathering import Gathering
from crossbyte.data.folders.scanning import Scan
from crossbyte.errors import DataFileError

__all__ = ["gather_beside"]

T = TypeVar("T")

_MAX_BESIDE = 2**20  # bytes of a text or description beside one picture


def gather_beside(scan: Scan, limits: Limits) -> tuple[Gathering, str]:
    """Take every picture with what lies beside it; returns the form too."""
    gathering = Gathering(scan)
    small = limits._replace(text_bytes=min(limits.text_bytes, _MAX_BESIDE))
    beside = {name.casefold(): name for name in scan.others}
    used: set[str] = set()
    for picture in scan.pictures:
        texts, described = _beside(beside, picture, ".txt"), _beside(beside, picture, ".json")
        used.update(name for name in (texts, described) if name)
        _gather(gathering, scan, picture, texts, described, small)
    _list_alone(gathering, scan, used)
    return gathering, _form(used)


def _beside(beside: dict[str, str], picture: str, ending: str) -> str | None:
    stem = picture.rpartition(".")[0].casefold()
    return beside.get(stem + ending) or beside.get(picture.casefold() + ending)


def _form(used: set[str]) -> str:
    if any(name.lower().endswith(".json") for name in used):
        return "img2dataset"
    return "sidecar" if used else "images"


def _gather(
    gathering: Gathering,
    scan: Scan,
    picture: str,
    texts: str | None,
    described: str | None,
    limits: Limits,
) -> None:
    payload: dict[str, Any] = _tried(gathering, scan, described, _object, limits) or {}
    captions = captions_in(payload.pop("caption", None))
    if texts is not None and not captions:
        read = _tried(gathering, scan, texts, _lines, limits)
        captions = read or []
        if read == []:
            gathering.skip(texts, "no caption in it; the picture is kept without a text")
    payload = {name: value for name, value in payload.items() if value not in (None, "")}
    gathering.add(picture, picture, captions, payload)


def _tried(
    gathering: Gathering, scan: Scan, name: str | None, read: Callable[[Path, Limits], T], limits: Limits
) -> T | None:
    """Read a file beside a picture, or list it; the picture stays."""
    try:
        return None if name is None else read(scan.others[name], limits)
    except (DataFileError, OSError) as error:
        gathering.skip(str(name), f"{error}; the picture is kept without it")
        return None


def _lines(path: Path, limits: Limits) -> list[str]:
    with open_regular(path) as opened:
        return [text for line in read_lines(opened, limits) for text in captions_in(line)]


def _object(path: Path, limits: Limits) -> dict[str, Any]:
    """Read a file that is one JSON object, on however many lines."""
    with open_regular(path) as opened:
        return parse_object("".join(read_lines(opened, limits)), 1, limits.depth)


def _list_alone(gathering: Gathering, scan: Scan, used: set[str]) -> None:
    for name in scan.others:
        if name.lower().endswith(".txt") and name not in used:
            gathering.skip(name, "no picture of this name beside it")
