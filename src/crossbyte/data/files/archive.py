"""The members of a ZIP archive, as far as ``numpy.savez`` writes one: stored or deflated, one beside another.

This reads the format itself: ``zipfile`` believes the number of members before anybody can object, and not
every version in use notices members that overlap.
"""

from __future__ import annotations

import struct
import zlib
from typing import BinaryIO, NamedTuple

from crossbyte.data.files.limits import Limits
from crossbyte.data.files.opening import Opened
from crossbyte.errors import DataFileError

__all__ = ["Member", "MemberStream", "list_members"]

_END = struct.Struct("<4s4H2LH")  # end of the central directory
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_STORED, _DEFLATED = 0, 8
_ENCRYPTED = 0x1 | 0x40 | 0x2000
_MAX_DIRECTORY = 2**20
_PIECE = 2**18


class Member(NamedTuple):
    """One member: its name, where its packed bytes lie, and what they should unpack to."""

    name: str
    start: int
    packed: int
    size: int
    crc: int
    deflated: bool


def list_members(opened: Opened, limits: Limits) -> list[Member]:
    """Judge a whole archive without unpacking anything.

    Raises
    ------
    DataFileError
        Not an archive, or one with too many, too large, repeated, encrypted or overlapping members.
    """
    count, directory, directory_start = _read_directory(opened, limits)
    members, place = [], 0
    for _ in range(count):
        member, local, place = _read_entry(directory, place)
        members.append((local, _locate(opened.file, member, local)))
    if place != len(directory):
        raise DataFileError("expected nothing behind the archive's directory entries; save it again")
    found = [member for _, member in members]
    _check_apart(members, directory_start)
    _check_sizes(found, opened.size, limits)
    return found


def _read_directory(opened: Opened, limits: Limits) -> tuple[int, bytes, int]:
    """Return the number of entries, their bytes, and where these begin."""
    if opened.size < _END.size:
        raise DataFileError("expected a ZIP archive as numpy.savez writes it, got a shorter file")
    opened.file.seek(opened.size - _END.size)
    magic, disk, first_disk, here, count, size, start, comment = _END.unpack(opened.file.read(_END.size))
    if magic != b"PK\x05\x06" or comment or disk or first_disk or here != count:
        raise DataFileError(
            "expected a ZIP archive as numpy.savez writes it, got no whole one (cut short, or not a .npz)"
        )
    if count > limits.archive_members:
        raise DataFileError(
            f"expected at most {limits.archive_members} arrays, got {count}; save fewer in one file"
        )
    if start == 0xFFFFFFFF:
        raise DataFileError("is an archive of 2 GiB or more, which is not read; save arrays with numpy.save")
    if size > _MAX_DIRECTORY or start + size + _END.size != opened.size:
        raise DataFileError("expected the archive's directory at its end, got another place; save it again")
    opened.file.seek(start)
    return count, opened.file.read(size), start


def _read_entry(directory: bytes, place: int) -> tuple[Member, int, int]:
    """Return a member (start still unknown), the place of its local header, and the next entry's place."""
    if place + _CENTRAL.size > len(directory):
        raise DataFileError("the archive's directory ends too early; copy or save the file again")
    fields = _CENTRAL.unpack_from(directory, place)
    magic, flags, method, crc, packed, size = fields[0], fields[3], fields[4], *fields[7:10]
    name_length, extra, comment, local = *fields[10:13], fields[16]
    begin = place + _CENTRAL.size
    name = directory[begin : begin + name_length]
    if magic != b"PK\x01\x02" or len(name) != name_length:
        raise DataFileError("the archive's directory is damaged; copy or save the file again")
    _check_method(flags, method, packed, size)
    member = Member(_decode(name), 0, packed, size, crc, method == _DEFLATED)
    return member, local, begin + name_length + extra + comment


def _check_method(flags: int, method: int, packed: int, size: int) -> None:
    if flags & _ENCRYPTED:
        raise DataFileError("holds an encrypted member; unpack it and save the arrays with numpy.savez")
    if method not in (_STORED, _DEFLATED):
        raise DataFileError(f"is packed by method {method}; use numpy.savez or numpy.savez_compressed")
    if 0xFFFFFFFF in (packed, size):
        raise DataFileError("holds a member of 2 GiB or more; save that array alone, with numpy.save")
    if (method == _STORED and packed != size) or packed > size + size // 100 + 1024:
        # deflate hardly ever grows; a stream of empty blocks would only burn time
        raise DataFileError("holds a member with two sizes that disagree; save the file again")


