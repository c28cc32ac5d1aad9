"""How sure an answer is, what found it, and what words find: every state, on a desk and a phone."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crossbyte import CMCQ, Index, split_index
from crossbyte.data.synthetic import make_pairs
from crossbyte.gallery.gallery import Gallery
from crossbyte.index.lexical import WordSettings
from support.browser_page import Page, served

LOOKS = {
    "desk-light": (1280, 860, "light"),
    "desk-dark": (1280, 860, "dark"),
    "phone-light": (390, 800, "light"),
    "phone-dark": (390, 800, "dark"),
}
NONSENSE = "please send the invoice by friday"
MEASURED = {
    "n_held_out": 75,
    "n_documents": 300,
    "chance": 1 / 30,
    "n_bytes": 8,
    "recall": {"words": 0.68, "vectors": 0.71, "both": 0.8},
    "match_auroc": {"words": 0.9, "vectors": 0.85, "both": 0.93},
    "curve": [
        {"n_bytes": n_bytes, "weight": 0.3, "words": 0.68, "vectors": vectors, "both": both}
        for n_bytes, vectors, both in ((4, 0.66, 0.76), (8, 0.71, 0.8), (16, 0.73, 0.81))
    ],
}


def copy_index(gallery: Path, folder: Path, **options: Any) -> Path:
    """The same documents in an index made otherwise, with the files beside it."""
    path = folder / "scenes.cb"
    with Index.open(gallery) as old, Index.create(path, old.model, **options) as made:
        documents = old.documents(limit=300)
        made.add(
            [each.id for each in documents],
            document_codes=[each.document_code for each in documents],
            payloads=[each.payload for each in documents],
        )
    shutil.copytree(f"{gallery}.files", f"{path}.files")
    return path


@pytest.fixture(scope="module")
def judged(gallery: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The gallery with the usual evidence: what a trial learns on few scenes is never strong."""
    return copy_index(gallery, tmp_path_factory.mktemp("judged"), words=["captions"])


@pytest.fixture(scope="module")
def judged_url(judged: Path) -> Iterator[str]:
    with served(judged) as address:
        yield address


@pytest.fixture(scope="module")
def asked(judged: Path) -> dict[str, str]:
    """A text for every verdict."""
    found: dict[str, str] = {}
    with Gallery.open(judged) as opened:
        payloads = [each.payload or {} for each in opened.index.documents(limit=40)]
        captions = [caption for payload in payloads for caption in payload["captions"]]
        parts = [" ".join(caption.split()[first:last]) for caption in captions for first, last in _PARTS]
        plain = ("red", "a", "small things", "blue zeppelin", "winter circle", NONSENSE)
        for text in (*plain, *captions, *parts):
            found.setdefault(str(opened.search(text=text).verdict), text)
            if set(found) >= set(VERDICTS):
                break
    return found


_PARTS = [(None, 2), (None, 3), (-2, None), (-3, None), (1, 4), (2, 5), (None, -1), (1, -1)]


