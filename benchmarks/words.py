"""Words and vectors together: what own photographs and their captions answer, by words, by vectors, by both.

    python -m benchmarks words [--case network|minilm|builtin] [--bytes 4 8 16 32] [--seeds 3]

Flickr8k's 1,000 test photographs in a folder with captions 0 and 1, as in ``benchmarks/photographs.py``.
Captions 2 to 4, which are in no index, ask for their photograph: recall@10 among all 1,000, with the bytes
that the program chooses and with fixed ones, over several seeds of the fit. Then a word that stands in the
captions of one photograph alone asks for it; captions just added ask for their document; half of the
photographs lose their captions; and captions of another collection (the fashion pairs) ask for nothing that
is there.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.datasets import data_root
from benchmarks.harness import item_points
from benchmarks.photographs import ASKED, INDEXED, Photographs, describe_network, write_folder
from crossbyte.compute.executor import Workers
from crossbyte.data.captions.layout import read_raw
from crossbyte.encoders.builtin_text import split_words
from crossbyte.gallery.build import build_gallery
from crossbyte.gallery.gallery import Gallery
from crossbyte.metrics.auroc import auroc
from crossbyte.metrics.chance import chance_recall

MODES = ("both", "vectors", "words")
CASES = ("network", "minilm", "builtin")
BYTES = (4, 8, 16, 32)
N_RESAMPLES = 2_000
RESULTS = Path(__file__).parent / "results" / "words.json"


def encoders_of(case: str, folder: Path) -> dict[str, str]:
    """Name the encoders of a case; those left out are the program's own choice."""
    network = {"image_encoder": str(describe_network(folder))}
    if case == "minilm":
        return network | {"text_encoder": str(data_root().resolve() / "encoders" / "minilm-l6-int8.onnx")}
    return network if case == "network" else {"image_encoder": "builtin"}


def build(folder: Path, source: str, case: str, n_bytes: int | None, seed: int = 0) -> Path:
    """Build the gallery anew; features are kept beside it."""
    index = folder / f"{source}.cb"
    index.unlink(missing_ok=True)
    bits = None if n_bytes is None else 8 * n_bytes
    documents = read_raw(folder / source)
    build_gallery(documents, index, n_bits=bits, seed=seed, curve=(), **encoders_of(case, folder))
    return index


def find_partners(gallery: Gallery, queries: list[tuple[str, str]]) -> dict[str, Any]:
    """Ask by every mode whether a document is among the first ten of its text: (n,) booleans each."""
    features = gallery.encode_texts([text for _, text in queries])
    words = [text for _, text in queries]
    found = {}
    for mode in MODES:
        answers = gallery.index.search(texts=features, words=words, mode=mode, k=10)
        found[mode] = np.array([id in hits.ids for (id, _), hits in zip(queries, answers, strict=True)])
    return found


def paired_interval(ahead: Any, behind: Any, n_photographs: int) -> list[float]:
    """Give the 95 % interval of a difference of recalls, over photographs drawn again."""
    rng = np.random.default_rng(0)
    gained = (np.asarray(ahead, dtype=float) - behind).reshape(n_photographs, -1).mean(axis=1)
    drawn = gained[rng.integers(n_photographs, size=(N_RESAMPLES, n_photographs))].mean(axis=1)
    return [round(float(each), 4) for each in np.percentile(drawn, [2.5, 97.5])]


