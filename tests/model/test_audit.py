"""The audit finds what was planted: wrong pairs and repeats; and its table runs nothing in a spreadsheet."""

import csv
import json

import numpy as np
import pytest
import scipy.sparse as sp

from crossbyte import CMCQ
from crossbyte.compute.executor import Workers
from crossbyte.data.synthetic import make_pairs
from crossbyte.errors import InvalidInput
from crossbyte.model import pair_audit
from crossbyte.model.pair_audit import _make_audit, audit_pairs, write_table

N, WRONG = 800, 16


def clean():
    return make_pairs(N, 32, 60, noise=0.2, n_topics=16, words_per_text=30, random_state=0)


def spoiled(seed=0):
    """Pairs of which some have the texts of each other, and which these are."""
    pairs = clean()
    rows = np.random.default_rng(seed).choice(N, WRONG, replace=False)
    texts = np.arange(N)
    texts[rows] = np.roll(rows, 1)
    return pairs.images, pairs.texts[texts], rows


def model(**params):
    return CMCQ(16, mapping="cca", random_state=0, **params)


@pytest.mark.parametrize("seed", range(3))
def test_planted_wrong_pairs_come_first(seed):
    images, texts, wrong = spoiled(seed)
    audit = audit_pairs(model(), images, texts)
    assert np.isin(audit.order[:WRONG], wrong).mean() >= 0.5
    assert WRONG / 2 <= audit.n_suspects <= 3 * WRONG
    assert np.array_equal(audit.suspects, audit.order[: audit.n_suspects])


