"""A corpus of hostile and damaged files, made on demand, and a program that reads all of it.

Every maker yields ``(name, bytes)``; the ending of the name says how it is read. A name that begins with
``ok-`` is unusual but right, and must be read; every other must be refused.
"""

from __future__ import annotations

import io
import json
import os
import socket
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse

Files = Iterator[tuple[str, bytes]]

MATRIX = np.arange(12, dtype=np.float32).reshape(4, 3)


def npy(array: np.ndarray, **options: object) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)  # type: ignore[arg-type]
    return file.getvalue()


def raw_npy(header: str | bytes, data: bytes = MATRIX.tobytes(), version: tuple[int, int] = (1, 0)) -> bytes:
    """Write a header as it is, true or not."""
    text = header.encode("latin-1") if isinstance(header, str) else header
    length = struct.pack("<H" if version == (1, 0) else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + length + text + data


def header(descr: str = "'<f4'", order: str = "False", shape: str = "(4, 3)") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"


def npy_files() -> Files:
    good = npy(MATRIX)
    yield "ok-fortran.npy", npy(np.asfortranarray(MATRIX))
    yield "ok-big-endian.npy", npy(MATRIX.astype(">f8"))
    yield "ok-version-2.npy", raw_npy(header(), version=(2, 0))
    yield "ok-other-writer.npy", raw_npy('{"shape":(4,3),"descr":"<f4","fortran_order":False}')
    yield "ok-no-rows.npy", npy(np.empty((0, 5), np.float32))
    for name, text in {
        "objects": header("'|O'"),
        "records": header("[('a', '<f4'), ('b', '<f4')]"),
        "complex": header("'<c8'"),
        "dates": header("'<M8[ns]'"),
        "void": header("'|V4'"),
        "long-double": header("'<f16'"),
        "empty-strings": header("'<U0'", shape="(1000000000000, 3)"),
        "words-for-type": header("'float32'"),
        "8-tib": header(shape="(1099511627776, 2)"),
        "overflow": header(shape="(4611686018427387904, 4)"),
        "beyond-64-bits": header(shape="(99999999999999999999999, 3)"),
        "negative": header(shape="(-4, -3)"),
        "one-short": header(shape="(4, 2)"),
        "one-long": header(shape="(4, 4)"),
        "float-shape": header(shape="(4.0, 3)"),
        "list-shape": header(shape="[4, 3]"),
        "text-shape": header(shape="'4, 3'"),
        "spaced-shape": header(shape="(4 3)"),
        "true-shape": header(shape="(True, 12)"),
        "long-suffix": header(shape="(4L, 3L)"),
        "no-columns": header(shape="(1000000000000, 0)"),
        "three-dimensions": header(shape="(2, 2, 3)"),
        "many-dimensions": header(shape="(" + "1, " * 500 + "12)"),
        "scalar": header(shape="()"),
        "code": header("__import__('os').system('true')"),
        "code-for-shape": header(shape="(exit(), 3)"),
        "order-number": header(order="1"),
        "no-brace": header()[:-4],
        "parentheses": "(" * 4000,
        "minus-signs": "-" * 4000 + "1",
        "spaces": " " * 4000,
        "missing-key": "{'descr': '<f4', 'shape': (4, 3), }",
        "extra-key": header()[:-2] + "'more': 1, }",
        "key-twice": header()[:-2] + "'descr': '<f4', }",
        "unclosed-string": "{'descr': '<f4, 'fortran_order': False, 'shape': (4, 3)}",
        "not-ascii": "{'descr': '\xb2f4', 'fortran_order': False, 'shape': (4, 3)}",
        "empty-header": "",
        "huge-header": header().rstrip() + " " * 60_000,
    }.items():
        yield f"{name}.npy", raw_npy(text)
    yield "pickle.npy", npy(np.array([{"a": 1}, None], dtype=object), allow_pickle=True)
    yield "pickle-alone.npy", b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94."
    yield "header-4-gib.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + header().encode()
    yield "version-9.npy", raw_npy(header(), version=(9, 0))
    yield "wrong-magic.npy", b"\x93NUMPX" + good[6:]
    yield "empty.npy", b""
    yield "zip-as.npy", npz({"a": good})
    yield "trailing.npy", good + b"\0"
    yield "wild-booleans.npy", raw_npy(header("'|b1'"), bytes(range(12)))
    yield "text.npy", npy(np.array([["a", "b"]]))
    yield "beyond-unicode.npy", raw_npy(header("'<U1'"), b"\xff\xff\xff\x7f" * 12)
    for length in (1, 6, 7, 8, 9, 10, 40, 127, 128, 129, len(good) - 1):
        yield f"cut-at-{length}.npy", good[:length]


def npz(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name if "." in name else f"{name}.npy", data)
    return file.getvalue()


def patched(data: bytes, old: bytes, new: bytes, count: int = -1) -> bytes:
    assert old in data and len(old) == len(new)
    return data.replace(old, new, count)


def by_hand(entries: list[tuple[bytes, bytes, int, int]], shared: bool = False) -> bytes:
    """Build an archive of (name, unpacked bytes, claimed size, claimed packed size or -1 for the truth)."""
    body, directory, place = b"", b"", 0
    for name, data, size, packed_size in entries:
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        packed = packer.compress(data) + packer.flush()
        claimed = len(packed) if packed_size < 0 else packed_size
        common = struct.pack("<5H3L2H", 20, 0, 8, 0, 33, zlib.crc32(data), claimed, size, len(name), 0)
        place = 0 if shared else len(body)
        if not (shared and body):
            body += b"PK\x03\x04" + common + name + packed
        directory += b"PK\x01\x02" + struct.pack("<H", 20) + common + struct.pack("<3H2L", 0, 0, 0, 0, place)
        directory += name
    end = struct.pack(
        "<4s4H2LH", b"PK\x05\x06", 0, 0, len(entries), len(entries), len(directory), len(body), 0
    )
    return body + directory + end


def npz_files() -> Files:
    one = npy(MATRIX)
    good = npz({"a": one})
    yield "ok-stored.npz", npz({"a": one}, zipfile.ZIP_STORED)
    yield "ok-by-hand.npz", by_hand([(b"a.npy", one, len(one), -1)])
    yield "ok-beside-objects.npz", npz({"a": one, "b": raw_npy(header("'|O'"), b"x" * 96)})
    yield "ok-one-mebibyte-of-ones.npz", npz({"a": npy(np.ones((1024, 256), np.float32))})
    yield "bomb.npz", npz({"a": npy(np.zeros((4096, 4096), np.float32))})
    yield "bomb-claims-little.npz", by_hand([(b"a.npy", one + bytes(2**24), len(one), -1)])
    yield "claims-2-gib.npz", by_hand([(b"a.npy", raw_npy(header(shape="(715827870, 3)")), 2**31, -1)])
    yield "claims-4-gib.npz", by_hand([(b"a.npy", one, 0xFFFFFFFF, -1)])
    yield "claims-more.npz", by_hand([(b"a.npy", one, len(one) + 1, -1)])
    yield "claims-less.npz", by_hand([(b"a.npy", one, len(one) - 1, -1)])
    yield "packed-too-long.npz", by_hand([(b"a.npy", one, len(one), 10_000)])
    yield "packed-cut.npz", by_hand([(b"a.npy", one, len(one), 20)])
    yield "members.npz", by_hand([(b"a%d.npy" % i, one, len(one), -1) for i in range(65)])
    yield "count-65535.npz", patched(good, struct.pack("<2H", 1, 1), struct.pack("<2H", 65535, 65535))
    yield "same-name.npz", by_hand([(b"a.npy", one, len(one), -1)] * 2)
    yield "overlap.npz", by_hand([(b"a.npy", one, len(one), -1)] * 2, shared=True)
    many = [(b"a.npy", bytes(10**6), 10**6, -1)] * 40
    yield "overlap-bomb.npz", by_hand(many, shared=True)
    yield (
        "encrypted.npz",
        patched(good, b"PK\x01\x02\x14\x03\x14\x00\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01\x00"),
    )
    yield (
        "strong-encrypted.npz",
        patched(good, b"PK\x01\x02\x14\x03\x14\x00\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x41\x00"),
    )
    yield "bzip2.npz", npz({"a": one}, zipfile.ZIP_BZIP2)
    yield "lzma.npz", npz({"a": one}, zipfile.ZIP_LZMA)
    yield "nested.npz", npz({"inner.npz": good})
    yield "traversal.npz", npz({"../../evil.npy": one})
    yield "absolute.npz", npz({"/etc/evil.npy": one})
    yield "backslash.npz", by_hand([(b"..\\evil.npy", one, len(one), -1)])
    yield "control-name.npz", by_hand([(b"a\x1b[2J.npy", one, len(one), -1)])
    yield "not-utf8-name.npz", by_hand([(b"\xff\xfe.npy", one, len(one), -1)])
    yield "names-disagree.npz", patched(good, b"a.npy", b"b.npy", 1)
    yield "crc.npz", patched(good, struct.pack("<L", zlib.crc32(one)), b"\0\0\0\0")
    yield "objects.npz", npz({"a": npy(np.array([None, 1], dtype=object), allow_pickle=True)})
    yield "not-npy-inside.npz", npz({"a": b"#!/bin/sh\n"})
    yield "empty-member.npz", npz({"a": b""})
    yield "no-members.npz", npz({})
    yield "empty.npz", b""
    yield "comment.npz", good[:-2] + b"\x05\x00hello"
    yield "prefix.npz", b"#!/bin/sh\nexit\n" + good
    yield "suffix.npz", good + b"more"
    yield "npy-as.npz", one
    yield "tar-as.npz", b"ustar".ljust(1024, b"\0")
    yield "bad-deflate.npz", patched(good, good[35:45], b"\xff" * 10, 1)
    yield "negative-index.npz", sparse_npz(indices=np.array([0, -1]))
    yield "index-too-large.npz", sparse_npz(indices=np.array([0, 3]))
    yield "falling-starts.npz", sparse_npz(indptr=np.array([0, 5, 2]))
    yield "sparse-2-to-the-62.npz", sparse_npz(shape=np.array([2, 2**62]))
    yield "sparse-negative-shape.npz", sparse_npz(shape=np.array([2, -3]))
    yield "sparse-parts-missing.npz", npz({"a_data": one, "a_indptr": one})
    yield "scipy-coo.npz", scipy_npz(scipy.sparse.coo_matrix(MATRIX))
    yield "ok-scipy-csc.npz", scipy_npz(scipy.sparse.csc_matrix(MATRIX))
    yield "ok-scipy-csr.npz", scipy_npz(scipy.sparse.csr_matrix(MATRIX))
    for length in (1, 21, 22, 60, len(good) // 2, len(good) - 23, len(good) - 1):
        yield f"cut-at-{length}.npz", good[:length]


def sparse_npz(**parts: np.ndarray) -> bytes:
    right = {"data": np.ones(2), "indices": np.array([0, 2]), "indptr": np.array([0, 1, 2])}
    right |= {"shape": np.array([2, 3])} | parts
    return npz({f"a_{name}": npy(part) for name, part in right.items()})


def scipy_npz(matrix: scipy.sparse.spmatrix) -> bytes:
    file = io.BytesIO()
    scipy.sparse.save_npz(file, matrix)
    return file.getvalue()


def csv_files() -> Files:
    yield "ok-mark.csv", b"\xef\xbb\xbf1,2\n3,4\n"
    yield "ok-header.csv", b"x,y\r\n1,2\r\n3,4\r\n\r\n"
    yield "old-mac.csv", b"1,2\r3,4\r"
    yield "ok-nan.csv", b"1,nan\n-1e-3,.5\n"
    yield "ok-long-number.csv", b"1," + b"1" * 100_000 + b"\n"
    yield "nul.csv", b"1,2\n3,\x004\n"
    yield "nul-only.csv", bytes(10_000)
    yield "utf-16.csv", "1,2\n3,4\n".encode("utf-16")
    yield "utf-32.csv", "1,2\n3,4\n".encode("utf-32")
    yield "latin-1.csv", "größe,y\n1,2\n".encode("latin-1")
    yield "100000-columns.csv", b"1," * 99_999 + b"1\n"
    yield "decimal-commas.csv", b"1,5;2,5\n3,5;4,5\n"
    yield "semicolons.csv", b"1.5;2.5\n3.5;4.5\n"
    yield "tabs.csv", b"1.5\t2.5\n3.5\t4.5\n"
    yield "thousands.csv", b'"1,000","2,000"\n'
    yield "underscores.csv", b"1_0,2\n3,4\n"
    yield "arabic-digits.csv", "١,٢\n٣,٤\n".encode()
    yield "hexadecimal.csv", b"0x10,2\n3,4\n"
    yield "ragged-short.csv", b"1,2,3\n4,5\n"
    yield "ragged-long.csv", b"1,2\n4,5,6\n"
    yield "empty-field.csv", b"1,2\n3,\n"
    yield "empty-line.csv", b"1,2\n\n3,4\n"
    yield "column-numbers.csv", b"0,1,2\n.5,.5,.5\n"
    yield "half-header.csv", b"1.5,abc\n1,2\n"
    yield "header-only.csv", b"x,y\n"
    yield "formula.csv", b"=1+1,2\n"
    yield "open-quote.csv", b'1,"2\n' + b"3,4\n" * 60_000
    yield "quote-inside.csv", b'1,"2"3\n'
    yield "quadratic.csv", b"1" * 130_000 + b"x,2\n"
    yield "long-field.csv", b"1" * 200_000 + b",2\n"
    yield "long-line.csv", b"1," * (9 * 2**20)
    yield "empty.csv", b""
    yield "newlines.csv", b"\n" * 100_000
    yield "npy-as.csv", npy(MATRIX)
    yield "gzip-as.csv", b"\x1f\x8b\x08\x00" + bytes(range(200))


def jsonl_files() -> Files:
    yield "ok-mark.jsonl", b'\xef\xbb\xbf{"a": 1}\r\n{"a": null}\n\n'
    yield "ok-emoji.jsonl", b'{"a": "\\ud83d\\ude00"}'
    yield "ok-32-levels.jsonl", b'{"a":' + b"[" * 31 + b"]" * 31 + b"}"
    yield "33-levels.jsonl", b'{"a":' + b"[" * 32 + b"]" * 32 + b"}"
    yield "100000-levels.jsonl", b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    yield "100000-objects-deep.jsonl", b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    yield "open-for-ever.jsonl", b"[" * 10**6
    yield "nan.jsonl", b'{"a": NaN}'
    yield "infinity.jsonl", b'{"a": -Infinity}'
    yield "too-large.jsonl", b'{"a": 1e999}'
    yield "5000-digits.jsonl", b'{"a": ' + b"9" * 5000 + b"}"
    yield "key-twice.jsonl", b'{"a": 1, "a": 2}'
    yield "key-twice-inside.jsonl", b'{"b": {"a": 1, "a": 2}}'
    yield "half-surrogate.jsonl", b'{"a": "\\ud83d"}'
    yield "half-surrogate-key.jsonl", b'{"\\ude00": 1}'
    yield "array.jsonl", b"[1, 2]"
    yield "number.jsonl", b"1\n2\n"
    yield "text.jsonl", b'"a"\n'
    yield "single-quotes.jsonl", b"{'a': 1}"
    yield "comment.jsonl", b'{"a": 1} // one'
    yield "two-in-a-line.jsonl", b'{"a": 1} {"a": 2}'
    yield "over-lines.jsonl", b'{\n"a": 1\n}\n'
    yield "empty-line.jsonl", b'{"a": 1}\n\n{"a": 2}\n'
    yield "nul.jsonl", b'{"a": "\x00"}'
    yield "not-utf8.jsonl", b'{"a": "\xff"}'
    yield "overlong-utf8.jsonl", b'{"a": "\xc0\xaf"}'
    yield "utf-16.jsonl", '{"a": 1}'.encode("utf-16")
    yield "cut.jsonl", b'{"a": 1}\n{"a": '
    yield "long-line.jsonl", b'{"a": "' + b"x" * (17 * 2**20) + b'"}'
    yield "empty.jsonl", b""


def mat(variables: dict[str, object], **options: object) -> bytes:
    file = io.BytesIO()
    scipy.io.savemat(file, variables, **options)  # type: ignore[arg-type]
    return file.getvalue()


def with_data_type(number: int) -> bytes:
    """Build a MATLAB file whose data claim to be of this type (9 is right)."""
    good = bytearray(mat({"x": MATRIX.astype(float)}))
    good[176] = number
    return bytes(good)


def mat_files() -> Files:
    good = mat({"x": MATRIX.astype(float)})
    yield "ok-compressed.mat", mat({"x": MATRIX}, do_compression=True)
    yield "ok-sparse.mat", mat({"x": scipy.sparse.csc_matrix(MATRIX.astype(float))})
    yield "ok-beside-struct.mat", mat({"x": MATRIX, "s": {"a": 1}, "c": np.array([1, "a"], dtype=object)})
    yield "version-4.mat", mat({"x": MATRIX}, format="4")
    yield "version-7-3.mat", b"MATLAB 7.3 MAT-file".ljust(124) + b"\0\2IM" + bytes(384) + b"\x89HDF\r\n\x1a\n"
    yield "hdf5.mat", b"\x89HDF\r\n\x1a\n" + bytes(600)
    yield "empty.mat", b""
    yield "header-only.mat", good[:128]
    yield "struct.mat", mat({"x": {"a": MATRIX}})
    yield "complex.mat", mat({"x": MATRIX * 1j})
    yield "three-dimensions.mat", mat({"x": np.zeros((2, 3, 4))})
    yield "variables.mat", mat({f"x{i}": 1.0 for i in range(65)})
    yield "bomb.mat", mat({"x": np.zeros((2048, 2048))}, do_compression=True)
    yield "huge-dimensions.mat", good[:160] + b"\xff\xff\xff\x7f\xff\xff\xff\x7f" + good[168:]
    yield "negative-dimensions.mat", good[:160] + b"\xff\xff\xff\xff\xff\xff\xff\xff" + good[168:]
    yield "huge-element.mat", good[:180] + b"\xff\xff\xff\xff" + good[184:]
    yield "unknown-class.mat", good[:144] + b"\xff" + good[145:]
    yield "bad-sparse.mat", bad_sparse()
    for number in (0, 14, 15, 255):
        yield f"data-type-{number}.mat", with_data_type(number)
    for length in (140, len(good) - 1):
        yield f"cut-at-{length}.mat", good[:length]


def bad_sparse() -> bytes:
    """Build a sparse matrix whose row numbers point far outside."""
    good = mat({"x": scipy.sparse.csc_matrix(MATRIX.astype(float))})
    rows = np.array([1, 2, 3], dtype=np.int32).tobytes()
    return patched(good, rows, b"\xff\xff\xff\x7f" * 3, 1)


def parquet(columns: dict[str, object], **options: object) -> bytes:
    import pyarrow
    import pyarrow.parquet

    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), file, **options)
    return file.getvalue()


