"""A fitted model's documents in one file: add, filter, search both ways, update, compact.

Replace the generated arrays by your own. The file is made in the folder given as argument.
"""

import sys
import tempfile
from pathlib import Path

from crossbyte import CMCQ, Index
from crossbyte.data import make_pairs


def main(folder: str) -> None:
    images, texts, _ = make_pairs(1200, 128, 300, random_state=0)
    model = CMCQ(n_bits=32, random_state=0)
    model.fit(images[:1000], texts[:1000])

    images, texts, numbers = images[1000:], texts[1000:], range(200)  # never seen by the model
    photos, captions = [f"photo-{n}" for n in numbers], [f"caption-{n}" for n in numbers]
    payloads = [{"year": 2000 + n % 25, "place": "sea" if n % 2 else "hill"} for n in numbers]
    path = Path(folder) / "photos.cb"

    with Index.create(path, model) as index:
        # Coded from one side alone, so that no answer has seen its question. What belongs together in your
        # data is better added together, images= and texts= in one call: each code then knows both.
        index.add(photos, images=images, payloads=payloads)
        index.add(captions, texts=texts)

        to_images, to_texts = index.search(texts=texts, k=10), index.search(images=images, k=10)
        for what, partners, answers in (("photo", photos, to_images), ("caption", captions, to_texts)):
            found = sum(partner in hits.ids for partner, hits in zip(partners, answers, strict=True))
            print(f"own {what} among the first 10: {found} of 200 (by chance: 10)")

        where = "year >= 2010 AND place = 'sea'"
        for hit in index.search(texts=texts[:1], k=3, where=where, payloads=True)[0]:
            print(f"{where}: {hit.id} at {hit.distance:.3f}, {hit.payload}")

        index.update_payloads(["photo-3"], [{"year": 2030, "place": "sea"}])  # its code stays
        print("after an update:", index.search(like="photo-3", where="year = 2030")[0].ids)
        index.delete(captions)
        index.compact()

    with Index.open(path) as reader:  # as anybody else would
        reader.verify()
        print(f"{len(reader)} documents, {reader.stats()['disk']['bytes']['file']} bytes with the model")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(*sys.argv[1:] or [temporary])
