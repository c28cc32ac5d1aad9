"""List the files of a folder, and find the pictures that tables name, never outside of the folder."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from unicodedata import is_normalized, normalize

from crossbyte.data.captions.raw_documents import Skipped
from crossbyte.data.images.formats import EXTENSIONS
from crossbyte.data.safe_open import Limits
from crossbyte.errors import DataFileError

# What systems and programs put beside pictures; hidden files are ignored as well.
_CLUTTER = frozenset(
    [
        "__macosx",
        "thumbs.db",
        "desktop.ini",
        "@eadir",
        "#recycle",
        "$recycle.bin",
        "system volume information",
    ]
)
_OTHER_PICTURES = (
    *(".tif", ".tiff", ".heic", ".heif", ".avif", ".jxl", ".jp2", ".svg", ".psd", ".ico"),
    *(".raw", ".cr2", ".cr3", ".nef", ".arw", ".dng"),
)


@dataclass
class FolderScan:
    """The files of a folder and of those inside it, by relative name: with ``/``, composed (NFC), sorted.

    Attributes
    ----------
    root : Path
    pictures : dict of str to Path
    others : dict of str to Path
        Regular files that are no pictures.
    skipped : list of Skipped
        Links that lead out or nowhere, pictures of kinds that are not read, folders that cannot be listed.
    """

    root: Path
    pictures: dict[str, Path] = field(default_factory=dict)
    others: dict[str, Path] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)


def is_picture(name: str) -> bool:
    """Tell by its name whether a file is a picture that can be read."""
    return name.lower().endswith(EXTENSIONS)


def names_picture(value: str) -> bool:
    """Tell whether a value may name a picture; Flickr8k writes NAME.jpg#0 for the first caption."""
    return is_picture(value.strip()) or is_picture(value.strip().partition("#")[0])


def picture_kinds() -> str:
    """Return the endings of pictures, for messages."""
    return ", ".join(EXTENSIONS)


def scan_folder(root: Path, limits: Limits) -> FolderScan:
    """List a folder and those inside it; links to folders are not followed, so nothing is seen twice.

    Raises
    ------
    DataFileError
        More files than ``limits.rows``.
    """
    scan = FolderScan(root)
    inside = os.path.realpath(root)
    for entry, relative in _iterate_files(scan, inside):
        _classify_entry(scan, entry, relative, inside)
        if len(scan.pictures) + len(scan.others) > limits.rows:
            raise DataFileError(f"expected at most {limits.rows} files, got more; split the folder")
    scan.pictures = dict(sorted(scan.pictures.items()))
    scan.others = dict(sorted(scan.others.items()))
    return scan


def _iterate_files(scan: FolderScan, inside: str) -> Iterator[tuple[os.DirEntry[str], str]]:
    """Yield everything that is no folder, with its relative name as it is on the disk."""
    folders = [""]
    while folders:
        folder = folders.pop()
        for entry in _list_folder(scan, folder):
            relative = f"{folder}/{entry.name}" if folder else entry.name
            if entry.name.startswith(".") or entry.name.lower() in _CLUTTER:
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(relative)
            elif entry.is_symlink() and os.path.isdir(entry.path):
                _refuse_link(scan, entry.path, relative, inside)
            else:
                yield entry, relative


