"""Read NumPy's ``.npy`` and ``.npz`` from untrusted files.

The header of an array is checked before NumPy sees anything: three known keys, a type from a closed list, at
most two dimensions, and exactly as many bytes as are there. Nothing of it is ever evaluated.

The ZIP format is read as far as ``numpy.savez`` writes it, because ``zipfile`` trusts the number of members
before it can be checked, and not every version in use notices members that overlap.
"""

from __future__ import annotations

import re
import struct
import zlib
from math import prod
from typing import Any, BinaryIO, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from crossbyte.data.contents import Contents, Entry, type_name
from crossbyte.data.safe_open import Limits, OpenFile
from crossbyte.errors import DataFileError

_MAGIC = b"\x93NUMPY"
_LENGTH_BYTES = {(1, 0): 2, (2, 0): 4, (3, 0): 4}
_MAX_HEADER = 4096
_PIECE = 2**20

_DESCR = r"""['"]descr['"]\s*:\s*['"]([^'"]*)['"]"""
_ORDER = r"""['"]fortran_order['"]\s*:\s*(True|False)"""
_EXTENT = r"""['"]shape['"]\s*:\s*\(([\d,\s]*)\)"""
_HEADER = re.compile(rf"\s*\{{\s*(?:(?:{_DESCR}|{_ORDER}|{_EXTENT})\s*(?:,\s*|(?=\}})))*\}}\s*")
_SHAPE = re.compile(r"\s*(?:\d{1,18}\s*,\s*)*(?:\d{1,18}\s*)?")
_TYPE = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248]|[US]\d{1,9})")


class Stream(Protocol):
    """Source of bytes: a file, a member of an archive, a pipe."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fill a part of the buffer and return its length; 0 at the end."""
        ...


