"""Two feature matrices that share no space: learn one, code both sides, search both ways.

Replace the generated arrays by your own: row i of ``images`` and row i of ``texts`` belong together.
"""

import sys

from crossbyte import CMCQ
from crossbyte.data import make_pairs
from crossbyte.metrics import nearest_ties_by_column


def main(n_pairs: int = 3000) -> None:
    images, texts, _ = make_pairs(n_pairs, 256, 500, words_per_text=20, random_state=0)
    n_train = n_pairs * 4 // 5
    model = CMCQ(n_bits=32, random_state=0)
    model.fit(images[:n_train], texts[:n_train])

    new_images, new_texts = images[n_train:], texts[n_train:]
    image_codes = model.encode_images(new_images)  # (n, 4) uint8: all that has to be kept of an image
    text_codes = model.encode_texts(new_texts)
    print(f"{new_images[0].nbytes} bytes of features become {image_codes.shape[1]} bytes of code")

    to_images = model.distances(texts=new_texts[:3], image_codes=image_codes)
    to_texts = model.distances(images=new_images[:3], text_codes=text_codes)
    print("images nearest to text 0, 1, 2:", *nearest_ties_by_column(to_images, 5).tolist())
    print("texts nearest to image 0, 1, 2:", *nearest_ties_by_column(to_texts, 5).tolist())
    print(f"recall@10 of true partners, both ways: {model.score(new_images, new_texts):.3f}")
    print(f"by chance: {10 / len(new_images):.3f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
