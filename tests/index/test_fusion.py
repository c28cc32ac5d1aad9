"""Words and vectors in one answer: what comes first, what is said of it; nothing typed is an error."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbyte import CMCQ, Index, ShardedIndex, split_index
from crossbyte.errors import InvalidInput
from crossbyte.index.hits import Hits
from crossbyte.index.verdict import USUAL, Evidence, judge_answer, judge_hits
from support.covering import covering

N = 200
_RNG = np.random.default_rng(0)
_LATENT = _RNG.normal(size=(N + 100, 5))
IMAGES = _LATENT @ _RNG.normal(size=(5, 12)) + 0.3 * _RNG.normal(size=(N + 100, 12))
TEXTS = _LATENT @ _RNG.normal(size=(5, 9)) + 0.3 * _RNG.normal(size=(N + 100, 9))
SPECIAL = {
    3: "a purple zeppelin over a castle",
    7: "zeppelin, purple",
    11: "an elephant in the snow",
    13: "a man on an elephant",
    17: "one okapi",
}
FAR = 150  # a query that is near to none of these


def caption(row: int) -> str:
    return SPECIAL.get(row, f"a dog number{row} on the {('beach', 'street', 'grass')[row % 3]}")


@pytest.fixture(scope="module")
def model() -> CMCQ:
    fitted = CMCQ(n_bits=16, mapping="cca", random_state=0, n_jobs=1).fit(IMAGES[N:], TEXTS[N:])
    fitted.calibrate(IMAGES[:100], TEXTS[:100])
    return fitted


def fill(index: Any) -> Any:
    payloads = [{"captions": [caption(row)], "odd": row % 2} for row in range(N)]
    index.add(list(range(N)), images=IMAGES[:N], payloads=payloads, groups=[row // 2 for row in range(N)])
    return index


@pytest.fixture
def index(model: CMCQ, tmp_path: Path) -> Index:
    made: Index = fill(Index.create(tmp_path / "a.cb", model, words=["captions"], n_jobs=1))
    return made


def ask(index: Any, text: str, **options: Any) -> Hits:
    (hits,) = index.search(texts=TEXTS[FAR], words=[text], **options)
    found: Hits = hits
    return found


def test_a_word_of_one_document_is_found_first(index: Index) -> None:
    assert 17 not in index.search(texts=TEXTS[FAR])[0].ids[:1]
    hits = ask(index, "okapi")
    assert hits.ids[0] == 17 and hits.found_by is not None and hits.found_by[0] in ("words", "both")
    assert len(hits) == 10 and not hits.no_match


def test_a_phrase_in_quotes_comes_first(index: Index) -> None:
    assert ask(index, '"purple zeppelin"').ids[0] == 3
    assert ask(index, "“zeppelin, purple” dog beach").ids[0] == 7
    assert set(ask(index, "purple zeppelin").ids[:2]) == {3, 7}


def test_words_that_nobody_has_are_named(index: Index) -> None:
    assert ask(index, "a dog and a narwhal").unknown_words == ["and", "narwhal"]
    assert ask(index, '"castle zeppelin" dog').unknown_words == ["castle zeppelin"]
    assert ask(index, "okapi").unknown_words == []
    assert index.search(texts=TEXTS[FAR])[0].unknown_words is None
    assert ask(index, "narwhal", mode="vectors").unknown_words is None


def test_words_alone_never_pad(index: Index) -> None:
    hits = ask(index, "elephant", mode="words")
    assert set(hits.ids) == {11, 13} and set(hits.found_by or []) <= {"words", "both"}
    nothing = ask(index, "narwhal", mode="words")
    assert len(nothing) == 0 and nothing.verdict == "nothing" and nothing.no_match is True


def test_vectors_alone_are_as_without_words(index: Index) -> None:
    asked, plain = ask(index, "okapi", mode="vectors"), index.search(texts=TEXTS[FAR])[0]
    assert asked.ids == plain.ids and asked.verdict == plain.verdict and asked.found_by is None
    assert [hit.strength for hit in asked] == plain.strengths


def test_filters_deletes_and_updates_hold(index: Index) -> None:
    assert ask(index, "elephant okapi", where="odd = 0", mode="words").ids == []
    assert all(id % 2 == 0 for id in ask(index, "okapi", where="odd = 0").ids)
    index.update_payloads([20, 17], [{"captions": ["two narwhals"], "odd": 0}, {"odd": 1}])
    assert ask(index, "narwhals").ids[0] == 20 and ask(index, "okapi").unknown_words == ["okapi"]
    index.delete([20])
    assert 20 not in ask(index, "narwhals").ids and ask(index, "narwhals").unknown_words == ["narwhals"]


def test_groups_count_once_and_limits_hold(index: Index) -> None:
    index.update_payloads([100, 101], [{"captions": ["narwhal"]}] * 2)
    assert len(ask(index, "narwhal", mode="words", distinct="group")) == 1
    hits = ask(index, "narwhal dog", k=50, distinct="group")
    assert len({id // 2 for id in hits.ids}) == len(hits) == 50
    near = ask(index, "narwhal dog", k=N)
    limit = float(np.median(near.distances))
    assert (ask(index, "narwhal dog", k=N, max_distance=limit).distances <= limit).all()
    assert near.probabilities is not None
    least = float(np.median(near.probabilities))
    kept = ask(index, "narwhal dog", k=N, min_probability=least)
    assert kept.ids == [hit.id for hit in near if hit.probability is not None and hit.probability >= least]


@pytest.mark.parametrize("mode", ["both", "words"])
@pytest.mark.parametrize(
    "text", ['" OR NEAR(" *', '"', '""', "NOT", "dog*", "^", "text:dog", "\0", " ", "x" * 9999]
)
def test_nothing_that_is_typed_is_an_error(index: Index, text: str, mode: str) -> None:
    hits = ask(index, text, mode=mode)
    assert hits.unknown_words is not None and len(hits) == (10 if mode == "both" else len(hits))


def test_an_index_without_words_has_vectors_alone(model: CMCQ, tmp_path: Path) -> None:
    old = fill(Index.create(tmp_path / "old.cb", model, format=1, n_jobs=1))
    assert ask(old, "okapi").ids == old.search(texts=TEXTS[FAR])[0].ids
    assert ask(old, "okapi").unknown_words is None
    for mode in ("both", "words"):
        with pytest.raises(InvalidInput, match="keeps no words"):
            ask(old, "okapi", mode=mode)


def test_words_need_a_text(index: Index) -> None:
    with pytest.raises(InvalidInput, match="expected texts="):
        index.search(images=IMAGES[0], words=["a dog"])
    for query in ({"texts": TEXTS[0]}, {"images": IMAGES[0]}, {"like": 3}):
        with pytest.raises(InvalidInput, match="ask with a text"):
            index.search(**query, mode="words")
    with pytest.raises(InvalidInput, match="rescore"):
        ask(index, "dog", mode="both", rescore=lambda number, hits: hits.distances)
    with pytest.raises(InvalidInput, match="one per query"):
        index.search(texts=TEXTS[:2], words=["a dog"])


@pytest.mark.parametrize("prior", [None, 1e-9, 1.0])
def test_a_query_that_neither_knows_matches_nothing(index: Index, prior: float | None) -> None:
    (hits,) = index.search(texts=np.zeros(9), words=["narwhal"], prior=prior, match_threshold=0.0)
    assert index.model.transform_texts(np.zeros((1, 9))).any() or hits.verdict == "nothing"
    assert np.isfinite(ask(index, "okapi", prior=prior).probabilities).all()


def test_shards_find_the_same_first_and_name_the_same_words(index: Index, tmp_path: Path) -> None:
    """Scores of words are those of a shard, so only what must come first is the same everywhere."""
    path = index.path
    index.close()
    split_index(path, tmp_path / "many.cbs", 3)
    with Index.open(path) as one, ShardedIndex.open(tmp_path / "many.cbs") as many:
        for text in ("okapi", '"purple zeppelin"', '"two narwhals" okapi'):
            for options in ({}, {"mode": "words"}, {"where": "odd = 1"}, {"distinct": "group"}):
                expected, found = ask(one, text, **options), ask(many, text, **options)
                assert expected.ids[0] == found.ids[0] and expected.unknown_words == found.unknown_words
        for text in ("a dog on the beach", "narwhal", '" OR NEAR(" *'):
            assert ask(one, text).unknown_words == ask(many, text).unknown_words
            assert set(ask(one, text, mode="words", k=N).ids) == set(ask(many, text, mode="words", k=N).ids)


# Verdicts


@pytest.mark.parametrize(
    ("probability", "said"),
    [(0.0, "nothing"), (0.49, "nothing"), (0.5, "weak"), (0.7, "fair"), (0.89, "fair"), (0.9, "strong")],
)
def test_a_probability_in_words(probability: float, said: str) -> None:
    assert judge_answer(probability) == said


def test_a_threshold_is_the_least_that_is_told() -> None:
    assert judge_answer(0.95, 0.96) == "nothing" and judge_answer(0.97, 0.96) == "strong"
    assert judge_answer(0.1, 0.0) == "weak" and judge_answer(0.0, 0.0) == "nothing"


def test_no_hit_is_stronger_than_the_answer() -> None:
    evidence = np.array([3.0, -1.0, -9.0])
    assert judge_hits(evidence, USUAL["both"], "strong") == ["strong", "fair", "weak"]
    assert judge_hits(evidence, USUAL["both"], "fair") == ["fair", "fair", "weak"]
    assert judge_hits(evidence, USUAL["both"], "nothing") == ["nothing"] * 3


def test_evidence_is_read_as_it_was_written() -> None:
    how = Evidence(0.5, 0.3, 1.2, -0.4, 0.8, 1.0, -1.0)
    assert Evidence.from_dict(how.to_dict()) == how
    assert how.match_probability(np.zeros(0)) == 0.0
    assert USUAL["both"].of_hits(np.array([1.0]), np.array([4.0]), 0.5) == pytest.approx([2.0])


def test_the_very_sentence_comes_first_and_is_sure(index: Index) -> None:
    hits = ask(index, "A man on an elephant!")
    assert hits.ids[0] == 13 and hits.verdict == "strong" and hits.strengths is not None
    longer = ask(index, "a purple zeppelin over a castle")
    assert longer.ids[0] == 3 and longer.verdict == "strong"


def test_all_telling_words_are_never_called_nothing(index: Index) -> None:
    for text in ("elephant snow", "an elephant in the snow on the grass", "zeppelin castle purple over"):
        hits = ask(index, text)
        assert hits.unknown_words == [] and hits.verdict != "nothing" and hits.no_match is False
    assert ask(index, "elephant snow", match_threshold=1.0).verdict == "nothing"


def test_pictures_without_words_are_neither_preferred_nor_pushed_back(model: CMCQ, tmp_path: Path) -> None:
    index = Index.create(tmp_path / "half.cb", model, words=["captions"], n_jobs=1)
    payloads = [{"captions": [caption(row)]} if row % 2 else None for row in range(N)]
    index.add(list(range(N)), images=IMAGES[:N], payloads=payloads)
    text = "a dog on the street"
    hits = ask(index, text, k=N)
    assert len(hits) == N and hits.word_scores is not None and index.word_settings is not None
    best = hits.word_scores.max()
    told = np.where([id % 2 == 0 for id in hits.ids], 0.5 * best, hits.word_scores)
    wordy = np.array([id % 2 == 1 for id in hits.ids])
    told = np.where(
        wordy & (hits.word_scores == 0), 0.5 * best, told
    )  # they are known by pictures alone, too
    fused = hits.distances - index.word_settings.weight * told
    assert (np.diff(fused) >= -1e-4).all()
    assert {id % 2 for id in hits.ids[:20]} == {0, 1}


def test_a_query_about_something_else_is_not_called_sure(index: Index) -> None:
    assert ask(index, "dog narwhal umbrella quantum").verdict in ("nothing", "weak")


# Verdicts and hits agree

ORDER = ("nothing", "weak", "fair", "strong")
MODES = ("both", "words", "vectors")
ASKED = (
    "a dog on the beach",
    '"on the beach"',
    "castle dog",
    "a man on an elephant",
    "'; DROP TABLE number3; --",
    "elephant number8 street",
    "umbrella",
    "a purple umbrella",
    "???",
)


def rank(said: str | None) -> int:
    return ORDER.index(str(said))


def check_agreement(hits: Hits) -> None:
    """The whole truth table of a verdict and what stands beside it."""
    assert hits.no_match is (None if hits.verdict is None else hits.verdict == "nothing")
    if hits.verdict is None:
        assert hits.strengths is None
        return
    assert hits.strengths is not None or hits.verdict == "nothing"
    assert len(hits) or hits.verdict == "nothing"
    assert all(rank(each) <= rank(hits.verdict) for each in hits.strengths or [])


@pytest.mark.parametrize("row", [FAR, 5, 40])
@pytest.mark.parametrize("mode", MODES)
def test_an_answer_is_as_sure_as_its_surest_hit(index: Index, mode: str, row: int) -> None:
    for text in ASKED:
        (hits,) = index.search(texts=TEXTS[row], words=[text], mode=mode, k=10)
        check_agreement(hits)
        if len(hits):
            assert hits.strengths is not None
            assert hits.verdict == max(hits.strengths, key=rank), (text, hits.verdict, hits.strengths)


@pytest.mark.parametrize("row", [FAR, 5, 40])
def test_what_says_the_sentence_is_no_weaker_than_what_does_not(index: Index, row: int) -> None:
    for text, id in (
        ("A man on an elephant!", 13),
        ("a purple zeppelin over a castle", 3),
        ("zeppelin over", 3),
    ):
        for mode in ("both", "words"):
            (hits,) = index.search(texts=TEXTS[row], words=[text], mode=mode)
            assert hits.ids[0] == id and hits.verdict == "strong"
            assert hits.strengths is not None and hits.strengths[0] == "strong"
    text = "a purple zeppelin over a castle"
    (told,) = index.search(texts=TEXTS[row], words=[text], prior=1e-12)  # so that nothing else is believed
    assert told.strengths == ["strong"] + ["nothing"] * 9  # the document is lifted, not those beside it


@pytest.mark.parametrize("row", [FAR, 5, 40])
def test_what_words_put_first_limits_what_is_below(index: Index, row: int) -> None:
    """One rare word of three puts a document first; then nothing is surer than that it is meant."""
    for text in ("castle dog beach", "elephant street dog", "snow dog grass"):
        (hits,) = index.search(texts=TEXTS[row], words=[text], prior=0.02)
        assert hits.ids[0] in SPECIAL and hits.strengths is not None
        assert rank(hits.strengths[0]) == rank(hits.verdict) == max(map(rank, hits.strengths))


def test_a_phrase_that_a_hit_has_makes_it_as_sure_as_the_answer(index: Index) -> None:
    (hits,) = index.search(texts=TEXTS[FAR], words=['"on the beach"'], mode="words", k=5)
    assert hits.strengths == [hits.verdict] * 5 and hits.verdict != "nothing"


def test_found_by_says_the_same_for_any_k(index: Index) -> None:
    for text, mode in itertools.product(
        ("a dog on the beach", "okapi dog", "purple umbrella"), ("both", "words")
    ):
        (whole,) = index.search(texts=TEXTS[FAR], words=[text], mode=mode, k=N)
        (near,) = index.search(texts=TEXTS[FAR], words=[text], mode="vectors", k=10)
        for k in (1, 3, 10, 50):
            (hits,) = index.search(texts=TEXTS[FAR], words=[text], mode=mode, k=k)
            assert (
                hits.found_by == (whole.found_by or [])[:k] and hits.strengths == (whole.strengths or [])[:k]
            )
        assert whole.found_by is not None and whole.word_scores is not None
        for id, by, score in zip(whole.ids, whole.found_by, whole.word_scores.tolist(), strict=True):
            assert (by == "picture") == (score == 0.0)
            assert (by == "both") == (score > 0.0 and id in near.ids)


def test_words_that_most_documents_have_are_no_evidence(index: Index) -> None:
    """The vector is that of a partner; nothing that was asked stands in any caption."""
    for row in (5, 40, 77):
        for text in (
            "penguins on an iceberg",
            "umbrella on a",
            "sushi on the beach",
            "submarine",
            "a submarine",
        ):
            (hits,) = index.search(texts=TEXTS[row], words=[text])
            assert hits.verdict in ("nothing", "weak"), (row, text)
        said = {
            index.search(texts=TEXTS[row], words=[text])[0].verdict
            for text in ("invoice", "submarine", "narwhal", "narwhal on a", "invoice submarine narwhal")
        }
        assert len(said) == 1


def test_vectors_that_are_sure_of_an_unknown_word_are_believed_a_little(index: Index) -> None:
    """They may know a synonym."""
    (sure,) = index.search(texts=TEXTS[5], words=["canine"], prior=0.5)
    assert sure.verdict == "weak"
    (vague,) = index.search(texts=TEXTS[5], words=["canine"], prior=1e-9)
    assert vague.verdict == "nothing" and set(vague.strengths or []) == {"nothing"}
    (asked,) = index.search(texts=TEXTS[5], words=["canine"], match_threshold=0.0)
    assert asked.verdict == "weak"


def test_a_whole_caption_comes_before_one_that_goes_on(index: Index) -> None:
    captions = {
        20: ["A boy climbs rocks in the woods ."],
        21: ["two goats", "A boy climbs rocks ."],
        22: ["tomorrow a boy climbs rocks"],
        23: ["Kite"],
        24: ["a kite"],
        25: ["two kites, kite, kite, kite"],
    }
    index.update_payloads(list(captions), [{"captions": each} for each in captions.values()])
    for text, id in (
        ("A boy climbs rocks .", 21),
        ("Kite", 23),
        ("kite!", 23),
        ("A kite", 24),
        ("two goats", 21),
    ):
        for mode in ("both", "words"):
            hits = ask(index, text, mode=mode)
            assert hits.ids[0] == id and hits.strengths is not None and hits.strengths[0] == "strong", text


def test_all_documents_of_the_very_same_caption_come_first(index: Index) -> None:
    same = list(range(30, 50))
    index.update_payloads(same, [{"captions": ["no title", f"more {id}"]} for id in same])
    index.update_payloads([60, 61], [{"captions": ["no title at all"]}] * 2)
    for mode in ("both", "words"):
        hits = ask(index, "No title", mode=mode, k=22)
        assert set(hits.ids[:20]) == set(same)
        assert hits.strengths is not None and set(hits.strengths[:20]) == {"strong"}
    fused = ask(index, "No title", k=20)
    assert fused.word_scores is not None and index.word_settings is not None
    order = fused.distances - index.word_settings.weight * fused.word_scores
    assert (np.diff(order) >= -1e-4).all()


def test_a_caption_longer_than_a_query_may_be_is_found_by_itself(index: Index) -> None:
    long = " ".join(f"word{n}" for n in range(100))
    index.update_payloads([20, 21], [{"captions": [f"first {long}"]}, {"captions": [long]}])
    assert ask(index, long).ids[:2] == [21, 20]


def test_what_stands_between_captions_is_not_known(index: Index) -> None:
    index.update_payloads([20], [{"captions": ["two goats", "a ship"]}])
    for text in ("0x1e", "\ue000 0x1e"):
        hits = ask(index, text)
        assert hits.unknown_words == ["0x1e"] and set(hits.found_by or []) == {"picture"}
    assert ask(index, "0x1e dog").verdict in ("nothing", "weak")
    assert ask(index, '"goats a ship"').unknown_words == ["goats a ship"]


def test_unknown_words_are_named_as_typed(index: Index) -> None:
    assert ask(index, "Hündin 飞机 DOG").unknown_words == ["Hündin", "飞机"]
    assert ask(index, '"Castle,  Zeppelin" dog').unknown_words == ["Castle, Zeppelin"]


_FACTORS = (
    MODES,
    ("a dog on the beach", "okapi", "a man on an elephant", "umbrella", "???", '"on the beach"'),
    (None, "odd = 1", "odd = 7"),
    (None, 0.0, 0.5, 1.0),
    (1, 10, N),
    (None, 0.0, 0.9, 1.0),
    (None, -10.0),
    (FAR, 5, None),
)


@pytest.mark.parametrize("is_calibrated", [True, False])
def test_every_verdict_goes_with_its_hits(model: CMCQ, tmp_path: Path, is_calibrated: bool) -> None:
    used = model
    if not is_calibrated:
        used = CMCQ(n_bits=16, mapping="cca", random_state=0, n_jobs=1).fit(IMAGES[N:], TEXTS[N:])
    index = fill(Index.create(tmp_path / "b.cb", used, words=["captions"], n_jobs=1))
    seen = set()
    for mode, text, where, least, k, threshold, farthest, row in covering(*_FACTORS):
        options = {
            "where": where,
            "min_probability": least,
            "match_threshold": threshold,
            "max_distance": farthest,
        }
        given = {name: value for name, value in options.items() if value is not None}
        if not is_calibrated:
            given.pop("min_probability", None)
        features = np.zeros(9) if row is None else TEXTS[row]
        (hits,) = index.search(texts=features, words=[text], mode=mode, k=k, **given)
        check_agreement(hits)
        seen.add((hits.verdict, hits.no_match, len(hits) > 0))
    assert {("nothing", True, False), ("nothing", True, True)} <= seen
    assert (
        {("strong", False, True), ("weak", False, True)} if is_calibrated else {(None, None, True)}
    ) <= seen
