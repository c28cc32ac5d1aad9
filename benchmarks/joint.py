"""Encoders that share a space (CLIP and its kind): codes without any pairs, and with some of them.

    python -m benchmarks joint [--sets unsplash ...] [--bytes 8 16 32] [--seeds 3] [--skip-pairs]

Five sets of published vectors of pictures and texts. Nothing tells CMCQ which text belongs to which
picture: ``fit(images, texts, paired=False)``, which knows the mean of both sides as FAISS below does, and
beside it ``fit(images, None, paired=False)``, which centres nothing. A query counts as found if an item of an
equal text (or picture) is among the first ten; ties count as in any order. Uncompressed is the cosine of the
vectors as published ("raw"), and of vectors that are centred on each side first ("centred"). FAISS learns
from the same items, centred and at unit length, and is scored by inner products or by distances, whichever is
better over all sets. Then half of the pairs are known, ``fit(images, texts, paired=n)``, and the texts and
pictures of the other half ask for each other: with pairs, and without (the same rows, paired=False).
"""

from __future__ import annotations

import argparse
import json
from math import comb
from pathlib import Path
from typing import Any, NamedTuple

import faiss
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.baselines import PEERS, set_threads
from benchmarks.datasets import data_root
from crossbyte import CMCQ
from crossbyte.compute.executor import Workers

SETS = {
    "flickr8k": "flickr8k_100x5_vitb32",
    "unsplash": "unsplash_500_vitb32",
    "patents": "design_patents_1000_vitb32",
    "hm": "hm_1126_fashionclip",
    "fashion": "fashion_1000_marqofashionclip",
}
DIRECTIONS = ("text to image", "image to text")
BYTES = (8, 16, 32)
GOALS = {8: 0.90, 16: 0.97, 32: 0.99}  # of uncompressed cosine
FAISS_PEERS = ("PQ", "OPQ", "RQ")
OPQ_DIMS = 256  # after PCA: with 512 of 500 points, FAISS ends the process
K = 10
N_RESAMPLES = 2_000
RESULTS = Path(__file__).parent / "results" / "joint.json"

Rows = NDArray[np.float32]
Found = NDArray[np.float64]


class SharedSpace(NamedTuple):
    """Vectors (n, 512) of pictures and of texts (m, 512), and which belong together: (n, m) bool."""

    images: Rows
    texts: Rows
    belongs: NDArray[np.bool_]
    owner: NDArray[np.intp]

    @classmethod
    def read(cls, name: str) -> SharedSpace:
        """Read a set; texts that are equal belong to all pictures of either."""
        with np.load(data_root() / "clip_pairs" / f"{SETS[name]}.npz") as arrays:
            images, texts = (np.asarray(arrays[side], dtype=np.float32) for side in ("image", "text"))
            owner = np.asarray(arrays["owner"] if "owner" in arrays.files else np.arange(len(images)))
        belongs = np.arange(len(images))[:, None] == owner[None]
        for side, axis in ((texts, 1), (images, 0)):
            _, kinds = np.unique(np.round(bring_to_unit(side), 5), axis=0, return_inverse=True)
            same = (kinds.ravel()[:, None] == kinds.ravel()[None]).astype(np.float32)
            told = belongs.astype(np.float32)
            belongs = (told @ same if axis else same @ told) > 0
        return cls(images, texts, belongs, owner.astype(np.intp))

    def take(self, pictures: NDArray[np.intp]) -> SharedSpace:
        """Take some pictures with all their texts."""
        texts = np.flatnonzero(np.isin(self.owner, pictures))
        owner = np.searchsorted(pictures, self.owner[texts])
        belongs = self.belongs[np.ix_(pictures, texts)]
        return SharedSpace(self.images[pictures], self.texts[texts], belongs, owner)

    def sides(self, direction: str) -> tuple[Rows, Rows, NDArray[np.bool_]]:
        """Give queries, items, and which items a query (row) is to find."""
        if direction == DIRECTIONS[0]:
            return self.texts, self.images, self.belongs.T
        return self.images, self.texts, self.belongs