@pytest.fixture(scope="module")
def sharded_url(gallery: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("shards") / "scenes.cbs"
    split_index(gallery, path, 3)
    shutil.copytree(f"{gallery}.files", f"{path}.files")
    with served(path) as address:
        yield address


@pytest.fixture(scope="module")
def wordless_url(gallery: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The same documents as an index of 0.6 has them: without words."""
    with served(copy_index(gallery, tmp_path_factory.mktemp("wordless"))) as address:
        yield address


@pytest.fixture(scope="module")
def measured_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An index of features that says what was tried of its words."""
    path = tmp_path_factory.mktemp("measured") / "measured.cb"
    images, texts, _ = make_pairs(160, 24, 40, random_state=0)
    model = CMCQ(n_bits=16, random_state=0).fit(images[:100], texts[:100])
    model.calibrate(images[:100], texts[:100], curve=())
    with Index.create(path, model, words=WordSettings(("captions",), measured=MEASURED)) as index:
        index.add(
            range(60), images=images[100:], payloads=[{"captions": [f"caption {n}"]} for n in range(60)]
        )
    with served(path) as address:
        yield address


_LONG_LABELS = """
return [...document.querySelectorAll(".tile .match")]
  .filter((each) => {
    const tile = each.closest(".tile").getBoundingClientRect();
    const range = document.createRange();
    range.selectNodeContents(each.firstElementChild);
    const words = range.getBoundingClientRect();
    return words.right > tile.right + 1 || words.bottom > tile.bottom + 1;
  })
  .map((each) => each.textContent);
"""


def look(page: Page, name: str, address: str, ready: Callable[[], Any]) -> None:
    """Open an address on every screen, and keep a picture of each."""
    for look, (width, height, scheme) in LOOKS.items():
        page.media(prefers_color_scheme=scheme)
        page.open(address, width, height)
        page.until(ready)
        page.until(page.pictures_are_there)
        assert page.overlaps(".toolbar > *, .verdict, .notice, .results") == []
        wide = page.script("return document.documentElement.scrollWidth > innerWidth + 1")
        assert not wide, f"{name} on {look} is wider than the window"
        assert page.script(_LONG_LABELS) == [], f"labels of {name} on {look} leave their pictures"
        page.shot(f"answers-{name}-{look}")


def labels(page: Page) -> list[str]:
    return [each.get_attribute("textContent") or "" for each in page.all(".results .match .unseen")]


VERDICTS = {
    "strong": ("#verdict", "Strong match"),
    "fair": ("#verdict", "Fair match"),
    "weak": ("#verdict", "Weak match"),
    "nothing": ("#notice", "Nothing here seems to match."),
}


@pytest.mark.parametrize("verdict", VERDICTS)
def test_every_verdict_is_said_in_words(
    browse: Callable[[str], Page], judged_url: str, asked: dict[str, str], verdict: str
) -> None:
    page = browse(judged_url)
    place, said = VERDICTS[verdict]
    look(page, verdict, f"/?q={asked[verdict]}", lambda: page.all(".tile") and said in page.text(place))
    assert all("match, found by" in label for label in labels(page))
    assert "%" not in page.text("#view-search")
    if verdict == "nothing":
        assert {label.split(" match")[0] for label in labels(page)} == {"No"}
        assert not page.all("#verdict:not([hidden]) .match")


def test_narrow_pictures_keep_their_labels_to_themselves(page: Page) -> None:
    page.open("/?q=red", 390, 800)
    page.settled()
    page.script("document.querySelectorAll('.tile').forEach((each) => { each.style.width = '78px'; })")
    page.shot("answers-narrow-phone")
    assert len(page.all(".tile .match")) > 5 and page.script(_LONG_LABELS) == []


@pytest.mark.parametrize("mode", ["both", "words", "vectors"])
def test_modes_and_unknown_words(page: Page, mode: str) -> None:
    more = "" if mode == "both" else f"&mode={mode}"
    look(page, f"mode-{mode}", f"/?q=red zeppelin circle{more}", lambda: page.all(".tile"))
    checked = "return document.querySelector('#modes input:checked').value"
    assert page.script(checked) == mode
    if mode == "vectors":
        assert not page.all(".results .match .unseen") or "found by" not in labels(page)[0]
    else:
        page.until_text("#verdict", "No caption has: zeppelin")
    if mode == "words":
        assert all("found by its words" in label for label in labels(page))


def test_words_alone_that_nothing_has(page: Page) -> None:
    look(page, "words-nothing", "/?q=zeppelin&mode=words", lambda: page.one("#notice .notice"))
    assert "No caption has these words" in page.text("#notice")
    page.open("/?q=red zeppelin&mode=words&where=count >= 99")
    page.until_text("#notice", "No caption that passes the filters has these words")
    page.one("#notice .button").click()
    page.until(lambda: page.all(".tile"))


def test_an_index_without_words_offers_no_choice(browse: Callable[[str], Page], wordless_url: str) -> None:
    page = browse(wordless_url)
    look(page, "wordless", "/?q=red circle&mode=words", lambda: page.all(".tile"))
    assert not page.one("body").find_element("id", "modes").is_displayed()
    assert all("found by" not in label for label in labels(page))


def test_shards_answer_as_one_file(browse: Callable[[str], Page], sharded_url: str) -> None:
    page = browse(sharded_url)
    look(page, "sharded", "/?q=red zeppelin circle", lambda: page.all(".tile"))
    page.until_text("#verdict", "No caption has: zeppelin")
    assert page.one("#modes").is_displayed()


def test_the_probability_is_in_the_drawer_with_its_meaning(
    browse: Callable[[str], Page], judged_url: str, asked: dict[str, str]
) -> None:
    page = browse(judged_url)
    for name, (width, height, scheme) in LOOKS.items():
        page.media(prefers_color_scheme=scheme)
        page.open(f"/?q={asked['strong']}", width, height)
        page.settled()
        page.one(".tile-open").click()
        page.until_text("#drawer .probability", "Probability that this is the one document")
        page.one(".why-line")
        page.until(page.pictures_are_there)
        page.until(lambda: page.script("return document.getAnimations().length") == 0)
        page.shot(f"answers-drawer-{name}")
        assert "%" in page.text("#drawer .probability")
        assert page.text("#drawer .match").startswith("Strong match, found by its ")


def test_the_report_tells_words_vectors_and_both(
    browse: Callable[[str], Page], url: str, measured_url: str
) -> None:
    page = browse(measured_url)
    look(page, "report", "/?tab=report", lambda: page.one(".word-trial table"))
    said = page.text("#view-report")
    for part in (
        "75 captions that were held out asked for their documents, among 300",
        "68 of 100 by words alone, 71 of 100 by vectors alone, 80 of 100 by words and vectors",
        "Chance would find 3.",
        "Only 10 pairs could be held out, so every partner is among the first 10: these numbers say nothing.",
        "Beside 8 bytes per document, of 100 captions by both: 4 bytes would lose 4, "
        "16 bytes would find 1 more.",
    ):
        assert part in said, part
    assert page.all(".score-number") == [] == page.all(".chart")
    page.script("document.querySelector('.word-trial').scrollIntoView()")
    page.shot("answers-report-words-phone")
    page.size(1280, 860)
    page.script("document.querySelector('.word-trial').scrollIntoView()")
    page.shot("answers-report-words-desk")
    shown = [row.text.split() for row in page.all(".word-trial tbody tr")]
    assert shown == [
        ["4", "bytes", "68", "66", "76"],
        ["8", "bytes,", "chosen", "68", "71", "80"],
        ["16", "bytes", "68", "73", "81"],
        ["chance", "3", "3", "3"],
    ]
    own = browse(url)
    own.open("/?tab=report")
    own.until_text("#view-report", "captions that were held out asked for their documents, among 300")
