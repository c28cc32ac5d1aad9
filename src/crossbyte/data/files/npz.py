"""Several arrays in one ``.npz``."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from crossbyte.data.files.archive import Member, MemberStream, list_members
from crossbyte.data.files.contents import Contents, Entry, type_name
from crossbyte.data.files.limits import Limits
from crossbyte.data.files.npy import read_array, read_header
from crossbyte.data.files.opening import Opened
from crossbyte.errors import DataFileError

__all__ = ["npz_contents"]


def npz_contents(opened: Opened, limits: Limits) -> Contents:
    """Read the headers of all arrays; their data while the file is open.

    An array that is refused (Python objects, say) is listed with its problem and does not spoil the others.
    """
    members = {member.name: member for member in list_members(opened, limits)}

    def load(name: str) -> NDArray[Any]:
        member = members[name]
        return read_array(MemberStream(opened.file, member), member.size, limits.archive_bytes)

    return Contents({name: _entry(opened, member, limits) for name, member in members.items()}, load)


def _entry(opened: Opened, member: Member, limits: Limits) -> Entry:
    try:
        header = read_header(MemberStream(opened.file, member), member.size, limits.archive_bytes)
    except DataFileError as error:
        return Entry(member.name, "unreadable", None, str(error))
    return Entry(member.name, type_name(header.dtype), header.shape)
