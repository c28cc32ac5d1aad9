"""Damage what is in models and indexes, seal them again, and see that nobody crashes or answers wrongly.

Arrays, documents, parts, rows and catalogues of small models and indexes are changed, every digest and
checksum is computed anew, and the result is put to all calls that read it. Right is an error of ours, or
answers that are finite, consistent, and with NumPy's kernels the same to the last bit. Cases run in child
processes, which must survive them. ``python -m campaigns resealed`` runs many,
``python -m crash.resealed --samples build/resealed 17`` in `tests/` case 17.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from crossbyte import CMCQ, Index
from crossbyte._json import canonical_json
from crossbyte.compute import kernels
from crossbyte.errors import CrossbyteError, IndexFileError, InvalidInput, ModelFileError
from crossbyte.index.storage import records
from crossbyte.model.file_format import FORMAT, model_bytes, parse_model_bytes
from support.index_twin import document_model, features, small_model
from support.paths import ROOT

from . import cases, shim

GOLDEN = ROOT / "tests" / "golden"
NUMBERS = (
    0,
    -1,
    1,
    2,
    7,
    255,
    256,
    2**16,
    2**31 - 1,
    2**31,
    2**32,
    2**53,
    2**63 - 1,
    2**63,
    -(2**63),
    10**30,
)
AMOUNTS = (0.0, -1.0, 0.5, 1e-320, 1e-30, 1e6, 1e12, 1e25, 1e38, 3.4e38, 1e154, 1e308, -1e308)
SCALARS: tuple[Any, ...] = (
    *NUMBERS,
    *AMOUNTS,
    None,
    True,
    False,
    "",
    "x",
    "image",
    "ä\0",
    [],
    {},
    [0],
    {"a": 1},
)
FLOATS = (np.nan, np.inf, -np.inf, 3e38, -3e38, 1e25, 1e19, 1e12, 1e-38, 0.0, -0.0, -1.0)

Rng = np.random.Generator
Answers = list[Any]


# What is damaged: documents, arrays, models, indexes


def pick(rng: Rng, values: Any) -> Any:
    """Choose one."""
    return values[int(rng.integers(len(values)))]


def places_of(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """All places within a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*place, key)
        yield from places_of(inner, (*place, key))


def damage_document(rng: Rng, document: Any) -> Any:
    """Replace, remove, add or exchange something in a JSON value."""
    document = json.loads(json.dumps(document))
    places = [*places_of(document)]
    if not places:
        return {"x": pick(rng, SCALARS)}
    *way, key = pick(rng, places)
    owner = document
    for step in way:
        owner = owner[step]
    old, kind = owner[key], int(rng.integers(7))
    if kind == 0:
        del owner[key]
    elif kind == 1 and isinstance(owner, dict):
        owner[f"{key}x"] = owner.pop(key)
    elif kind == 2 and type(old) in (int, float):
        owner[key] = pick(rng, (old + 1, old - 1, -old, old * 2, old * 1e6, old / 3, float(old), int(old)))
    elif kind == 3:
        *other_way, other = pick(rng, places)
        source = document
        for step in other_way:
            source = source[step] if isinstance(source, dict | list) else {}
        with contextlib.suppress(KeyError, IndexError, TypeError):
            owner[key] = json.loads(json.dumps(source[other]))
    elif kind == 4 and isinstance(owner, list):
        owner.insert(int(key), old)
    else:
        owner[key] = pick(rng, SCALARS)
    return document


