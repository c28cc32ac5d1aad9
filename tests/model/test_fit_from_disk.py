"""A fit from disk gives the model of memory, and one that fails leaves everything as it was."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from crossbyte import CMCQ
from crossbyte.calibration import measure
from crossbyte.compute import executor, scratch
from crossbyte.data.ondisk import RowSubset, open_rows
from crossbyte.data.synthetic import make_pairs
from crossbyte.errors import FitInterrupted, InvalidInput, NotFinite, StorageFull

PAIRS = make_pairs(300, 12, 20, random_state=3)
IMAGES, THIN = PAIRS.images.astype(np.float32), sparse.csr_matrix(PAIRS.texts)
TEXTS = THIN.toarray()
SMALL = {"n_bits": 16, "n_components": 4, "n_atoms": 16, "max_iter": 2, "random_state": 0}
MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "sparse": (TEXTS, {"mapping": "sparse", "image_components": 6, "text_components": 8}),
    "sparse, of sparse texts": (THIN, {"mapping": "sparse", "image_components": 6}),
    "cca": (THIN, {"mapping": "cca"}),
    "cca, of dense texts": (TEXTS, {"ridge": 0.5, "image_components": 6}),
    "unit": (THIN, {"mapping": "cca", "scoring": "unit"}),
    "contrastive": (TEXTS, {"mapping": "contrastive"}),
    "shared": (THIN, {"mapping": "cca", "shared_codebooks": True}),
}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks and shares of few rows, and starts that are learned from a sample."""
    monkeypatch.setattr(executor, "BLOCK_ROWS", 32)
    monkeypatch.setattr(executor.sample_rows, "__defaults__", (200,))


def in_blocks(values: Any, size: int) -> list[Any]:
    return [values[start : start + size] for start in range(0, values.shape[0], size)]


def folder_of(path: Path, values: Any) -> Path:
    path.mkdir()
    for number, block in enumerate(in_blocks(values, 70)):
        if sparse.issparse(block):
            sparse.save_npz(path / f"part-{number}.npz", block)
        else:
            np.save(path / f"part-{number}.npy", block)
    return path


def map_or_shards(path: Path, values: Any) -> Any:
    if sparse.issparse(values):
        return folder_of(path, values)
    np.save(path.with_suffix(".npy"), values)
    return np.load(path.with_suffix(".npy"), mmap_mode="r")


STORAGES: dict[str, Callable[[Path, Any], Any]] = {
    "memory": lambda path, values: values,
    "map": map_or_shards,
    "folder": folder_of,
    "opened folder": lambda path, values: open_rows(folder_of(path, values)),
    "blocks of 10": lambda path, values: in_blocks(values, 10),
    "blocks of 1000": lambda path, values: in_blocks(values, 1000),
    "iterator": lambda path, values: iter(in_blocks(values, 47)),
}


def fitted(store: Callable[[Path, Any], Any], folder: Path, name: str, bound: Any, n_jobs: int = 1) -> bytes:
    texts, options = MODELS[name]
    folder.mkdir()
    given = store(folder / "images", IMAGES), store(folder / "texts", texts)
    return CMCQ(**SMALL, n_jobs=n_jobs, **options).fit(*given, max_memory=bound).to_bytes()


@pytest.mark.parametrize("name", MODELS)
def test_the_same_bytes_with_every_row_on_disk(name: str, small_blocks: None, tmp_path: Path) -> None:
    expected = fitted(STORAGES["memory"], tmp_path / "0", name, None)
    assert fitted(STORAGES["memory"], tmp_path / "1", name, 1, n_jobs=2) == expected
    assert fitted(STORAGES["map"], tmp_path / "2", name, 100_000) == expected


@pytest.mark.parametrize("name", ["sparse", "cca"])
def test_the_same_bytes_from_any_storage(name: str, small_blocks: None, tmp_path: Path) -> None:
    expected = fitted(STORAGES["memory"], tmp_path / "0", name, None)
    for number, (storage, store) in enumerate(STORAGES.items(), start=1):
        bound = (None, 1, "100kB")[number % 3]
        assert fitted(store, tmp_path / str(number), name, bound, 1 + number % 2) == expected, storage


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("count", [299, 150, 20])
def test_the_same_bytes_of_some_rows_on_disk(
    name: str, count: int, small_blocks: None, tmp_path: Path
) -> None:
    texts, options = MODELS[name]
    rows = np.sort(np.random.default_rng(4).permutation(300)[:count])
    expected = CMCQ(**SMALL, n_jobs=1, **options).fit(IMAGES[rows], texts[rows])
    stored = [folder_of(tmp_path / name, v) for name, v in (("i", IMAGES), ("t", texts))]
    some = [RowSubset(open_rows(folder), rows) for folder in stored]
    model = CMCQ(**SMALL, n_jobs=1, **options).fit(*some, max_memory=1)
    assert model.to_bytes() == expected.to_bytes()


@pytest.mark.parametrize("mapping", ["auto", "cca"])
def test_what_is_chosen_is_the_same_from_disk(mapping: str, tmp_path: Path) -> None:
    options = SMALL | {"mapping": mapping, "max_iter": 1}
    expected = CMCQ(**options).fit(IMAGES, THIN)
    model = CMCQ(**options).fit(
        folder_of(tmp_path / "i", IMAGES), folder_of(tmp_path / "t", THIN), max_memory=1
    )
    assert model.to_bytes() == expected.to_bytes() and model.selection_ == expected.selection_