def parquet_files() -> Files:
    import pyarrow

    good = parquet({"a": MATRIX.tolist(), "b": [1, 2, 3, 4]})
    yield "ok-numbers.parquet", parquet({"a": [1, 2], "b": [0.5, 1.5]})
    yield "ok-lists.parquet", good
    yield "footer-length.parquet", good[:-8] + b"\xff\xff\xff\x7f" + good[-4:]
    yield "footer-zero.parquet", good[:-8] + b"\0\0\0\0" + good[-4:]
    yield "footer-noise.parquet", good[:-60] + bytes(range(50)) + good[-10:]
    yield "encrypted.parquet", good[:-4] + b"PARE"
    yield "pages-zeroed.parquet", good[:4] + bytes(100) + good[104:]
    yield "magic-only.parquet", b"PAR1PAR1"
    yield "empty.parquet", b""
    yield "npy-as.parquet", npy(MATRIX)
    yield "rows-10-million.parquet", parquet({"a": np.zeros(10_000_001, np.int8)})
    yield "bomb.parquet", parquet({"a": np.zeros(4_000_000, np.int64)})
    heavy = pyarrow.DictionaryArray.from_arrays(np.zeros(100_000, np.int32), ["x" * 2**20])
    yield "gigabytes-of-text.parquet", parquet({"a": heavy}, store_schema=False)
    yield "gigabytes-of-words.parquet", parquet({"a": heavy})
    yield "ragged.parquet", parquet({"a": [[1.0], [1.0, 2.0]]})
    yield "nulls.parquet", parquet({"a": [[1.0, None], [1.0, 2.0]]})
    yield "text.parquet", parquet({"a": ["x", "y"]})
    yield "nested.parquet", parquet({"a": [[[[1.0]]]], "b": [{"c": {"d": 1}}]})
    yield "bytes.parquet", parquet({"a": [b"\xff\xfe"]})
    yield "more-rows.parquet", good.replace(b"\x16\x08", b"\x16\x7e")
    for length in (3, 12, len(good) // 2, len(good) - 1):
        yield f"cut-at-{length}.parquet", good[:length]


MAKERS: dict[str, Callable[[], Files]] = {
    "npy": npy_files,
    "npz": npz_files,
    "csv": csv_files,
    "jsonl": jsonl_files,
    "mat": mat_files,
    "parquet": parquet_files,
}


def write_corpus(folder: Path) -> list[Path]:
    """Write every file, and the things that are no files."""
    return write_made(folder, MAKERS) + write_special(folder)


def write_made(folder: Path, makers: Mapping[str, Callable[[], Files]]) -> list[Path]:
    """Write what the makers give, each under a name of its own."""
    paths = []
    for maker in makers.values():
        for name, data in maker():
            paths.append(folder / name)
            assert not paths[-1].exists(), name
            paths[-1].write_bytes(data)
    return paths


def write_special(folder: Path) -> list[Path]:
    """Make a directory, sparse giants, links, pipes, a socket and a way to a device."""
    (folder / "directory.npy").mkdir()
    for name, size in (("sparse-8-gib.npy", 2**33), ("sparse-8-gib.npz", 2**33), ("sparse-1-gib.csv", 2**30)):
        with open(folder / name, "wb") as file:
            file.truncate(size)
    (folder / "ok-link.npy").symlink_to("ok-fortran.npy")
    (folder / "loop.npy").symlink_to("loop.npy")
    (folder / "device.npy").symlink_to("/dev/zero")
    (folder / "device.csv").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe.npy")
    os.mkfifo(folder / "pipe.jsonl")
    here = os.getcwd()
    os.chdir(folder)  # the path of a socket has a small limit
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket.npz")
    os.chdir(here)
    names = "directory.npy sparse-8-gib.npy sparse-8-gib.npz sparse-1-gib.csv ok-link.npy loop.npy device.npy"
    return [folder / name for name in f"{names} device.csv pipe.npy pipe.jsonl socket.npz".split()]


def read(path: Path) -> str:
    """Read one file as its ending says; return what came of it in one word."""
    from crossbyte.data import readers as reading
    from crossbyte.errors import DataFileError

    readers = {".jsonl": [reading.read_rows], ".csv": [reading.read_features, reading.read_rows]}
    asked = readers.get(path.suffix, [reading.read_features])
    if path.suffix not in (".mat", ".parquet"):  # each costs a process
        asked += [reading.describe, reading.read_dataset]
    outcomes = []
    for reader in asked:
        try:
            outcomes.append("read" if reader(path) is not None else "nothing")
        except DataFileError as error:
            outcomes.append("refused" if str(error).startswith(f"{path}: ") else f"unnamed: {error}")
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    # others than the first may well read it: a table whose numbers are wrong is still a table
    return next((outcome for outcome in outcomes if outcome not in ("read", "refused")), outcomes[0])


def peak_bytes() -> int:
    """Return the most memory this process has held; unlike getrusage, without what its parent held before."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on macOS


def main(paths: list[str]) -> None:
    """Read all files in this one process; say what came of each, its seconds, and the memory of all."""
    import time

    from crossbyte.data import readers

    assert readers.read_features and scipy.sparse.csr_matrix  # imported before memory is looked at
    before = peak_bytes()
    outcomes, seconds = {}, {}
    for path in paths:
        start = time.perf_counter()
        outcomes[Path(path).name] = read(Path(path))
        seconds[Path(path).name] = round(time.perf_counter() - start, 2)
    grown = peak_bytes() - before
    sys.stdout.write(json.dumps({"outcomes": outcomes, "seconds": seconds, "grown_bytes": grown}))


if __name__ == "__main__":
    main(sys.argv[1:])
