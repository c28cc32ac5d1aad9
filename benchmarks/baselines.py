"""Standard quantizers (FAISS) under the harness's own ranking.

Every function codes the given points and returns them **decoded**, as float32; the harness then ranks by
exact distance to the decoded points. No method's own approximate distances can help or hurt it, and all
are asked the same question: how much did the code lose? "Uncompressed" is the points themselves.

``python -m benchmarks.baselines`` measures them on unseen Flickr8k pairs in a CCA space.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets import Split, flickr8k
from benchmarks.tables import Measurement, print_table, save
from crossbyte.metrics.chance import chance_recall
from crossbyte.metrics.ranks import partner_ranks_ties_by_column, recall_at

__all__ = ["FAISS_VERSION", "faiss_lsq", "faiss_pq", "faiss_rq", "set_threads", "uncompressed"]

FAISS_VERSION: str = faiss.__version__
BITS = 8  # one byte per codebook, as in the paper
RQ_BEAM = 5  # FAISS's default, written down because results depend on it

Points = NDArray[np.float32]


def set_threads(n_threads: int) -> None:
    """How many threads FAISS may use in this process; 1 for timings that can be compared."""
    faiss.omp_set_num_threads(n_threads)


def uncompressed(train_points: Points, points: Points, n_codebooks: int, seed: int) -> Points:
    """The points as they are: the upper bound that the others lose from."""
    return _float32(points)


def faiss_rq(train_points: Points, points: Points, n_codebooks: int, seed: int) -> Points:
    """Residual quantizer, codes by beam search.

    Parameters
    ----------
    train_points : (n_train, d) float32
        Points that the codebooks are learned from.
    points : (n, d) float32
        Points to code; they are not learned from.
    n_codebooks : int
        Bytes per point.
    seed : int
        Seed of the quantizer's training.

    Returns
    -------
    (n, d) float32
        The points as their codes remember them.
    """
    quantizer = faiss.ResidualQuantizer(points.shape[1], n_codebooks, BITS)
    quantizer.max_beam_size = RQ_BEAM
    _seed_clustering(quantizer, seed)
    return _through(quantizer, train_points, points)


def faiss_lsq(train_points: Points, points: Points, n_codebooks: int, seed: int) -> Points:
    """Local search quantizer (LSQ++), codes by iterated local search; arguments as :func:`faiss_rq`."""
    quantizer = faiss.LocalSearchQuantizer(points.shape[1], n_codebooks, BITS)
    quantizer.random_seed = seed
    return _through(quantizer, train_points, points)


def faiss_pq(train_points: Points, points: Points, n_codebooks: int, seed: int) -> Points:
    """Product quantizer, for dimensions divisible by ``n_codebooks``; arguments as :func:`faiss_rq`."""
    if points.shape[1] % n_codebooks:
        raise ValueError(
            f"a product quantizer of {n_codebooks} bytes needs a dimension that is a multiple of it;"
            f" got {points.shape[1]}."
        )
    quantizer = faiss.ProductQuantizer(points.shape[1], n_codebooks, BITS)
    _seed_clustering(quantizer, seed)
    return _through(quantizer, train_points, points)


def _seed_clustering(quantizer: Any, seed: int) -> None:
    """Seed the k-means inside, and let it take few points without a warning for each (it only warns)."""
    quantizer.cp.seed = seed
    quantizer.cp.min_points_per_centroid = 1


def _through(quantizer: Any, train_points: Points, points: Points) -> Points:
    """Train, encode, decode."""
    quantizer.train(_float32(train_points))
    codes = quantizer.compute_codes(_float32(points))
    return _float32(quantizer.decode(codes))


def _float32(points: NDArray[Any]) -> Points:
    return np.ascontiguousarray(points, dtype=np.float32)


# The reference measurement: Flickr8k, CCA, 32 dimensions, 4 bytes.

TARGETS = {  # measured with the prototype before the first line of the library was written: I→T, T→I
    "uncompressed": (0.604, 0.595),
    "RQ": (0.594, 0.558),
    "LSQ": (0.563, 0.562),
}
BASELINES: dict[str, Callable[[Points, Points, int, int], Points]] = {
    "uncompressed": uncompressed,
    "RQ": faiss_rq,
    "LSQ": faiss_lsq,
    "PQ": faiss_pq,
}


def common_space(train: Split, query: Split, dim: int) -> tuple[Points, Points, Points, Points]:
    """Regularised CCA, correlations as weights: training images and texts, then the queries'."""
    train_images, query_images = _prepare(train.images, query.images, components=256)
    train_texts, query_texts = _prepare(train.texts.toarray(), query.texts.toarray())
    white_image, white_text = _whitener(train_images), _whitener(train_texts)
    cross = white_image.T @ (train_images.T @ train_texts / len(train)) @ white_text
    left, correlations, right = np.linalg.svd(cross, full_matrices=False)
    image_map = white_image @ left[:, :dim] * correlations[:dim]
    text_map = white_text @ right[:dim].T * correlations[:dim]
    return (
        _float32(_unit(train_images @ image_map)),
        _float32(_unit(train_texts @ text_map)),
        _float32(_unit(query_images @ image_map)),
        _float32(_unit(query_texts @ text_map)),
    )


