"""ONNX networks for texts, with their tokenizers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbyte.encoders import make_encoder, restore_encoder
from crossbyte.errors import DataFileError, InvalidInput, MissingExtra, NoEncoder, WrongEncoder
from support.onnx_files import INT64, integer, node, port, write_graph, write_identity
from support.token_networks import WORDS, make_table, write_text_network, write_tokenizer

TEXTS = ["a red dog runs", "a cat", "blue cat sits on grass", "dog", "a blue dog runs", "zeppelin", ""]
TABLE = make_table()


def made(path: Path, n_jobs: int | None = None) -> Any:
    return make_encoder(str(path), "text", [], n_jobs=n_jobs)


def numbers_of(text: str) -> list[int]:
    words = [WORDS.index(word) if word in WORDS else 1 for word in text.lower().split()]
    return [2, *words, 3]


def unit(row: Any) -> Any:
    return row / np.linalg.norm(row)


@pytest.fixture
def network(tmp_path: Path) -> Path:
    write_tokenizer(tmp_path / "tokenizer.json")
    return write_text_network(tmp_path / "words.onnx", TABLE)


def describe(network: Path, **fields: Any) -> Path:
    network.with_suffix(".json").write_text(json.dumps(fields))
    return network


def test_tokens_are_averaged_and_rows_have_length_one(network: Path) -> None:
    rows = made(network).encode(TEXTS)
    assert rows.shape == (7, 6) and rows.dtype == np.float32
    for row, text in zip(rows[:-1], TEXTS, strict=False):
        assert np.allclose(row, unit(TABLE[numbers_of(text)].mean(axis=0)), atol=1e-6)
    assert not rows[-1].any()


def test_pooling_and_length_are_as_described(network: Path) -> None:
    first = made(describe(network, pool="first", normalise=False)).encode(TEXTS[:2])
    assert np.array_equal(first, TABLE[[2, 2]])
    plain = made(describe(network, normalise=False)).encode(["a red dog runs"])
    assert np.allclose(plain[0], TABLE[numbers_of("a red dog runs")].mean(axis=0), atol=1e-6)
    short = made(describe(network, normalise=False, max_tokens=3)).encode(["red dog runs"])
    assert np.allclose(short[0], TABLE[[2, 7, 3]].mean(axis=0), atol=1e-6)  # the closing token stays
    with pytest.raises(InvalidInput, match="pool"):
        made(describe(network, pool="max"))
    with pytest.raises(InvalidInput, match="unknown field 'scaling'; known are"):
        made(describe(network, scaling="x"))
    with pytest.raises(InvalidInput, match="normalise: expected true or false, got 1"):
        made(describe(network, normalise=1))
    with pytest.raises(InvalidInput, match='has shape .* for 1 texts of 6 tokens.*"pool" to "mean"'):
        made(describe(network, pool="none"))


def test_the_tokenizers_own_length_counts_and_its_padding_does_not(tmp_path: Path) -> None:
    write_tokenizer(tmp_path / "tokenizer.json", max_tokens=4, padding=True)
    encoder = made(write_text_network(tmp_path / "words.onnx", TABLE))
    rows = encoder.encode(["red dog runs on grass", "dog"])
    assert np.allclose(rows[0], unit(TABLE[[2, 7, 5, 3]].mean(axis=0)), atol=1e-6)
    assert np.allclose(rows[1], unit(TABLE[[2, 5, 3]].mean(axis=0)), atol=1e-6)
    assert encoder.state.settings["description"]["max_tokens"] == 4


def test_a_network_of_one_length_is_filled_up(tmp_path: Path) -> None:
    write_tokenizer(tmp_path / "tokenizer.json")
    fixed = write_text_network(tmp_path / "fixed.onnx", TABLE, shape=(2, 7))
    rows = made(fixed).encode(["red dog", "a cat sits", "dog"])
    expected = np.stack(
        [unit(TABLE[numbers_of(text)].mean(axis=0)) for text in ("red dog", "a cat sits", "dog")]
    )
    assert np.allclose(rows, expected, atol=1e-6)  # padding is masked
    bare = write_text_network(tmp_path / "bare.onnx", TABLE, shape=(1, 7), inputs=["input_ids"], pooled="emb")
    with pytest.raises(InvalidInput, match='takes 7 tokens and has no mask.*"padding" in the description'):
        made(bare)
    padded = made(describe(bare, padding=0, normalise=False)).encode(["dog"])
    assert np.allclose(padded[0], TABLE[[2, 5, 3, 0, 0, 0, 0]].mean(axis=0), atol=1e-6)


def test_a_row_depends_on_its_text_alone(network: Path) -> None:
    texts = TEXTS * 5
    alone = np.concatenate([made(network).encode([text]) for text in TEXTS] * 5)
    for n_jobs in (1, 3):
        assert np.array_equal(made(network, n_jobs).encode(texts), alone)


def test_networks_whose_batches_mix_texts_get_them_one_by_one(tmp_path: Path) -> None:
    """A row of this network is the mean over the whole batch, as quantised activations would mix it."""
    write_tokenizer(tmp_path / "tokenizer.json")
    mean = integer("keepdims", 1)
    parts = [
        node("Gather", ["table", "input_ids"], "vectors"),
        node("ReduceMean", ["vectors"], "all", mean),
        node("Sub", ["vectors", "all"], "last_hidden_state"),
        port(11, "input_ids", ["n", "t"], INT64),
        port(12, "last_hidden_state", ["n", "t", 6]),
    ]
    from support.onnx_files import weights

    encoder = made(write_graph(tmp_path / "mixed.onnx", weights("table", TABLE), *parts))
    together = encoder.encode(["red dog", "blue cat", "a dog"])
    alone = [encoder.encode([text]) for text in ("red dog", "blue cat", "a dog")]
    assert np.array_equal(together, np.concatenate(alone))


def test_names_of_inputs_and_outputs(tmp_path: Path) -> None:
    write_tokenizer(tmp_path / "tokenizer.json")
    inputs = ["input_ids", "attention_mask", "token_type_ids"]
    three = made(write_text_network(tmp_path / "three.onnx", TABLE, inputs=inputs))
    short = made(write_text_network(tmp_path / "short.onnx", TABLE, inputs=["ids", "mask"], pooled="emb"))
    odd = write_text_network(tmp_path / "odd.onnx", TABLE, inputs=["numbers"], pooled="vector")
    named = made(describe(odd, ids="numbers", output="vector"))
    rows = [encoder.encode(TEXTS) for encoder in (three, short, named)]
    assert np.allclose(rows[0], rows[1], atol=1e-6) and np.array_equal(rows[1], rows[2])
    with pytest.raises(InvalidInput, match='expected no inputs but token numbers.*"depth"'):
        made(write_text_network(tmp_path / "more.onnx", TABLE, inputs=["input_ids", "depth"]))
    with pytest.raises(
        InvalidInput, match="it has no input 'ids' of token numbers; it has \"numbers\" int64"
    ):
        made(describe(odd, ids="ids"))
    with pytest.raises(InvalidInput, match="expected an output called 'text'"):
        made(describe(odd, ids="numbers", output="text"))


def test_the_description_may_be_what_is_given(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    write_tokenizer(tmp_path / "parts" / "words.json")
    write_text_network(tmp_path / "parts" / "net.onnx", TABLE)
    fields = {"model": "parts/net.onnx", "tokenizer": "parts/words.json", "name": "my words"}
    (tmp_path / "given.json").write_text(json.dumps(fields))
    encoder = made(tmp_path / "given.json")
    assert encoder.state.name == "my words" and "parts" not in str(encoder.state)
    again = restore_encoder(encoder.state, "text", str(tmp_path / "given.json"))
    assert np.array_equal(np.asarray(again.encode(TEXTS)), encoder.encode(TEXTS))
    (tmp_path / "given.json").write_text(json.dumps(fields | {"tokenizer": 3}))
    with pytest.raises(InvalidInput, match="tokenizer: expected the path"):
        made(tmp_path / "given.json")


def test_a_hubs_layout_has_the_tokenizer_above(tmp_path: Path) -> None:
    (tmp_path / "onnx").mkdir()
    write_tokenizer(tmp_path / "tokenizer.json")
    assert made(write_text_network(tmp_path / "onnx" / "model.onnx", TABLE)).encode(["dog"]).any()


def test_the_state_makes_it_again_from_the_same_files(network: Path, tmp_path: Path) -> None:
    encoder = made(describe(network, pool="first"))
    state = encoder.state
    assert state.kind == "onnx-text" and str(tmp_path) not in str(state)
    network.with_suffix(".json").unlink()  # the state has the description
    assert np.array_equal(
        np.asarray(restore_encoder(state, "text", str(network)).encode(TEXTS)), encoder.encode(TEXTS)
    )
    with pytest.raises(NoEncoder, match="--text-encoder PATH.onnx"):
        restore_encoder(state, "text")
    with pytest.raises(WrongEncoder, match="no encoder of images"):
        restore_encoder(state, "image", str(network))
    write_tokenizer(tmp_path / "tokenizer.json", [*WORDS[:-1], "lawn"])
    with pytest.raises(WrongEncoder, match=r"tokenizer of digest.*tokenizer\.json is another file"):
        restore_encoder(state, "text", str(network))
    write_tokenizer(tmp_path / "tokenizer.json")
    write_text_network(network, make_table(seed=5))
    with pytest.raises(WrongEncoder, match=r"file of digest.*words\.onnx is another file"):
        restore_encoder(state, "text", str(network))
    with pytest.raises(InvalidInput, match="how texts are prepared.*damaged"):
        damaged = made(network).state
        restore_encoder(
            damaged._replace(settings={**damaged.settings, "description": {}}), "text", str(network)
        )


def test_a_tokenizer_of_another_network_is_refused(network: Path) -> None:
    tokenizer = write_tokenizer(
        network.with_name("tokenizer.json"), [*WORDS, *(f"more{n}" for n in range(50))]
    )
    with pytest.raises(InvalidInput) as raised:
        made(network)
    assert str(tokenizer) in str(raised.value) and str(network) in str(raised.value)
    assert "up to 62" in str(raised.value) and "do not belong together" in str(raised.value)


def test_a_tokenizer_of_far_fewer_words_is_refused(tmp_path: Path) -> None:
    network = write_text_network(tmp_path / "text.onnx", make_table(500))
    write_tokenizer(tmp_path / "tokenizer.json")
    with pytest.raises(InvalidInput, match="rows far beyond .*do not belong together"):
        made(network)
    write_text_network(network, make_table(2 * len(WORDS)))  # filled up to a round number
    assert made(network).encode(["a dog"]).shape == (1, 6)


def test_files_that_are_none(network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = network.with_name("tokenizer.json")
    tokenizer.unlink()
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json: there is no such file; .*put it beside"):
        made(network)
    tokenizer.write_text('{"version": "1.0"}')
    with pytest.raises(DataFileError, match=r"expected a tokenizer\.json .*fetch it again"):
        made(network)
    write_tokenizer(tokenizer)
    network.write_bytes(network.read_bytes()[:200])
    with pytest.raises(DataFileError, match="ONNX Runtime cannot open it"):
        made(network)


def test_a_network_for_pictures_is_told_where_to_go(tmp_path: Path) -> None:
    write_tokenizer(tmp_path / "tokenizer.json")
    with pytest.raises(InvalidInput, match="expected a network for texts.*--image-encoder"):
        made(write_identity(tmp_path / "pictures.onnx", ["n", 3, 8, 8]))


def test_missing_libraries_are_named(network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("tokenizers", "onnxruntime"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            with pytest.raises(MissingExtra, match=r"pip install 'crossbyte\[onnx\]'"):
                made(network)


def test_strange_texts(network: Path) -> None:
    rows = made(network).encode(["\ud800 dog", "dog " * 100_000, "[SEP]", "🐶"])
    assert np.isfinite(rows).all() and all(row.any() for row in rows)