def bring_to_unit(rows: Any) -> Rows:
    """Divide rows by their length."""
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def centre(rows: Rows, like: Rows) -> Rows:
    """Bring rows to unit length around the mean of others, and to unit length again."""
    return bring_to_unit(bring_to_unit(rows) - bring_to_unit(like).mean(axis=0))


def find_partners(distances: Any, relevant: NDArray[np.bool_]) -> Found:
    """Say how likely any of the relevant items (n, N) is among the first ten, ties in any order: (n,)."""
    distances = np.round(np.asarray(distances, dtype=np.float64), 6)  # equal rows differ in the last bits
    nearest = np.where(relevant, distances, np.inf).min(axis=1)[:, None]
    tied = distances == nearest
    counts = zip(
        (distances < nearest).sum(axis=1), tied.sum(axis=1), (tied & relevant).sum(axis=1), strict=True
    )
    return np.array([_likely_in_first(K - before, size, found) for before, size, found in counts])


def _likely_in_first(places: int, size: int, relevant: int) -> float:
    if places <= 0:
        return 0.0
    return (
        1.0
        if places >= size
        else 1.0 - comb(int(size - relevant), int(places)) / comb(int(size), int(places))
    )


def coded_distances(model: CMCQ, queries: Rows, items: Rows, direction: str) -> Rows:
    """Compute the distances that an index would rank by."""
    to_images = direction == DIRECTIONS[0]
    points = model.transform_texts(queries) if to_images else model.transform_images(queries)
    codes = model.encode_images(items) if to_images else model.encode_texts(items)
    quantizer = model.fitted_.quantizers["image" if to_images else "text"]
    with Workers(1) as workers:
        return quantizer.table(points).distances(quantizer.scan_codes(codes, workers))


def fit(n_bytes: int, seed: int, images: Rows, texts: Rows | None) -> CMCQ:
    """Fit without pairs, with one thread."""
    model = CMCQ(8 * n_bytes, mapping="joint", random_state=seed, n_jobs=1)
    return model.fit(images, texts, paired=False)


