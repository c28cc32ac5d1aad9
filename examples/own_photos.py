"""Your own pictures and captions: from a folder to answers, in Python.

``crossbyte fit FOLDER`` and ``crossbyte search`` do the same. Without a folder, generated scenes stand in.
"""

import sys
import tempfile
from pathlib import Path

from crossbyte import Gallery, build_gallery
from crossbyte.data import make_scenes, read_raw, write_scenes

N_SCENES = 400


def main(photos: Path, index: Path, *, quick: bool = False) -> None:
    documents = read_raw(photos)  # a table, text files beside the pictures, COCO, …: docs/files.md
    print(f"{len(documents)} pictures with {sum(map(len, documents.texts))} captions")

    # Leave out mapping and parameters, and the best are looked for, which takes longer.
    parameters = {"n_components": 16, "max_iter": 2} if quick else {"n_components": 64, "max_iter": 4}
    bits = 16 if quick else 64
    built = build_gallery(
        documents, index, n_bits=bits, mapping="cca", parameters=parameters, curve=(bits // 8,)
    )
    for name, reason in built.skipped:
        print(f"left out {name}: {reason}")
    print(str(built.model.report_).split("\n\n")[0])

    with Gallery.open(index) as gallery:
        for hit in gallery.search(text="three red hearts", k=3, payloads=True):
            print(f"words → {hit.id}: {hit.payload['captions'][0]}")
        for hit in gallery.search(text="a star", where="colour = 'blue'", k=3, payloads=True):
            print(f"words, blue only → {hit.id}: {hit.payload['captions'][0]}")
        for hit in gallery.search(image=photos / documents.ids[0], k=3, payloads=True):
            print(f"{documents.ids[0]} → {hit.payload['captions'][0]}")


def found_again(index: Path, n_scenes: int) -> int:
    """How many scenes that the index has never seen find a caption of their own colour first."""
    colours = [scene.attributes["colour"] for scene in make_scenes(n_scenes, seed=99)]
    with tempfile.TemporaryDirectory() as folder, Gallery.open(index) as gallery:
        write_scenes(folder, n_scenes, seed=99)
        pictures = sorted(Path(folder).glob("*.png"))
        best = [next(iter(gallery.search(image=path, k=1, payloads=True))) for path in pictures]
    return sum(hit.payload["colour"] == colour for hit, colour in zip(best, colours, strict=True))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        if len(sys.argv) > 1:
            main(Path(sys.argv[1]), Path(sys.argv[1] + ".cb"))
        else:
            write_scenes(Path(temporary) / "photos", N_SCENES)
            main(Path(temporary) / "photos", Path(temporary) / "photos.cb")
            print(f"own colour first: {found_again(Path(temporary) / 'photos.cb', 40)} of 40 (by chance: 5)")
