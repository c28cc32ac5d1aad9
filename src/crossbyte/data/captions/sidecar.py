"""Read captions from files beside each picture: NAME.txt, and img2dataset's NAME.json."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar

from crossbyte.data.captions.raw_documents import DocumentBuilder
from crossbyte.data.captions.scan import FolderScan
from crossbyte.data.captions.tables import parse_captions
from crossbyte.data.safe_open import Limits, open_regular
from crossbyte.data.tables import parse_object, read_lines
from crossbyte.errors import DataFileError

T = TypeVar("T")

_MAX_SIDECAR_BYTES = 2**20  # of one text or description


def gather_sidecars(
    builder: DocumentBuilder, scan: FolderScan, limits: Limits, tables: Collection[str] = ()
) -> set[str]:
    """Gather every picture that is in no document yet, with the captions of the files beside it, or none.

    Parameters
    ----------
    builder : DocumentBuilder
    scan : FolderScan
    limits : Limits
    tables : collection of str
        Names of files that were read as tables of captions, and belong to no single picture.

    Returns
    -------
    set of str
        The names of the files that were found beside pictures.
    """
    small = limits._replace(text_bytes=min(limits.text_bytes, _MAX_SIDECAR_BYTES))
    sidecars = {name.casefold(): name for name in scan.others if name not in tables}
    used: set[str] = set()
    known = builder.used_pictures
    for picture in scan.pictures:
        if picture in known:
            continue
        texts, described = _find_sidecar(sidecars, picture, ".txt"), _find_sidecar(sidecars, picture, ".json")
        used.update(name for name in (texts, described) if name)
        _gather_picture(builder, scan, picture, texts, described, small)
    return used


def _find_sidecar(sidecars: dict[str, str], picture: str, ending: str) -> str | None:
    stem = picture.rpartition(".")[0].casefold()
    return sidecars.get(stem + ending) or sidecars.get(picture.casefold() + ending)


def name_form(used: set[str]) -> str:
    """Name the form of a folder without a table, by the files beside its pictures."""
    if any(name.lower().endswith(".json") for name in used):
        return "img2dataset"
    return "sidecar" if used else "images"


def _gather_picture(
    builder: DocumentBuilder,
    scan: FolderScan,
    picture: str,
    texts: str | None,
    described: str | None,
    limits: Limits,
) -> None:
    payload: dict[str, Any] = _try_read(builder, scan, described, _read_object, limits) or {}
    captions = parse_captions(payload.pop("caption", None))
    if texts is not None and not captions:
        captions = _try_read(builder, scan, texts, _read_captions, limits) or []
    payload = {name: value for name, value in payload.items() if value not in (None, "")}
    builder.add(picture, picture, captions, payload)


def _try_read(
    builder: DocumentBuilder,
    scan: FolderScan,
    name: str | None,
    read: Callable[[Path, Limits], T],
    limits: Limits,
) -> T | None:
    """Read a file beside a picture, or list it; the picture stays."""
    try:
        return None if name is None else read(scan.others[name], limits)
    except (DataFileError, OSError) as error:
        builder.skip(str(name), f"{error}; the picture is kept without it")
        return None


def _read_captions(path: Path, limits: Limits) -> list[str]:
    with open_regular(path) as opened:
        return [text for line in read_lines(opened, limits) for text in parse_captions(line)]


def _read_object(path: Path, limits: Limits) -> dict[str, Any]:
    """Read a file that is one JSON object, on however many lines."""
    with open_regular(path) as opened:
        return parse_object("".join(read_lines(opened, limits)), 1, limits.depth)


def skip_unused(builder: DocumentBuilder, scan: FolderScan, used: set[str]) -> None:
    """List the text files that lie beside no picture."""
    for name in scan.others:
        if name.lower().endswith(".txt") and name not in used:
            builder.skip(name, "no picture of this name beside it")
