"""Codes of up to 64 bytes: their products, what they stand for, the scan; a model in a file and an index."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crossbyte import CMCQ, Index
from crossbyte.compute import kernels
from crossbyte.compute.executor import Workers
from crossbyte.compute.kernels import CodewordTables, ScanSide
from crossbyte.model.quantization.collaborative import LastTables
from crossbyte.model.quantization.quantizer import Quantizer


def _codewords(n_codebooks: int, n_dims: int = 6) -> np.ndarray:
    """Codewords that get shorter from book to book, as those of a fit do."""
    rng = np.random.default_rng(n_codebooks)
    return rng.standard_normal((n_codebooks, 256, n_dims)) * 0.8 ** np.arange(n_codebooks)[:, None, None]


@pytest.mark.parametrize("n_codebooks", [16, 17, 64])
def test_products_of_all_codewords_are_those_in_double_precision(n_codebooks: int) -> None:
    codewords = _codewords(n_codebooks)
    flat = codewords.reshape(-1, codewords.shape[2])
    gram = CodewordTables.of(codewords).gram
    some = np.random.default_rng(0).integers(len(flat), size=(2, 5_000))
    exact = (flat[some[0]] * flat[some[1]]).sum(axis=1)
    (m, j), (k, c) = np.divmod(some, 256)
    assert np.abs(gram[m, j, c, k] - exact).max() < 1e-5 * np.abs(flat).max() ** 2 * 6
    assert gram.dtype == np.float32 and (gram[0, -1] == gram[-1, 0].T).all()


def test_tables_are_made_once_for_the_same_codewords_and_anew_for_others() -> None:
    first, second, known = _codewords(2), _codewords(3), LastTables()
    tables = known.of(first)
    assert known.of(first) is tables
    assert known.of(second).codewords.shape == second.shape
    assert known.of(first) is not tables


def test_64_bytes_tell_points_apart_and_the_scan_adds_them_up() -> None:
    points = np.random.default_rng(1).standard_normal((70, 6)).astype(np.float32)
    with Workers(1) as workers:
        plain = Quantizer(_codewords(64).astype(np.float32), 0.0, 0.0, None)
        codes = plain.encode(points, workers)
        quantizer = plain.with_cross_term("stored", codes, workers)
        assert codes.shape == (70, 64)
        assert np.abs(quantizer.decode(codes, workers) - points).max() < 0.05
        scanned = quantizer.scan_codes(codes, workers)
    table = quantizer.table(points[:3])
    side = ScanSide(kernels.pack_codes(scanned), np.ascontiguousarray(table.tables), table.offsets)
    found = kernels.scan([side], len(points), 5)
    expected = np.sort(table.distances(scanned), axis=1)[:, :5]
    assert (found.distances.reshape(3, 5) == expected).all()
    assert found.rows.reshape(3, 5)[:, 0].tolist() == [0, 1, 2]


@pytest.mark.long
def test_a_model_of_64_bytes_goes_through_file_and_index(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    latent = rng.standard_normal((60, 8))
    images, texts = (latent @ rng.standard_normal((8, width)) for width in (12, 10))
    model = CMCQ(n_bits=512, random_state=0).fit(images, texts)
    assert model.document_codes_ is not None and model.document_codes_.shape == (60, 64)
    model.save(tmp_path / "model.cbm")
    assert CMCQ.load(tmp_path / "model.cbm").to_bytes() == model.to_bytes()
    with Index.create(tmp_path / "index.cb", model) as index:
        index.add([str(i) for i in range(60)], images=images, texts=texts)
    with Index.open(tmp_path / "index.cb") as index:
        index.verify()
        hits = index.search(texts=texts, k=1)
    assert np.mean([hit.ids[0] == str(i) for i, hit in enumerate(hits)]) > 0.8