def measure_recall(
    folder: Path, data: Photographs, case: str, n_bytes: int | None, n_seeds: int
) -> dict[str, Any]:
    """Measure recall@10 of unseen captions by every mode; the first seed's index is left for the details."""
    queries = [(name, own[at]) for name, own in zip(data.names, data.captions, strict=True) for at in ASKED]
    runs: list[dict[str, Any]] = []
    found: list[dict[str, Any]] = []
    for seed in reversed(range(n_seeds)):
        began = time.perf_counter()
        index = build(folder, "photographs", case, n_bytes, seed)
        seconds = time.perf_counter() - began
        with Gallery.open(index) as gallery:
            found.append(find_partners(gallery, queries))
            settings = gallery.index.word_settings
            assert settings is not None
            recall = {mode: round(float(each.mean()), 4) for mode, each in found[-1].items()}
            n_chosen = gallery.index.model.n_bits // 8
            own = {"seed": seed, "n_bytes": n_chosen, "weight": settings.weight, "recall": recall}
            runs.append(own | {"held_out": dict(settings.measured), "fit_seconds": round(seconds, 1)})
    means = {mode: np.mean([each[mode] for each in found], axis=0) for mode in MODES}
    return {
        "case": case,
        "wanted_bytes": n_bytes,
        "n_bytes": runs[-1]["n_bytes"],
        "recall": {mode: round(float(each.mean()), 4) for mode, each in means.items()},
        "spread": {mode: round(float(np.std([run["recall"][mode] for run in runs])), 4) for mode in MODES},
        "ahead_of_words": paired_interval(means["both"], means["words"], len(data)),
        "ahead_of_vectors": paired_interval(means["both"], means["vectors"], len(data)),
        "chance": chance_recall(len(data), 10),
        "runs": runs,
    }


def measure_details(folder: Path, data: Photographs, case: str) -> dict[str, Any]:
    """Measure rare words, exact captions, and verdicts, with the index that is there."""
    with Gallery.open(folder / "photographs.cb") as gallery:
        told = {"rare_words": measure_rare_words(gallery, data), "verdicts": measure_verdicts(gallery, data)}
    with Gallery.open(folder / "photographs.cb", "rw") as gallery:
        told["exact"] = measure_exact(gallery, data)
    return {"case": case, **told}


def measure_rare_words(gallery: Gallery, data: Photographs) -> dict[str, Any]:
    """Ask with every word that the indexed captions of one photograph have alone."""
    holders: dict[str, set[str]] = {}
    for name, captions in zip(data.names, data.captions, strict=True):
        for at in INDEXED:
            for word in split_words(captions[at], pairs=False):
                holders.setdefault(word, set()).add(name)
    rare = [(next(iter(names)), word) for word, names in sorted(holders.items()) if len(names) == 1]
    found = find_partners(gallery, rare)
    return {"n": len(rare)} | {mode: round(float(each.mean()), 4) for mode, each in found.items()}


def measure_exact(gallery: Gallery, data: Photographs) -> dict[str, Any]:
    """Add unseen captions to their documents, and ask with them."""
    from crossbyte.gallery.gallery import NewDocument

    chosen = range(0, len(data), 10)
    added = [NewDocument(f"new {row}", text=data.captions[row][ASKED[0]]) for row in chosen]
    gallery.add(added)
    ranks = Counter[int]()
    for document in added:
        assert document.text is not None
        hits = gallery.search(text=document.text, target="document", k=10)
        ranks[hits.ids.index(document.id) + 1 if document.id in hits.ids else 0] += 1
    gallery.delete([document.id for document in added])
    return {"n": len(added), "first": ranks[1], "in_ten": len(added) - ranks[0]}


def measure_verdicts(gallery: Gallery, data: Photographs) -> dict[str, Any]:
    """Ask with unseen captions, and with captions of another collection."""
    own = [(name, captions[ASKED[0]]) for name, captions in zip(data.names, data.captions, strict=True)]
    foreign = read_foreign(len(own))
    told: dict[str, Any] = {"n_own": len(own), "n_foreign": len(foreign)}
    for mode in MODES:
        mine = [gallery.search(text=text, mode=mode) for _, text in own]
        others = [gallery.search(text=text, mode=mode) for text in foreign]
        order = {"nothing": 0, "weak": 1, "fair": 2, "strong": 3}
        scores = [order[hits.verdict or "nothing"] for hits in (*mine, *others)]
        strong = [
            name in hits.ids for (name, _), hits in zip(own, mine, strict=True) if hits.verdict == "strong"
        ]
        n_wrong = sum(hits.verdict == "strong" for hits in others)
        told[mode] = {
            "own": dict(Counter(str(hits.verdict) for hits in mine)),
            "foreign": dict(Counter(str(hits.verdict) for hits in others)),
            "auroc": round(auroc(scores, np.repeat([True, False], [len(mine), len(others)])), 4),
            "precision_of_strong": round(sum(strong) / max(1, len(strong) + n_wrong), 4),
        }
    return told