class Header(NamedTuple):
    """Header of an array: its type as stored, its shape, its order, and the bytes of its data."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    n_bytes: int


def read_array(stream: Stream, available: int, max_bytes: int) -> NDArray[Any]:
    """Read one array.

    Parameters
    ----------
    stream : Stream
        Stands at the first byte of the magic.
    available : int
        Bytes from there to the end: the array must take all of them.
    max_bytes : int
        The most that its data may take.

    Returns
    -------
    ndarray
        At most two-dimensional, in memory, in the machine's byte order; C or Fortran order as stored.

    Raises
    ------
    DataFileError
        Anything else than such an array.
    """
    header = read_header(stream, available, max_bytes)
    # the transpose of a C array is a Fortran array: read in place, copied never
    stored = np.empty(header.shape[::-1] if header.fortran else header.shape, header.dtype)
    fill_buffer(stream, stored.reshape(-1).view(np.uint8).data)
    _check_values(stored)
    if not stored.dtype.isnative:
        stored = stored.byteswap(inplace=True).view(stored.dtype.newbyteorder())
    return stored.T if header.fortran else stored


def read_header(stream: Stream, available: int, max_bytes: int) -> Header:
    """Read and check the header alone; the stream then stands at the data."""
    preamble = _take_bytes(stream, 8)
    if preamble[:6] != _MAGIC:
        raise DataFileError(
            "expected an array in NumPy's .npy form, got other bytes at its start; save it with numpy.save"
        )
    width = _LENGTH_BYTES.get((preamble[6], preamble[7]))
    if width is None:
        raise DataFileError(f"expected .npy version 1, 2 or 3, got {preamble[6]}.{preamble[7]}; save it anew")
    length = int.from_bytes(_take_bytes(stream, width), "little")
    if length > _MAX_HEADER:
        raise DataFileError(
            f"expected an array header of at most {_MAX_HEADER} bytes, got {length}; save plain numbers"
        )
    header = _parse_header(_take_bytes(stream, length))
    _check_size(header, available - 8 - width - length, max_bytes)
    return header


def fill_buffer(stream: Stream, buffer: memoryview) -> None:
    """Fill the whole buffer, in pieces, or raise."""
    done = 0
    while done < len(buffer):
        n_read = stream.readinto(buffer[done : done + _PIECE])
        if not n_read:
            raise DataFileError("ends too early, in the middle of an array; copy or save it again")
        done += n_read


def _take_bytes(stream: Stream, n_bytes: int) -> bytes:
    taken = bytearray(n_bytes)
    fill_buffer(stream, memoryview(taken))
    return bytes(taken)


def _parse_header(raw: bytes) -> Header:
    text = raw.decode("latin-1")
    if not _HEADER.fullmatch(text):
        raise DataFileError(
            "expected an array header with type, order and shape, got a damaged one, or an array of records; "
            "save a plain array with numpy.save"
        )
    descr, order, extent = (re.findall(pattern, text) for pattern in (_DESCR, _ORDER, _EXTENT))
    if (len(descr), len(order), len(extent)) != (1, 1, 1):
        raise DataFileError(
            "expected the array header's three keys once each; save the array with numpy.save"
        )
    dtype, shape = _parse_type(descr[0]), _parse_shape(extent[0])
    return Header(dtype, shape, order[0] == "True" and len(shape) == 2, prod(shape) * dtype.itemsize)


def _parse_type(descr: str) -> np.dtype[Any]:
    if descr.lstrip("<>|=").startswith("O"):
        raise DataFileError(
            "holds Python objects (a pickle), which are never loaded; save numbers or strings: "
            "numpy.save(file, numpy.array(values, dtype=...))"
        )
    if not _TYPE.fullmatch(descr) or descr.lstrip("<>|=") in ("U0", "S0"):
        raise DataFileError(
            f"expected an array of numbers, booleans or strings, got type {descr[:40]!r}; "
            "convert it, e.g. with .astype('float32')"
        )
    return np.dtype(descr)


def _parse_shape(inner: str) -> tuple[int, ...]:
    if not _SHAPE.fullmatch(inner):
        raise DataFileError(
            "expected a shape of non-negative whole numbers in the header; save the array anew"
        )
    shape = tuple(int(size) for size in inner.split(",") if size.strip())
    if len(shape) > 2:
        raise DataFileError(
            f"expected at most two dimensions, got shape {shape[:6]}; reshape it to (rows, features)"
        )
    return shape


def _check_size(header: Header, available: int, max_bytes: int) -> None:
    if header.n_bytes > max_bytes or max(header.shape, default=0) > max_bytes:
        raise DataFileError(
            f"expected at most {max_bytes} bytes of data, its header claims {header.n_bytes} "
            f"(shape {header.shape}); split it, or raise the limit if you trust it"
        )
    if header.n_bytes != available:
        raise DataFileError(
            f"expected {header.n_bytes} bytes of data for shape {header.shape} and type {header.dtype}, "
            f"got {max(available, 0)}; it is cut short or damaged: copy or save it again"
        )
    if header.n_bytes == 0 and header.shape[0] > 0:
        # a shape like (10**12, 0) costs nothing in a file, and everything as rows
        raise DataFileError(f"expected at least one value in a row, got shape {header.shape}; save it anew")


def _check_values(stored: NDArray[Any]) -> None:
    """Refuse what no program writes and NumPy does not expect: booleans of 2, characters beyond Unicode."""
    flat = stored.reshape(-1)
    if stored.dtype.kind == "b" and stored.size and flat.view(np.uint8).max() > 1:
        raise DataFileError(
            "expected booleans of 0 and 1, got other bytes; the file is damaged: save it again"
        )
    if stored.dtype.kind == "U" and stored.size:
        points = flat.view(np.dtype(np.uint32).newbyteorder(stored.dtype.byteorder))
        if points.max() > 0x10FFFF or bool(((points >= 0xD800) & (points <= 0xDFFF)).any()):
            raise DataFileError("expected Unicode strings, got invalid characters; the file is damaged")


_END = struct.Struct("<4s4H2LH")  # end of the central directory
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_STORED, _DEFLATED = 0, 8
_ENCRYPTED = 0x1 | 0x40 | 0x2000
_MAX_DIRECTORY = 2**20
_PACKED_BYTES = 2**18


class Member(NamedTuple):
    """One member: its name, where its packed bytes lie, and what they should unpack to."""

    name: str
    start: int
    packed: int
    size: int
    crc: int
    deflated: bool


def list_members(opened: OpenFile, limits: Limits) -> list[Member]:
    """Check a whole archive, and list its members, without unpacking anything.

    Raises
    ------
    DataFileError
        Not an archive, or one with too many, too large, repeated, encrypted or overlapping members.
    """
    count, directory, directory_start = _read_directory(opened, limits)
    members, place = [], 0
    for _ in range(count):
        member, local, place = _read_entry(directory, place)
        members.append((local, _locate_data(opened.file, member, local)))
    if place != len(directory):
        raise DataFileError("expected nothing behind the archive's directory entries; save it again")
    found = [member for _, member in members]
    _check_no_overlap(members, directory_start)
    _check_sizes(found, opened.size, limits)
    return found


def _read_directory(opened: OpenFile, limits: Limits) -> tuple[int, bytes, int]:
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
    member = Member(_decode_name(name), 0, packed, size, crc, method == _DEFLATED)
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


def _decode_name(raw: bytes) -> str:
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataFileError(f"expected names in UTF-8, got {raw[:40]!r}; save the file again") from error
    if not name.endswith(".npy") or not name.isprintable() or "/" in name or "\\" in name:
        raise DataFileError(f"expected members called KEY.npy, got {name[:80]!r}; save it with numpy.savez")
    return name.removesuffix(".npy")


def _locate_data(file: BinaryIO, member: Member, local: int) -> Member:
    """Find a member's packed bytes behind its local header, which must agree with the directory."""
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


