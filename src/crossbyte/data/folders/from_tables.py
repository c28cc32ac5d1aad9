"""Documents from a table of captions."""

from __future__ import annotations

from typing import Any

from crossbyte.data.folders.columns import Roles
from crossbyte.data.folders.finding import Finder
from crossbyte.data.folders.gathering import Gathering, clean_caption
from crossbyte.data.folders.scanning import Scan
from crossbyte.data.folders.tables import Table

__all__ = ["captions_in", "gather_rows"]


def gather_rows(scan: Scan, table: Table, roles: Roles, title: str, folder: str) -> Gathering:
    """Take the rows of a table.

    Parameters
    ----------
    scan : Scan
    table : Table
    roles : Roles
    title : str
        The table's relative name.
    folder : str
        The relative name of its folder, "" for the one that was scanned.
    """
    rest = [name for name in table.names if name not in (roles.image, *roles.texts, roles.id)]
    table.type_columns(rest)
    gathering, finder = Gathering(scan), Finder(scan)
    gathering.skipped += table.bad
    for line, values in table.rows:
        _gather(gathering, finder, roles, f"{title}, line {line}", values, folder)
    _list_unnamed(gathering, scan, title)
    return gathering


def _gather(
    gathering: Gathering, finder: Finder, roles: Roles, where: str, values: dict[str, Any], folder: str
) -> None:
    captions = [text for name in roles.texts for text in captions_in(values.get(name))]
    written, id = values.get(roles.image), _id_in(values, roles)
    found = None if written in (None, "") else finder.find(str(written), folder)
    reason = _why_not(roles, captions, written, id)
    if found is not None and found.name is None:
        reason = f"{str(written)[:200]!r}: {found.reason}"
    if reason:
        gathering.skip(where, reason)
        return
    if roles.texts and not captions:
        gathering.skip(where, "no caption; the picture is kept without a text")
    used = (roles.image, *roles.texts, roles.id)
    payload = {name: value for name, value in values.items() if name not in used and value not in (None, "")}
    gathering.add(where, None if found is None else found.name, captions, payload, id)


def _why_not(roles: Roles, captions: list[str], written: Any, id: str | None) -> str:
    if written in (None, "") and not captions:
        return "neither a picture nor a caption"
    return f"nothing in the id column {roles.id!r}" if roles.id is not None and id is None else ""


def _id_in(values: dict[str, Any], roles: Roles) -> str | None:
    value = None if roles.id is None else values.get(roles.id)
    return None if value in (None, "") else str(value)


def captions_in(value: Any) -> list[str]:
    """Return the captions that a value holds: a text, a number, or a list of such; empty ones are dropped."""
    if isinstance(value, list):
        return [text for one in value for text in captions_in(one) if not isinstance(one, list)]
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        text = clean_caption(str(value))
        return [text] if text else []
    return []


def _list_unnamed(gathering: Gathering, scan: Scan, title: str) -> None:
    named = gathering.named
    left = [name for name in scan.pictures if name not in named]
    if left:
        more = f" and {len(left) - 1} more pictures" if len(left) > 1 else ""
        gathering.skip(f"{left[0]}{more}", f"no row of {title} names them")
