"""Words of documents in the index: what is searched, in any script, under deletes, updates and compaction."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crossbyte import CMCQ, Index
from crossbyte.encoders.builtin_text import split_words
from crossbyte.errors import DamagedIndexFile, InvalidInput, WriteRefused
from crossbyte.index import lexical
from crossbyte.index.lexical import (
    MEAN_WORDS,
    MOST_WORDS,
    TermCache,
    TermMatches,
    WordQuery,
    count_mean_words,
    name_as_typed,
    quote_term,
    searched_text,
)

MARK = "\ue000"
CAPTIONS = {
    "a": ["A man is standing on an elephant.", "Two dogs"],
    "b": ["a purple zeppelin over a castle"],
    "c": ["Ein Straßencafé im Süden", "dogs running"],
    "d": ["犬が公園を走る"],
}


@pytest.fixture(scope="module")
def model() -> CMCQ:
    rng = np.random.default_rng(0)
    latent = rng.normal(size=(60, 4))
    images, texts = latent @ rng.normal(size=(4, 10)), latent @ rng.normal(size=(4, 8))
    return CMCQ(n_bits=16, random_state=0, n_jobs=1).fit(images, texts)


@pytest.fixture
def index(model: CMCQ, tmp_path: Path) -> Index:
    made = Index.create(tmp_path / "a.cb", model, words=["captions", "meta.title"])
    features = np.random.default_rng(1).normal(size=(len(CAPTIONS), 10))
    payloads = [{"captions": each, "year": n} for n, each in enumerate(CAPTIONS.values())]
    made.add(list(CAPTIONS), images=features, payloads=payloads)
    return made


def find(index: Index, text: str, where: str | None = None) -> list[str]:
    matches = index.match_words(text, where)
    ids = index.ids()
    return [str(ids[each.number]) for each in matches]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("elephant", ["a"]),
        ("ELEPHANTS", ["a"]),
        ("zeppelin castle", ["b"]),
        ("strassencafe", ["c"]),
        ("Süden", ["c"]),
        ("公園", ["d"]),
        ("nothing", []),
    ],
)
def test_words_are_found_in_any_script(index: Index, text: str, found: list[str]) -> None:
    assert find(index, text) == found


def test_better_matches_come_first(index: Index) -> None:
    assert find(index, "dogs running")[0] == "c"
    assert set(find(index, "dogs")) == {"a", "c"}


def test_quoted_words_must_stand_together_in_one_caption(index: Index) -> None:
    assert find(index, '"purple zeppelin"') == ["b"]
    assert find(index, "„zeppelin purple“") == []
    assert find(index, '"elephant two"') == []  # of two captions


@pytest.mark.parametrize(
    "text",
    ['"', '""', "AND", "NOT dog", "dog OR", "NEAR(dog cat)", "text:dog", "dog*", "^dog", "(dog",
     "a'; DROP TABLE words", '" OR ""', "-dog", "{text} : dog", "\0", "😀", " "],
)  # fmt: skip
def test_operators_are_only_words(index: Index, text: str) -> None:
    find(index, text)
    assert find(index, "elephant") == ["a"]


@given(st.text(max_size=60), st.sampled_from(["{}", '"{}"', 'text : "{}"', "NEAR({}, 2)", "{}*", "^{}"]))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_a_query(index: Index, text: str, form: str) -> None:
    asked = form.format(text)
    terms = WordQuery.parse(asked).terms
    for term in terms:
        index._store.match_term(quote_term(term))
    find(index, asked)
    assert len(index) == len(CAPTIONS)


@pytest.mark.parametrize(
    ("part", "found"),
    [
        ("elephant ", ["a"]),
        ("犬", ["d"]),
        *((part, []) for part in ('"', "NEAR(", "q*b^c:d ", "😀", "\0", "(")),
    ],
)
def test_a_text_of_100_kilobytes_is_answered(index: Index, part: str, found: list[str]) -> None:
    assert find(index, part * (100_000 // len(part.encode()) + 1)) == found
    assert len(WordQuery.parse(" ".join(f"w{n}" for n in range(20_000))).terms) == MOST_WORDS


@pytest.mark.parametrize(
    ("caption", "asked"),
    [
        ("一只大象站在河边", "大象"),
        ("象が川を渡る", "川"),
        ("カメラとネコ", "ネコ"),
        ("코끼리가 강을 건넌다", "강을"),
        ("ช้างเดินข้ามแม่น้ำ", "ช้าง"),
        ("فيل يعبر النهر", "النهر"),
        ("हाथी नदी पार करता है", "हाथी"),
        ("слон переходит реку", "РЕКУ"),
        ("Ελέφαντας στο ποτάμι", "ΠΟΤΑΜΙ"),
        ("un éléphant près de la rivière", "riviere elephant"),
        ("ein Löwe im Fluß", "FLUSS"),
        ("con voi băng qua sông", "sông"),
        ("פיל חוצה נהר", "נהר"),
    ],
)
def test_every_script_is_found_whole_and_in_quotes(
    model: CMCQ, tmp_path: Path, caption: str, asked: str
) -> None:
    with Index.create(tmp_path / "s.cb", model, words=["captions"]) as made:
        others = [{"captions": [f"nothing of it {n}"]} for n in range(8)]
        payloads = [{"captions": [caption]}, *others]
        made.add(["it", *range(8)], images=np.ones((9, 10)), payloads=payloads)
        rows = np.ones((1, 8))
        for text in (asked, caption, f'"{asked.split()[0]}"'):
            for mode in ("words", "both"):
                hits = made.search(texts=rows, words=text, mode=mode, k=3)[0]
                assert hits.ids[0] == "it" and hits.unknown_words == [], (text, mode)


def test_words_are_counted_without_marks(index: Index) -> None:
    found = index._store.match_term(quote_term("elephant"))
    assert [row[2:] for row in found] == [(1, 9)]  # seven words and two


def test_what_stands_between_captions_is_no_word(index: Index) -> None:
    for text in ("0x1e", MARK, f'"{MARK}"', '"elephant 0x1e two"', f'"elephant {MARK} two"'):
        assert find(index, text) == []


@pytest.mark.parametrize(
    ("text", "terms", "named"),
    [
        ("eine Hündin", ["hundin"], ["Hündin"]),
        ("HÜNDIN, Hündin", ["hundin"], ["HÜNDIN"]),
        ("飞机 and 船", ["飞", "机"], ["飞机"]),
        ("飞机", ["机"], ["机"]),
        ("iPhone手机", ["iphone", "手", "机"], ["iPhone", "手机"]),
        ("iPhone手机", ["iphone", "机"], ["iPhone", "机"]),
        ("“Castle,  Zeppelin” DOG", ["castle zeppelin", "dog"], ["Castle, Zeppelin", "DOG"]),
        ("हाथी नदी", ["नदी"], ["नदी"]),
        ("e\u0301te\u0301", ["ete"], ["e\u0301te\u0301"]),
        ("ｶﾞﾗｽ", ["ガ", "ラ", "ス"], ["ｶﾞﾗｽ"]),
        ("don't", ["t"], ["t"]),
        ("dog", [], []),
    ],
)
def test_words_are_named_as_they_were_typed(text: str, terms: list[str], named: list[str]) -> None:
    assert name_as_typed(text, terms) == named


@given(st.text(max_size=60))
def test_every_word_of_any_text_can_be_named(text: str) -> None:
    terms = WordQuery.parse(text).terms
    named = name_as_typed(text, terms)
    assert len(named) <= len(terms) and bool(named) == bool(terms)
    for each in named:
        assert each in text or WordQuery.parse(each).terms or " " in each


def test_filters_hold(index: Index) -> None:
    assert find(index, "dogs", "year >= 2") == ["c"]


def test_deleted_documents_are_not_found(index: Index) -> None:
    index.delete(["a"])
    assert index.match_words("elephant") == []
    index.compact()
    assert index.match_words("elephant") == []
    assert len(index.match_words("castle")) == 1
    index.verify()


def test_updates_replace_words_and_a_pinned_reader_never_sees_the_new_ones(index: Index) -> None:
    pinned = index.pinned()
    index.update_payloads(["b", "c"], [{"captions": ["a red balloon"], "meta": {"title": "fair"}}, None])
    assert find(index, "balloon") == ["b"]
    assert find(index, "fair") == ["b"]
    assert find(index, "zeppelin") == find(index, "Süden") == []
    assert pinned.match_words("balloon") == []
    index.verify()
    index.compact()
    assert find(index, "balloon") == ["b"]
    index.verify()


def test_a_pinned_reader_counts_no_words_of_documents_added_later(index: Index) -> None:
    pinned = index.pinned()
    before = pinned._seen.count_term("park", 100)
    payloads = [{"captions": ["a dog in the park"]} for _ in range(10)]
    features = np.random.default_rng(2).normal(size=(10, 10))
    index.add([f"new {n}" for n in range(10)], images=features, payloads=payloads)
    assert pinned._seen.count_term("park", 100) == before
    assert index._seen.count_term("park", 100) == before + 10


def test_words_are_there_after_reopening_and_upserting(index: Index, model: CMCQ) -> None:
    path = index.path
    index.upsert(["b"], images=np.ones((1, 10)), payloads=[{"captions": "an igloo"}])
    index.close()
    with Index.open(path) as again:
        assert again.word_fields == ("captions", "meta.title")
        assert len(again.match_words("igloo")) == 1
        assert again.match_words("zeppelin") == []
        assert again.format == 3
        again.verify()


def test_an_index_without_words_finds_none(model: CMCQ, tmp_path: Path) -> None:
    with Index.create(tmp_path / "b.cb", model) as plain:
        plain.add(["x"], images=np.ones((1, 10)), payloads=[{"captions": ["elephant"]}])
        assert plain.word_fields == ()
        assert plain.match_words("elephant") == []
        assert plain.format == 2


@pytest.mark.parametrize("words", ["captions", [], [""], [1], ["a"] * 17])
def test_wrong_fields_are_refused(model: CMCQ, tmp_path: Path, words: object) -> None:
    with pytest.raises(InvalidInput, match="words"):
        Index.create(tmp_path / "b.cb", model, words=words)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_formats_and_words_must_fit(model: CMCQ, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="format 3"):
        Index.create(tmp_path / "b.cb", model, words=["captions"], format=2)


def test_without_fts5_it_says_so(model: CMCQ, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexical, "has_word_search", lambda: False)
    with pytest.raises(WriteRefused, match="FTS5"):
        Index.create(tmp_path / "b.cb", model, words=["captions"])


def test_words_of_documents_that_are_not_there_are_damage(index: Index) -> None:
    import sqlite3

    path = index.path
    index.close()
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO words (rowid, version, text) VALUES (99, 0, 'ghost')")
    connection.close()
    with Index.open(path) as again, pytest.raises(DamagedIndexFile, match="words"):
        again.verify()


def test_texts_of_lists_and_dotted_fields_are_taken() -> None:
    payload = {"captions": ["A b", "C"], "meta": {"title": "D"}, "n": 3}
    found = searched_text(payload, ["captions", "meta.title", "n", "none"])
    assert found == f"{MARK}\na b {MARK}\nc {MARK}\nd\n{MARK}"
    assert searched_text({"captions": ["?", "", "A"]}, ["captions"]) == f"{MARK}\na\n{MARK}"
    assert searched_text({"captions": ["?", ""]}, ["captions"]) == ""
    assert split_words(f"{MARK} {MARK}a") == ["a"]  # so no query has the mark


def score_ref(captions: list[list[str]], query: list[str], mean: float) -> list[float]:
    """BM25 over lists of words, as its formula stands."""
    scores = []
    for words in captions:
        total = 0.0
        for term in dict.fromkeys(query):
            n, f = sum(term in other for other in captions), words.count(term)
            rarity = max(np.log((len(captions) - n + 0.5) / (n + 0.5)), 1e-6)
            total += rarity * f * 2.2 / (f + 1.2 * (0.25 + 0.75 * len(words) / mean))
        scores.append(float(total))
    return scores


def test_scores_are_those_of_the_formula_whatever_was_deleted(model: CMCQ, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    words = ["elm", "oak", "ash", "fir", "yew", "box", "may", "bay"]
    captions = [rng.choice(words, size=rng.integers(1, 12)).tolist() for _ in range(40)]
    made = Index.create(tmp_path / "b.cb", model, words=["captions"])
    features = rng.normal(size=(80, 10))
    twice = [*captions, *captions]
    made.add(list(range(80)), images=features, payloads=[{"captions": " ".join(each)} for each in twice])
    made.delete(list(range(40, 80)))
    asked = ["oak", "yew", "box"]
    expected = score_ref(captions, asked, MEAN_WORDS)
    for _ in range(2):
        found = {match.number: match.score for match in made.match_words(" ".join(asked))}
        assert found == pytest.approx({n: score for n, score in enumerate(expected) if score})
        made.compact()


def test_long_documents_are_told_by_the_mean_of_all() -> None:
    payloads = [{"captions": ["one two", "three"]}, {"captions": "four"}, None, {"other": "five six"}]
    assert count_mean_words(payloads, ["captions"]) == (3 + 1) / 2  # marks are no words
    assert count_mean_words([None], ["captions"]) == MEAN_WORDS


def test_terms_are_kept_within_their_bytes_whatever_is_asked() -> None:
    cache = TermCache(most_bytes=20_000)
    one = TermMatches(*np.ones((3, 10), dtype=np.int64), np.ones(10, dtype=bool))
    for number in range(1_000):  # no document has them, and still they must not pile up
        cache.keep(f"word{number}", TermMatches.none())
        assert 0 < cache.n_bytes <= 20_000
    assert cache.get("word999") is not None and cache.get("word0") is None
    cache.keep("last", one)
    assert cache.get("last") is one
    before = cache.n_bytes
    cache.keep("last", one)
    assert cache.n_bytes == before
    cache.keep("huge", TermMatches(*np.ones((3, 10_000), dtype=np.int64), np.ones(10_000, dtype=bool)))
    assert cache.n_bytes == 0 and cache.get("last") is None