def read_foreign(n: int) -> list[str]:
    """Read titles of the fashion pairs."""
    with np.load(next((data_root() / "fashion").glob("*.npz"))) as arrays:
        name = next(each for each in arrays.files if each.startswith("title"))
        return [str(each) for each in arrays[name][:n]]


def measure_without_captions(folder: Path, data: Photographs, case: str) -> dict[str, Any]:
    """Take the captions from every second photograph, and ask for these."""
    write_folder(folder / "half", data, range(0, len(data), 2))
    for row in range(1, len(data), 2):
        shutil.copy(data_root() / "flickr8k" / "images_test" / data.names[row], folder / "half")
    index = build(folder, "half", case, None)
    queries = [(data.names[row], data.captions[row][at]) for row in range(1, len(data), 2) for at in ASKED]
    with Gallery.open(index) as gallery:
        found = find_partners(gallery, queries)
        names = [name for name in map(str, gallery.index.ids()) if name in {name for name, _ in queries}]
        return {
            "case": case,
            "n_documents": len(gallery),
            "n_bytes": gallery.index.model.n_bits // 8,
            "recall_without_captions": {mode: round(float(each.mean()), 4) for mode, each in found.items()},
            "chance": chance_recall(len(gallery), 10),
            "among_themselves": measure_among_themselves(gallery, folder / "half", names, queries),
        }


def measure_among_themselves(
    gallery: Gallery, folder: Path, names: list[str], queries: list[tuple[str, str]]
) -> dict[str, float]:
    """Measure recall@10 of pictures known by themselves alone, coded and not, without all the others."""
    model = gallery.index.model
    pictures = gallery.encode_pictures([gallery.read_picture(folder / name) for name in names])
    asked = model.transform_texts(gallery.encode_texts([text for _, text in queries]))
    partners = np.array([names.index(name) for name, _ in queries])
    quantizer = model.fitted_.quantizers["image"]
    with Workers(None) as workers:
        codes = quantizer.scan_codes(model.encode_images(pictures), workers)
    items = item_points(model, images=pictures)
    by_kind = {
        "coded": quantizer.table(asked).distances(codes),
        "uncompressed": np.einsum("nd,nd->n", items, items) - 2 * asked @ items.T,
    }
    recalls = {
        kind: (first_ten(each) == partners[:, None]).any(axis=1).mean() for kind, each in by_kind.items()
    }
    return {kind: round(float(each), 4) for kind, each in recalls.items()} | {
        "chance": chance_recall(len(names), 10)
    }


def first_ten(distances: Any) -> Any:
    """Give the columns of the ten nearest of each row."""
    return np.argsort(distances, axis=1, kind="stable")[:, :10]


def main() -> int:
    """Measure, print, and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--bytes", nargs="*", type=int, default=list(BYTES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--skip-details", action="store_true")
    options = parser.parse_args()
    data = Photographs.read()
    kept: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for case in options.case:
        with TemporaryDirectory() as name:
            folder = Path(name)
            write_folder(folder / "photographs", data, range(len(data)))
            for n_bytes in (*options.bytes, None):
                row = measure_recall(folder, data, case, n_bytes, options.seeds)
                print(json.dumps(row), flush=True)
                kept.setdefault(case, {}).setdefault("recall", {})[str(n_bytes or "chosen")] = row
            if not options.skip_details:
                for key, measure in (("details", measure_details), ("half", measure_without_captions)):
                    kept[case][key] = measure(folder, data, case)
                    print(json.dumps(kept[case][key]), flush=True)
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
