"""Record what fits and an index give, byte for byte, and compare another checkout with it.

    git -C OLD checkout v0.6.0 && OLD/.venv/bin/python scripts/recorded_fits.py record fits.json
    .venv/bin/python scripts/recorded_fits.py compare fits.json

For changes that must move nothing: the paper's estimator (``CMCQ.paper``; ``CMCQ`` before 0.7) and its
ablations, each dense with one thread, sparse with two, and from disk; then the answers of an index. Bytes
are equal on one kind of processor and one set of libraries only, so the record is made anew on the machine at
hand and is never kept. From 0.7 on, models are calibrated otherwise than in 0.6: against that version, the
calibrated model, its report and probabilities differ, and nothing else.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from crossbyte import CMCQ, Index, open_rows

N_PAIRS, N_QUERIES = 700, 40
VARIANTS: dict[str, dict[str, Any]] = {
    "the paper": {},
    "one dictionary": {"shared_codebooks": True},
    "ratio": {"sparsity_mode": "ratio"},
    "stored": {"cross_term": "stored", "query_map": "ridge"},
    "no correlation": {"correlation": 0.0},
}
SMALL = {"n_bits": 16, "n_components": 12, "n_atoms": 48, "max_iter": 3, "random_state": 0}


paper: Any = getattr(CMCQ, "paper", CMCQ)


def make_pairs() -> tuple[Any, Any]:
    """Draw pairs from hidden vectors seen through two matrices: (n, 40) dense, (n, 60) with many zeros."""
    rng = np.random.default_rng(7)
    hidden = rng.standard_normal((N_PAIRS + N_QUERIES, 8))
    images = hidden @ rng.standard_normal((8, 40)) + 0.3 * rng.standard_normal((len(hidden), 40))
    texts = np.maximum(hidden @ rng.standard_normal((8, 60)) - 2, 0)
    return images.astype(np.float32), texts.astype(np.float32)


def digest(*parts: bytes) -> str:
    """Digest several byte strings, each with its boundaries."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(hashlib.sha256(part).digest())
    return whole.hexdigest()


def record_fits(images: Any, texts: Any, folder: Path) -> dict[str, str]:
    """Fit every mapping in three ways, and digest the bytes of the models."""
    np.save(folder / "images.npy", images)
    np.save(folder / "texts.npy", texts)
    stored = open_rows(folder / "images.npy"), open_rows(folder / "texts.npy")
    ways = {
        "dense, 1 thread": ((images, texts), 1),
        "sparse texts, 2 threads": ((images, sparse.csr_array(texts)), 2),
        "from disk, 2 threads": (stored, 2),
    }
    return {
        f"fit {name}, {way}": digest(paper(n_jobs=n_jobs, **SMALL | variant).fit(*sides).to_bytes())
        for name, variant in VARIANTS.items()
        for way, (sides, n_jobs) in ways.items()
    }


def record_answers(images: Any, texts: Any, folder: Path) -> dict[str, str]:
    """Search an index of all codings, with filters, groups, probabilities and cells; digest the answers."""
    first, second, queries = slice(0, 400), slice(400, N_PAIRS), slice(N_PAIRS, None)
    model = paper(n_jobs=1, cross_term="stored", **SMALL).fit(images[first], texts[first])
    model.calibrate(images[first], texts[first], curve=())
    found = {"calibrated model": digest(model.to_bytes()), "report": digest(str(model.report_).encode())}
    payloads = [{"year": 2000 + place % 20, "kind": "ab"[place % 2]} for place in range(N_PAIRS)]
    with Index.from_training(folder / "one.cb", model, payloads=payloads[first]) as index:
        index.add(
            [f"p{place}" for place in range(300)],
            images=images[second],
            texts=texts[second],
            payloads=payloads[second],
            groups=[place // 3 for place in range(300)],
        )
        index.add([f"i{place}" for place in range(100)], images=images[first][:100])
        index.add([f"t{place}" for place in range(100)], texts=texts[first][100:200])
        index.delete([3, 5, "p7"])
        searches: dict[str, dict[str, Any]] = {
            "text to image": {"texts": texts[queries]},
            "image to text": {"images": images[queries]},
            "documents": {"texts": texts[queries], "target": "document", "k": 30},
            "like": {"like": ["p1", "i4", 8]},
            "where": {"texts": texts[queries], "where": "year >= 2010 AND kind = 'a'", "payloads": True},
            "groups": {"images": images[queries], "distinct": "group"},
            "probable": {"images": images[queries], "min_probability": 0.01},
        }
        for name, arguments in searches.items():
            found |= _digest_answers(f"search {name}", index.search(**arguments))
        index.build_cells(images=images[first], texts=texts[first], n_cells=12)
        for name, arguments in searches.items():
            found |= _digest_answers(f"cells {name}", index.search(**arguments))
        index.compact()
        found["facets"] = digest(repr(index.facets()).encode())
        found["explanation"] = digest(str(index.explain("p1", texts=texts[-1], target="image")).encode())
    return found


def _digest_answers(name: str, answers: list[Any]) -> dict[str, str]:
    """Digest all that answers say, floats to their last bit: what was found, and how sure that is."""
    hits, sure = [], []
    for each in answers:
        hits.append(repr((each.ids, each.distances.tolist(), each.numbers.tolist(), each.payloads)).encode())
        stated = None if each.probabilities is None else np.asarray(each.probabilities).tolist()
        sure.append(repr((each.no_match, stated)).encode())
    return {name: digest(*hits), f"{name}, probabilities": digest(*sure)}


def main() -> int:
    """Record digests in a file, or compare with those in it; 1 if any differs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("command", choices=["record", "compare"])
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    images, texts = make_pairs()
    with tempfile.TemporaryDirectory() as folder:
        found = record_fits(images[:N_PAIRS], texts[:N_PAIRS], Path(folder))
        found |= record_answers(images, texts, Path(folder))
    if options.command == "record":
        options.file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"{len(found)} digests recorded")
        return 0
    expected = json.loads(options.file.read_text(encoding="utf-8"))
    names = sorted(expected.keys() | found.keys())  # one that only one side has differs, too
    other = [name for name in names if expected.get(name) != found.get(name)]
    print(f"{len(names) - len(other)} of {len(names)} digests are the same", *other, sep="\n  ")
    return 1 if other else 0


if __name__ == "__main__":
    sys.exit(main())
