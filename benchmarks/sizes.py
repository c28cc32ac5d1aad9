"""What a document costs: bytes on disk and in memory, with one code and with two, and what they find.

    python -m benchmarks answers --part size

7,000 documents of Flickr8k with both halves. What is found is taken from the part "documents" as it was last
kept, by bytes *per document*: one code of so many bytes beside two of half as many.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.datasets import flickr8k
from benchmarks.tables import Measurement, load
from crossbyte import CMCQ, Index

BYTES = (2, 4, 8, 16)
CODES = {"document": "one code", "sides": "two codes"}  # the argument of Index.add


def bytes_per_document(model: CMCQ, images: Any, texts: Any, codes: str) -> dict[str, float]:
    """Bytes of codes on disk and in memory, and of everything but the model."""
    with TemporaryDirectory() as folder, Index.create(Path(folder) / "size.cb", model, n_jobs=1) as index:
        index.add(range(len(images)), images=images, texts=texts, codes=codes)
        stats = index.stats()
    disk, memory = stats["disk"]["bytes"], stats["memory"]["bytes"]
    found = {
        "codes on disk": sum(size for name, size in disk.items() if ":codes" in name),
        "file without the model": disk["file"] - disk["model:model"],
        "codes in memory": memory["codes"],
        "all in memory": memory["total"],
    }
    return {name: size / stats["documents"] for name, size in found.items()}


def measure(options: Namespace) -> tuple[list[Measurement], dict[str, Any]]:
    """Sizes at every length, then quality by bytes per document."""
    data = flickr8k(drop_unlabelled=False).train
    entries = []
    for n_bytes in options.bytes or BYTES:
        parameters: dict[str, Any] = {"random_state": 0, "n_jobs": 1, **options.parameters}
        model = CMCQ(8 * n_bytes, **parameters).fit(data.images, data.texts)
        for codes, name in CODES.items():
            for what, size in bytes_per_document(model, data.images, data.texts, codes).items():
                target = n_bytes if (codes, what) == ("document", "codes on disk") else None
                entries.append(
                    Measurement(
                        f"{name}, n_bits={8 * n_bytes}", f"bytes per document: {what}", [size], target
                    )
                )
    kept = ("crossbyte", "crossbyte, two codes", "crossbyte, image code of two")
    return [*entries, *(entry for entry in load("answers-documents") if entry.system in kept)], {
        "documents": len(data)
    }
