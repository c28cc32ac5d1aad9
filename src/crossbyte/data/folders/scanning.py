"""Which files a folder holds: pictures and others, none of them outside of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unicodedata import is_normalized, normalize

from crossbyte.data.files.limits import Limits
from crossbyte.data.folders.documents import Skipped
from crossbyte.data.pictures.picture import EXTENSIONS
from crossbyte.errors import DataFileError

__all__ = ["Scan", "is_picture", "names_picture", "picture_kinds", "scan_folder", "shown_name"]

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
class Scan:
    """The files of a folder and of those inside it, by relative name: with ``/``, composed (NFC), sorted.

    Attributes
    ----------
    root : Path
    pictures : dict of str to Path
    others : dict of str to Path
        Regular files that are no pictures.
    skipped : list of Skipped
        Links that lead out or nowhere, pictures of kinds that are not read, what cannot be looked into.
    """

    root: Path
    pictures: dict[str, Path] = field(default_factory=dict)
    others: dict[str, Path] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)


def is_picture(name: str) -> bool:
    """Whether a file is called like a picture that can be read."""
    return name.lower().endswith(EXTENSIONS)


def names_picture(value: str) -> bool:
    """Whether a table may mean a picture by this; Flickr8k writes NAME.jpg#0 for the first caption."""
    return is_picture(value.strip()) or is_picture(value.strip().partition("#")[0])


def picture_kinds() -> str:
    """Return the endings of pictures, for messages."""
    return ", ".join(EXTENSIONS)


def scan_folder(root: Path, limits: Limits) -> Scan:
    """List a folder and those inside it; links to folders are not followed, so nothing is seen twice.

    Raises
    ------
    DataFileError
        More files than ``limits.rows``.
    """
    scan = Scan(root)
    inside = os.path.realpath(root)
    for entry, relative in _entries(scan, inside):
        _sort_in(scan, entry, relative, inside)
        if len(scan.pictures) + len(scan.others) > limits.rows:
            raise DataFileError(f"expected at most {limits.rows} files, got more; split the folder")
    scan.pictures = dict(sorted(scan.pictures.items()))
    scan.others = dict(sorted(scan.others.items()))
    return scan


def _entries(scan: Scan, inside: str) -> Iterator[tuple[os.DirEntry[str], str]]:
    """Yield everything that is no folder, with its relative name as it is on the disk."""
    folders = [""]
    while folders:
        folder = folders.pop()
        for entry in _listed(scan, folder):
            relative = f"{folder}/{entry.name}" if folder else entry.name
            if entry.name.startswith(".") or entry.name.lower() in _CLUTTER:
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(relative)
            elif entry.is_symlink() and os.path.isdir(entry.path):
                _refuse_link(scan, entry.path, relative, inside)
            else:
                yield entry, relative


def _listed(scan: Scan, folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(scan.root / folder) as entries:
            # composed names first, so that they are called as they are
            return sorted(entries, key=lambda entry: (not is_normalized("NFC", entry.name), entry.name))
    except OSError as error:
        if not folder:
            raise
        scan.skipped.append(Skipped(shown_name(folder), f"cannot be looked into ({error.strerror})"))
        return []


def _sort_in(scan: Scan, entry: os.DirEntry[str], relative: str, inside: str) -> None:
    name = shown_name(relative)
    if is_picture(relative):
        reason = _why_not(entry, relative, inside)
        if reason:
            scan.skipped.append(Skipped(name, reason))
        else:
            _keep(scan, name, relative, Path(entry.path))
    elif relative.lower().endswith(_OTHER_PICTURES):
        reason = f"a kind of picture that is not read; convert it to one of {picture_kinds()}"
        scan.skipped.append(Skipped(name, reason))
    elif not _why_not(entry, relative, inside):
        scan.others[name] = Path(entry.path)


def _keep(scan: Scan, name: str, relative: str, path: Path) -> None:
    """Take a picture; another may differ from it in how its accents are composed and in nothing else."""
    free = next((key for key in (name, relative) if key not in scan.pictures), None)
    if free is None:
        scan.skipped.append(Skipped(name, "another picture has this name, composed otherwise; rename it"))
    else:
        scan.pictures[free] = path


def _why_not(entry: os.DirEntry[str], relative: str, inside: str) -> str:
    if not _is_unicode(relative):
        return "its name is no valid Unicode; rename it"
    if entry.is_symlink():
        return _why_not_link(entry.path, inside)
    return "" if entry.is_file() else "no regular file"


def _why_not_link(path: str, inside: str) -> str:
    target = os.path.realpath(path)
    if not _is_inside(target, inside):
        return "a link that leads out of the folder, which is not followed; copy the file"
    return "" if os.path.isfile(target) else "a link that leads nowhere"


def _refuse_link(scan: Scan, path: str, relative: str, inside: str) -> None:
    out = not _is_inside(os.path.realpath(path), inside)
    reason = "a link that leads out of the folder" if out else "a link to a folder that is inside already"
    scan.skipped.append(Skipped(shown_name(relative), f"{reason}, which is not followed"))


def _is_inside(target: str, folder: str) -> bool:
    return target == folder or target.startswith(folder.rstrip(os.sep) + os.sep)


def _is_unicode(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown_name(relative: str) -> str:
    """Return a name composed (NFC) and with ``/``, whatever bytes the disk has; fit for messages and ids."""
    valid = relative.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return normalize("NFC", valid.replace(os.sep, "/"))