def _decode(raw: bytes) -> str:
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataFileError(f"expected names in UTF-8, got {raw[:40]!r}; save the file again") from error
    if not name.endswith(".npy") or not name.isprintable() or "/" in name or "\\" in name:
        raise DataFileError(f"expected members called KEY.npy, got {name[:80]!r}; save it with numpy.savez")
    return name.removesuffix(".npy")


def _locate(file: BinaryIO, member: Member, local: int) -> Member:
    """Find a member's packed bytes behind its local header, which must tell the same story."""
    file.seek(local)
    raw = file.read(_LOCAL.size)
    if len(raw) < _LOCAL.size:
        raise DataFileError(f"member {member.name!r} lies outside the archive; copy or save the file again")
    magic, _, flags, method, *_, name_length, extra = _LOCAL.unpack(raw)
    same = file.read(name_length) == f"{member.name}.npy".encode()
    deflated = method == _DEFLATED
    if magic != b"PK\x03\x04" or flags & _ENCRYPTED or deflated != member.deflated or not same:
        raise DataFileError(f"member {member.name!r} and the archive's directory disagree; save it again")
    return member._replace(start=local + _LOCAL.size + name_length + extra)


def _check_apart(members: list[tuple[int, Member]], directory_start: int) -> None:
    """Refuse members that share bytes, or a name: one packed block could otherwise be unpacked many times."""
    end = 0
    for local, member in sorted(members):
        if local < end:
            raise DataFileError(f"member {member.name!r} overlaps another; save the file with numpy.savez")
        end = member.start + member.packed
    if end > directory_start:
        raise DataFileError("a member reaches into the archive's directory; copy or save the file again")
    names = [member.name for _, member in members]
    if len(set(names)) != len(names):
        raise DataFileError("holds two arrays of one name; save the file with numpy.savez")


def _check_sizes(members: list[Member], file_size: int, limits: Limits) -> None:
    total, allowed = sum(member.size for member in members), limits.unpacked(file_size)
    if total > allowed:
        raise DataFileError(
            f"expected at most {allowed} bytes when unpacked ({limits.archive_bytes}, and "
            f"{limits.archive_ratio} times the file), it claims {total}; save large arrays with numpy.save"
        )


class MemberStream:
    """The unpacked bytes of one member: never more than its declared size, the last only if all is well.

    Parameters
    ----------
    file : binary file
    member : Member
    """

    def __init__(self, file: BinaryIO, member: Member) -> None:
        self._file, self._member = file, member
        self._left, self._packed_left, self._place = member.size, member.packed, member.start
        self._crc = 0
        self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        self._waiting = b""

    def readinto(self, buffer: memoryview, /) -> int:
        """Unpack into a part of the buffer; 0 at the end."""
        wanted = min(len(buffer), self._left)
        piece = b"" if wanted == 0 else self._inflate(wanted) if self._member.deflated else self._next(wanted)
        buffer[: len(piece)] = piece
        self._left -= len(piece)
        self._crc = zlib.crc32(piece, self._crc)
        if piece and self._left == 0:
            self._finish()
        return len(piece)

    def _next(self, n_bytes: int) -> bytes:
        """Packed bytes; other members may have been read meanwhile, so the place is ours to keep."""
        self._file.seek(self._place)
        raw = self._file.read(min(n_bytes, self._packed_left))
        self._place += len(raw)
        self._packed_left -= len(raw)
        return raw

    def _inflate(self, wanted: int) -> bytes:
        while True:
            packed = self._waiting or self._next(_PIECE)
            try:
                piece = self._inflater.decompress(packed, wanted)
            except zlib.error as error:
                raise DataFileError(f"member {self._member.name!r} is damaged ({error})") from error
            self._waiting = self._inflater.unconsumed_tail
            if piece or self._inflater.eof or not packed:
                return piece

    def _finish(self) -> None:
        if self._crc != self._member.crc:
            raise DataFileError(f"member {self._member.name!r} does not match its checksum; copy it again")
        if self._member.deflated and not self._inflater.eof and self._inflate(1):
            raise DataFileError(f"member {self._member.name!r} is larger than it claims; save it again")
