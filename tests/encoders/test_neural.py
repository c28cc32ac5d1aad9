"""Encoders that others made: ONNX files, sentence-transformers, open_clip, functions; and their choice."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from crossbyte.encoders.base import EncoderState
from crossbyte.encoders.onnx_model import check_description
from crossbyte.encoders.registry import KINDS, SPECS, encoder_kind, make_encoder, restore_encoder
from crossbyte.errors import DataFileError, InvalidInput, MissingExtra, NoEncoder, NotFinite, WrongEncoder
from support.onnx_files import (
    FLOAT,
    INT64,
    UINT8,
    integer,
    integers,
    node,
    port,
    write_graph,
    write_identity,
    write_projection,
)

RNG = np.random.default_rng(3)
SIZES = [(8, 8), (30, 20), (9, 40), (8, 11), (64, 64), (1, 1), (3, 300)]
PICTURES = [RNG.integers(0, 256, (*size, 3), dtype=np.uint8) for size in SIZES]
PLAIN = {"scaling": "x"}


def made(spec: str, side: str, sample: Any = (), n_jobs: int | None = None) -> Any:
    """An encoder without its type: what it gives is dense or sparse, and each test knows which."""
    return make_encoder(spec, side, sample, n_jobs=n_jobs)


def restored(state: EncoderState, side: str, given: str | None = None) -> Any:
    """The same, made again."""
    return restore_encoder(state, side, given)


def describe_beside(path: Path, **fields: Any) -> str:
    """Write a description beside an ONNX file."""
    path.with_suffix(".json").write_text(json.dumps(fields))
    return str(path)


def seen(path: Path, picture: Any, **fields: Any) -> Any:
    """What an identity network saw of a picture, as (height, width, 3) or as laid out."""
    encoder = made(describe_beside(path, **fields), "image")
    return encoder.encode([picture])[0]


@pytest.fixture
def identity(tmp_path: Path) -> Path:
    return write_identity(tmp_path / "same.onnx", ["n", 3, 8, 8])


@pytest.fixture
def projection(tmp_path: Path) -> str:
    path = write_projection(tmp_path / "colours.onnx")
    return describe_beside(path, output="features", scaling="(x-127)/128")


# Choosing


def test_every_kind_is_recognised() -> None:
    specs = {
        "builtin": "builtin",
        "static": "static",
        "clip:folder": "clip",
        "a/b.onnx": "onnx",
        "a/B.ONNX": "onnx",
        "a/b.json": "onnx",
        "sentence-transformers:all-MiniLM-L6-v2": "sentence-transformers",
        "sentence-transformers:./folder": "sentence-transformers",
        "open-clip:ViT-B-32@openai": "open-clip",
        "my.module:encode": "function",
    }
    assert {spec: encoder_kind(spec) for spec in specs} == specs
    assert set(specs.values()) == set(SPECS) == set(KINDS.values())


@pytest.mark.parametrize(
    "spec", ["", "clip", "built-in", "sentence-transformers:", "open-clip:", "a-b:c", ":f"]
)
def test_unknown_encoders_are_answered_with_those_there_are(spec: str) -> None:
    with pytest.raises(
        InvalidInput, match=r"no encoder .*builtin; static; PATH\.onnx.*open-clip:.*module:function"
    ):
        made(spec, "image")


def test_sides_are_checked(projection: str) -> None:
    with pytest.raises(InvalidInput, match="side: expected one of"):
        made("builtin", "sound", [])
    with pytest.raises(
        InvalidInput, match="encodes texts and was given as the encoder of images; for pictures:"
    ):
        made("static", "image")
    with pytest.raises(FileNotFoundError, match="a network for texts needs the tokenizer.json"):
        made(projection, "text")
    with pytest.raises(
        InvalidInput, match="encodes texts and was given as the encoder of images; for pictures:"
    ):
        made("sentence-transformers:x", "image")


@pytest.mark.parametrize(("side", "sample"), [("image", PICTURES), ("text", ["a red dog", "two blue cats"])])
def test_builtin_encoders_come_back_from_the_state_alone(side: str, sample: Any) -> None:
    encoder = made("builtin", side, sample)
    again = restored(encoder.state, side)
    assert np.array_equal(dense(again.encode(sample)), dense(encoder.encode(sample)))
    assert restored(encoder.state, side, "builtin").state.fingerprint == encoder.state.fingerprint
    with pytest.raises(WrongEncoder, match="is of another kind"):
        restored(encoder.state, side, "other.onnx")
    with pytest.raises(WrongEncoder, match="is no encoder of"):
        restored(encoder.state, "text" if side == "image" else "image")


def dense(rows: Any) -> Any:
    return rows.toarray() if hasattr(rows, "toarray") else rows


def test_a_state_of_a_later_kind_is_no_encoder() -> None:
    state = EncoderState("telepathy", "mind", 3, "00", {}, {})
    with pytest.raises(NoEncoder, match="unknown to this version"):
        restored(state, "text")


# How a picture is prepared


def test_layouts_and_colours(tmp_path: Path) -> None:
    picture = PICTURES[0]
    channels_last = write_identity(tmp_path / "last.onnx", ["n", 8, 8, 3])
    channels_first = write_identity(tmp_path / "first.onnx", ["n", 3, 8, 8])
    assert np.array_equal(seen(channels_last, picture, **PLAIN).reshape(8, 8, 3), picture)
    first = seen(channels_first, picture, **PLAIN).reshape(3, 8, 8)
    assert np.array_equal(first, picture.transpose(2, 0, 1))
    reverse = seen(channels_first, picture, colour="BGR", **PLAIN).reshape(3, 8, 8)
    assert np.array_equal(reverse, first[::-1])


@pytest.mark.parametrize(
    ("scaling", "mean", "std"),
    [
        ("x", 0, 1),
        ("x/255", 0, 255),
        ("(x-127)/128", 127, 128),
        ("(x - 127.5) / 127.5", 127.5, 127.5),
        ("x/127.5-1", 127.5, 127.5),
        ("x/255-0.5", 127.5, 255),
        ("x-100", 100, 1),
        ({"mean": 0.5, "std": 0.5}, 127.5, 127.5),
        ({"mean": [100, 110, 120], "std": [1, 2, 4], "range": 255}, [100, 110, 120], [1, 2, 4]),
    ],
)
def test_scalings(identity: Path, scaling: Any, mean: Any, std: Any) -> None:
    got = seen(identity, PICTURES[0], scaling=scaling).reshape(3, 8, 8).transpose(1, 2, 0)
    assert np.allclose(got, (PICTURES[0] - np.asarray(mean)) / np.asarray(std), atol=1e-4)


@pytest.mark.parametrize(
    "scaling", ["x-127/128", "255", "x*2", "(x-1", "x/0", 7, {"mean": 1}, {"mean": [1], "std": 1}]
)
def test_scalings_that_say_nothing(identity: Path, scaling: Any) -> None:
    with pytest.raises(InvalidInput, match="scaling"):
        seen(identity, PICTURES[0], scaling=scaling)


def test_crop_takes_the_centre(identity: Path) -> None:
    wide = np.zeros((8, 24, 3), dtype=np.uint8)
    wide[:, 8:16] = PICTURES[0]
    assert np.array_equal(seen(identity, wide, **PLAIN), seen(identity, PICTURES[0], **PLAIN))
    larger = np.zeros((12, 12, 3), dtype=np.uint8)
    larger[2:10, 2:10] = PICTURES[0]
    got = seen(identity, larger, short_side=12, **PLAIN)
    assert np.array_equal(got, seen(identity, PICTURES[0], **PLAIN))


def test_letterbox_keeps_everything(identity: Path) -> None:
    flat = np.full((4, 8, 3), 200, dtype=np.uint8)
    got = seen(identity, flat, fit="letterbox", border=9, **PLAIN).reshape(3, 8, 8)
    assert np.all(got[:, 2:6] == 200) and np.all(got[:, :2] == 9) and np.all(got[:, 6:] == 9)


def test_squash_forgets_the_proportions(identity: Path) -> None:
    halves = np.zeros((8, 64, 3), dtype=np.uint8)
    halves[:, 32:] = 255
    got = seen(identity, halves, fit="squash", resampling="nearest", **PLAIN).reshape(3, 8, 8)
    assert np.all(got[:, :, :4] == 0) and np.all(got[:, :, 4:] == 255)


def test_extreme_shapes_stay_small(identity: Path) -> None:
    strip = np.full((1, 40_000, 3), 77, dtype=np.uint8)
    for fit in ("crop", "squash"):
        assert np.all(seen(identity, strip, fit=fit, **PLAIN) == 77)


def test_a_network_that_takes_bytes_needs_no_description(tmp_path: Path) -> None:
    path = write_identity(tmp_path / "bytes.onnx", [1, 3, 8, 8], UINT8)
    encoder = made(str(path), "image")
    assert np.array_equal(encoder.encode(PICTURES[:1])[0].reshape(3, 8, 8), PICTURES[0].transpose(2, 0, 1))


# ONNX files


def test_features_do_not_depend_on_neighbours_or_threads(projection: str) -> None:
    encoder = made(projection, "image", n_jobs=2)
    together = encoder.encode(PICTURES)
    assert together.shape == (len(PICTURES), 5) and together.dtype == np.float32
    alone = [made(projection, "image", n_jobs=1).encode([picture])[0] for picture in PICTURES]
    assert np.array_equal(together, alone)
    assert encoder.encode([]).shape == (0, 5)


@pytest.mark.parametrize("first", [4, "n"])
def test_a_network_that_mixes_its_batch_sees_one_picture_at_a_time(tmp_path: Path, first: int | str) -> None:
    path = write_graph(
        tmp_path / "mixing.onnx",
        node("ReduceMean", ["pixels"], "mean", integers("axes", [0])),
        node("Sub", ["pixels", "mean"], "rest"),
        node("Flatten", ["rest"], "features"),
        port(11, "pixels", [first, 3, 8, 8]),
        port(12, "features", [first, 192]),
    )
    encoder = made(describe_beside(path, batch=4, **PLAIN), "image")
    together = encoder.encode(PICTURES)
    assert np.array_equal(together, [encoder.encode([picture])[0] for picture in PICTURES])


def test_fixed_batches_are_filled_up(tmp_path: Path) -> None:
    path = write_identity(tmp_path / "three.onnx", [3, 3, 8, 8])
    encoder = made(describe_beside(path, **PLAIN), "image")
    assert encoder.state.settings["description"]["batch"] == 3
    free = made(describe_beside(write_identity(tmp_path / "free.onnx", ["n", 3, 8, 8]), **PLAIN), "image", [])
    assert np.array_equal(encoder.encode(PICTURES), free.encode(PICTURES))


def test_the_state_is_small_json_without_a_path(projection: str) -> None:
    state = made(projection, "image").state
    assert (state.kind, state.name, state.dimension, state.arrays) == ("onnx", "colours", 5, {})
    assert str(Path(projection).parent) not in json.dumps(state.settings)
    assert (
        check_description(state.settings["description"], "state").to_json() == state.settings["description"]
    )


def test_a_description_may_lie_elsewhere(projection: str, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    fields = {"model": "../colours.onnx", "name": "Colours", "output": "features", "scaling": "(x-127)/128"}
    description = tmp_path / "other" / "mine.json"
    description.write_text(json.dumps(fields))
    encoder = made(str(description), "image")
    assert encoder.state.name == "Colours"
    assert encoder.state.fingerprint == made(projection, "image").state.fingerprint


def test_both_names_beside_the_file_are_found(projection: str) -> None:
    beside = Path(projection).with_suffix(".json")
    expected = made(projection, "image").state
    beside.rename(f"{projection}.json")
    assert made(projection, "image").state == expected


def test_only_the_file_is_needed_again(projection: str, tmp_path: Path) -> None:
    encoder = made(projection, "image")
    moved = (tmp_path / "moved.onnx").resolve()
    moved.write_bytes(Path(projection).read_bytes())
    again = restored(encoder.state, "image", str(moved))
    assert again.state == encoder.state
    assert np.array_equal(again.encode(PICTURES), encoder.encode(PICTURES))
    with pytest.raises(
        NoEncoder, match=r"'colours', which is not in the model's file; .*--image-encoder PATH"
    ):
        restored(encoder.state, "image")
    with pytest.raises(WrongEncoder, match="no encoder of texts"):
        restored(encoder.state, "text", str(moved))


def test_another_file_is_refused(projection: str, tmp_path: Path) -> None:
    state = made(projection, "image").state
    other = write_projection(tmp_path / "other.onnx", seed=1)
    with pytest.raises(WrongEncoder, match=r"fitted with the encoder 'colours'.*other\.onnx is another file"):
        restored(state, "image", str(other))


def test_a_damaged_state_is_refused(projection: str) -> None:
    state = made(projection, "image").state
    changed = {**state.settings, "description": {**state.settings["description"], "colour": "BGR"}}
    with pytest.raises(WrongEncoder, match="encodes otherwise"):
        restored(state._replace(settings=changed), "image", projection)
    for description in (None, {}, {**state.settings["description"], "size": [10**9, 10**9]}):
        broken = state._replace(settings={**state.settings, "description": description})
        with pytest.raises(InvalidInput, match="damaged|size: expected an integer"):
            restored(broken, "image", projection)


@pytest.mark.parametrize("file", ["large.onnx_data", "l" * 200 + ".data"])
def test_weights_in_a_file_of_their_own_count(tmp_path: Path, file: str) -> None:
    path = write_projection(tmp_path / "large.onnx", file=file)
    spec = describe_beside(path, output="features", scaling="x")
    encoder = made(spec, "image")
    inside = describe_beside(write_projection(tmp_path / "small.onnx"), output="features", scaling="x")
    assert np.array_equal(encoder.encode(PICTURES), made(inside, "image").encode(PICTURES))
    (tmp_path / file).write_bytes(np.ones((3, 5), dtype=np.float32).tobytes())
    with pytest.raises(WrongEncoder, match="another file"):
        restored(encoder.state, "image", spec)


def test_what_the_file_does_not_say_is_asked_for(tmp_path: Path) -> None:
    path = write_projection(tmp_path / "colours.onnx")
    with pytest.raises(InvalidInput, match=r"does not say output and scaling \(inputs: \"pixels\"") as caught:
        made(str(path), "image")
    message = str(caught.value)
    example = json.loads(message[message.index("\n{") :])
    assert example["input"] == "pixels" and example["size"] == [8, 8] and example["layout"] == "NCHW"
    assert made(describe_beside(path, **{**example, "output": "features"}), "image").state.dimension == 5


def test_outputs_with_places_are_pooled(tmp_path: Path) -> None:
    path = write_graph(
        tmp_path / "places.onnx",
        node("Relu", ["pixels"], "places"),
        port(11, "pixels", ["n", 3, 8, 8]),
        port(12, "places", ["n", 3, 8, 8]),
    )
    with pytest.raises(InvalidInput, match='has shape .1, 3, 8, 8.*"pool" to "mean"'):
        made(describe_beside(path, **PLAIN), "image")
    mean = made(describe_beside(path, pool="mean", **PLAIN), "image").encode(PICTURES[:1])
    assert np.allclose(mean[0], PICTURES[0].mean(axis=(0, 1)), rtol=1e-5)
    colours = write_projection(tmp_path / "colours.onnx")
    flat = made(describe_beside(colours, output="colours", **PLAIN), "image").encode(PICTURES[:1])
    assert np.allclose(flat, mean, rtol=1e-5)


def test_first_token_and_mean_of_tokens(tmp_path: Path) -> None:
    path = write_graph(
        tmp_path / "tokens.onnx",
        node("ReduceMean", ["pixels"], "tokens", integers("axes", [2]) + integer("keepdims", 0)),
        port(11, "pixels", ["n", 8, 8, 3]),
        port(12, "tokens", ["n", 8, 3]),
    )
    with pytest.raises(InvalidInput, match="expected one vector"):
        made(describe_beside(path, **PLAIN), "image")
    first, mean = (seen(path, PICTURES[0], pool=pool, **PLAIN) for pool in ("first", "mean"))
    assert np.allclose(first, PICTURES[0][0].mean(axis=0), rtol=1e-5)
    assert np.allclose(mean, PICTURES[0].mean(axis=(0, 1)), rtol=1e-5)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"colur": "RGB"}, "unknown field 'colur'; known are batch, border, colour"),
        ({"colour": "GRB"}, "colour: expected one of"),
        ({"input": "image"}, "it has no input 'image'; it has \"pixels\""),
        ({"output": "logits"}, "it has no output 'logits'"),
        ({"size": 16}, r"its input is \"pixels\" float32 \(n, 3, 8, 8\), and .* make \(1, 3, 16, 16\)"),
        ({"size": [1, 2, 3]}, "size: expected a number, or"),
        ({"layout": "NHWC"}, "correct the description"),
        ({"short_side": 4}, "short_side: expected an integer from 8"),
        ({"batch": 0}, "batch: expected an integer"),
        ({"input": 3}, "it has no input 3"),
        ({"name": 3}, "expected a name"),
    ],
)
def test_descriptions_that_are_wrong(identity: Path, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        made(describe_beside(identity, **{**PLAIN, **fields}), "image")


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"absent\.onnx: there is no such file"):
        made(str(tmp_path / "absent.onnx"), "image")
    (tmp_path / "text.onnx").write_text("not a network")
    with pytest.raises(DataFileError, match="ONNX Runtime cannot open it"):
        made(str(tmp_path / "text.onnx"), "image")
    for text, message in (("[]", "expected a JSON object"), ("{", "expected JSON"), ("{}", '"model"')):
        (tmp_path / "d.json").write_text(text)
        with pytest.raises(InvalidInput, match=message):
            made(str(tmp_path / "d.json"), "image")
    (tmp_path / "d.json").write_text(" " * 100_000)
    with pytest.raises(DataFileError, match="small JSON"):
        made(str(tmp_path / "d.json"), "image")


def test_networks_for_texts_are_told_where_to_go(tmp_path: Path) -> None:
    path = write_identity(tmp_path / "tokens.onnx", ["n", 16], INT64)
    with pytest.raises(
        InvalidInput, match="expected an input for pictures.*as the encoder of texts.*tokenizer.json"
    ):
        made(describe_beside(path, **PLAIN), "image")


def test_items_that_are_no_pictures(projection: str) -> None:
    encoder = made(projection, "image")
    for item in ("dog", np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3)), np.zeros((0, 4, 3), np.uint8)):
        with pytest.raises(InvalidInput, match="expected"):
            encoder.encode([item])


def test_features_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    path = write_graph(
        tmp_path / "log.onnx",
        node("Log", ["pixels"], "logarithms"),
        node("Flatten", ["logarithms"], "features"),
        port(11, "pixels", ["n", 3, 8, 8], FLOAT),
        port(12, "features", ["n", 192]),
    )
    encoder = made(describe_beside(path, **PLAIN), "image")
    with pytest.raises(NotFinite, match="log: expected finite"):
        encoder.encode([np.zeros((8, 8, 3), np.uint8)])


@pytest.mark.parametrize(
    ("module", "spec", "side", "extra"),
    [
        ("onnxruntime", None, "image", "onnx"),
        ("sentence_transformers", "sentence-transformers:all-MiniLM-L6-v2", "text", "sentences"),
        ("open_clip", "open-clip:ViT-B-32@openai", "text", "clip"),
    ],
)
def test_a_missing_library_is_named_with_its_command(
    module: str, spec: str | None, side: str, extra: str, projection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"pip install 'crossbyte\[{extra}\]'"):
        made(spec or projection, side, [])


# Other libraries, played by small modules with their interfaces


class Tensor:
    """As much of torch's as is used."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)

    def detach(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def to(self, device: str) -> Tensor:
        assert device == "cpu"
        return self

    def float(self) -> Tensor:
        return Tensor(self.values.astype(np.float32))

    def unsqueeze(self, axis: int) -> Tensor:
        return Tensor(np.expand_dims(self.values, axis))

    def numpy(self) -> Any:
        return self.values


class Pooling:
    """sentence_transformers.models.Pooling, as releases from 5.4 have it."""

    pooling_mode: Any = "mean"
    include_prompt = True


class EarlierPooling:
    """The same, as releases before had it."""

    include_prompt = True

    def get_pooling_mode_str(self) -> str:
        return "mean"


EarlierPooling.__name__ = "Pooling"


class Sentences:
    """sentence_transformers.SentenceTransformer: letter counts of a text, times weights.

    As in the real one, the last bits depend on the shape of the batch: on how many texts are in it, and on
    the longest of them.
    """

    on_this_machine: set[str] = set()
    seed = 0
    max_seq_length = 128
    truncate_dim = None
    default_prompt_name: str | None = None
    prompts = {"query": "query: ", "document": ""}
    pooling: Any = Pooling
    first_token = 0
    damage: Exception | None = None
    mixes = False
    batches: list[int] = []

    def __init__(
        self, model_name_or_path: str, *, trust_remote_code: bool = False, local_files_only: bool = False
    ) -> None:
        assert not trust_remote_code
        here = Path(model_name_or_path).exists() or model_name_or_path in self.on_this_machine
        if local_files_only and not here:
            raise OSError(f"{model_name_or_path} is not in the cache\nSee the manual")
        if self.damage:
            raise self.damage
        self.on_this_machine.add(model_name_or_path)
        self.weights = np.random.default_rng(self.seed).normal(size=(26, 6))
        self.tokenizer = self

    def children(self) -> list[Any]:
        return [self, self.pooling()]

    def get_vocab(self) -> dict[str, int]:
        return {chr(97 + letter): self.first_token + letter for letter in range(26)}

    def preprocess(self, inputs: list[str]) -> dict[str, Tensor]:
        vocabulary = self.get_vocab()
        return {"input_ids": Tensor([[vocabulary.get(sign, 99) for sign in text] for text in inputs])}

    def state_dict(self) -> dict[str, Tensor]:
        return {"letters.weight": Tensor(self.weights)}

    def encode(
        self, inputs: list[str], *, batch_size: int, show_progress_bar: bool, convert_to_numpy: bool
    ) -> Any:
        assert not show_progress_bar and convert_to_numpy and all(inputs)
        self.batches.append(batch_size)
        parts = [inputs[first : first + batch_size] for first in range(0, len(inputs), batch_size)]
        return np.concatenate([self._forward(part) for part in parts])

    def _forward(self, texts: list[str]) -> Any:
        counts = [[text.lower().count(chr(97 + letter)) for letter in range(26)] for text in texts]
        shape = 1e-5 * len(texts) * max(map(len, texts))
        rows = (np.asarray(counts) @ self.weights + shape).astype(np.float32)
        return rows + rows.mean(axis=0) if self.mixes else rows


@pytest.fixture
def sentences(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Sentences]]:
    library = ModuleType("sentence_transformers")
    setattr(library, "SentenceTransformer", Sentences)  # noqa: B010
    monkeypatch.setitem(sys.modules, "sentence_transformers", library)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.setattr(Sentences, "on_this_machine", set())
    monkeypatch.setattr(Sentences, "batches", [])
    yield Sentences