def _check_no_overlap(members: list[tuple[int, Member]], directory_start: int) -> None:
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
    """The unpacked bytes of one member: never more than its declared size, and checked at their end.

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
        self._unconsumed = b""

    def readinto(self, buffer: memoryview, /) -> int:
        """Unpack into a part of the buffer; 0 at the end."""
        wanted = min(len(buffer), self._left)
        unpack = self._inflate if self._member.deflated else self._read_packed
        piece = unpack(wanted) if wanted else b""
        buffer[: len(piece)] = piece
        self._left -= len(piece)
        self._crc = zlib.crc32(piece, self._crc)
        if piece and self._left == 0:
            self._finish()
        return len(piece)

    def _read_packed(self, n_bytes: int) -> bytes:
        """Read packed bytes, from our own position: other members may have been read meanwhile."""
        self._file.seek(self._place)
        raw = self._file.read(min(n_bytes, self._packed_left))
        self._place += len(raw)
        self._packed_left -= len(raw)
        return raw

    def _inflate(self, wanted: int) -> bytes:
        while True:
            packed = self._unconsumed or self._read_packed(_PACKED_BYTES)
            try:
                piece = self._inflater.decompress(packed, wanted)
            except zlib.error as error:
                raise DataFileError(f"member {self._member.name!r} is damaged ({error})") from error
            self._unconsumed = self._inflater.unconsumed_tail
            if piece or self._inflater.eof or not packed:
                return piece

    def _finish(self) -> None:
        if self._crc != self._member.crc:
            raise DataFileError(f"member {self._member.name!r} does not match its checksum; copy it again")
        if self._member.deflated and not self._inflater.eof and self._inflate(1):
            raise DataFileError(f"member {self._member.name!r} is larger than it claims; save it again")


def read_npz(opened: OpenFile, limits: Limits) -> Contents:
    """Read the headers of all arrays; data are read on demand, while the file is open.

    An array that is refused (Python objects, say) is listed with its problem; the others can be read.
    """
    members = {member.name: member for member in list_members(opened, limits)}

    def load(name: str) -> NDArray[Any]:
        member = members[name]
        return read_array(MemberStream(opened.file, member), member.size, limits.archive_bytes)

    return Contents(
        {name: _read_entry_header(opened, member, limits) for name, member in members.items()}, load
    )


def _read_entry_header(opened: OpenFile, member: Member, limits: Limits) -> Entry:
    try:
        header = read_header(MemberStream(opened.file, member), member.size, limits.archive_bytes)
    except DataFileError as error:
        return Entry(member.name, "unreadable", None, str(error))
    return Entry(member.name, type_name(header.dtype), header.shape)