def test_values_of_a_row_belong_together():
    images, texts, wrong = spoiled()
    audit = audit_pairs(model(), images, texts)
    np.testing.assert_allclose(audit.surprise, audit.distance - audit.usual)
    assert (np.diff(audit.surprise[audit.order]) <= 0).all()
    assert sorted(audit.order) == list(range(N)) and (audit.best_text != np.arange(N)).all()
    assert (audit.nearer_texts <= audit.n_strangers).all() and (audit.n_strangers == N // 5 - 1).all()
    right = np.setdiff1d(np.arange(N), wrong)
    for nearer in (audit.nearer_texts, audit.nearer_images):
        assert np.median(nearer[wrong]) > 5 * np.median(nearer[right])


def test_clean_pairs_have_few_suspects():
    pairs = clean()
    assert audit_pairs(model(), pairs.images, pairs.texts).n_suspects < 0.02 * N


def test_pairs_out_of_step_are_said_to_be_so():
    pairs = clean()
    audit = audit_pairs(model(), pairs.images, pairs.texts[np.roll(np.arange(N), 1)])
    assert "out of step" in str(audit)


def test_halves_that_hardly_agree_give_no_count_but_an_order():
    pairs = clean()
    rng = np.random.default_rng(0)
    noise = rng.standard_normal(pairs.images.shape) * 5 * pairs.images.std()
    audit = audit_pairs(model(), (pairs.images + noise).astype(np.float32), pairs.texts)
    assert 0.4 < audit.agreement < 0.8 and audit.n_suspects is None and len(audit.suspects) == 0
    assert audit.to_dict()["n_suspects"] is None and len(audit.to_dict()["rows"]) == N
    assert (np.diff(audit.surprise[audit.order]) <= 0).all()
    assert "agree too little" in str(audit) and "look wrong" not in str(audit)
    assert audit_pairs(model(), pairs.images, pairs.texts).agreement > 0.95


def test_threads_and_a_fit_before_change_nothing():
    images, texts, _ = spoiled()
    first = audit_pairs(model(n_jobs=1), images, texts)
    second = audit_pairs(model(n_jobs=2), images, texts)
    fitted = audit_pairs(model(max_iter=1).fit(images, texts), images, texts)
    assert np.array_equal(first.surprise, second.surprise)
    assert np.array_equal(first.surprise, fitted.surprise)


def test_every_mapping_can_be_audited():
    images, texts, wrong = spoiled()
    audit = audit_pairs(CMCQ(16, mapping="sparse", random_state=0), images, texts)
    assert np.isin(audit.order[:WRONG], wrong).mean() >= 0.5


def test_rows_of_one_group_are_no_strangers_and_no_duplicates():
    pairs = make_pairs(200, 16, 40, random_state=0)
    rows = np.repeat(np.arange(200), 3)
    audit = audit_pairs(model(), pairs.images[rows], pairs.texts[rows], groups=rows)
    assert audit.duplicates == []
    assert (audit.n_strangers == (200 // 5 - 1) * 3).all()
    assert (audit.best_text // 3 != np.arange(600) // 3).all()


def test_many_pairs_are_compared_in_cells(monkeypatch):
    images, texts, wrong = spoiled()
    monkeypatch.setattr("crossbyte.model.pair_audit._CELL_ROWS", 50)
    audit = audit_pairs(model(), images, texts)
    assert audit.n_strangers.max() < 50
    assert np.isin(audit.order[: 2 * WRONG], wrong).sum() >= WRONG / 2


# Duplicates


def planted():
    """Pairs with: an image repeated, a text repeated, both repeated, an image nearly repeated."""
    pairs = clean()
    images, texts = pairs.images.copy(), pairs.texts.toarray()
    images[10], texts[20] = images[110], texts[120]
    images[30], texts[30] = images[130], texts[130]
    noise = np.random.default_rng(0).normal(size=images.shape[1])
    images[40] = images[140] + 1e-3 * np.linalg.norm(images[140]) * noise
    return images, texts


PLANTED = [(10, 110, "image"), (20, 120, "text"), (30, 130, "both"), (40, 140, "image")]


@pytest.mark.parametrize("as_texts", [np.asarray, sp.csr_matrix])
def test_planted_duplicates_are_found(as_texts):
    images, texts = planted()
    found = audit_pairs(model(), images, as_texts(texts)).duplicates
    assert set(PLANTED) <= {(one.first, one.second, one.kind) for one in found}
    assert all(max(one.image, one.text) >= pair_audit.NEAR and one.first < one.second for one in found)


def test_duplicates_among_many_are_found_in_buckets(monkeypatch):
    images, texts = planted()
    monkeypatch.setattr(pair_audit, "_ALL_AGAINST_ALL", 100)
    monkeypatch.setattr(pair_audit, "_BUCKET_ROWS", 200)
    found = audit_pairs(model(), images, texts).duplicates
    assert set(PLANTED) <= {(one.first, one.second, one.kind) for one in found}


def test_blocks_do_not_change_duplicates_and_their_number_is_bounded(monkeypatch):
    images, texts = planted()
    images[200:260] = images[200] + 0.02 * np.random.default_rng(0).normal(size=(60, images.shape[1]))
    whole = audit_pairs(model(), images, texts).duplicates
    monkeypatch.setattr(pair_audit, "_BLOCK_VALUES", 640)
    assert audit_pairs(model(), images, texts).duplicates == whole
    near = [one for one in whole if one.kind == "image" and one.first >= 200 and one.second < 260]
    assert max(np.bincount([one.first for one in near])) == pair_audit._MAX_NEAR


def test_repeats_are_linked_with_the_first_alone():
    images, texts = planted()
    texts[300:400] = texts[300]
    found = audit_pairs(model(), images, texts).duplicates
    assert sum(one.first == 300 and one.text == 1 for one in found) == 99
    assert not any(300 < one.first < one.second < 400 for one in found)


def test_empty_texts_say_nothing():
    images, texts = planted()
    texts[[7, 8]] = 0
    audit = audit_pairs(model(), images, texts)
    assert audit.empty.tolist() == [7, 8] and audit.order[-2:].tolist() == [7, 8]
    assert not any({one.first, one.second} == {7, 8} for one in audit.duplicates)
    assert "empty half, which say nothing: 7, 8" in str(audit)
    assert audit.to_dict()["rows"][-1]["surprise"] is None


def test_empty_halves_are_nobodys_strangers():
    """They lie at the origin, nearer to everything than strangers are that point elsewhere."""
    images, texts = planted()
    empty = np.arange(0, N, 3)
    texts[empty] = 0
    audit = audit_pairs(model(), images, texts)
    assert audit.empty.tolist() == empty.tolist()
    assert not np.isin(audit.best_text, empty).any()
    assert audit.n_strangers.sum() < 0.75 * N * N / 5 and np.isfinite(audit.typical_by_chance)


def test_an_empty_text_changes_no_other_pair_much():
    points = np.eye(6, 4, dtype=np.float32)[[0, 1, 2, 3, 0, 1]]
    texts = points.copy()
    texts[5] = 0
    with Workers(1) as workers:
        found = pair_audit._compare_halves(points, texts, np.arange(6), np.random.default_rng(0), workers)
        alone = pair_audit._compare_halves(
            points[:5], texts[:5], np.arange(5), np.random.default_rng(0), workers
        )
    assert found.n_strangers.tolist() == [4, 4, 4, 4, 4, 5] and 5 not in found.best_text[:5]
    assert found.nearer_texts[:5].tolist() == alone.nearer_texts.tolist()
    drawn = (np.arange(6) + np.random.default_rng(0).integers(1, 6, size=6)) % 6
    assert 5 in drawn and (np.isnan(found.by_chance) == (drawn == 5)).all()


def test_pairs_without_any_stranger_have_no_surprise():
    points = np.eye(3, dtype=np.float32)
    texts = np.where(np.arange(3)[:, None] == 0, points, 0).astype(np.float32)
    with Workers(1) as workers:
        found = pair_audit._compare_halves(points, texts, np.arange(3), np.random.default_rng(0), workers)
    assert found.n_strangers.tolist() == [0, 1, 1] and np.isnan(found.usual[0])
    shown = _make_audit(found, [], np.array([False, True, True]))
    assert np.isnan(shown.surprise).all() and shown.to_dict()["rows"][0]["best_text"] is None


def test_blocks_of_cosines_are_bounded(monkeypatch):
    """Whatever the number of rows: each thread holds one block."""
    sizes = []
    whole = pair_audit.row_blocks
    monkeypatch.setattr(pair_audit, "row_blocks", lambda n, *size: sizes.extend(size) or whole(n, *size))
    images, texts = planted()
    audit_pairs(model(), images, texts)
    assert sizes and max(size for size in sizes if size <= pair_audit._BUCKET_ROWS) <= 2048


# What is shown and written


def test_words_and_dictionary():
    images, texts = planted()
    audit = audit_pairs(model(), images, texts)
    assert "same image and text, once: 30 = 130" in str(audit)
    told = json.loads(json.dumps(audit.to_dict(), allow_nan=False))
    assert told["n_pairs"] == N and [row["row"] for row in told["rows"]] == audit.order.tolist()


def test_table_has_ids_fields_and_no_formulas(tmp_path):
    images, texts = planted()
    audit = audit_pairs(model(), images, texts)
    ids = [f"=cmd|{row}" for row in range(N)]
    payloads = [
        {"title": "+1", "year": -3, "tags": ["a"], "@x": "ok\r\n"} if row else None for row in range(N)
    ]
    audit.to_csv(tmp_path / "a.csv", ids=ids, payloads=payloads)
    with open(tmp_path / "a.csv", newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [int(row["row"]) for row in rows] == audit.order.tolist()
    by_row = {int(row["row"]): row for row in rows}
    assert by_row[30]["id"] == "'=cmd|30" and by_row[30]["same_image_as_id"] == "'=cmd|130"
    assert by_row[30]["payload.title"] == "'+1" and by_row[30]["payload.year"] == "-3"
    assert by_row[30]["payload.tags"] == '["a"]' and by_row[0]["payload.title"] == ""
    assert float(by_row[30]["surprise"]) == pytest.approx(audit.surprise[30], rel=1e-4)


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@a", "\ta", "\ra"])
def test_formulas_are_escaped(tmp_path, text):
    write_table(tmp_path / "a.csv", [{"row": 0}], 1, [text], [{text: text}], overwrite=False)
    with open(tmp_path / "a.csv", newline="", encoding="utf-8") as stream:
        names, cells = csv.reader(stream)
    assert cells[1:] == ["'" + text] * 2 and names[-1] == "payload." + text


@pytest.mark.parametrize("ids", [np.array([532, 7]), np.array(["532", "7"]), np.array([532.0, 7])])
def test_numpys_ids_are_written_plainly(tmp_path, ids):
    write_table(tmp_path / "a.csv", [{"row": 0}], 2, ids, [{"x": np.int8(3)}, None], overwrite=False)
    assert (tmp_path / "a.csv").read_text().splitlines() == ["row,id,payload.x", "0,532,3"]


def test_a_file_is_replaced_only_when_asked(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("mine")
    entries = [{"row": 0, "surprise": None}]
    with pytest.raises(InvalidInput, match="something is there already"):
        write_table(path, entries, 1, None, None, overwrite=False)
    assert path.read_text() == "mine"
    write_table(path, entries, 1, None, None, overwrite=True)
    assert path.read_bytes() == b"row,surprise\r\n0,\r\n" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["ids", "payloads"])
def test_tables_of_another_number_are_refused(tmp_path, name):
    given = {"ids": None, "payloads": None} | {name: [1, 2]}
    with pytest.raises(InvalidInput, match=f"{name}: expected 1, one per pair, got 2"):
        write_table(tmp_path / "a.csv", [{"row": 0}], 1, **given, overwrite=False)


def test_a_limited_table(tmp_path):
    images, texts, _ = spoiled()
    audit_pairs(model(), images, texts).to_csv(tmp_path / "a.csv", limit=5)
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 6


# Bad input


def test_bad_input():
    pairs = make_pairs(19, 8, 20, random_state=0)
    with pytest.raises(InvalidInput, match="at least 20 groups, got 19"):
        audit_pairs(model(), pairs.images, pairs.texts)
    images, texts, _ = spoiled()
    with pytest.raises(InvalidInput, match="at least 20 groups, got 2"):
        audit_pairs(model(), images, texts, groups=np.arange(N) % 2)
    for n_folds in (1, N // 4 + 1, 2.5):
        with pytest.raises(InvalidInput, match="n_folds"):
            audit_pairs(model(), images, texts, n_folds=n_folds)
    with pytest.raises(InvalidInput, match="near"):
        audit_pairs(model(), images, texts, near=1.5)
    with pytest.raises(InvalidInput, match="one text per image"):
        audit_pairs(model(), images[1:], texts)
    with pytest.raises(InvalidInput, match="31 features"):
        audit_pairs(model(max_iter=1).fit(images, texts), images[:, 1:], texts)


def test_the_smallest_audit():
    pairs = make_pairs(20, 8, 20, random_state=0)
    stages = []
    audit = audit_pairs(model(), pairs.images, pairs.texts, callback=lambda p: stages.append(p.detail))
    assert len(audit) == 20 and np.isfinite(audit.usual).all()
    assert stages == [*(f"fold {i}" for i in range(1, 6)), "duplicates"]