TEXTS = ["a dog", "", "  ?!", "two cats", "a dog"]


def test_sentence_transformers(sentences: type[Sentences]) -> None:
    encoder = made("sentence-transformers:all-tiny", "text")
    rows = encoder.encode(TEXTS)
    assert rows.shape == (5, 6) and rows.dtype == np.float32
    assert not rows[1:3].any() and rows[0].any() and np.array_equal(rows[0], rows[4])
    assert encoder.encode(["", " "]).shape == (2, 6)
    assert (encoder.state.name, encoder.state.settings["model"]) == ("all-tiny", "all-tiny")
    again = restored(encoder.state, "text")
    assert np.array_equal(again.encode(TEXTS), rows)
    with pytest.raises(InvalidInput, match="expected texts as str, got int"):
        encoder.encode([3])


LENGTHS = ["two dogs", "a man", "one girl", "tall men", "it runs", "a cat sits in the sun", "big boat"]


def test_texts_of_one_length_go_together_and_get_the_bits_that_each_gets_alone(
    sentences: type[Sentences],
) -> None:
    encoder = made("sentence-transformers:all-tiny", "text")
    sentences.batches.clear()
    rows = encoder.encode(LENGTHS)
    assert sentences.batches == [4] * 4  # of 8 (four of them), 5, 7 and 21 signs
    alone = np.concatenate([encoder.encode([text]) for text in LENGTHS])
    assert np.array_equal(rows, alone)
    assert np.array_equal(encoder.encode(LENGTHS[::-1])[::-1], rows)


