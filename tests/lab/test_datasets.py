"""Collections: every published form read back, every missing or damaged file named, generated shapes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from numpy.typing import NDArray

from crossbyte.errors import DataFileError, InvalidInput
from crossbyte.lab.datasets.collection import Collection, Part, draw_query_mask
from crossbyte.lab.datasets.loader import _SHAPES, generate_collection, read_collection
from crossbyte.lab.datasets.pair_file import PATTERNS, bag_of_words

Arrays = dict[str, NDArray[Any]]


def one_hot(classes: list[int], n_classes: int) -> NDArray[np.uint8]:
    return np.eye(n_classes, dtype=np.uint8)[classes]


def sparse_parts(name: str, matrix: Any) -> Arrays:
    rows = sp.csr_array(matrix)
    return {
        f"{name}_data": rows.data,
        f"{name}_indices": rows.indices,
        f"{name}_indptr": rows.indptr,
        f"{name}_shape": np.array(rows.shape),
    }


def dense(values: Any) -> NDArray[Any]:
    return values.toarray() if sp.issparse(values) else np.asarray(values)


def same(left: Part, right: Part) -> bool:
    sides = [(left.images, right.images), (left.texts, right.texts), (left.labels, right.labels)]
    return all(np.array_equal(dense(a), dense(b)) for a, b in sides)


# ---- the layout of shared/data -----------------------------------------------------------------------------

WORDS = ["dog", "man", "red", "runs", "t-shirt"]
CAPTIONS = np.array(
    [
        ["A dog runs .", "a red dog", "dog", "the man", "nothing known"],
        ["A man.", "Man runs", "red", "a dog and a man", "RUNS"],
        ["red", "", "red red", "dog", "man"],
    ]
)
OTHER = [
    [[1, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 1, 0, 0]],
    [[0, 1, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0]],
    [[0, 0, 0, 0, 0], [0, 0, 0, 1, 0], [0, 1, 0, 0, 0]],
]


def flickr_like() -> Arrays:
    texts = np.array([[1, 0, 1, 1, 0], [0, 1, 0, 1, 0], [0, 0, 1, 0, 0]], dtype=np.uint8)
    arrays: Arrays = {"vocabulary": np.array(WORDS), "label_names": np.array(["animal", "person"])}
    for split in ("train", "query"):
        arrays[f"image_{split}"] = np.arange(6, dtype=np.float16).reshape(3, 2)
        arrays |= sparse_parts(f"text_{split}", texts)
        arrays[f"label_{split}"] = np.array([[1, 0], [0, 0], [1, 1]], dtype=np.uint8)
        arrays[f"captions_{split}"] = CAPTIONS
        arrays[f"name_{split}"] = np.array(["a", "b", "c"])
    return arrays


def fashion_like() -> Arrays:
    arrays: Arrays = {"vocabulary": np.array(WORDS), "class_names": np.array(["T-shirt", "Dog Toy", "Hat"])}
    for split in ("train", "query"):
        arrays[f"image_{split}"] = np.arange(4, dtype=np.float16).reshape(2, 2)
        arrays |= sparse_parts(f"text_{split}", np.array([[0, 1, 1, 0, 1], [1, 0, 0, 0, 0]], dtype=np.uint8))
        arrays[f"class_{split}"] = np.array([0, 1], dtype=np.int16)
        arrays[f"title_{split}"] = np.array(["Man red t-shirt", "Dog 5"])
        arrays[f"gender_{split}"] = np.array(["Man", "Unisex"])
        arrays[f"baseColour_{split}"] = np.array(["Red", "Blue"])
        arrays[f"season_{split}"] = np.array(["Fall", "Fall"])
        arrays[f"usage_{split}"] = np.array(["Casual", "Casual"])
    return arrays


def write_npz(path: Path, arrays: Arrays) -> Path:
    np.savez(path, **arrays)
    return path


def test_a_flickr8k_like_file(tmp_path: Path) -> None:
    data = read_collection(write_npz(tmp_path / "photos.npz", flickr_like()))
    assert data.name == "photos" and data.label_names == ("animal", "person")
    assert "3 training and 3 query pairs" in data.about
    assert data.train.images.dtype == np.float32 and data.train.images.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert isinstance(data.query.texts, sp.csr_array) and data.query.texts.dtype == np.float32
    assert len(data.query) == 3 and data.query.labels is not None and data.query.labels.dtype == np.uint8


def test_captions_behind_the_features_are_no_other_texts(tmp_path: Path) -> None:
    data = read_collection(write_npz(tmp_path / "photos.npz", flickr_like()))
    for part in (data.train, data.query):
        assert [dense(texts).tolist() for texts in part.other_texts] == OTHER
    assert data.vocabulary == tuple(WORDS) and data.token_pattern == PATTERNS[0]
    again = bag_of_words(data.query.captions, data.vocabulary, [0, 1], data.token_pattern)  # type: ignore[arg-type]
    assert np.array_equal(dense(again), dense(data.query.texts))


def test_no_other_texts_where_features_are_not_made_of_the_captions(tmp_path: Path) -> None:
    arrays = flickr_like()
    arrays["text_query_data"] = arrays["text_query_data"] * 2
    data = read_collection(write_npz(tmp_path / "photos.npz", arrays))
    assert data.query.other_texts == () and data.token_pattern == ""


def test_documents_without_a_label_are_dropped_on_request(tmp_path: Path) -> None:
    data = read_collection(write_npz(tmp_path / "photos.npz", flickr_like()))
    known = data.labelled()
    assert [len(data.train), len(known.train), len(known.query)] == [3, 2, 2]
    assert known.query.images.tolist() == [[0, 1], [4, 5]]
    assert [dense(texts).tolist() for texts in known.query.other_texts] == [
        [rows[0], rows[2]] for rows in OTHER
    ]
    assert known.query.captions is not None and known.query.captions[1, 0] == "red"
    assert known.train.labelled() is known.train


def test_a_fashion_like_file_has_its_attributes_as_other_text(tmp_path: Path) -> None:
    data = read_collection(write_npz(tmp_path / "things.npz", fashion_like()))
    assert data.label_names == ("T-shirt", "Dog Toy", "Hat")
    assert data.train.labels is not None and data.train.labels.tolist() == [[1, 0, 0], [0, 1, 0]]
    (attributes,) = data.query.other_texts
    assert dense(attributes).tolist() == [[0, 1, 1, 0, 1], [1, 0, 0, 0, 0]]
    assert data.token_pattern == PATTERNS[1]


def test_attributes_without_a_known_word_are_a_row_of_zeros(tmp_path: Path) -> None:
    arrays = fashion_like() | {"class_query": np.array([0, 2], dtype=np.int16)}
    (attributes,) = read_collection(write_npz(tmp_path / "things.npz", arrays)).query.other_texts
    assert dense(attributes).tolist()[1] == [0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"image_query": np.zeros((3, 5), np.float16)}, "images: expected as many features in both parts"),
        ({"image_query": np.full((3, 2), np.nan)}, "images: expected finite values"),
        ({"image_query": np.full((3, 2), 1e60)}, "images: expected finite values"),
        ({"image_query": np.zeros((2, 2))}, "2 images, 3 texts"),
        ({"label_query": np.zeros((2, 2), np.uint8)}, "label_query: expected labels for each of the 3 rows"),
        ({"label_query": np.full((3, 2), 2)}, "labels: expected a table of zeros and ones"),
        ({"label_query": np.zeros((3, 4), np.uint8)}, r"as many columns in every part, got \[2, 4\]"),
        ({"text_query_indices": np.full(6, 9)}, "columns from 0 to 4"),
        ({"image_query": np.array([{}, {}, {}])}, "image_query: holds Python objects"),
    ],
)
def test_a_wrong_array_is_named(tmp_path: Path, changed: Arrays, message: str) -> None:
    path = write_npz(tmp_path / "photos.npz", flickr_like() | changed)
    with pytest.raises(DataFileError, match=f"^{re.escape(str(path))}: .*{message}"):
        read_collection(path)


def test_labels_in_one_part_only_are_refused(tmp_path: Path) -> None:
    arrays = flickr_like()
    del arrays["label_query"]
    with pytest.raises(
        DataFileError, match="labels in the training and the query part, the query part has none"
    ):
        read_collection(write_npz(tmp_path / "photos.npz", arrays))


def test_a_class_without_a_name_is_refused(tmp_path: Path) -> None:
    arrays = fashion_like() | {"class_query": np.array([0, 7])}
    with pytest.raises(DataFileError, match="class numbers from 0 to 2 .*got 7"):
        read_collection(write_npz(tmp_path / "things.npz", arrays))


# ---- users' own pairs --------------------------------------------------------------------------------------


def own_pairs(n: int = 40) -> Arrays:
    rng = np.random.default_rng(0)
    return {"images": rng.normal(size=(n, 4)), "texts": rng.normal(size=(n, 3)).astype(np.float32)}


def test_own_pairs_without_labels(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "mine.npz", own_pairs())
    data, again, other = (read_collection(path, seed=seed) for seed in (0, 0, 1))
    assert (len(data.train), len(data.query)) == (36, 4)
    assert data.name == "mine" and data.train.labels is None and "no labels" in data.about
    assert np.array_equal(data.query.images, again.query.images)
    assert not np.array_equal(data.query.images, other.query.images)
    with pytest.raises(InvalidInput, match="expected labels"):
        data.labelled()


def test_groups_stay_together(tmp_path: Path) -> None:
    arrays = own_pairs(50) | {"group": np.repeat(np.arange(10), 5)}
    arrays["images"][:, 0] = arrays["group"]
    data = read_collection(write_npz(tmp_path / "mine.npz", arrays), held_out=0.3)
    asked, learned = set(data.query.images[:, 0]), set(data.train.images[:, 0])
    assert len(asked) == 3 and len(learned) == 7 and not asked & learned
    assert len(data.query) == 15


def test_every_group_lands_on_one_side_and_both_have_some() -> None:
    assert draw_query_mask(10, seed=0, held_out=0.01).sum() == 1
    assert draw_query_mask(10, seed=0, held_out=0.99).sum() == 9
    assert draw_query_mask(100, seed=0, held_out=0.5, at_most=7).sum() == 7
    for wrong in ({"held_out": 1.0}, {"held_out": 0.5, "groups": [1] * 10}, {"held_out": 0.0}):
        with pytest.raises(InvalidInput, match="held_out"):
            draw_query_mask(10, seed=0, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("key", "labels", "names"),
    [
        ("class", np.array(["cat", "dog"] * 20), ("cat", "dog")),
        ("labels", np.array([3, 5] * 20), ("3", "5")),
        ("label", np.array([[1, 0], [0, 1]] * 20), ("0", "1")),
        ("label", np.array([[3.0], [5.0]] * 20), ("3", "5")),
    ],
)
def test_labels_of_several_kinds(
    tmp_path: Path, key: str, labels: NDArray[Any], names: tuple[str, ...]
) -> None:
    arrays = own_pairs() | {key: labels}
    arrays["images"][:, 0] = np.arange(40)
    data = read_collection(write_npz(tmp_path / "mine.npz", arrays))
    assert data.label_names == names
    for part in (data.train, data.query):
        assert part.labels is not None
        assert np.array_equal(part.labels, one_hot([int(row) % 2 for row in part.images[:, 0]], 2))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.arange(6000), "labels: expected at most 5000 different labels, got 6000; are they captions"),
        (np.full(6000, 0.5), "labels: expected whole numbers or strings, got 0.5"),
        (np.full(6000, -1), "labels: expected labels, got none in any row"),
        (np.zeros((6000, 2, 2)), "labels: expected labels for each|at most two dimensions"),
    ],
)
def test_labels_that_are_none(tmp_path: Path, labels: NDArray[Any], message: str) -> None:
    with pytest.raises(DataFileError, match=message):
        read_collection(write_npz(tmp_path / "mine.npz", own_pairs(6000) | {"labels": labels}))


def test_minus_one_and_nothing_are_no_label(tmp_path: Path) -> None:
    arrays = own_pairs(6) | {"class": np.array([1, -1, 2, 1, -1, 2])}
    data = read_collection(write_npz(tmp_path / "mine.npz", arrays), held_out=0.5)
    assert data.label_names == ("1", "2")
    assert len(data.train.labelled()) + len(data.query.labelled()) == 4


def test_a_parquet_file_with_lists_of_labels(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    arrays = own_pairs(20)
    table = {key: values.tolist() for key, values in arrays.items()}
    table["labels"] = [["sky", "sea"], [], ["sky"], ["sea"]] * 5
    parquet.write_table(pyarrow.table(table), tmp_path / "mine.parquet")
    data = read_collection(tmp_path / "mine.parquet")
    assert data.label_names == ("sea", "sky")
    assert data.train.labels is not None and data.query.labels is not None
    assert data.train.labels.sum() + data.query.labels.sum() == 20


def test_a_file_with_one_side_is_refused(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "mine.npz", {"images": np.ones((4, 2))})
    with pytest.raises(DataFileError, match="both sides of the pairs, there are no texts"):
        read_collection(path)


def test_a_query_part_alone_is_refused(tmp_path: Path) -> None:
    arrays = {"image_query": np.ones((4, 2)), "text_query": np.ones((4, 2))}
    with pytest.raises(DataFileError, match="expected image_train and text_train beside image_query"):
        read_collection(write_npz(tmp_path / "mine.npz", arrays))


def test_damaged_and_missing_files(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "mine.npz", own_pairs())
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataFileError, match="ZIP archive"):
        read_collection(path)
    (tmp_path / "pairs.csv").write_text("1,2\n")
    with pytest.raises(DataFileError, match="ends in .npz, .mat, .parquet, or a folder; got '.csv'"):
        read_collection(tmp_path / "pairs.csv")
    with pytest.raises(FileNotFoundError, match="no such file or folder.*generated:wiki"):
        read_collection(tmp_path / "nothing.npz")
    with pytest.raises(InvalidInput, match="held_out"):
        read_collection(path, held_out=2.0)


def test_a_folder_with_one_file_is_that_file(tmp_path: Path) -> None:
    write_npz(tmp_path / "mine.npz", own_pairs())
    assert read_collection(tmp_path).name == "mine"
    assert read_collection(tmp_path, name="ours").name == "ours"
    write_npz(tmp_path / "other.npz", own_pairs())
    with pytest.raises(DataFileError, match="got 2 such files"):
        read_collection(tmp_path)


# ---- Wiki --------------------------------------------------------------------------------------------------


def wiki_arrays() -> Arrays:
    rng = np.random.default_rng(0)
    sizes = {"tr": 6, "te": 4}
    return {
        f"{side}_{end}": rng.random((n, d)) for side, d in (("I", 5), ("T", 3)) for end, n in sizes.items()
    }


def write_wiki(folder: Path) -> None:
    scipy.io.savemat(folder / "raw_features.mat", wiki_arrays())
    for name, categories in (("trainset", [1, 2, 3, 1, 2, 3]), ("testset", [3, 2, 1, 1])):
        lines = [f"text-{row}\timage-{row}\t{category}\n" for row, category in enumerate(categories)]
        (folder / f"{name}_txt_img_cat.list").write_text("".join(lines))
    (folder / "categories.list").write_text("art\nbiology\nhistory\n")


def test_wiki_as_published(tmp_path: Path) -> None:
    write_wiki(tmp_path)
    data, arrays = read_collection(tmp_path), wiki_arrays()
    assert data.name == "wiki" and data.label_names == ("art", "biology", "history")
    expected = Part(
        arrays["I_te"].astype(np.float32), arrays["T_te"].astype(np.float32), one_hot([2, 1, 0, 0], 3)
    )
    assert same(data.query, expected) and len(data.train) == 6


def test_wiki_in_one_file(tmp_path: Path) -> None:
    labels = {"L_tr": np.array([[1.0, 2, 3, 1, 2, 3]]).T, "L_te": np.array([[3.0, 2, 1, 1]]).T}
    scipy.io.savemat(tmp_path / "wikiData.mat", wiki_arrays() | labels)
    from_folder, from_file = read_collection(tmp_path), read_collection(tmp_path / "wikiData.mat")
    assert (from_folder.name, from_file.name) == ("wiki", "wikiData")
    assert same(from_folder.query, from_file.query)
    write_wiki(tmp_path)
    assert same(read_collection(tmp_path).query, from_file.query)


def cut(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text) and None


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda folder: (folder / "testset_txt_img_cat.list").unlink(),
            r"missing: testset_txt_img_cat.list; they come from http://www.svcl.ucsd.edu/projects/crossmodal/",
        ),
        (lambda folder: (folder / "raw_features.mat").unlink(), "missing: raw_features.mat"),
        (cut("testset_txt_img_cat.list", "a\tb\t1\n"), "4 images, 4 texts, 1 labels"),
        (
            cut("testset_txt_img_cat.list", "a\tb\n"),
            "testset_txt_img_cat.list: line 1: expected a text, an image",
        ),
        (cut("testset_txt_img_cat.list", "a\tb\tart\n"), "line 1: .*got 'a\\\\tb\\\\tart'"),
        (cut("testset_txt_img_cat.list", ""), "an empty file"),
        (cut("categories.list", "art\n"), "the names of 3 categories, got 1"),
        (cut("raw_features.mat", "MATLAB 7.3 MAT-file" + " " * 200), "MATLAB 7.3 file.*save"),
        (
            lambda folder: scipy.io.savemat(folder / "raw_features.mat", {"I_tr": np.ones((6, 5))}),
            "expected an array called 'T_tr'",
        ),
    ],
)
def test_wiki_with_something_wrong(tmp_path: Path, damage: Callable[[Path], None], message: str) -> None:
    write_wiki(tmp_path)
    damage(tmp_path)
    with pytest.raises(DataFileError, match=message):
        read_collection(tmp_path)


# ---- bundles -----------------------------------------------------------------------------------------------


def bundle(image_dim: int, text_dim: int, n_labels: int) -> Arrays:
    rng = np.random.default_rng(0)
    arrays: Arrays = {}
    for end, n in (("tr", 12), ("te", 5)):
        arrays[f"I_{end}"] = rng.random((n, image_dim))
        arrays[f"T_{end}"] = sp.csc_matrix(rng.random((n, text_dim)) < 0.1).astype(float)
        arrays[f"L_{end}"] = (rng.random((n, n_labels)) < 0.4).astype(np.uint8)
    return arrays


@pytest.mark.parametrize(
    ("shape", "name"),
    [((3857, 2000, 38), "mirflickr"), ((500, 1000, 10), "nus-wide"), ((9, 8, 4), "research")],
)
def test_a_bundle_is_named_after_its_shape(tmp_path: Path, shape: tuple[int, int, int], name: str) -> None:
    arrays = bundle(*shape)
    scipy.io.savemat(tmp_path / "research.mat", arrays, do_compression=True)
    data = read_collection(tmp_path / "research.mat")
    assert data.name == name
    assert np.array_equal(dense(data.train.texts), dense(arrays["T_tr"]))
    assert np.array_equal(data.query.labels, arrays["L_te"])  # type: ignore[arg-type]


def test_tags_that_are_mostly_zeros_become_sparse_in_both_parts(tmp_path: Path) -> None:
    thin, full = np.eye(12, 200), np.ones((5, 200))
    stored = {key: dense(values) for key, values in bundle(9, 200, 4).items()}
    scipy.io.savemat(tmp_path / "research.mat", stored | {"T_tr": thin, "T_te": full})
    data = read_collection(tmp_path / "research.mat")
    assert isinstance(data.train.texts, sp.csr_array) and isinstance(data.query.texts, sp.csr_array)
    assert np.array_equal(dense(data.train.texts), thin) and np.array_equal(dense(data.query.texts), full)
    scipy.io.savemat(tmp_path / "research.mat", stored | {"T_tr": np.ones((12, 200)), "T_te": thin[:5]})
    data = read_collection(tmp_path / "research.mat")
    assert isinstance(data.query.texts, np.ndarray) and np.array_equal(data.query.texts, thin[:5])


def test_a_bundle_without_a_split(tmp_path: Path) -> None:
    arrays = bundle(9, 8, 4)
    whole = {f"{new}All": arrays[f"{old}_tr"] for new, old in (("X", "I"), ("Y", "T"), ("L", "L"))}
    scipy.io.savemat(tmp_path / "research.mat", whole)
    data = read_collection(tmp_path / "research.mat", held_out=0.25, seed=3)
    assert (len(data.train), len(data.query)) == (9, 3)


def test_a_bundle_without_labels_or_with_something_missing(tmp_path: Path) -> None:
    arrays = bundle(9, 8, 4)
    path = tmp_path / "research.mat"
    scipy.io.savemat(path, {key: arrays[key] for key in ("I_tr", "T_tr", "I_te", "T_te")})
    assert read_collection(path).train.labels is None
    scipy.io.savemat(path, {key: arrays[key] for key in ("I_tr", "T_tr", "I_te", "L_tr")})
    with pytest.raises(DataFileError, match="missing: T_te, L_te; there are: I_tr"):
        read_collection(path)


def test_a_damaged_bundle(tmp_path: Path) -> None:
    path = tmp_path / "research.mat"
    scipy.io.savemat(path, bundle(9, 8, 4))
    path.write_bytes(path.read_bytes()[:900])
    with pytest.raises(DataFileError, match=r"research.mat: refused"):
        read_collection(path)


# ---- MIRFlickr-25K -----------------------------------------------------------------------------------------


def write_toronto(folder: Path, n: int = 30) -> Arrays:
    rng = np.random.default_rng(0)
    images = rng.random((n, 7)).astype(np.float32)
    texts = sp.csr_array(rng.integers(-2, 3, size=(n, 11)).clip(0).astype(np.float64))
    labels = (rng.random((n, 4)) < 0.5).astype(np.float32)
    for name in ("image/labelled", "image/unlabelled", "text"):
        (folder / "flickr" / name).mkdir(parents=True)
    pieces = (("00001", slice(0, 10)), ("00002", slice(10, 20)), ("00003_0", slice(20, n)))
    for name, rows in pieces:
        np.save(folder / "flickr" / "image" / "labelled" / f"combined-{name}-of-00100.npy", images[rows])
    np.save(folder / "flickr" / "image" / "unlabelled" / "combined-00003_1-of-00100.npy", images)
    parts = {"data": texts.data, "indices": texts.indices, "indptr": texts.indptr, "shape": texts.shape}
    np.savez(folder / "flickr" / "text" / "text_all_2000_labelled.npz", **parts)
    np.save(folder / "flickr" / "labels.npy", labels)
    return {"images": images, "texts": texts.toarray() > 0, "labels": labels}


@pytest.mark.parametrize("inside", ["", "flickr"])
def test_mirflickr_as_published(tmp_path: Path, inside: str) -> None:
    arrays = write_toronto(tmp_path)
    data = read_collection(tmp_path / inside)
    assert data.name == "mirflickr" and (len(data.train), len(data.query)) == (27, 3)
    rows = [int(np.flatnonzero((arrays["images"] == image).all(axis=1))[0]) for image in data.query.images]
    assert np.array_equal(dense(data.query.texts), arrays["texts"][rows])
    assert np.array_equal(data.query.labels, arrays["labels"][rows])  # type: ignore[arg-type]
    assert not np.array_equal(read_collection(tmp_path, seed=1).query.images, data.query.images)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda folder: (folder / "labels.npy").unlink(),
            "missing: labels.npy; they come from http://www.cs.tor",
        ),
        (
            lambda folder: (folder / "image/labelled/combined-00002-of-00100.npy").unlink(),
            "20 images, 30 texts, 30 labels",
        ),
        (
            lambda folder: np.save(folder / "image/labelled/combined-00002-of-00100.npy", np.ones((10, 3))),
            "combined-00002-of-00100.npy: expected 7 features as in combined-00001-of-00100.npy, got 3",
        ),
        (
            lambda folder: np.savez(folder / "text/text_all_2000_labelled.npz", data=[1]),
            "data, indices, indptr",
        ),
        (lambda folder: np.save(folder / "labels.npy", np.full((30, 4), 5)), "zeros and ones"),
    ],
)
def test_mirflickr_with_something_wrong(tmp_path: Path, damage: Callable[[Path], None], message: str) -> None:
    write_toronto(tmp_path)
    damage(tmp_path / "flickr")
    with pytest.raises(DataFileError, match=message):
        read_collection(tmp_path)


def write_dcmh(folder: Path) -> Arrays:
    rng = np.random.default_rng(0)
    names = np.array([[f"im{row}.jpg"] for row in range(20)], dtype=object)
    tags, labels = (rng.random((20, width)) < 0.3 for width in (6, 3))
    for letter, values in (("F", names), ("Y", tags.astype(float)), ("L", labels.astype(float))):
        (folder / f"{letter}All").mkdir()
        name = f"mirflickr25k-{letter.lower()}all.mat"
        scipy.io.savemat(folder / f"{letter}All" / name, {f"{letter}All": values})
    return {"tags": tags, "labels": labels, "images": rng.random((20, 4)).astype(np.float32)}


def test_the_selection_made_for_dcmh(tmp_path: Path) -> None:
    arrays = write_dcmh(tmp_path)
    with pytest.raises(DataFileError, match="expected image_features.npy.*run an image encoder"):
        read_collection(tmp_path)
    np.save(tmp_path / "image_features.npy", arrays["images"])
    data = read_collection(tmp_path)
    assert data.name == "mirflickr-dcmh" and (len(data.train), len(data.query)) == (18, 2)
    rows = [int(np.flatnonzero((arrays["images"] == image).all(axis=1))[0]) for image in data.query.images]
    assert np.array_equal(dense(data.query.texts), arrays["tags"][rows])
    (tmp_path / "image_features.npy").unlink()
    scipy.io.savemat(tmp_path / "mirflickr25k-xall.mat", {"XAll": arrays["images"]})
    assert same(read_collection(tmp_path).query, data.query)
    (tmp_path / "YAll" / "mirflickr25k-yall.mat").unlink()
    with pytest.raises(DataFileError, match="missing: mirflickr25k-yall.mat"):
        read_collection(tmp_path)


# ---- NUS-WIDE ----------------------------------------------------------------------------------------------

N_LINES = 60


def write_nus_wide(folder: Path, end: str = "\n") -> Arrays:
    rng = np.random.default_rng(0)
    counts, tags = rng.integers(0, 30, size=(N_LINES, 5)), rng.integers(0, 2, size=(N_LINES, 8))
    labels = rng.random((N_LINES, 12)) < np.linspace(0.02, 0.3, 12)
    for name in ("NUS_WID_Low_Level_Features/Low_Level_Features", "NUS_WID_Tags", "Groundtruth/AllLabels"):
        (folder / name).mkdir(parents=True)
    write_lines(folder / "NUS_WID_Low_Level_Features/Low_Level_Features/BoW_int.dat", counts, end)
    write_lines(folder / "NUS_WID_Tags/AllTags1k.txt", tags, end)
    for concept in range(12):
        path = folder / "Groundtruth" / "AllLabels" / f"Labels_concept{concept:02d}.txt"
        write_lines(path, labels[:, [concept]], end)
    return {"counts": counts, "tags": tags, "labels": labels}


def write_lines(path: Path, values: NDArray[Any], end: str = "\n") -> None:
    rows = values.astype(int).tolist()
    path.write_bytes("".join(" ".join(map(str, row)) + f" {end}" for row in rows).encode())


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_nus_wide_as_published(tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossbyte.lab.datasets.nus_wide._LINES", 7)
    arrays = write_nus_wide(tmp_path, end)
    data = read_collection(tmp_path)
    assert data.name == "nus-wide" and len(data.label_names) == 10
    order = [int(name.removeprefix("concept")) for name in data.label_names]
    frequency = arrays["labels"].sum(axis=0)
    assert np.all(np.diff(frequency[order]) <= 0) and frequency[order].min() >= np.sort(frequency)[2]
    kept = arrays["labels"][:, order].any(axis=1)
    assert 0 < kept.sum() < N_LINES and len(data.train) + len(data.query) == kept.sum()
    rows = [int(np.flatnonzero((arrays["counts"] == image).all(axis=1))[0]) for image in data.query.images]
    assert len(rows) == round(0.1 * kept.sum())
    assert np.array_equal(dense(data.query.texts), arrays["tags"][rows])
    assert np.array_equal(data.query.labels, arrays["labels"][np.ix_(rows, order)])  # type: ignore[arg-type]


def test_nus_wide_asks_at_most_4000(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_nus_wide(tmp_path)
    monkeypatch.setattr("crossbyte.lab.datasets.nus_wide.N_QUERIES", 2)
    assert len(read_collection(tmp_path).query) == 2


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("BoW_int.dat", None, r"missing: BoW_int.dat; they come from http://lms.comp.nus.edu.sg"),
        ("AllTags1k.txt", None, "missing: AllTags1k.txt"),
        (
            "BoW_int.dat",
            "1 2 3 4 5\n" * 20,
            "BoW_int.dat: expected 60 lines as in the files of labels, got 20",
        ),
        ("BoW_int.dat", "1 2 3 4 5\n" * 80, "expected 60 lines as in the files of labels, got more"),
        ("BoW_int.dat", "1 2 3 4 x\n" * 60, "lines from 1: expected counts in each"),
        ("BoW_int.dat", "1 2 3 4 nan\n" * 60, "lines from 1: expected counts in each"),
        ("BoW_int.dat", "1 2\n" * 30 + "1 2 3\n" * 30, "lines from 1: expected counts in each"),
        ("AllTags1k.txt", "1 0 2\n" * 60, "AllTags1k.txt: lines from 1: expected 3 zeros and ones"),
        ("AllTags1k.txt", "1 0\n" * 30 + "1\n" * 30, "lines from 1: expected 2 zeros and ones in each"),
        ("AllTags1k.txt", "1 " * 10000, "expected at most 16384 bytes"),
        (
            "Labels_concept03.txt",
            "0\n1\n",
            r"Labels_concept03.txt: expected 60 lines as in Labels_concept00.txt",
        ),
        ("Labels_concept03.txt", "0 1\n" * 60, "expected 0 or 1 in each line, got 2"),
        ("Labels_concept03.txt", "0\n1 1\n" + "0\n" * 58, "lines from 1: expected 1 zeros and ones in each"),
        ("Labels_concept03.txt", "0\n" * 30 + "\n" * 30, "lines from 1: expected 1 zeros and ones in each"),
        ("Labels_concept03.txt", "", "expected 1 to 16777216 bytes, got 0"),
    ],
)
def test_nus_wide_with_something_wrong(tmp_path: Path, name: str, text: str | None, message: str) -> None:
    write_nus_wide(tmp_path)
    (path,) = tmp_path.rglob(name)
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(DataFileError, match=message):
        read_collection(tmp_path)


def test_a_form_can_be_named(tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match="missing: BoW_int.dat, AllTags1k.txt, Labels_"):
        read_collection(tmp_path, name="nus-wide")
    with pytest.raises(DataFileError, match="got 0 such files and none of the published ones"):
        read_collection(tmp_path)


# ---- generated ---------------------------------------------------------------------------------------------


def check_generated(data: Collection, shape: tuple[int, ...]) -> None:
    assert data.train.labels is not None and data.query.labels is not None
    sizes = (len(data.train), len(data.query), data.train.images.shape[1], data.train.texts.shape[1])
    assert (*sizes, data.train.labels.shape[1]) == shape
    for part in (data.train, data.query):
        assert part.images.dtype == np.float32 and part.texts.dtype == np.float32
        assert part.labels is not None and part.labels.any(axis=1).all()
        (other,) = part.other_texts
        assert other.shape == part.texts.shape and not np.array_equal(
            dense(other[:99]), dense(part.texts[:99])
        )


def test_generated_wiki_has_its_shape() -> None:
    data = read_collection("generated:wiki")
    check_generated(data, (2173, 693, 128, 10, 10))
    assert data.train.labels is not None and np.all(data.train.labels.sum(axis=1) == 1)
    np.testing.assert_allclose(data.train.texts.sum(axis=1), 1, atol=1e-5)
    assert data.name == "generated-wiki" and "Wiki" in data.about


@pytest.mark.parametrize(
    ("name", "shape", "labels", "tags"),
    [
        ("flickr25k", (22_500, 2_500, 3857, 2000, 38), (3, 6), (4.5, 6)),
        ("nus-wide", (182_577, 4_000, 500, 1000, 10), (1.4, 2.2), (5, 7)),
    ],
)
def test_generated_sets_have_the_shapes_of_the_papers(
    name: str,
    shape: tuple[int, ...],
    labels: tuple[float, float],
    tags: tuple[float, float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _SHAPES[name][:4] == shape[:4]
    small = _SHAPES[name]._replace(n_train=2_000, n_query=200)
    monkeypatch.setitem(_SHAPES, name, small)
    data = generate_collection(name)
    check_generated(data, (2_000, 200, *shape[2:]))
    assert data.train.labels is not None
    assert labels[0] < data.train.labels.sum(axis=1).mean() < labels[1]
    assert tags[0] < data.train.texts.nnz / len(data.train) < tags[1]


def test_generated_of_any_size_is_the_same_for_a_seed() -> None:
    first, second, other = (read_collection("generated:300", seed=seed) for seed in (3, 3, 4))
    check_generated(first, (270, 30, 256, 1000, 10))
    assert same(first.query, second.query) and not same(first.query, other.query)
    assert np.array_equal(dense(first.train.other_texts[0]), dense(second.train.other_texts[0]))


def test_generated_labels_can_be_found_on_both_sides() -> None:
    """Neighbours by each side's own features share labels far beyond chance."""
    data = read_collection("generated:2000")
    assert data.train.labels is not None and data.query.labels is not None
    shared = data.query.labels.astype(float) @ data.train.labels.T > 0
    for side in ("images", "texts"):
        train, query = (dense(getattr(part, side)).astype(float) for part in (data.train, data.query))
        train, query = train - train.mean(axis=0), query - train.mean(axis=0)
        near = query @ (train / (np.linalg.norm(train, axis=1, keepdims=True) + 1e-9)).T
        first = np.argsort(-near, axis=1)[:, :10]
        assert np.take_along_axis(shared, first, axis=1).mean() > 1.1 * shared.mean()


@pytest.mark.parametrize(
    "wrong", ["generated:", "generated:imagenet", "generated:5", "generated:-3", "generated:²"]
)
def test_unknown_generated_collections_are_refused(wrong: str) -> None:
    with pytest.raises(
        InvalidInput, match="expected generated:wiki, generated:flickr25k, generated:nus-wide"
    ):
        read_collection(wrong)
