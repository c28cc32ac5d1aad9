"""Encoders in a model's file: they come back as they were, and are no part of a model of features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbyte import CMCQ, Index
from crossbyte._not_fitted import NotFitted
from crossbyte.data.synthetic import make_pairs
from crossbyte.encoders.base import EncoderState
from crossbyte.errors import DamagedModelFile, InvalidInput
from crossbyte.model.file_format import model_bytes, parse_model_bytes

IMAGES, TEXTS, _ = make_pairs(300, 12, 9, random_state=0)


def fitted() -> CMCQ:
    model = CMCQ(n_bits=8, mapping="cca", n_components=4, max_iter=1, random_state=0)
    return model.fit(IMAGES, TEXTS)


def state(dimension: int, kind: str = "words") -> EncoderState:
    arrays = {"weights": np.arange(dimension, dtype=np.float32), "table": np.eye(3)}
    return EncoderState(kind, "words of captions", dimension, "ab12", {"width": dimension, "é": [1]}, arrays)


def same(one: EncoderState, other: EncoderState) -> bool:
    arrays = one.arrays.keys() == other.arrays.keys()
    equal = all(np.array_equal(one.arrays[name], other.arrays[name]) for name in one.arrays)
    return arrays and equal and one._replace(arrays={}) == other._replace(arrays={})


def test_encoders_come_back_from_bytes_and_from_an_index(tmp_path: Path) -> None:
    model = fitted().attach_encoders(image=state(12, "looks"), text=state(9))
    Index.create(tmp_path / "a.cb", model).close()
    with Index.open(tmp_path / "a.cb") as index:
        for found in (CMCQ.from_bytes(model.to_bytes()), index.model):
            assert found.encoder_states_.keys() == {"image", "text"}
            assert same(found.encoder_states_["image"], state(12, "looks"))
            assert same(found.encoder_states_["text"], state(9))


def test_one_side_alone_may_have_an_encoder() -> None:
    model = CMCQ.from_bytes(fitted().attach_encoders(text=state(9)).to_bytes())
    assert list(model.encoder_states_) == ["text"]


def test_a_model_of_features_is_the_same_file_as_before() -> None:
    model = fitted()
    assert model.encoder_states_ == {}
    assert "encoders" not in parse_model_bytes(model.to_bytes(), "model").document
    assert model.attach_encoders().to_bytes() == fitted().to_bytes()


def test_an_encoder_of_another_width_is_refused() -> None:
    model = fitted().attach_encoders(text=state(9))
    with pytest.raises(InvalidInput, match="image encoder: expected features of the model's width 12"):
        model.attach_encoders(image=state(13))
    assert list(model.encoder_states_) == ["text"]


def test_before_a_fit_there_is_nothing_to_attach_to_and_a_fit_forgets() -> None:
    with pytest.raises(NotFitted):
        CMCQ().attach_encoders(text=state(9))
    model = fitted().attach_encoders(text=state(9))
    assert model.fit(IMAGES, TEXTS).encoder_states_ == {}


@pytest.mark.parametrize(
    "change",
    [
        {"kind": 3},
        {"dimension": 0},
        {"dimension": "9"},
        {"dimension": True},
        {"settings": []},
        {"fingerprint": None},
        {"name": None},
    ],
)
def test_senseless_encoders_are_damage(change: dict[str, Any]) -> None:
    contents = parse_model_bytes(fitted().attach_encoders(text=state(9)).to_bytes(), "model")
    contents.document["encoders"]["text"] |= change
    with pytest.raises(DamagedModelFile, match="the encoders of the model make no sense"):
        CMCQ.from_bytes(model_bytes(contents.arrays, contents.document))


@pytest.mark.parametrize("encoders", [[], 3, {"text": None}, {"sound": {}}, {"text": {"kind": "words"}}])
def test_encoders_of_another_shape_are_damage(encoders: Any) -> None:
    contents = parse_model_bytes(fitted().to_bytes(), "model")
    with pytest.raises(DamagedModelFile, match="the encoders of the model make no sense"):
        CMCQ.from_bytes(model_bytes(contents.arrays, dict(contents.document) | {"encoders": encoders}))