@pytest.mark.parametrize("change", [{"mixes": True}, {"default_prompt_name": "query"}])
def test_texts_go_alone_where_a_batch_may_mix_them(
    sentences: type[Sentences], change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in change.items():
        monkeypatch.setattr(Sentences, name, value)
    encoder = made("sentence-transformers:all-tiny", "text")
    sentences.batches.clear()
    rows = encoder.encode(LENGTHS)
    assert sentences.batches == [1]
    assert np.array_equal(np.concatenate([encoder.encode([text]) for text in LENGTHS]), rows)


class MaxPooling(Pooling):
    pooling_mode = ("max", "mean")


MaxPooling.__name__ = "Pooling"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pooling", MaxPooling),
        ("first_token", 1),
        ("max_seq_length", 64),
        ("default_prompt_name", "query"),
        ("truncate_dim", 4),
    ],
)
def test_all_that_stands_beside_the_weights_counts(
    sentences: type[Sentences], name: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = made("sentence-transformers:all-tiny", "text").state
    monkeypatch.setattr(Sentences, name, value)
    with pytest.raises(WrongEncoder, match="encodes otherwise"):
        restored(state, "text")


def test_releases_of_the_library_agree_on_a_model(
    sentences: type[Sentences], monkeypatch: pytest.MonkeyPatch
) -> None:
    state = made("sentence-transformers:all-tiny", "text").state
    monkeypatch.setattr(Sentences, "tokenize", Sentences.preprocess, raising=False)
    monkeypatch.delattr(Sentences, "preprocess")
    monkeypatch.setattr(Sentences, "pooling", EarlierPooling)
    assert restored(state, "text").state == state


class SafetensorError(Exception):
    """Derives from Exception alone, as in safetensors."""


def test_a_damaged_sentence_model_is_an_error_of_ours(
    sentences: type[Sentences], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = f"sentence-transformers:{tmp_path}"
    state = made(spec, "text").state
    monkeypatch.setattr(Sentences, "damage", SafetensorError("incomplete metadata"))
    with pytest.raises(InvalidInput, match="cannot load it: incomplete metadata"):
        made(spec, "text")
    with pytest.raises(NoEncoder, match="no whole sentence-transformers model: incomplete metadata"):
        restored(state, "text", spec)


class Hub:
    """huggingface_hub, as much of it as is asked whether it answers."""

    class HfHubHTTPError(OSError):
        """The hub answered, with an error."""

    def __init__(self, answer: Exception | None) -> None:
        self.answer = answer

    def HfApi(self) -> Hub:
        return self

    def model_info(self, name: str, *, timeout: float) -> None:
        if self.answer:
            raise self.answer


@pytest.mark.parametrize("answer", [None, Hub.HfHubHTTPError("404: no such model of that owner")])
def test_a_hub_that_answers_is_asked_for_the_model(
    sentences: type[Sentences], answer: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("huggingface_hub", "huggingface_hub.errors"):
        monkeypatch.setitem(sys.modules, module, Hub(answer))
    assert made("sentence-transformers:all-tiny", "text").state.name == "all-tiny"


def test_a_hub_that_does_not_answer_is_asked_once(
    sentences: type[Sentences], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("huggingface_hub", "huggingface_hub.errors"):
        monkeypatch.setitem(sys.modules, module, Hub(ConnectionError("no route")))
    with pytest.raises(InvalidInput, match=r"the hub does not answer \(no route\); connect to the internet"):
        made("sentence-transformers:all-tiny", "text")
    sentences.on_this_machine.add("all-tiny")
    assert made("sentence-transformers:all-tiny", "text").state.name == "all-tiny"


def test_searching_never_downloads_a_sentence_model(sentences: type[Sentences]) -> None:
    state = made("sentence-transformers:all-tiny", "text").state
    sentences.on_this_machine.clear()
    for given in (None, "sentence-transformers:all-tiny"):
        with pytest.raises(
            NoEncoder, match=r"not on this machine, and searching never downloads .*load it once"
        ):
            restored(state, "text", given)


def test_sentence_models_with_other_weights_are_refused(
    sentences: type[Sentences], monkeypatch: pytest.MonkeyPatch
) -> None:
    state = made("sentence-transformers:all-tiny", "text").state
    monkeypatch.setattr(Sentences, "seed", 1)
    with pytest.raises(WrongEncoder, match="'all-tiny' .* encodes otherwise"):
        restored(state, "text")


def test_a_local_sentence_model_leaves_no_path(sentences: type[Sentences], tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    encoder = made(f"sentence-transformers:{folder}", "text")
    assert encoder.state.name == "mine" and str(tmp_path) not in json.dumps(encoder.state.settings)
    assert encoder.state.fingerprint == made("sentence-transformers:hub", "text").state.fingerprint
    with pytest.raises(NoEncoder, match="give it yourself with --text-encoder sentence-transformers:PATH"):
        restored(encoder.state, "text")
    again = restored(encoder.state, "text", f"sentence-transformers:{folder}")
    assert np.array_equal(again.encode(TEXTS), encoder.encode(TEXTS))


@pytest.mark.parametrize("name", ["mine", "../mine", "/etc", "a/b/c", "", 3, "~/x", "hf:x"])
def test_a_file_cannot_choose_a_path(
    sentences: type[Sentences], name: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    state = made("sentence-transformers:hub", "text").state
    with pytest.raises(NoEncoder, match="give it yourself"):
        restored(state._replace(settings={**state.settings, "model": name}), "text")


class ClipNetwork:
    """A model of open_clip: mean colours, or letters, times weights, of length one."""

    def __init__(self) -> None:
        rng = np.random.default_rng(5)
        self.colours, self.letters = rng.normal(size=(3, 4)), rng.normal(size=(26, 4))
        self.visual = SimpleNamespace(preprocess_cfg={"mean": (0.5, 0.5, 0.5), "size": (8, 8)})
        self.evaluating = False

    def eval(self) -> None:
        self.evaluating = True

    def state_dict(self) -> dict[str, Tensor]:
        return {"visual": Tensor(self.colours), "text": Tensor(self.letters)}

    def encode_image(self, image: Tensor, normalize: bool = False) -> Tensor:
        return self._row(image.values.mean(axis=(1, 2)) @ self.colours, normalize)

    def encode_text(self, text: Tensor, normalize: bool = False) -> Tensor:
        return self._row(text.values @ self.letters, normalize)

    def _row(self, rows: Any, normalize: bool) -> Tensor:
        assert normalize and self.evaluating and len(rows) == 1
        return Tensor(rows / np.linalg.norm(rows, axis=1, keepdims=True))


class NoGradient:
    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


class ClipLibrary(ModuleType):
    """open_clip, whose weights come by urllib unless they are on this machine."""

    def __init__(self) -> None:
        super().__init__("open_clip")
        self.pretrained = ModuleType("open_clip.pretrained")
        self.pretrained.urllib = SimpleNamespace(request=SimpleNamespace(urlopen=lambda: None))  # type: ignore[attr-defined]
        self.cached: set[str] = set()
        self.loaded: list[str] = []

    def list_pretrained(self) -> list[tuple[str, str]]:
        return [("ViT-S", "laion"), ("ViT-S", "openai"), ("RN", "yfcc")]

    def get_pretrained_cfg(self, name: str, tag: str) -> dict[str, str]:
        return {"url": "https://example.org/x.pt", "hf_hub": "timm/vit_s.laion/" if tag == "laion" else ""}

    def create_model_and_transforms(
        self, name: str, pretrained: str | None, device: str
    ) -> tuple[Any, None, Any]:
        if not Path(pretrained or "-").exists():
            if (name, pretrained) not in self.list_pretrained():
                raise RuntimeError(f"Pretrained value '{pretrained}' is not a known tag or valid file path")
            if pretrained not in self.cached:
                self.pretrained.urllib.request.urlopen()
                self.cached.add(str(pretrained))
        self.loaded.append(name)
        return ClipNetwork(), None, lambda image: Tensor(np.asarray(image) / 255 + 0.1)

    def get_tokenizer(self, name: str) -> Any:
        return lambda texts: Tensor(
            [[text.count(chr(97 + letter)) + 0.1 for letter in range(26)] for text in texts]
        )


@pytest.fixture
def clip(monkeypatch: pytest.MonkeyPatch) -> ClipLibrary:
    library, torch = ClipLibrary(), ModuleType("torch")
    setattr(torch, "no_grad", NoGradient)  # noqa: B010
    setattr(torch, "cuda", SimpleNamespace(is_available=lambda: False))  # noqa: B010
    hub = ModuleType("huggingface_hub.constants")
    setattr(hub, "HF_HUB_OFFLINE", False)  # noqa: B010
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    modules = {"open_clip": library, "open_clip.pretrained": library.pretrained, "torch": torch}
    for name, module in {**modules, "huggingface_hub.constants": hub}.items():
        monkeypatch.setitem(sys.modules, name, module)
    return library


def test_open_clip_serves_both_sides_with_one_network(clip: ClipLibrary) -> None:
    images = made("open-clip:ViT-S@laion", "image")
    texts = made("open-clip:ViT-S@laion", "text")
    assert clip.loaded == ["ViT-S"]
    pictures, sentences = images.encode(PICTURES), texts.encode(TEXTS)
    assert pictures.shape == (len(PICTURES), 4) and sentences.shape == (5, 4)
    assert np.allclose(np.linalg.norm(dense(pictures), axis=1), 1)
    assert not sentences[1:3].any()
    assert images.state.fingerprint != texts.state.fingerprint
    assert images.encode([]).shape == (0, 4)
    again = restored(images.state, "image")
    assert np.array_equal(again.encode(PICTURES), pictures)
    with pytest.raises(WrongEncoder, match="encodes otherwise"):
        restored(images.state, "text")


def test_searching_never_downloads_a_clip_model(clip: ClipLibrary) -> None:
    state = made("open-clip:ViT-S@openai", "text").state
    urllib = clip.pretrained.urllib
    assert restored(state, "text").state == state
    clip.cached.clear()
    with pytest.raises(NoEncoder, match="not on this machine, and searching never downloads"):
        restored(state, "text")
    assert clip.cached == set() and clip.pretrained.urllib is urllib
    assert sys.modules["huggingface_hub.constants"].HF_HUB_OFFLINE is False


def test_clip_weights_of_a_hub_that_does_not_answer(
    clip: ClipLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("huggingface_hub", "huggingface_hub.errors"):
        monkeypatch.setitem(sys.modules, module, Hub(ConnectionError("no route")))
    with pytest.raises(InvalidInput, match=r"the hub does not answer \(no route\)"):
        made("open-clip:ViT-S@laion", "image")
    assert made("open-clip:ViT-S@openai", "image").state.name == "ViT-S@openai"  # not from that hub
    clip.cached.add("laion")
    assert made("open-clip:ViT-S@laion", "image").state.name == "ViT-S@laion"


def test_a_damaged_clip_checkpoint_is_an_error_of_ours(
    clip: ClipLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = tmp_path / "cut.pt"
    weights.write_bytes(b"weights")
    spec = f"open-clip:ViT-S@{weights}"
    state = made(spec, "image").state

    def damaged(*arguments: Any, **options: Any) -> None:
        raise SafetensorError("incomplete metadata")

    monkeypatch.setattr(clip, "create_model_and_transforms", damaged)
    with pytest.raises(InvalidInput, match="open_clip cannot load it: incomplete metadata"):
        made(spec, "image")
    with pytest.raises(NoEncoder, match="cannot be loaded by open_clip: incomplete metadata"):
        restored(state, "image", spec)


def test_a_local_clip_checkpoint_leaves_no_path(clip: ClipLibrary, tmp_path: Path) -> None:
    weights = tmp_path / "mine.safetensors"
    weights.write_bytes(b"weights")
    state = made(f"open-clip:ViT-S@{weights}", "image").state
    assert state.name == "ViT-S@mine.safetensors" and str(tmp_path) not in json.dumps(state.settings)
    with pytest.raises(NoEncoder, match="give it yourself"):
        restored(state, "image")
    assert restored(state, "image", f"open-clip:ViT-S@{weights}").state == state
    pointed = {**state.settings, "model": f"ViT-S@{weights}"}
    with pytest.raises(NoEncoder, match="give it yourself"):
        restored(state._replace(settings=pointed), "image")


def test_a_hub_model_of_clip_brings_its_weights(clip: ClipLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def create(name: str, pretrained: str | None, device: str) -> Any:
        given.append((name, pretrained))
        raise RuntimeError("Failed initial config/weights load")

    monkeypatch.setattr(clip, "create_model_and_transforms", create)
    with pytest.raises(InvalidInput, match="Failed initial"):
        made("open-clip:hf-hub:owner/model", "image")
    assert set(given) == {("hf-hub:owner/model", None)}


def test_clip_weights_must_be_named(clip: ClipLibrary) -> None:
    with pytest.raises(
        InvalidInput, match="say which weights, as open-clip:ViT-S@PRETRAINED; .* laion, openai"
    ):
        made("open-clip:ViT-S", "image")
    with pytest.raises(InvalidInput, match="open_clip cannot load it: Pretrained value"):
        made("open-clip:ViT-S@nothing", "image")


# Functions

MODULE = """
import numpy as np
from scipy import sparse

def lengths(texts):
    return np.array([[len(text), text.count("a")] for text in texts])

def colours(pictures):
    return [picture.mean(axis=(0, 1)) for picture in pictures]

def counts(texts):
    return sparse.csr_array(lengths(texts))

def one_more(texts):
    return np.ones((len(texts) + 1, 2))

def flat(texts):
    return np.ones(len(texts))

def growing(texts):
    return np.ones((len(texts), len(texts[0])))

def broken(texts):
    return np.full((len(texts), 2), np.nan)

def huge(texts):
    return np.full((len(texts), 2), 1e100)

def failing(texts):
    raise KeyError("what")

not_a_function = 3
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module beside the user; afterwards forgotten."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_encoders.py").write_text(MODULE)
    yield "my_encoders"
    sys.modules.pop("my_encoders", None)


def test_functions_of_both_sides(mine: str) -> None:
    texts = made(f"{mine}:lengths", "text")
    assert np.array_equal(texts.encode(TEXTS), [[5, 1], [0, 0], [0, 0], [8, 1], [5, 1]])
    many = [f"text {i}" for i in range(200)]
    assert texts.encode(many).shape == (200, 2) and texts.encode([]).shape == (0, 2)
    images = made(f"{mine}:colours", "image")
    assert images.encode(PICTURES).shape == (len(PICTURES), 3) and images.encode([]).shape == (0, 3)
    rows = made(f"{mine}:counts", "text").encode(TEXTS)
    assert isinstance(rows, sparse.csr_matrix) and rows.dtype == np.float32
    assert np.array_equal(rows.toarray(), texts.encode(TEXTS))
    assert made(f"{mine}:counts", "text").encode(many).shape == (200, 2)


def test_a_function_is_imported_only_when_the_user_names_it(mine: str) -> None:
    state = made(f"{mine}:lengths", "text").state
    del sys.modules[mine]
    with pytest.raises(NoEncoder, match="--text-encoder module:function"):
        restored(state, "text")
    assert mine not in sys.modules
    again = restored(state, "text", f"{mine}:lengths")
    assert again.state == state
    with pytest.raises(WrongEncoder, match="'my_encoders:lengths' .* and 'my_encoders:counts'"):
        restored(state, "text", f"{mine}:counts")


def test_a_changed_function_is_noticed_unless_its_version_says_otherwise(mine: str, tmp_path: Path) -> None:
    state = made(f"{mine}:lengths", "text").state
    versioned = MODULE + "\nlengths.version = 2\n"
    (tmp_path / "my_encoders.py").write_text(versioned)
    del sys.modules[mine]
    with pytest.raises(WrongEncoder, match="encodes otherwise"):
        restored(state, "text", f"{mine}:lengths")
    state = made(f"{mine}:lengths", "text").state
    (tmp_path / "my_encoders.py").write_text(versioned + "# a remark\n")
    del sys.modules[mine]
    assert restored(state, "text", f"{mine}:lengths").state == state


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("one_more", "one row for each of 1 items"),
        ("flat", "Expected 2D array"),
        ("broken", "NaN"),
        ("huge", "inf"),
        ("failing", "failed on a list of 1 texts: KeyError"),
        ("not_a_function", "has no function not_a_function"),
        ("absent", "has no function absent"),
    ],
)
def test_functions_that_do_wrong(mine: str, name: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        made(f"{mine}:{name}", "text")


def test_rows_keep_their_width(mine: str) -> None:
    encoder = made(f"{mine}:growing", "text")
    with pytest.raises(InvalidInput, match="expected rows of 12 values as before, got 1"):
        encoder.encode(["x"])


def test_a_module_that_is_nowhere() -> None:
    with pytest.raises(InvalidInput, match="module no_such_module cannot be imported .* current folder"):
        made("no_such_module:encode", "text")