class Watched:
    """Stored rows that remember how many of them were ever asked for."""

    is_stored, is_sparse, is_finite, dtype = True, False, True, IMAGES.dtype

    def __init__(self, values: Any) -> None:
        self.values, self.shape, self.most, self.pieces = values, values.shape, 0, ()

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Any) -> Any:
        found = self.values[rows]
        self.most = max(self.most, len(found))
        return found


def test_selection_and_calibration_read_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossbyte.model.selection.split_groups.__defaults__", (100,))
    monkeypatch.setattr(measure, "MAX_PAIRS", 100)
    monkeypatch.setattr(executor, "BLOCK_ROWS", 64)
    images, texts = Watched(IMAGES), Watched(TEXTS.astype(np.float32))
    groups = np.arange(300) // 2
    model = CMCQ(**(SMALL | {"mapping": "auto", "max_iter": 1})).fit(images, texts, groups)
    model.calibrate(images, texts, groups, curve=())
    assert model.report_.n_pairs == 100 and max(images.most, texts.most) <= 100


def test_calibration_of_few_stored_pairs_is_that_of_memory(tmp_path: Path) -> None:
    model, twin = (CMCQ(**SMALL, mapping="cca").fit(IMAGES, THIN) for _ in range(2))
    model.calibrate(IMAGES, THIN, curve=())
    twin.calibrate(folder_of(tmp_path / "i", IMAGES), iter(in_blocks(THIN, 70)), curve=())
    assert model.to_bytes() == twin.to_bytes()


def test_stored_items_are_placed_and_coded(small_blocks: None, tmp_path: Path) -> None:
    model = CMCQ(**SMALL, mapping="cca").fit(IMAGES, THIN)
    images, texts = (open_rows(folder_of(tmp_path / name, v)) for name, v in (("i", IMAGES), ("t", THIN)))
    assert np.array_equal(model.encode_images(images), model.encode_images(IMAGES))
    assert np.array_equal(model.transform_texts(texts), model.transform_texts(THIN))
    for left, right in zip(model.encode_pairs(images, texts), model.encode_pairs(IMAGES, THIN), strict=True):
        assert np.array_equal(left, right)


def test_a_grid_of_scikit_learn_takes_stored_rows(tmp_path: Path) -> None:
    grid = {"n_components": [2, 4]}
    search = GridSearchCV(CMCQ(**(SMALL | {"mapping": "cca", "max_iter": 1})), grid, cv=2)
    expected = clone(search).fit(IMAGES, TEXTS)
    stored = [open_rows(folder_of(tmp_path / name, v)) for name, v in (("i", IMAGES), ("t", TEXTS))]
    found = clone(search).fit(*stored)
    assert found.cv_results_["mean_test_score"].tolist() == expected.cv_results_["mean_test_score"].tolist()
    assert found.best_estimator_.to_bytes() == expected.best_estimator_.to_bytes()


# A failed fit changes nothing


def bad_fits(tmp_path: Path) -> dict[str, tuple[Any, Any, dict[str, Any], type[Exception]]]:
    late = IMAGES.copy()
    late[290, 3] = np.inf
    np.save(tmp_path / "late.npy", late)
    short = in_blocks(THIN, 70)[:-1]
    return {
        "a late inf": (tmp_path / "late.npy", THIN, {}, NotFinite),
        "sides that disagree": (in_blocks(IMAGES, 70), short, {}, InvalidInput),
        "no such memory": (IMAGES, THIN, {"max_memory": "lots"}, InvalidInput),
        "no such file": (tmp_path / "missing.npy", THIN, {}, FileNotFoundError),
        "a used iterator": (iter(()), THIN, {}, InvalidInput),
    }


@pytest.mark.parametrize(
    "name", ["a late inf", "sides that disagree", "no such memory", "no such file", "a used iterator"]
)
def test_a_refused_fit_leaves_the_model(name: str, tmp_path: Path) -> None:
    images, texts, options, error = bad_fits(tmp_path)[name]
    model = CMCQ(**SMALL, mapping="cca").fit(IMAGES, TEXTS)
    before = model.to_bytes()
    with pytest.raises(error):
        model.fit(images, texts, **options)
    assert model.to_bytes() == before


def test_a_full_scratch_disk_leaves_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model = CMCQ(**SMALL).fit(IMAGES, TEXTS)
    before, left = model.to_bytes(), [20_000]

    def nearly_full(descriptor: int, buffer: memoryview, offset: int) -> None:
        left[0] -= len(buffer)
        if left[0] < 0:
            raise OSError(scratch.errno.ENOSPC, "No space left on device")
        os.pwrite(descriptor, buffer, offset)

    monkeypatch.setattr(scratch, "write_at", nearly_full)
    with pytest.raises(StorageFull, match="TMPDIR"):
        model.fit(in_blocks(IMAGES, 100), THIN, max_memory=1)
    assert model.to_bytes() == before and left[0] < 0


def test_an_interrupted_fit_leaves_the_model() -> None:
    def endless() -> Iterator[Any]:
        yield IMAGES
        raise KeyboardInterrupt

    model = CMCQ(**SMALL, mapping="cca").fit(IMAGES, TEXTS)
    before = model.to_bytes()
    with pytest.raises(FitInterrupted):
        model.fit(endless(), TEXTS)
    assert model.to_bytes() == before
