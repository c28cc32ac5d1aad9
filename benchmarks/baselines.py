"""Standard quantizers (FAISS), run as somebody who knows them would, under the harness's own ranking.

Every function learns from training points and returns a coder: points in, the same points **decoded** out, as
float32. The harness then ranks by exact distance to the decoded points. No method's own approximate
distances can help or hurt it, and all are asked the same question: how much did the code lose?

The residual quantizer is there twice, as FAISS trains it and with its codebooks refined by least squares:
which is better depends on the points and on their number. FAISS itself takes at most 65,536 points for
k-means; refining and local search, which take minutes for every ten thousand at 16 bytes, are given fewer.
"""

from __future__ import annotations

from collections.abc import Callable

import faiss
import numpy as np
from numpy.typing import NDArray

from crossbyte.compute.executor import Workers
from crossbyte.lab.methods.cca_quantized import TrainedQuantizer, train_opq, train_pq
from crossbyte.model.quantization.codebooks import decode

__all__ = ["FAISS_SETTINGS", "FAISS_VERSION", "PEERS", "Coder", "set_threads"]

FAISS_VERSION: str = faiss.__version__
BITS = 8  # one byte per codebook, as in the paper
TRAINING_BEAM = 5  # FAISS's default; with 16 the codewords were worse
BEAM = 32  # at encoding
MOST_POINTS, MOST_POINTS_OF_SLOW = 65_536, 16_384
FAISS_SETTINGS = {
    "faiss": FAISS_VERSION,
    "rq_beam": BEAM,
    "training_points": MOST_POINTS,
    "training_points_refined_and_lsq": MOST_POINTS_OF_SLOW,
}

Points = NDArray[np.float32]
Coder = Callable[[Points], Points]


def set_threads(n_threads: int) -> None:
    """How many threads FAISS may use in this process; 1 for timings that can be compared."""
    faiss.omp_set_num_threads(n_threads)


def faiss_rq(train_points: Points, n_codebooks: int, seed: int, *, refined: bool = False) -> Coder:
    """Residual quantizer, codes by beam search.

    Parameters
    ----------
    train_points : (n_train, d) float32
        Points that the codebooks are learned from.
    n_codebooks : int
        Bytes per point.
    seed : int
        Seed of the quantizer's training.
    refined : bool
        Refine the codebooks by least squares after every step.

    Returns
    -------
    callable
        Points (n, d) to the points (n, d) that their codes stand for; nothing is learned from them.
    """
    quantizer = faiss.ResidualQuantizer(train_points.shape[1], n_codebooks, BITS)
    quantizer.max_beam_size = TRAINING_BEAM
    if refined:
        quantizer.train_type |= faiss.ResidualQuantizer.Train_refine_codebook
    quantizer.cp.seed = seed
    quantizer.cp.min_points_per_centroid = 1  # few points: FAISS would only warn
    quantizer.train(_sample(train_points, seed, MOST_POINTS_OF_SLOW if refined else MOST_POINTS))
    quantizer.max_beam_size = BEAM
    return lambda points: quantizer.decode(quantizer.compute_codes(_float32(points)))


def faiss_rq_refined(train_points: Points, n_codebooks: int, seed: int) -> Coder:
    """The same with refined codebooks."""
    return faiss_rq(train_points, n_codebooks, seed, refined=True)


def faiss_lsq(train_points: Points, n_codebooks: int, seed: int) -> Coder:
    """Local search quantizer (LSQ++), codes by iterated local search; arguments as :func:`faiss_rq`."""
    quantizer = faiss.LocalSearchQuantizer(train_points.shape[1], n_codebooks, BITS)
    quantizer.random_seed = seed
    quantizer.train(_sample(train_points, seed, MOST_POINTS_OF_SLOW))
    return lambda points: quantizer.decode(quantizer.compute_codes(_float32(points)))


def faiss_pq(train_points: Points, n_codebooks: int, seed: int) -> Coder:
    """Product quantizer, dimensions dealt to its parts by their variances; arguments as :func:`faiss_rq`."""
    return _through(train_pq(_sample(train_points, seed), 8 * n_codebooks, seed))


def faiss_opq(train_points: Points, n_codebooks: int, seed: int) -> Coder:
    """Product quantizer after a learned rotation; arguments as :func:`faiss_rq`."""
    return _through(train_opq(_sample(train_points, seed), 8 * n_codebooks, seed))


PEERS: dict[str, Callable[[Points, int, int], Coder]] = {
    "PQ": faiss_pq,
    "OPQ": faiss_opq,
    "RQ": faiss_rq,
    "RQ refined": faiss_rq_refined,
    "LSQ": faiss_lsq,
}


def _through(quantizer: TrainedQuantizer) -> Coder:
    def code(points: Points) -> Points:
        with Workers(1) as workers:
            return decode(quantizer.codewords, quantizer.encode(_float32(points)), workers)

    return code


def _sample(points: Points, seed: int, most: int = MOST_POINTS) -> Points:
    """At most so many of the points."""
    if len(points) <= most:
        return _float32(points)
    rows = np.random.default_rng(seed).choice(len(points), most, replace=False)
    return _float32(points[np.sort(rows)])


def _float32(points: Points) -> Points:
    return np.ascontiguousarray(points, dtype=np.float32)
