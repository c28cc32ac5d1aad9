"""Encoders: how many items they take per second, and whether an ONNX description makes the known features.

    python -m benchmarks.encoders                 # about 2 minutes

Pictures are test photographs of Flickr8k, reduced to 288 pixels, texts their captions. Speed is items per
second of CPU time (of all threads), the median of turns: on a machine with other work the clock on the wall
says little. The features in the dataset were made with the same network from the original photographs, so
those made here from the reduced ones cannot be equal; the right description is the one that comes nearest.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.datasets import data_root
from benchmarks.tables import Measurement, print_table, save
from benchmarks.timing import CLOCKS, medians, seconds_per_call, take_turns
from crossbyte.encoders.base import Encoder
from crossbyte.encoders.registry import make_encoder

N_PICTURES = 60
REPETITIONS = 3
NETWORK = {"output": "feat", "short_side": 256, "scaling": "(x-127)/128"}
PREPARATIONS: dict[str, dict[str, Any]] = {
    "as its makers say": {},
    "bilinear": {"resampling": "bilinear"},
    "lanczos": {"resampling": "lanczos"},
    "nearest": {"resampling": "nearest"},
    "squashed": {"fit": "squash"},
    "short side 224": {"short_side": 224},
    "BGR": {"colour": "BGR"},
    "usual means": {"scaling": {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}},
}


def photographs(names: NDArray[Any]) -> list[NDArray[np.uint8]]:
    """Test photographs as arrays."""
    folder = data_root() / "flickr8k" / "images_test"
    return [np.asarray(Image.open(folder / str(name)).convert("RGB")) for name in names]


def network(folder: Path, **changes: Any) -> Encoder:
    """EfficientNet-Lite0 by a description of its own."""
    model = data_root().resolve() / "encoders" / "efficientnet-lite0.onnx"
    path = folder / "description.json"
    path.write_text(json.dumps({"model": str(model), **NETWORK, **changes}), encoding="utf-8")
    return make_encoder(str(path), "image", [], n_jobs=1)


def nearness(found: NDArray[Any], known: NDArray[Any]) -> float:
    """Cosines of rows with those that are known, on average."""
    lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(known, axis=1)
    return float(np.mean((found * known).sum(axis=1) / lengths))


def speed(encoder: Encoder, items: list[Any]) -> Callable[[], float]:
    """CPU seconds per item of one turn."""
    return lambda: seconds_per_call(CLOCKS["cpu"], [lambda: encoder.encode(items)]) / len(items)


def speeds(pictures: list[Any], captions: list[str], folder: Path) -> list[Measurement]:
    """Items per second of CPU time."""
    turns = {
        "built-in, pictures": speed(make_encoder("builtin", "image", pictures), pictures),
        "EfficientNet-Lite0 (ONNX), pictures": speed(network(folder), pictures),
        "built-in, texts": speed(make_encoder("builtin", "text", captions), captions),
    }
    found = medians(take_turns(turns, REPETITIONS))
    return [Measurement(name, "items per second of CPU time", [1 / one]) for name, one in found.items()]


def preparations(pictures: list[Any], known: NDArray[Any], folder: Path) -> list[Measurement]:
    """How near each description comes to the features that are known."""
    score = "mean cosine with the features of the originals"
    found = {name: network(folder, **changes).encode(pictures) for name, changes in PREPARATIONS.items()}
    return [
        Measurement(f"EfficientNet-Lite0, {name}", score, [nearness(np.asarray(rows), known)])
        for name, rows in found.items()
    ]


def main() -> None:
    """Measure, print and keep."""
    with np.load(data_root() / "flickr8k" / "flickr8k.npz") as data:
        known = data["image_query"][:N_PICTURES].astype(np.float32)
        pictures = photographs(data["name_query"][:N_PICTURES])
        captions = [str(caption) for caption in data["captions_query"].ravel()]
    with TemporaryDirectory() as name:
        folder = Path(name)
        entries = speeds(pictures, captions, folder)
        entries += preparations(pictures, known, folder)
    print_table("Encoders", entries)
    save("encoders", entries, {"pictures": N_PICTURES, "captions": len(captions), "repetitions": REPETITIONS})


if __name__ == "__main__":
    main()