def _list_folder(scan: FolderScan, folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(scan.root / folder) as entries:
            # Composed names first, so that these keep their names.
            return sorted(entries, key=lambda entry: (not is_normalized("NFC", entry.name), entry.name))
    except OSError as error:
        if not folder:
            raise
        scan.skipped.append(Skipped(normalize_name(folder), f"cannot be looked into ({error.strerror})"))
        return []


def _classify_entry(scan: FolderScan, entry: os.DirEntry[str], relative: str, inside: str) -> None:
    name = normalize_name(relative)
    if is_picture(relative):
        reason = _reason_to_skip(entry, relative, inside)
        if reason:
            scan.skipped.append(Skipped(name, reason))
        else:
            _keep_picture(scan, name, relative, Path(entry.path))
    elif relative.lower().endswith(_OTHER_PICTURES):
        reason = f"a kind of picture that is not read; convert it to one of {picture_kinds()}"
        scan.skipped.append(Skipped(name, reason))
    elif not _reason_to_skip(entry, relative, inside):
        scan.others[name] = Path(entry.path)


def _keep_picture(scan: FolderScan, name: str, relative: str, path: Path) -> None:
    """Keep a picture; another may have the same name but for how its accents are composed."""
    free = next((key for key in (name, relative) if key not in scan.pictures), None)
    if free is None:
        scan.skipped.append(Skipped(name, "another picture has this name, composed otherwise; rename it"))
    else:
        scan.pictures[free] = path


def _reason_to_skip(entry: os.DirEntry[str], relative: str, inside: str) -> str:
    if not _is_unicode(relative):
        return "its name is no valid Unicode; rename it"
    if entry.is_symlink():
        return _reason_to_skip_link(entry.path, inside)
    return "" if entry.is_file() else "no regular file"


def _reason_to_skip_link(path: str, inside: str) -> str:
    target = os.path.realpath(path)
    if not _is_inside(target, inside):
        return "a link that leads out of the folder, which is not followed; copy the file"
    return "" if os.path.isfile(target) else "a link that leads nowhere"


def _refuse_link(scan: FolderScan, path: str, relative: str, inside: str) -> None:
    out = not _is_inside(os.path.realpath(path), inside)
    reason = "a link that leads out of the folder" if out else "a link to a folder that is inside already"
    scan.skipped.append(Skipped(normalize_name(relative), f"{reason}, which is not followed"))


def _is_inside(target: str, folder: str) -> bool:
    return target == folder or target.startswith(folder.rstrip(os.sep) + os.sep)


def _is_unicode(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def normalize_name(relative: str) -> str:
    """Normalise a name for messages and ids: composed (NFC) and with ``/``, whatever bytes the disk has."""
    valid = relative.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return normalize("NFC", valid.replace(os.sep, "/"))


_ADDRESS = re.compile(r"(?:[a-z][a-z0-9+.-]*://|data:|www\.)", re.I)
_DRIVE = re.compile(r"[A-Za-z]:")
_CAPTION_NUMBER = re.compile(r"#\d+$")  # Flickr8k calls the captions of a picture NAME.jpg#0, NAME.jpg#1, …


class FoundPicture(NamedTuple):
    """A picture's relative name, or why there is none."""

    name: str | None
    reason: str = ""


class PictureFinder:
    """Find pictures of a folder by the names people write: with or without folder or ending, in any case."""

    def __init__(self, scan: FolderScan) -> None:
        self._pictures = scan.pictures
        self._refused = {skipped.name: skipped.reason for skipped in scan.skipped}
        self._others = scan.others
        self._by_last: dict[str, list[str]] = defaultdict(list)
        for name in scan.pictures:
            for key in {name, name.rpartition(".")[0]}:
                self._by_last[_base_name(key.casefold())].append(name)

    def find(self, written: str, folder: str = "") -> FoundPicture:
        """Find a picture.

        Parameters
        ----------
        written : str
        folder : str
            The relative name of the folder that the table lies in; searched first.
        """
        if not folder and written in self._pictures:  # the usual case, and it is in the folder
            return FoundPicture(written)
        title = normalize("NFC", written.strip().replace("\\", "/"))
        if _ADDRESS.match(title):
            return FoundPicture(
                None, "an address, and nothing is fetched; download the picture into the folder"
            )
        if title.startswith(("/", "~")) or _DRIVE.match(title) or ".." in title.split("/"):
            return FoundPicture(None, "leads out of the folder; write names relative to it")
        title = "/".join(part for part in title.split("/") if part not in ("", "."))
        for name in _candidate_names(title, folder):
            if name in self._pictures:
                return FoundPicture(name)
        return self._find_by_suffix(_CAPTION_NUMBER.sub("", title))

    def _find_by_suffix(self, title: str) -> FoundPicture:
        wanted = title.casefold()
        near = [name for name in self._by_last.get(_base_name(wanted), []) if _has_suffix(name, wanted)]
        whole = [name for name in near if _strip_extension(name) == wanted or name.casefold() == wanted]
        found = near if len(near) == 1 else whole
        if len(found) == 1:
            return FoundPicture(found[0])
        if near:
            return FoundPicture(
                None, f"meant may be {near[0]!r} or {near[1]!r}; write the name with its folder"
            )
        return FoundPicture(None, self._explain_missing(title))

    def _explain_missing(self, title: str) -> str:
        if title in self._refused:
            return self._refused[title]
        if title in self._others and not is_picture(title):
            return f"expected a picture that ends in {picture_kinds()}"
        return "no such picture in the folder" if title else "no picture is named"


def _candidate_names(title: str, folder: str) -> list[str]:
    plain = [title, _CAPTION_NUMBER.sub("", title)]
    return [f"{folder}/{name}" for name in plain] + plain if folder else plain


def _base_name(name: str) -> str:
    return name.rpartition("/")[2]


def _strip_extension(name: str) -> str:
    return name.rpartition(".")[0].casefold()


def _has_suffix(name: str, wanted: str) -> bool:
    return any(
        key == wanted or key.endswith(f"/{wanted}") for key in (name.casefold(), _strip_extension(name))
    )
