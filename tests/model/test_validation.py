"""Parameters and arguments that do not make sense are refused, by name, before any work starts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from crossbyte import CMCQ
from crossbyte._not_fitted import NotFitted
from crossbyte.data.synthetic import make_pairs
from crossbyte.errors import CrossbyteError, InvalidInput, NotFinite
from crossbyte.validation import (
    check_choice,
    check_features,
    check_groups,
    check_integer,
    check_number,
    check_pairs,
)

PAIRS = make_pairs(40, 6, 9, random_state=0)
SMALL = {"n_bits": 8, "n_components": 4, "n_atoms": 8, "max_iter": 1, "random_state": 0}

BAD_PARAMETERS = [
    *(("n_bits", value) for value in (0, -8, 7, 12, 33, 520, 8.0, "8", None, True)),
    *(("mapping", value) for value in ("pca", "", None, 1)),
    *((name, value) for name in ("n_components", "image_components", "text_components")
      for value in (0, -1, 2.5, "4", True)),
    *(("n_atoms", value) for value in (0, -1, 8.0, None, True)),
    *((name, value) for name in ("sparsity", "text_weight") for value in (0, 0.0)),
    *((name, value)
      for name in ("sparsity", "text_weight", "alignment", "correlation", "cross_penalty", "tol")
      for value in (-0.1, np.nan, np.inf, "0.3", None, True, [0.3], 1j)),
    *((name, value) for name in ("image_power", "text_power")
      for value in (0.0, -0.5, 1.5, np.nan, "2", True)),
    *((name, value) for name in ("ridge", "text_ridge")
      for value in (-0.1, np.nan, np.inf, "0.3", True, [0.3])),
    *(("memory", value) for value in (-1, 2.5, "all", True)),
    ("sparsity_mode", "relative"),
    ("query_map", "lasso"),
    ("cross_term", "dropped"),
    *((name, None) for name in ("sparsity_mode", "query_map", "cross_term")),
    *(("shared_codebooks", value) for value in (None, 1, "yes")),
    *(("max_iter", value) for value in (0, -1, 2.0, None, True)),
    *(("random_state", value) for value in (-1, 0.5, "seed", True)),
    *(("n_jobs", value) for value in (0, -2, 1.5, "all")),
    *(("callback", value) for value in (1, "print")),
]  # fmt: skip


@pytest.fixture(scope="module")
def model() -> CMCQ:
    return CMCQ(**SMALL).fit(PAIRS.images, PAIRS.texts)


@pytest.mark.parametrize("name", dict(BAD_PARAMETERS))
def test_a_bad_parameter_is_refused_by_name_before_any_step(name: str) -> None:
    for value in (value for parameter, value in BAD_PARAMETERS if parameter == name):
        steps: list[Any] = []
        estimator = CMCQ(**({**SMALL, "callback": steps.append} | {name: value}))
        with pytest.raises(InvalidInput, match=rf"^{name}: expected"):
            estimator.fit(PAIRS.images, PAIRS.texts)
        assert not steps
        with pytest.raises(NotFitted):
            estimator.encode_images(PAIRS.images)


def test_the_constructor_judges_nothing() -> None:
    """As scikit-learn wants it: a grid may pass through states that no fit would accept."""
    assert CMCQ(n_bits=7, mapping="pca").n_bits == 7


@pytest.mark.parametrize("value", [np.int64(8), np.uint8(8)])
def test_numbers_of_numpy_are_numbers(value: Any) -> None:
    estimator = CMCQ(**(SMALL | {"n_bits": value, "sparsity": np.float32(0.3), "shared_codebooks": np.True_}))
    assert estimator.fit(PAIRS.images, PAIRS.texts).image_codes_.shape == (40, 1)


@pytest.mark.parametrize(
    ("images", "texts", "expected"),
    [
        (PAIRS.images[:1], PAIRS.texts[:1], InvalidInput),
        (PAIRS.images[:0], PAIRS.texts[:0], InvalidInput),
        (PAIRS.images, PAIRS.texts[:39], InvalidInput),
        (np.where(PAIRS.images == PAIRS.images[3, 2], np.nan, PAIRS.images), PAIRS.texts, NotFinite),
        (PAIRS.images, None, InvalidInput),
        (None, PAIRS.texts, InvalidInput),
        (np.ones((40, 6)), PAIRS.texts, InvalidInput),
        (PAIRS.images, np.zeros((40, 9)), InvalidInput),
    ],
    ids=["one row", "no row", "different lengths", "nan", "no texts", "no images", "equal rows", "zeros"],
)
def test_bad_pairs_are_refused_before_any_step(images: Any, texts: Any, expected: type[Exception]) -> None:
    steps: list[Any] = []
    with pytest.raises(expected):
        CMCQ(**SMALL, callback=steps.append).fit(images, texts)
    assert not steps


@pytest.mark.parametrize("call", ["fit", "encode_pairs", "score", "partner_ranks"])
def test_sides_of_different_length_are_refused(model: CMCQ, call: str) -> None:
    target = CMCQ(**SMALL) if call == "fit" else model
    with pytest.raises(InvalidInput, match="40 images and 39 texts"):
        getattr(target, call)(PAIRS.images, PAIRS.texts[:39])


@pytest.mark.parametrize("call", ["fit", "score"])
def test_missing_texts_are_refused(model: CMCQ, call: str) -> None:
    target = CMCQ(**SMALL) if call == "fit" else model
    with pytest.raises(InvalidInput, match="texts"):
        getattr(target, call)(PAIRS.images, None)


@pytest.mark.parametrize("groups", [np.zeros(39), np.zeros((40, 1)), "all"])
@pytest.mark.parametrize("call", ["fit", "score", "partner_ranks"])
def test_groups_that_do_not_fit_are_refused(model: CMCQ, call: str, groups: Any) -> None:
    target = CMCQ(**SMALL) if call == "fit" else model
    with pytest.raises(InvalidInput, match="^groups: expected one label per row"):
        getattr(target, call)(PAIRS.images, PAIRS.texts, groups)


@pytest.mark.parametrize("side", ["images", "texts"])
@pytest.mark.parametrize("call", ["transform", "encode"])
def test_a_query_of_another_encoder_is_refused(model: CMCQ, side: str, call: str) -> None:
    width = {"images": 6, "texts": 9}[side]
    with pytest.raises(InvalidInput, match=rf"^{side}: .*{width + 1} features.*{width} features"):
        getattr(model, f"{call}_{side}")(np.ones((3, width + 1)))


UNFITTED_CALLS = {
    "transform_images": (PAIRS.images,),
    "transform_texts": (PAIRS.texts,),
    "encode_images": (PAIRS.images,),
    "encode_texts": (PAIRS.texts,),
    "encode_pairs": (PAIRS.images, PAIRS.texts),
    "decode_images": (np.zeros((2, 1), np.uint8),),
    "decode_texts": (np.zeros((2, 1), np.uint8),),
    "partner_ranks": (PAIRS.images, PAIRS.texts),
    "score": (PAIRS.images, PAIRS.texts),
    "save": ("never-written.cbm",),
    "to_bytes": (),
}


@pytest.mark.parametrize("call", UNFITTED_CALLS)
def test_an_unfitted_model_says_so(call: str) -> None:
    with pytest.raises(NotFitted, match="not fitted") as caught:
        getattr(CMCQ(), call)(*UNFITTED_CALLS[call])
    assert isinstance(caught.value, CrossbyteError | NotFittedError)


def test_unfitted_distances_say_so() -> None:
    with pytest.raises(NotFitted):
        CMCQ().distances(images=PAIRS.images, text_codes=np.zeros((2, 1), np.uint8))
    with pytest.raises(NotFitted):
        CMCQ().training_distances(texts=PAIRS.texts)


@pytest.mark.parametrize(
    "codes",
    [np.zeros((2, 2), np.uint8), np.zeros(2, np.uint8), np.zeros((2, 1), np.int64), np.zeros((2, 1))],
    ids=["too wide", "1-d", "int64", "float"],
)
def test_codes_of_another_shape_or_type_are_refused(model: CMCQ, codes: Any) -> None:
    for call in (
        lambda: model.decode_images(codes),
        lambda: model.decode_texts(codes),
        lambda: model.distances(images=PAIRS.images, text_codes=codes),
        lambda: model.distances(texts=PAIRS.texts, image_codes=codes),
    ):
        with pytest.raises(InvalidInput, match="^codes: expected a uint8 array of shape"):
            call()


def test_distances_want_one_kind_of_query_and_one_of_items(model: CMCQ) -> None:
    codes = model.image_codes_
    for arguments in (
        {},
        {"images": PAIRS.images},
        {"image_codes": codes},
        {"images": PAIRS.images, "texts": PAIRS.texts, "image_codes": codes},
        {"images": PAIRS.images, "image_codes": codes, "text_codes": codes},
    ):
        with pytest.raises(InvalidInput, match="one kind of query"):
            model.distances(**arguments)


def test_training_distances_want_one_kind_of_query(model: CMCQ) -> None:
    for arguments in ({}, {"images": PAIRS.images, "texts": PAIRS.texts}):
        with pytest.raises(InvalidInput):
            model.training_distances(**arguments)


@pytest.mark.parametrize("value", ["lasso", None, 3])
def test_a_bad_query_map_set_after_fitting_is_refused_at_the_query(value: Any) -> None:
    fitted = CMCQ.paper(**SMALL).fit(PAIRS.images, PAIRS.texts)
    fitted.query_map = value
    with pytest.raises(InvalidInput, match="^query_map: expected"):
        fitted.transform_images(PAIRS.images)


# The judge itself


def test_checked_features_keep_type_order_and_memory(rng: np.random.Generator) -> None:
    for values in (rng.random((5, 3), dtype=np.float32), np.asfortranarray(rng.random((5, 3)))):
        assert np.shares_memory(check_features(values, "images"), values)
        assert check_features(values, "images").dtype == values.dtype


def test_the_largest_value_allowed_is_1e150() -> None:
    assert check_features([[1e150, -1e150]], "images").shape == (1, 2)
    with pytest.raises(NotFinite, match=r"images: .*1e\+151 at row 0, column 1"):
        check_features([[0.0, 1e151]], "images")


def test_the_first_bad_cell_is_found_in_any_block(rng: np.random.Generator) -> None:
    values = rng.random((9000, 2))
    values[8999, 1] = np.nan
    with pytest.raises(NotFinite, match="row 8999, column 1"):
        check_features(values, "texts")


def test_groups_are_numbered_by_first_appearance() -> None:
    assert check_groups(["b", "a", "b", "c"], 4).tolist() == [0, 1, 0, 2]
    assert check_groups([7, 7, 3], 3).tolist() == [0, 0, 1]
    assert check_groups(None, 3).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "groups",
    [
        ["a", "b", None, "b"],
        ["a", "b", np.nan, "b"],
        ["a", "b", "", "b"],
        [1, 2, None, 2],
        [1.0, 2.0, np.nan, 2.0],
        np.array([1.0, 2.0, np.nan, 2.0]),
        np.array(["a", "b", "", "b"]),
        np.array(["a", "b", None, "b"], dtype=object),
        np.ma.masked_array([1, 2, 3, 2], mask=[0, 0, 1, 0]),
    ],
)
def test_a_row_without_a_group_is_named(groups: Any) -> None:
    with pytest.raises(InvalidInput, match="groups: expected a label in every row, got none in row 2; fill"):
        check_groups(groups, 4)


def test_groups_of_several_kinds_are_refused() -> None:
    """NumPy would take 1 and "1" for the same, or know no order."""
    with pytest.raises(InvalidInput, match="got numbers and in row 1 a string; make"):
        check_groups([1, "1", 2], 3)
    with pytest.raises(InvalidInput, match="got strings and in row 2 a number"):
        check_groups(np.array(["a", "b", 2], dtype=object), 3)
    with pytest.raises(InvalidInput, match="no order"):
        check_groups(np.array([{}, {}], dtype=object), 2)
    assert check_groups([2, 1.0, np.int8(2)], 3).tolist() == [0, 1, 0]


def test_numbers_and_choices() -> None:
    assert check_number(np.float32(0.5), "x", 0.0) == 0.5
    assert check_number(0, "x", 0.0) == 0.0
    assert type(check_integer(np.int8(3), "x", 0)) is int
    assert check_choice("a", "x", ("b", "a")) == "a"
    with pytest.raises(InvalidInput, match=r"x: expected a number in \(0, 1\], got 0"):
        check_number(0, "x", 0.0, 1.0, open_low=True)
    with pytest.raises(InvalidInput, match="x: expected an integer from 1 to 4, got 5"):
        check_integer(5, "x", 1, 4)
    with pytest.raises(InvalidInput, match="x: expected one of 'a', 'b', got 'c'"):
        check_choice("c", "x", ("b", "a"))


def test_pairs_need_two_rows() -> None:
    assert check_pairs(np.eye(2), np.eye(2))[0].shape == (2, 2)
    with pytest.raises(InvalidInput, match="images: expected at least 2 rows"):
        check_pairs(np.eye(1), np.eye(1))
