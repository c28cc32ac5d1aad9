"""Make the golden indexes that are not there yet; see README.md before doing so.

Run from the repository's root: ``python tests/golden/make_index.py``. It never overwrites a file.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from crossbyte import CMCQ
from crossbyte.index.index import Index

HERE = Path(__file__).parent
FILTERS = ("year >= 2001", "colour = 'red' OR size.h < 2", "colour IS NULL")


def pairs(n: int, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The pairs of the golden models, by plain arithmetic: (n, 8) and (n, 6)."""
    spec = importlib.util.spec_from_file_location("golden_make", HERE / "make.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    images, texts = module.pairs(n, first)
    return images, texts


def payload(i: int) -> dict[str, Any]:
    """Some of every type, and not the same fields in every document."""
    full = {
        "year": 2000 + i % 4,
        "colour": ["red", "grün"][i % 2],
        "size": {"h": i / 2},
        "tags": ["a"] * (i % 3),
    }
    return {name: value for place, (name, value) in enumerate(full.items()) if (i + place) % 5}


def pair_documents(path: Path) -> None:
    """The paper's setting: pairs with string ids, the cross term taken for constant."""
    images, texts = pairs(10, first=200)
    with Index.create(path, CMCQ.load(HERE / "sparse.cbm")) as index:
        ids = [f"p{i}" for i in range(10)]
        index.add(ids, images=images, texts=texts, payloads=[payload(i) for i in range(10)])


def mixed_documents(path: Path) -> None:
    """Integer ids; pairs, single images and single texts; the cross term stored; no payloads."""
    images, texts = pairs(12, first=300)
    with Index.create(path, CMCQ.load(HERE / "cca-stored.cbm")) as index:
        index.add(range(-2, 2), images=images[:4], texts=texts[:4])
        index.add([2**40, 7, 8, 9], images=images[4:8])
        index.add([100, 101, 102, 103], texts=texts[8:])


def calibrated_documents(path: Path) -> None:
    """All codings but training, with the offsets that let them compete."""
    images, texts = pairs(12, first=500)
    with Index.create(path, CMCQ.load(HERE / "calibrated.cbm")) as index:
        index.add(["a", "b", "c", "d"], images=images[:4], texts=texts[:4])
        index.add(["e", "f", "g", "h"], images=images[4:8])
        index.add(["i", "j", "k", "l"], texts=texts[8:])


def history(path: Path) -> None:
    """Ids of both types, groups, payloads; deletions, updates, upserts; many segments."""
    images, texts = pairs(12, first=400)
    payloads = [payload(i) for i in range(12)]
    with Index.create(path, CMCQ.load(HERE / "cca-stored.cbm")) as index:
        groups = ["x", "x", "y", "ü", "y"]
        index.add(
            ["1", 1, "", "ä", 2], images=images[:5], texts=texts[:5], payloads=payloads[:5], groups=groups
        )
        index.add(["i", "j", "k"], images=images[5:8], payloads=payloads[5:8])
        index.delete([1, "j"])
        index.upsert(["ä", "new"], texts=texts[8:10], payloads=payloads[8:10], groups=["x", "z"])
        index.update_payloads(["1", "k"], [{"year": 1999, "none": None}, {}])
        index.add([1], images=images[10:11], texts=texts[10:11])


def compacted_history(path: Path) -> None:
    """The same documents after a compaction."""
    history(path)
    with Index.open(path, mode="rw") as index:
        index.compact()


def training_documents(path: Path) -> None:
    """The paper's search: the training documents with their learned codes."""
    ids = [f"t{i}" for i in range(40)]
    Index.from_training(path, CMCQ.load(HERE / "sparse.cbm"), ids).close()


def empty(path: Path) -> None:
    """No document at all."""
    Index.create(path, CMCQ.load(HERE / "sparse.cbm")).close()


def whole_documents(path: Path) -> None:
    """Format 2: training documents with one code, new ones with one, with two and with one side, payloads."""
    images, texts = pairs(16, first=600)
    payloads = [payload(i) for i in range(16)]
    with Index.from_training(path, CMCQ.load(HERE / "documents.cbm"), range(40)) as index:
        index.add(["a", "b", "c", "d"], images=images[:4], texts=texts[:4], payloads=payloads[:4])
        index.add(["e", "f"], images=images[4:6], texts=texts[4:6], codes="sides", groups=["x", "x"])
        index.add(["g", "h", "i"], images=images[6:9], payloads=payloads[6:9], groups=["x", "y", "y"])
        index.add(["j", "k"], texts=texts[9:11], payloads=payloads[9:11])
        index.delete(["b", 7])
        index.upsert(["g", "k"], images=images[11:13], texts=texts[11:13], payloads=payloads[11:13])


def calibrated_whole_documents(path: Path) -> None:
    """Format 2: documents of one code, of two and of one side, with the offsets that let them compete."""
    images, texts = pairs(16, first=700)
    with Index.create(path, CMCQ.load(HERE / "documents-calibrated.cbm")) as index:
        index.add(["a", "b", "c", "d"], images=images[:4], texts=texts[:4])
        index.add(["e", "f", "g", "h"], images=images[4:8])
        index.add(["i", "j", "k", "l"], texts=texts[8:12])
        index.add([1, 2, 3, 4], images=images[12:], texts=texts[12:], codes="sides")


GOLDEN: dict[str, Callable[[Path], None]] = {
    "index-pairs": pair_documents,
    "index-mixed": mixed_documents,
    "index-calibrated": calibrated_documents,
    "index-history": history,
    "index-compacted": compacted_history,
    "index-training": training_documents,
    "index-empty": empty,
    "index-documents": whole_documents,
    "index-documents-calibrated": calibrated_whole_documents,
}


def answers(path: Path) -> dict[str, Any]:
    """What a golden index must go on answering."""
    with Index.open(path) as index:
        index.verify()
        documents = [document(index.get(key)) for key in index.ids()]
        return {"generation": index.generation, "documents": documents, "searches": searches(index)}


def document(found: Any) -> list[Any]:
    """One document as JSON."""
    codes = [None if code is None else code.tolist() for code in (found.image_code, found.text_code)]
    if found.document_code is not None:
        codes.append(found.document_code.tolist())
    return [found.id, found.payload, found.coding, found.group, *codes]


def searches(index: Any) -> list[list[Any]]:
    """Both kinds of query against every target, and each option once."""
    images, texts = pairs(2, first=1000)
    found = []
    for target in ("image", "text", "document"):
        options: list[dict[str, Any]] = [{"images": images}, {"texts": texts}]
        options += [{"texts": texts, "where": where} for where in FILTERS if filterable(index)]
        options += [{"images": images, "distinct": "group"}, {"images": images, "k": 3}]
        for given in options:
            for hits in index.search(**({"k": 50, "target": target} | given)):
                found.append([hits.ids, [round(float(value), 3) for value in hits.distances]])
    return found


def filterable(index: Any) -> bool:
    """Whether the documents have the fields that the filters name."""
    return any((index.get(key).payload or {}).get("year") for key in index.ids())


def make() -> None:
    for name, build in GOLDEN.items():
        path = HERE / f"{name}.cb"
        if path.exists():  # golden files are never overwritten
            continue
        build(path)
        text = json.dumps(answers(path), ensure_ascii=False, sort_keys=True)
        (HERE / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    make()
