"""Models with random codebooks and offsets: harder sums than any fit would give, and no time to fit them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from crossbyte import CMCQ, Index
from crossbyte.compute.executor import Workers
from crossbyte.model.quantization import codebooks
from crossbyte.model.quantization.quantizer import Quantizer
from support.index_twin import features, small_model

COUNT = 40  # documents of each kind
N_DIMS = 3


def random_model(n_codebooks: int, cross_term: str, seed: int = 0, calibrated: bool = True) -> CMCQ:
    """The common space of a small fit, and random words, codes and coding offsets."""
    rng = np.random.default_rng([seed, n_codebooks])
    base = small_model(8, n_components=N_DIMS, calibrated=True)
    learned, calibration = base.fitted_, base.calibration_
    assert calibration is not None
    offsets = {
        key: line._replace(at_held_out=float(rng.normal() / 10)) for key, line in calibration.offsets.items()
    }
    parts: dict[str, Any] = {}
    for side in ("image", "text"):
        codes = random_codes(rng, len(learned.image_codes), n_codebooks)
        parts |= {f"{side}_codes": codes, f"{side}_quantizer": _quantizer(rng, codes, cross_term)}
    settings = learned.settings._replace(n_codebooks=n_codebooks, cross_term=cross_term)
    model: CMCQ = CMCQ.from_bytes(base.to_bytes()).set_params(n_bits=8 * n_codebooks, cross_term=cross_term)
    model._learned = replace(learned, settings=settings, **parts)
    model._calibration = replace(calibration, offsets=offsets) if calibrated else None
    return model


def random_codes(rng: np.random.Generator, n: int, n_codebooks: int) -> np.ndarray:
    return rng.integers(0, 256, size=(n, n_codebooks), dtype=np.uint8)


def _quantizer(rng: np.random.Generator, codes: np.ndarray, cross_term: str) -> Quantizer:
    words = (rng.normal(size=(codes.shape[1], 256, N_DIMS)) / np.sqrt(codes.shape[1])).astype(np.float32)
    with Workers(1) as workers:
        epsilon = float(codebooks.cross_terms(words, codes, workers).mean())
        return Quantizer(words, epsilon, 0.1, None).with_cross_term(cross_term, codes, workers)


def random_index(path: Path, model: CMCQ, seed: int = 0, count: int = COUNT) -> Index:
    """Documents of every coding, the first of each kind deleted again; open for writing."""
    rng, n_codebooks = np.random.default_rng(seed), len(model.image_codebooks_)
    index = Index.from_training(path, model, [f"t{i}" for i in range(len(model.image_codes_))], n_jobs=1)
    codes = [random_codes(rng, count, n_codebooks) for _ in range(4)]
    index.add([f"p{i}" for i in range(count)], image_codes=codes[0], text_codes=codes[1])
    index.add([f"i{i}" for i in range(count)], image_codes=codes[2])
    index.add(list(range(count)), text_codes=codes[3])
    index.delete(["t0", "p0", "i0", 0])
    return index


def random_queries(n: int, seed: int) -> dict[str, np.ndarray]:
    """Features (n, d) of both kinds, by the name of their argument."""
    images, texts = features(n, seed)
    return {"images": images, "texts": texts}