def _prepare(
    train: NDArray[Any], query: NDArray[Any], components: int | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Centre by the training mean, reduce by PCA if asked, unit length."""
    mean = train.mean(axis=0, dtype=np.float64)
    train, query = train - mean, query - mean
    if components is not None:
        _, vectors = np.linalg.eigh(train.T @ train)
        basis = vectors[:, ::-1][:, :components]
        train, query = train @ basis, query @ basis
    return _unit(train), _unit(query)


def _whitener(points: NDArray[np.float64], ridge: float = 1.0) -> NDArray[np.float64]:
    """W with W'(C + ridge * mean variance)W = I."""
    values, vectors = np.linalg.eigh(points.T @ points / len(points))
    return np.asarray(vectors / np.sqrt(values + ridge * values.mean()))


def _unit(points: NDArray[np.float64]) -> NDArray[np.float64]:
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    return np.asarray(points / np.maximum(lengths, 1e-12))


def recall_both_ways(
    code: Callable[[Points, Points, int, int], Points], space: tuple[Points, ...], n_codebooks: int, seed: int
) -> tuple[float, float]:
    """Recall@10 of unseen pairs, I→T and T→I; queries as they are, items coded from their own side alone."""
    train_images, train_texts, images, texts = space
    coded_texts = code(train_texts, texts, n_codebooks, seed)
    coded_images = code(train_images, images, n_codebooks, seed)
    image_to_text = recall_at(partner_ranks_ties_by_column(_squared(images, coded_texts)), 10)
    text_to_image = recall_at(partner_ranks_ties_by_column(_squared(texts, coded_images)), 10)
    return image_to_text, text_to_image


def _squared(queries: Points, items: Points) -> Points:
    """Exact squared distances, without the cancellation of expanding the square."""
    return np.stack([np.sum((items - query) ** 2, axis=1) for query in queries])


def main(n_seeds: int = 3, dim: int = 32, n_codebooks: int = 4) -> None:
    """Measure every baseline on unseen Flickr8k pairs, print and keep the result."""
    set_threads(1)
    data = flickr8k()
    space = common_space(data.train, data.query, dim)
    chance = chance_recall(len(data.query), 10)
    measurements = []
    for name, code in BASELINES.items():
        seeds = 1 if code is uncompressed else n_seeds
        scores = [recall_both_ways(code, space, n_codebooks, seed) for seed in range(seeds)]
        targets = TARGETS.get(name, (None, None))
        for way, values, target in zip(("I→T", "T→I"), zip(*scores, strict=True), targets, strict=True):
            measurements.append(Measurement(name, f"recall@10 {way}", values, target, chance))
    print_table(f"Flickr8k, unseen pairs, CCA {dim}-d, {n_codebooks} bytes", measurements)
    settings = {"dim": dim, "bytes": n_codebooks, "faiss": FAISS_VERSION, "rq_beam": RQ_BEAM}
    save("peers-flickr8k", measurements, settings | {"n_queries": len(data.query)})


if __name__ == "__main__":
    main()
