"""Which picture a table means by a name; nothing but what the scan of the folder found is ever given."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import NamedTuple
from unicodedata import normalize

from crossbyte.data.folders.scanning import Scan, is_picture, picture_kinds

__all__ = ["Finder", "Found"]

_ADDRESS = re.compile(r"(?:[a-z][a-z0-9+.-]*://|data:|www\.)", re.I)
_DRIVE = re.compile(r"[A-Za-z]:")
_CAPTION_NUMBER = re.compile(r"#\d+$")  # Flickr8k calls the captions of a picture NAME.jpg#0, NAME.jpg#1, …


class Found(NamedTuple):
    """A picture's relative name, or why there is none."""

    name: str | None
    reason: str = ""


class Finder:
    """Finds pictures of a folder by what people write: with or without folder or ending, in any case."""

    def __init__(self, scan: Scan) -> None:
        self._pictures = scan.pictures
        self._refused = {skipped.name: skipped.reason for skipped in scan.skipped}
        self._others = scan.others
        self._by_last: dict[str, list[str]] = defaultdict(list)
        for name in scan.pictures:
            for key in {name, name.rpartition(".")[0]}:
                self._by_last[_last(key.casefold())].append(name)

    def find(self, written: str, folder: str = "") -> Found:
        """Find a picture.

        Parameters
        ----------
        written : str
        folder : str
            The relative name of the folder that the table lies in; looked into first.
        """
        if not folder and written in self._pictures:  # the usual case, and it is in the folder
            return Found(written)
        asked = normalize("NFC", written.strip().replace("\\", "/"))
        if _ADDRESS.match(asked):
            return Found(None, "an address, and nothing is fetched; download the picture into the folder")
        if asked.startswith(("/", "~")) or _DRIVE.match(asked) or ".." in asked.split("/"):
            return Found(None, "leads out of the folder; write names relative to it")
        asked = "/".join(part for part in asked.split("/") if part not in ("", "."))
        for name in _readings(asked, folder):
            if name in self._pictures:
                return Found(name)
        return self._by_parts(_CAPTION_NUMBER.sub("", asked))

    def _by_parts(self, asked: str) -> Found:
        wanted = asked.casefold()
        near = [name for name in self._by_last.get(_last(wanted), []) if _ends_in(name, wanted)]
        whole = [name for name in near if _without_ending(name) == wanted or name.casefold() == wanted]
        found = near if len(near) == 1 else whole
        if len(found) == 1:
            return Found(found[0])
        if near:
            return Found(None, f"meant may be {near[0]!r} or {near[1]!r}; write the name with its folder")
        return Found(None, self._why_missing(asked))

    def _why_missing(self, asked: str) -> str:
        if asked in self._refused:
            return self._refused[asked]
        if asked in self._others and not is_picture(asked):
            return f"expected a picture that ends in {picture_kinds()}"
        return "no such picture in the folder" if asked else "no picture is named"


def _readings(asked: str, folder: str) -> list[str]:
    plain = [asked, _CAPTION_NUMBER.sub("", asked)]
    return [f"{folder}/{name}" for name in plain] + plain if folder else plain


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _without_ending(name: str) -> str:
    return name.rpartition(".")[0].casefold()


def _ends_in(name: str, wanted: str) -> bool:
    return any(
        key == wanted or key.endswith(f"/{wanted}") for key in (name.casefold(), _without_ending(name))
    )
