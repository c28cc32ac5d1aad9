"""Folders of embeddings, as clip-retrieval writes them: parts in order, rows that agree, clear refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from crossbyte.data.captions.layout import is_raw
from crossbyte.data.dataset import Dataset
from crossbyte.data.readers import read_dataset
from crossbyte.data.safe_open import Limits
from crossbyte.errors import DataFileError

SIZES = {0: 3, 2: 2, 10: 4}  # by part; 10 comes after 2


def rows(number: int, size: int) -> dict[str, list[Any]]:
    keys = [f"{number}-{row}" for row in range(size)]
    return {"image_path": [f"p/{key}.jpg" for key in keys], "caption": [f"text {key}" for key in keys]}


def write(root: Path, ending: str = "parquet") -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    blocks: dict[str, list[np.ndarray]] = {"img_emb": [], "text_emb": []}
    for number, size in SIZES.items():
        for side, width in (("img_emb", 4), ("text_emb", 5)):
            (root / side).mkdir(parents=True, exist_ok=True)
            blocks[side].append(rng.normal(size=(size, width)).astype(np.float16))
            np.save(root / side / f"{side}_{number}.npy", blocks[side][-1])
        write_rows(root / "metadata" / f"metadata_{number}.{ending}", rows(number, size))
    return np.concatenate(blocks["img_emb"]), np.concatenate(blocks["text_emb"])


def write_rows(path: Path, columns: dict[str, list[Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
        return
    lines = [",".join(map(str, row)) for row in (columns, *zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines))


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_all_parts_in_the_order_of_their_numbers(tmp_path: Path, ending: str) -> None:
    images, texts = write(tmp_path, ending)
    found = read_dataset(tmp_path)
    assert isinstance(found, Dataset) and len(found) == 9
    assert np.array_equal(found.images, images) and np.array_equal(found.texts, texts)
    expected = [name for number, size in SIZES.items() for name in rows(number, size)["image_path"]]
    assert found.ids == expected and found.groups is None and found.payloads is not None
    assert found.payloads[-1] == {"image_path": "p/10-3.jpg", "caption": "text 10-3"}
    assert not is_raw(tmp_path)


def test_one_side_without_payloads(tmp_path: Path) -> None:
    images, _ = write(tmp_path, "csv")
    for folder in ("text_emb", "metadata"):
        for file in (tmp_path / folder).iterdir():
            file.unlink()
    found = read_dataset(tmp_path)
    assert found.texts is None and found.ids is None and found.payloads is None
    assert np.array_equal(found.images, images)


def test_pictures_with_several_captions_are_groups(tmp_path: Path) -> None:
    write(tmp_path, "csv")
    for number, size in SIZES.items():
        columns = {"key": [number * 10 + row for row in range(size)], "image_path": [f"{number}.jpg"] * size}
        write_rows(tmp_path / "metadata" / f"metadata_{number}.csv", columns)
    found = read_dataset(tmp_path)
    assert found.ids == [0, 1, 2, 20, 21, 100, 101, 102, 103]
    assert found.groups == ["0.jpg"] * 3 + ["2.jpg"] * 2 + ["10.jpg"] * 4


def remove(root: Path) -> None:
    (root / "text_emb" / "text_emb_2.npy").unlink()


def remove_rows(root: Path) -> None:
    (root / "metadata" / "metadata_0.csv").unlink()


def shorten(root: Path) -> None:
    np.save(root / "text_emb" / "text_emb_2.npy", np.ones((1, 5)))


def swap_rows(root: Path) -> None:
    np.save(root / "text_emb" / "text_emb_2.npy", np.ones((3, 5)))
    np.save(root / "text_emb" / "text_emb_0.npy", np.ones((2, 5)))


def widen(root: Path) -> None:
    np.save(root / "img_emb" / "img_emb_10.npy", np.ones((4, 6)))


def repeat(root: Path) -> None:
    np.save(root / "img_emb" / "img_emb_02.npy", np.ones((2, 4)))


def flatten(root: Path) -> None:
    np.save(root / "img_emb" / "img_emb_0.npy", np.ones(3))


def spoil(root: Path) -> None:
    (root / "img_emb" / "img_emb_0.npy").write_bytes(b"no array")


def pickled(root: Path) -> None:
    np.save(root / "img_emb" / "img_emb_0.npy", np.array([{}]), allow_pickle=True)


def drop_sides(root: Path) -> None:
    for side in ("img_emb", "text_emb"):
        for file in (root / side).iterdir():
            file.unlink()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (remove, "got img_emb/img_emb_2.npy and no part 2 in text_emb; copy the missing file"),
        (remove_rows, "got img_emb/img_emb_0.npy and no part 0 in metadata"),
        (shorten, "got 2 in img_emb/img_emb_2.npy, 1 in text_emb/text_emb_2.npy, 2 in metadata"),
        (
            swap_rows,
            "expected as many rows in all files of a part, got 3 in img_emb/img_emb_0.npy, 2 in text",
        ),
        (widen, r"img_emb_10\.npy: expected 4 columns as in the first part, got 6"),
        (repeat, "expected one file for each part, got img_emb_02.npy and img_emb_2.npy; remove one"),
        (flatten, r"img_emb_0\.npy: expected a matrix of numbers"),
        (spoil, r"img_emb_0\.npy: "),
        (pickled, r"img_emb_0\.npy: holds Python objects"),
        (drop_sides, r"expected a folder of embeddings .*got img_emb, metadata, text_emb"),
    ],
)
def test_damaged_folders_are_refused(tmp_path: Path, damage: Any, message: str) -> None:
    write(tmp_path, "csv")
    damage(tmp_path)
    with pytest.raises(DataFileError, match=f"(?s)^{tmp_path}.*{message}"):
        read_dataset(tmp_path)


def test_limits_hold_for_all_parts_together(tmp_path: Path) -> None:
    write(tmp_path, "csv")
    with pytest.raises(DataFileError, match=r"img_emb_10\.npy: expected at most 24 bytes of data"):
        read_dataset(tmp_path, limits=Limits(max_bytes=64))


def test_other_folders(tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match="expected a folder of embeddings.*got an empty folder"):
        read_dataset(tmp_path)
    write(tmp_path, "csv")
    with pytest.raises(DataFileError, match="a folder of embeddings has no splits, got split 'train'"):
        read_dataset(tmp_path, split="train")