def decode_peer(peer: str, items: Rows, n_bytes: int, seed: int) -> Rows:
    """Learn one of FAISS's quantizers from items, and say what their codes stand for."""
    # rows are repeated: FAISS wants as many as codewords, and as many as dimensions
    learned = items[np.resize(np.arange(len(items)), max(len(items), items.shape[1] + 1))]
    if peer != "OPQ":
        return PEERS[peer](learned, n_bytes, seed)(items)
    n_dims = max(n_bytes, min(OPQ_DIMS, len(items) - 1) // n_bytes * n_bytes)
    pca, turn = faiss.PCAMatrix(items.shape[1], n_dims), faiss.OPQMatrix(n_dims, n_bytes)
    pca.train(learned)
    inner = turn.pq = faiss.ProductQuantizer(n_dims, n_bytes, 8)
    quantizer = faiss.ProductQuantizer(n_dims, n_bytes, 8)
    for each in (inner, quantizer):
        each.cp.min_points_per_centroid, each.cp.seed = 1, seed
    turn.train(pca.apply(learned))
    quantizer.train(turn.apply(pca.apply(learned)))
    del inner  # FAISS only borrowed it
    points = quantizer.decode(quantizer.compute_codes(turn.apply(pca.apply(items))))
    return np.asarray(pca.reverse_transform(turn.reverse_transform(points)))


def measure_unpaired(data: SharedSpace, n_bytes: int, seeds: range) -> dict[str, dict[str, Found]]:
    """Measure everything that knows no pairs: by direction and method, (n_queries,), mean of the seeds."""
    found: dict[str, dict[str, list[Found]]] = {direction: {} for direction in DIRECTIONS}

    def keep(direction: str, name: str, distances: Any) -> None:
        relevant = data.sides(direction)[2]
        found[direction].setdefault(name, []).append(find_partners(distances, relevant))

    for seed in seeds:
        for name, texts in (("images alone", None), ("images and texts", data.texts)):
            model = fit(n_bytes, seed, data.images, texts)
            for direction in DIRECTIONS:
                keep(direction, name, coded_distances(model, *data.sides(direction)[:2], direction))
        for direction in DIRECTIONS:
            queries, items, _ = data.sides(direction)
            centred, asked = centre(items, items), centre(queries, queries)
            for peer in FAISS_PEERS:
                decoded = decode_peer(peer, centred, n_bytes, seed)
                products = asked @ decoded.T
                keep(direction, f"{peer} ip", -products)
                keep(direction, f"{peer} l2", (decoded**2).sum(axis=1)[None] - 2 * products)
    told = {
        direction: {name: np.mean(each, axis=0) for name, each in by.items()}
        for direction, by in found.items()
    }
    return told


def measure_uncompressed(data: SharedSpace, direction: str) -> dict[str, Found]:
    """Measure cosines."""
    queries, items, relevant = data.sides(direction)
    raw, centred = (
        bring_to_unit(queries) @ bring_to_unit(items).T,
        centre(queries, queries) @ centre(items, items).T,
    )
    return {"raw": find_partners(-raw, relevant), "centred": find_partners(-centred, relevant)}


def measure_pairs(data: SharedSpace, n_bytes: int, seeds: range) -> dict[str, dict[str, Found]]:
    """Tell half of the pairs; the other half asks among itself."""
    found: dict[str, dict[str, list[Found]]] = {direction: {} for direction in DIRECTIONS}
    for seed in seeds:
        order = np.random.default_rng(seed).permutation(len(data.images))
        half, other = (data.take(np.sort(each)) for each in np.array_split(order, 2))
        # a picture is repeated for each of its texts; the other half has pictures and texts, not in pairs
        images = np.concatenate([half.images[half.owner], other.images])
        texts = np.concatenate([half.texts, other.texts])
        model = CMCQ(8 * n_bytes, mapping="joint", random_state=seed, n_jobs=1)
        models = {
            "with pairs": model.fit(images, texts, groups=half.owner, paired=len(half.texts)),
            "without": fit(n_bytes, seed, images, texts),
        }
        for direction in DIRECTIONS:
            queries, items, relevant = other.sides(direction)
            told = {"raw": -bring_to_unit(queries) @ bring_to_unit(items).T}
            for name, model in models.items():
                told[name] = coded_distances(model, queries, items, direction)
                told[f"{name}, uncompressed"] = point_distances(model, queries, items, direction)
            for name, distances in told.items():
                found[direction].setdefault(name, []).append(find_partners(distances, relevant))
    # halves of other seeds ask other queries: all of them count
    return {d: {name: np.concatenate(each) for name, each in told.items()} for d, told in found.items()}


def point_distances(model: CMCQ, queries: Rows, items: Rows, direction: str) -> Rows:
    """Compute what codes approximate: minus inner products of query points with unit item points."""
    learned, to_images = model.fitted_, direction == DIRECTIONS[0]
    with Workers(1) as workers:
        points = learned.item_points(*((items, None) if to_images else (None, items)), workers)
    asked = model.transform_texts(queries) if to_images else model.transform_images(queries)
    return np.asarray(-asked @ points.T)


def measure_chance(data: SharedSpace, direction: str) -> float:
    """Measure what an order by chance finds."""
    relevant = data.sides(direction)[2]
    return round(float(find_partners(np.zeros(relevant.shape), relevant).mean()), 4)


# What it comes to


def interval(differences: list[Found]) -> list[float]:
    """Give the mean of paired differences, each set counting alike, and its 95 % interval over queries."""
    rng = np.random.default_rng(0)
    drawn = np.mean(
        [each[rng.integers(len(each), size=(N_RESAMPLES, len(each)))].mean(axis=1) for each in differences],
        axis=0,
    )
    mean = float(np.mean([each.mean() for each in differences]))
    return [round(each, 4) for each in (mean, *map(float, np.percentile(drawn, [2.5, 97.5])))]


def summarise_unpaired(told: dict[str, dict[str, Any]], n_bytes: int) -> dict[str, Any]:
    """Pool sets and directions: shares of uncompressed, and how far ahead of FAISS."""
    rows = [each[direction] for each in told.values() for direction in DIRECTIONS]
    own = [each["images and texts"] for each in rows]
    summary: dict[str, Any] = {"n_bytes": n_bytes, "goal": GOALS.get(n_bytes)}
    for base in ("raw", "centred"):
        shares = [float(mine.mean() / each[base].mean()) for mine, each in zip(own, rows, strict=True)]
        summary[f"share_of_{base}"] = {
            "mean": round(float(np.mean(shares)), 4),
            "least": round(min(shares), 4),
        }
    for peer in FAISS_PEERS:
        scores = [f"{peer} {score}" for score in ("ip", "l2")]
        best = max(scores, key=lambda score: float(np.mean([each[score].mean() for each in rows])))
        gained = [mine - each[best] for mine, each in zip(own, rows, strict=True)]
        summary[f"ahead_of_{peer}"] = {"scored": best, "difference": interval(gained)}
    return summary


def round_means(found: dict[str, Found]) -> dict[str, float]:
    """Give means of four places."""
    return {name: round(float(each.mean()), 4) for name, each in found.items()}


def main() -> int:
    """Measure, print, and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="*", choices=list(SETS), default=list(SETS))
    parser.add_argument("--bytes", nargs="*", type=int, default=list(BYTES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--skip-pairs", action="store_true")
    parser.add_argument("--only-pairs", action="store_true")
    options = parser.parse_args()
    set_threads(1)
    threadpool_limits(1)  # FAISS and NumPy bring two libraries of threads
    seeds = range(options.seeds)
    sets = {name: SharedSpace.read(name) for name in options.sets}
    kept: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept["seeds"] = options.seeds
    for n_bytes in options.bytes:
        if not options.only_pairs:
            kept.setdefault("unpaired", {})[str(n_bytes)] = run_unpaired(sets, n_bytes, seeds)
        if not options.skip_pairs:
            kept.setdefault("half_paired", {})[str(n_bytes)] = run_pairs(sets, n_bytes, seeds)
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    return 0


def run_unpaired(sets: dict[str, SharedSpace], n_bytes: int, seeds: range) -> dict[str, Any]:
    """Measure all sets without pairs."""
    told: dict[str, dict[str, Any]] = {}
    rows = {}
    for name, data in sets.items():
        coded = measure_unpaired(data, n_bytes, seeds)
        told[name] = {each: measure_uncompressed(data, each) | coded[each] for each in DIRECTIONS}
        rows[name] = {
            direction: {"chance": measure_chance(data, direction)} | round_means(found)
            for direction, found in told[name].items()
        }
        print(n_bytes, name, json.dumps(rows[name]), flush=True)
    summary = summarise_unpaired(told, n_bytes)
    print(json.dumps(summary), flush=True)
    return {"sets": rows, "summary": summary}


def run_pairs(sets: dict[str, SharedSpace], n_bytes: int, seeds: range) -> dict[str, Any]:
    """Measure all sets with half of the pairs."""
    rows, gained = {}, []
    for name, data in sets.items():
        told = measure_pairs(data, n_bytes, seeds)
        rows[name] = {direction: round_means(found) for direction, found in told.items()}
        gained += [found["with pairs"] - found["without"] for found in told.values()]
        print(n_bytes, name, json.dumps(rows[name]), flush=True)
    summary = {"n_bytes": n_bytes, "with_ahead_of_without": interval(gained)}
    print(json.dumps(summary), flush=True)
    return {"sets": rows, "summary": summary}


if __name__ == "__main__":
    raise SystemExit(main())
