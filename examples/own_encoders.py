"""Two encoders of your own, which share nothing: functions of a module, named as ``module:function``.

Put your networks in their place; ``crossbyte fit FOLDER --image-encoder module:function`` does the same.
"""

import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np

from crossbyte import Gallery, build_gallery
from crossbyte.data import read_raw, write_scenes


def colours_by_place(pictures):
    """Each picture as the mean colours of 8 x 8 fields: (n, 192) float32."""
    fields = [
        picture[:128, :128].reshape(8, 16, 8, 16, 3).mean(axis=(1, 3)) for picture in map(_square, pictures)
    ]
    return np.stack(fields).reshape(len(pictures), -1).astype(np.float32)


def counted_words(texts):
    """Each text as counts of its words, in 256 columns: (n, 256) float32. No vocabulary is needed."""
    rows = np.zeros((len(texts), 256), np.float32)
    for row, text in zip(rows, texts, strict=True):
        for word in text.lower().split():
            row[zlib.crc32(word.strip(".,").encode()) % 256] += 1
    return rows


def _square(picture):
    """At least 128 x 128 pixels, by repeating the edges."""
    height, width = picture.shape[:2]
    return np.pad(picture, [(0, max(0, 128 - height)), (0, max(0, 128 - width)), (0, 0)], mode="edge")


def main(folder: Path, n_scenes: int = 500) -> None:
    sys.path.insert(0, str(Path(__file__).parent))  # so that the module of this name is found
    photos, index = folder / "photos", folder / "photos.cb"
    write_scenes(photos, n_scenes)
    encoders = {
        "image_encoder": "own_encoders:colours_by_place",
        "text_encoder": "own_encoders:counted_words",
    }
    parameters = {"n_components": 16, "max_iter": 2}
    built = build_gallery(
        read_raw(photos), index, n_bits=16, mapping="cca", parameters=parameters, curve=(2,), **encoders
    )
    print(str(built.model.report_).split("\n\n")[0])

    # The index says which encoders it wants, and imports nothing by itself: name them again.
    with Gallery.open(index, **encoders) as gallery:
        for side, state in gallery.encoders.items():
            print(f"{side}: {state.name}, {state.dimension} numbers")
        for hit in gallery.search(text="four green squares at the top", k=3, payloads=True):
            print(f"→ {hit.id}: {hit.payload['captions'][0]}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
