"""Make golden models; see README.md before doing so.

Run from the repository's root: ``python tests/golden/make.py name ...``. Those of format 1 were made when
other values were the defaults: their parameters are here to be compared, and today's fits are others.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crossbyte import CMCQ
from crossbyte.calibration.calibration import Calibration

HERE = Path(__file__).parent

GOLDEN: dict[str, dict[str, Any]] = {
    "sparse": {"mapping": "sparse", "n_atoms": 12, "image_components": 6},
    "cca-stored": {"mapping": "cca", "n_bits": 16, "cross_term": "stored"},
    "auto": {"mapping": "auto"},
    "calibrated": {"mapping": "cca"},
    "documents": {"mapping": "cca", "scoring": "likelihood"},
    "documents-calibrated": {"mapping": "cca", "scoring": "likelihood", "n_bits": 16},
}
FORMAT_2 = ("documents", "documents-calibrated")
COMMON = {"n_bits": 8, "n_components": 4, "max_iter": 2, "random_state": 0}


def pairs(n: int, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Pairs by plain arithmetic, so that they are the same wherever the tests run: (n, 8) and (n, 6)."""
    topic = ((np.arange(first, first + n)[:, None] * [37, 101, 59]) % [7, 11, 13]).astype(np.float64)
    image_view = (np.arange(24).reshape(3, 8) * 29 % 17) - 8.0
    text_view = np.maximum((np.arange(18).reshape(3, 6) * 23 % 13) - 5.0, 0.0)
    noise = (np.arange(first, first + n)[:, None] * (np.arange(8) + 3) * 7 % 5) - 2.0
    return topic @ image_view + noise, topic @ text_view + np.abs(noise[:, :6])


def answers(model: CMCQ) -> dict[str, Any]:
    """What a golden model must go on answering, for pairs that it has not seen."""
    images, texts = pairs(12, first=1000)
    image_codes, text_codes = model.encode_pairs(images, texts)
    found = {
        "encode_images": model.encode_images(images),
        "encode_texts": model.encode_texts(texts),
        "encode_pairs_images": image_codes,
        "encode_pairs_texts": text_codes,
        "image_codes_": model.image_codes_,
        "distances": model.training_distances(texts=texts)[:3, :5].astype(np.float64).round(5),
    }
    if model.fitted_.has_document_codes:
        found["encode_documents"] = model.encode_documents(images, texts)
    return {name: values.tolist() for name, values in found.items()}


def offsets(calibration: Calibration) -> list[list[Any]]:
    """Offsets of a calibration for an index of 4000 items."""
    return [[*key, round(calibration.offset(*key, n_items=4000), 9)] for key in sorted(calibration.offsets)]


def make(names: Sequence[str]) -> None:
    for name in names:
        changes = GOLDEN[name]
        model = CMCQ(**(COMMON | changes)).fit(*pairs(40))
        if name.endswith("calibrated"):
            model.calibrate(*pairs(40))
        digest = model.save(HERE / f"{name}.cbm")
        expected = {"digest": digest, "params": changes, "answers": answers(model)}
        if model.calibration_ is not None:
            expected["offsets"] = offsets(model.calibration_)
        (HERE / f"{name}.json").write_text(json.dumps(expected, sort_keys=True) + "\n")


if __name__ == "__main__":
    make(sys.argv[1:])