def damage_array(rng: Rng, array: np.ndarray) -> np.ndarray:
    """Change values, their type or the shape."""
    array = array.copy()
    kind = int(rng.integers(9))
    flat = array.reshape(-1)
    some = rng.integers(flat.size, size=int(rng.integers(1, 4))) if flat.size else slice(0)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if array.dtype.kind == "f" and kind < 4:
            if kind == 0:
                flat[some] = pick(rng, FLOATS)
            elif kind == 1:
                array *= array.dtype.type(10.0 ** int(rng.integers(-40, 41)))
            elif kind == 2:
                array[...] = pick(rng, FLOATS)
            else:
                array *= -1
        elif kind < 4:
            info = np.iinfo(array.dtype) if array.dtype.kind in "iu" else np.iinfo(np.uint8)
            flat[some] = pick(rng, (info.min, info.max, 0, 1, info.max // 2))
        elif kind == 4:
            array = array.astype(pick(rng, (np.float32, np.float64, np.uint8, np.int32, np.int64)))
        elif kind == 5 and flat.size:
            octets = array.view(np.uint8).reshape(-1) if array.flags.c_contiguous else flat.view(np.uint8)
            octets[rng.integers(octets.size)] ^= np.uint8(1 << int(rng.integers(8)))
        elif kind == 6 and array.ndim:
            axis = int(rng.integers(array.ndim))
            array = pick(
                rng, (np.delete(array, slice(0, 1), axis), np.repeat(array, 2, axis), array.take([], axis))
            )
        elif kind == 7:
            array = pick(rng, (array.T, array[None], array.reshape(-1), flat[:0], np.squeeze(array)))
        else:
            rng.shuffle(flat)
    return np.ascontiguousarray(array)


def damage_model(rng: Rng, data: bytes) -> bytes:
    """Change a model one to three times, and seal it."""
    contents = parse_model_bytes(data, "whole")
    arrays, document = dict(contents.arrays), contents.document
    for _ in range(int(rng.integers(1, 4))):
        kind, name = int(rng.integers(10)), pick(rng, [*arrays] or [""])
        if kind < 5 and name:
            arrays[name] = damage_array(rng, arrays[name])
        elif kind == 5 and name:
            other = pick(rng, [*arrays])
            arrays[name], arrays[other] = arrays[other], arrays[name]
        elif kind == 6 and name:
            moved = arrays.pop(name)
            if rng.random() < 0.5:
                arrays[pick(rng, ("text_codes", "space.image_matrix", "x", f"{name}x"))] = moved
        else:
            document = damage_document(rng, document)
            document = document if isinstance(document, dict) else {}
    number = int(rng.integers(1, FORMAT + 1)) if rng.random() < 0.05 else FORMAT
    return model_bytes(arrays, document, number)


class Parts:
    """An index file taken apart, so that it can be put together again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(sqlite3.connect(path)) as connection:
            self.catalogue = list(connection.execute("SELECT * FROM catalogue").fetchone())[1:8]
            self.payloads = [
                list(row[:3]) for row in connection.execute("SELECT * FROM payloads ORDER BY 1, 2")
            ]
            pieces = dict(connection.execute("SELECT place, body FROM pieces"))
            heads = connection.execute("SELECT number, head FROM records ORDER BY number").fetchall()
        self.records: list[tuple[int, dict[str, Any], dict[str, bytes]]] = []
        for number, head in heads:
            values = json.loads(head)
            parts = {}
            for name, part in values.pop("parts").items():
                first = number * records.PIECES_PER_RECORD + part["first"]
                parts[name] = b"".join(pieces[first + i] for i in range(part["pieces"]))
            self.records.append((number, values, parts))

    def write(self) -> None:
        """Put everything back, with new checksums throughout."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            for table in ("catalogue", "records", "pieces", "payloads"):
                connection.execute(f"DELETE FROM {table}")
            digest = records.EMPTY_DIGEST
            for number, values, parts in sorted(self.records, key=lambda record: record[0]):
                head = self._write_parts(connection, number, values, parts)
                checksum = records.record_checksum(number, head)
                connection.execute("INSERT INTO records VALUES (?, ?, ?)", (number, head, checksum))
                digest = records.extend_digest(digest, number, checksum)
            for number, version, body in self.payloads:
                row = number, version, body, records.payload_checksum(number, version, body)
                connection.execute("INSERT INTO payloads VALUES (?, ?, ?, ?)", row)
            values = [*self.catalogue, digest, records.catalogue_checksum(self.catalogue, digest)]
            connection.execute("INSERT INTO catalogue VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
            connection.execute("COMMIT")

    def _write_parts(
        self, connection: sqlite3.Connection, number: int, values: dict[str, Any], parts: dict[str, bytes]
    ) -> bytes:
        described, first = {}, 0
        for name, data in parts.items():
            n_pieces = -(-len(data) // records.MAX_PIECE_BYTES)
            checksum = records.part_checksum([data]).hex()
            described[name] = {"bytes": len(data), "checksum": checksum, "first": first, "pieces": n_pieces}
            if data:
                place = number * records.PIECES_PER_RECORD + first
                connection.execute("INSERT INTO pieces VALUES (?, ?)", (place, data))
            first += n_pieces
        return canonical_json({**values, "parts": described}).encode()


def damage_bytes(rng: Rng, data: bytes) -> bytes:
    """Change a part: as numbers of some width, or its length."""
    kind = int(rng.integers(6))
    if kind == 0:
        return data[: int(rng.integers(len(data) + 1))]
    if kind == 1:
        return data + bytes(int(rng.integers(1, 17)))
    if kind == 2 and data:
        place = int(rng.integers(len(data)))
        return data[:place] + bytes([int(rng.integers(256))]) + data[place + 1 :]
    dtype = np.dtype(pick(rng, ("u1", "<u2", "<u4", "<i8", "<f4", "<u8", "<f8")))
    count = len(data) // dtype.itemsize
    if not count:
        return b"\0" * int(rng.integers(9))
    whole = np.frombuffer(data, dtype, count).copy()
    damaged = damage_array(rng, whole).astype(dtype) if kind < 5 else rng.permutation(whole)
    return damaged.tobytes() + data[count * dtype.itemsize :]


def damage_index(rng: Rng, path: Path) -> None:
    """Change an index one to three times, and seal it."""
    index = Parts(path)
    for _ in range(int(rng.integers(1, 4))):
        kind, at = int(rng.integers(12)), int(rng.integers(len(index.records)))
        number, values, parts = index.records[at]
        if kind < 4 and parts:
            name = pick(rng, [*parts])
            damage = damage_model if values["kind"] == "model" and rng.random() < 0.8 else damage_bytes
            index.records[at] = (number, values, {**parts, name: damage(rng, parts[name])})
        elif kind < 7:
            index.records[at] = (number, damage_head(rng, values), parts)
        elif kind == 7 and index.payloads:
            damage_payload(rng, index)
        elif kind == 8:
            damage_catalogue(rng, index)
        elif kind == 9:
            damage_list(rng, index, at)
        elif kind == 10 and parts:
            parts = dict(parts)
            moved = parts.pop(pick(rng, [*parts]))
            if rng.random() < 0.7:
                parts[pick(rng, ("codes.image", "codes.text", "numbers.32", "ids.text", "groups", "x"))] = (
                    moved
                )
            index.records[at] = (number, values, parts)
        else:
            damage_words(rng, path)
    index.write()


def damage_head(rng: Rng, values: dict[str, Any]) -> dict[str, Any]:
    """Change the document of a record, or seldom its kind and generation."""
    if rng.random() < 0.85:
        return {**values, "document": damage_document(rng, values["document"])}
    if rng.random() < 0.5:
        return {
            **values,
            "kind": pick(rng, ("documents", "deletions", "updates", "cells", "words", "model", "x")),
        }
    return {**values, "generation": pick(rng, NUMBERS[:-3])}


def damage_payload(rng: Rng, index: Parts) -> None:
    row = pick(rng, index.payloads)
    kind = int(rng.integers(5))
    if kind == 0:
        index.payloads.remove(row)
    elif kind == 1:
        row[int(rng.integers(2))] = abs(pick(rng, NUMBERS[:13]))
    elif kind == 2:
        row[2] = damage_bytes(rng, row[2])
    else:
        with contextlib.suppress(ValueError):
            row[2] = canonical_json(damage_document(rng, json.loads(row[2]))).encode()


def damage_catalogue(rng: Rng, index: Parts) -> None:
    place = int(rng.integers(len(index.catalogue)))
    old = index.catalogue[place]
    index.catalogue[place] = pick(rng, (old + 1, old - 1, 0, -1, 2**31, 2**62, 2**63 - 1))


def damage_list(rng: Rng, index: Parts, at: int) -> None:
    """Remove, repeat, renumber or exchange records; the catalogue counts them anew, or not."""
    number, values, parts = index.records[at]
    kind = int(rng.integers(4))
    highest = max(record[0] for record in index.records)
    if kind == 0 and len(index.records) > 1:
        del index.records[at]
    elif kind == 1:
        index.records.append((highest + 1, values, parts))
    elif kind == 2:
        index.records[at] = (highest + int(rng.integers(1, 2**20)), values, parts)
    else:
        other = int(rng.integers(len(index.records)))
        second = index.records[other]
        index.records[at] = (number, *second[1:])
        index.records[other] = (second[0], values, parts)
    index.records.sort(key=lambda record: record[0])
    if rng.random() < 0.9:
        index.catalogue[4] = len(index.records)
        index.catalogue[5] = max(index.catalogue[5], index.records[-1][0] + 1) if index.records else 1


def damage_words(rng: Rng, path: Path) -> None:
    """Change what is kept of words, where there is any."""
    with closing(sqlite3.connect(path)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'words'").fetchone():
            return
        statements = (
            "DELETE FROM words WHERE rowid % 3 = 1",
            "UPDATE words SET version = 5 WHERE rowid % 2 = 0",
            "UPDATE words SET text = 'x y z' WHERE rowid % 4 = 0",
            "INSERT INTO words (rowid, text, version) VALUES (123456789, 'x', 0)",
            "UPDATE words_content SET c1 = 'x' WHERE id % 5 = 0",
            "UPDATE words_content SET c1 = -9223372036854775808",
            "UPDATE words_content SET c0 = NULL WHERE id % 5 = 0",
            "DELETE FROM words_docsize WHERE id % 2 = 0",
            "UPDATE words_data SET block = zeroblob(3) WHERE id = 10",
            "UPDATE words_data SET block = zeroblob(8) WHERE id > 10",
        )
        with contextlib.suppress(sqlite3.Error):
            connection.execute(pick(rng, statements))
            connection.commit()


# What is asked


def numbers_of(answer: Any) -> Iterator[Any]:
    """All arrays and numbers in an answer."""
    if isinstance(answer, dict):
        answer = list(answer.values())
    if isinstance(answer, list | tuple):
        for each in answer:
            yield from numbers_of(each)
    elif isinstance(answer, float | np.floating | np.ndarray):
        yield np.asarray(answer)


def check_finite(answers: Answers) -> None:
    for array in numbers_of(answers):
        assert array.dtype.kind != "f" or np.isfinite(array).all(), "an answer is not finite"


def ask(answers: Answers, question: Callable[[], Any]) -> Any:
    """Keep the answer, or the name of the error that is one of ours."""
    try:
        answer = question()
    except CrossbyteError as error:
        answers.append(type(error).__name__)
        return None
    answers.append(answer)
    return answer


def ask_model(data: bytes) -> Answers:
    """Put a model to everything that reads it."""
    model = CMCQ.from_bytes(data)
    rng = np.random.default_rng(0)
    widths = model.n_features_in_, model.n_text_features_
    images, texts = (rng.standard_normal((4, width)).astype(np.float32) for width in widths)
    answers: Answers = []
    ask(answers, lambda: model.transform_images(images))
    ask(answers, lambda: model.transform_texts(texts))
    codes = ask(answers, lambda: model.encode_images(images))
    if codes is not None:
        ask(answers, lambda: model.decode_images(codes))
        ask(answers, lambda: model.distances(texts=texts, image_codes=codes))
    ask(answers, lambda: model.encode_texts(texts))
    ask(answers, lambda: model.encode_pairs(images, texts))
    ask(answers, lambda: model.encode_documents(images, texts))
    ask(answers, lambda: model.training_distances(texts=texts))
    ask(answers, lambda: [repr(model.selection_), repr(model.calibration_), len(model.report_.to_html())])
    ask(answers, lambda: model.to_bytes())
    with tempfile.TemporaryDirectory(dir=shim.memory_folder()) as folder:
        index = ask(answers, lambda: Index.create(Path(folder) / "a.cb", model, n_jobs=1))
        answers.pop()
        if index is not None:
            with index:
                ask(answers, lambda: index.add(range(4), images=images, texts=texts))
                ask(answers, lambda: index.add("abcd", images=images[::-1]))
                ask(answers, lambda: index.add("ijkl", texts=texts[::-1]))
                search(answers, index, images, texts)
    return answers


def search(answers: Answers, index: Any, images: Any, texts: Any, is_whole: bool = True) -> None:
    """Search an index from both sides, and look at what was found.

    Only `verify` sees an id that is there twice.
    """
    known = set(map(repr, ask([], index.ids) or ()))
    for more in (
        {"images": images},
        {"texts": texts},
        {"texts": texts, "target": "document", "k": 3, "n_probe": 2},
        {"images": images, "target": "image", "distinct": "group", "payloads": True},
        {"texts": texts[:1], "where": "year >= 2001 OR n > 3", "k": 2**40},
        {"texts": texts[:1], "max_distance": 0.5},
        {"like": 3},
    ):
        found = ask([], lambda more=more: index.search(**more))
        for hits in found or ():
            distances, k = np.asarray(hits.distances), more.get("k", 10)
            assert len(hits.ids) == len(distances) <= k, "more than was asked for"
            assert (np.diff(distances) >= 0).all(), "an order that is none"
            assert set(map(repr, hits.ids)) <= known, "a document that is not there"
            assert not is_whole or len(set(map(repr, hits.ids))) == len(hits.ids), "a document found twice"
            chances = [] if hits.probabilities is None else hits.probabilities
            assert all(0.0 <= chance <= 1.0 for chance in chances), "a probability that is none"
            answers.append([list(map(repr, hits.ids)), distances, chances, repr(hits.payloads), hits.verdict])
        if found and found[0].ids and "like" not in more:
            query = {name: rows[0] for name, rows in more.items() if name in ("images", "texts")}
            told = ask([], lambda f=found, q=query: index.explain(f[0].ids[0], **q))
            if told is not None:
                answers.append(repr(told))


def ask_index(path: Path) -> Answers:
    """Put an index to everything that reads it, then write to it."""
    answers: Answers = []
    with Index.open(path, mode="rw", n_jobs=1) as index:
        rng = np.random.default_rng(0)
        widths = index.model.n_features_in_, index.model.n_text_features_
        images, texts = (rng.standard_normal((3, width)).astype(np.float32) for width in widths)
        whole = ask(answers, lambda: index.verify() is None) is True
        ids = ask(answers, index.ids) or []
        assert len(ids) == len(index), "documents that are counted and not there"
        for key in ids[:20]:
            ask(answers, lambda key=key: document_of(index, key))
        search(answers, index, images, texts, whole)
        ask(answers, lambda: repr(index.stats()))
        ask(answers, lambda: repr(index.facets("year")))
        ask(answers, lambda: repr(index.cells))
        ask(answers, lambda: repr(index.documents(limit=5)))
        ask(answers, lambda: repr(index.match_words("sea title grün 7")))
        ask(answers, lambda: index.add(["new", 10**6], images=images[:2], payloads=[{"year": 2001}, None]))
        ask(answers, lambda: index.update_payloads(ids[:1], [{"year": 2050, "title": "sea"}]))
        ask(answers, lambda: index.delete(ids[1:3]))
        search(answers, index, images, texts, whole)
        ask(answers, index.compact)
        search(answers, index, images, texts, whole)
        ask([], index.verify)
    return answers


def document_of(index: Any, key: Any) -> str:
    found = index.get(key)
    assert found is not None, "an id without its document"
    return repr((found.id, found.payload, found.coding, found.group))


def with_native(native: Any, call: Callable[..., Any], *arguments: Any) -> Any:
    kernels._native = native
    try:
        return call(*arguments)
    finally:
        kernels._native = None


def compare(left: Answers, right: Answers) -> None:
    """Compare the answers of the extension with those of NumPy."""
    for at, (a, b) in enumerate(zip(left, right, strict=True)):
        assert same(a, b), f"answer {at} of NumPy differs: {a!r:.150} and {b!r:.150}"


def same(left: Any, right: Any) -> bool:
    """Compare answers to the last bit."""
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return np.array_equal(left, right)
    return bool(left == right)


# One case


def make_samples(folder: Path) -> None:
    """Write what is damaged: all golden files, and indexes with cells and with words."""
    for source in [*GOLDEN.glob("*.cbm"), *GOLDEN.glob("*.cb")]:
        shutil.copy(source, folder)
    (folder / "memory.cbm").write_bytes(document_model(calibrated=True).to_bytes())
    (folder / "stored.cbm").write_bytes(small_model(cross_term="stored", calibrated=True).to_bytes())
    payloads = [{"year": 2000 + i % 5, "n": i, "title": f"the sea {i % 7}"} for i in range(200)]
    for name, model, options in (
        ("cells.cb", small_model(calibrated=True), {}),
        ("cells-documents.cb", document_model(calibrated=True), {"words": ["title"]}),
    ):
        images, texts = features(200, 3)
        with Index.create(folder / name, model, n_jobs=1, **options) as index:
            index.add(range(150), images=images[:150], texts=texts[:150], payloads=payloads[:150])
            index.build_cells(images=images, texts=texts, n_cells=5, recall=0.5)
            index.add([f"x{i}" for i in range(50)], images=images[150:], payloads=payloads[150:])
            index.delete([3, 77, "x5"])


def run_case(samples: Path, seed: int, number: int) -> str:
    """Run one case; give its outcome: "refused", "answered", or what is wrong."""
    rng = np.random.default_rng([seed, number])
    kind = "model" if rng.random() < 0.5 else "index"
    source = pick(rng, sorted(samples.glob("*.cbm" if kind == "model" else "*.cb")))
    with tempfile.TemporaryDirectory(dir=shim.memory_folder()) as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if kind == "model":
                data = damage_model(rng, source.read_bytes())
                return judge(lambda: ask_model(data))
            path = Path(folder) / "a.cb"
            shutil.copy(source, path)
            damage_index(rng, path)
        except (InvalidInput, sqlite3.Error, OverflowError, ValueError, ModelFileError):
            return "not writable"  # the damage itself is impossible: two rows of one number, say
        copies = iter(shutil.copy(path, path.with_name(f"{i}.cb")) for i in range(2))
        return judge(lambda: ask_index(Path(next(copies))))


def judge(question: Callable[[], Answers]) -> str:
    """Ask with the extension and with NumPy."""
    native = kernels._native
    try:
        try:
            answers = question()
        except (ModelFileError, IndexFileError):
            return "refused"
        except CrossbyteError:
            return "refused later"
        check_finite(answers)
        kernels._native = None
        # The lasso of NumPy agrees with the other to its tolerance only.
        solve = kernels._solve_lasso
        kernels._solve_lasso = lambda *problem: with_native(native, solve, *problem)
        try:
            compare(answers, question())
        finally:
            kernels._solve_lasso = solve
    except MemoryError:
        return "wrong: MemoryError"
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return (
            f"wrong: {type(error).__name__} {str(error)[:120]} in {Path(place.filename).name}:{place.lineno}"
        )
    finally:
        kernels._native = native
    return "answered"


CASES = cases.Cases("crash.resealed", make_samples, run_case)

if __name__ == "__main__":
    cases.main(CASES, __doc__)
