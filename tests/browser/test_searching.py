"""Words find pictures, pictures find texts, results find more; in a real browser."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from support.browser_page import Page, png


def parameters(page: Page) -> dict[str, str]:
    found = parse_qs(urlsplit(page.driver.current_url).query)
    return {name: values[0] for name, values in found.items()}


def alternatives(page: Page) -> list[str]:
    return [each.get_attribute("alt") or "" for each in page.all(".tile img")]


def test_nothing_asked_shows_documents_and_more_of_them(page: Page) -> None:
    page.open()
    page.settled()
    assert page.text("#summary") == "36 of 300 documents"
    page.shot("browse")
    page.one("#more").click()
    page.until_text("#summary", "72 of 300")
    assert len(page.all(".tile")) == 72
    assert "300 documents" in page.text("#status")
    assert "bytes per item" in page.text("#status")


def test_words_find_pictures_as_they_are_typed(page: Page) -> None:
    page.open()
    page.settled()
    page.type("red circle")
    page.shot("text")
    assert parameters(page) == {"q": "red circle"}
    assert any("red" in text.lower() for text in alternatives(page)[:5])
    label = page.all(".tile .match .unseen")[0].get_attribute("textContent") or ""
    assert "match, found by its " in label and "%" not in page.text("#results")
    page.until(lambda: "shown" in page.script("return document.getElementById('live').textContent"))


def test_words_are_chosen_named_and_shared(page: Page) -> None:
    page.open()
    page.settled()
    assert not page.all("#modes")[0].is_displayed()
    page.type("red zeppelin")
    page.until_text("#verdict", "No caption has: zeppelin")
    page.one("#modes input[value=words] + span").click()
    page.until(lambda: parameters(page).get("mode") == "words")
    page.settled()
    page.shot("words")
    page.one("#words").clear()
    page.one("#words").send_keys("zeppelin")
    page.until_text("#notice", "Nothing found.")
    page.one("#modes input[value=vectors] + span").click()
    page.until(lambda: page.all(".tile"))
    page.settled()
    assert "No caption" not in page.all("#verdict")[0].text
    page.all(".tile .open")[0].click()
    page.until_text("#drawer .probability", "the one document the query was written for: ")
    page.shot("drawer-probability")


def test_an_old_answer_never_replaces_a_newer_one(page: Page) -> None:
    """The first search is held back until the second has been answered."""
    page.open()
    page.settled()
    page.script(
        """
        const real = window.fetch;
        window.held = [];
        const later = (path) => new Promise((resolve) => window.held.push(() => resolve(real(path))));
        window.fetch = (path, options) => path.includes("text=red&") ? later(path) : real(path, options);
        """
    )
    page.one("#words").send_keys("red")
    page.until(lambda: page.script("return window.held.length") == 1)
    page.one("#words").send_keys(" square")
    page.until_text("#summary", "nearest")
    page.settled()
    shown = alternatives(page)
    page.script("window.held[0]()")
    page.script("return new Promise((resolve) => setTimeout(resolve, 0))")
    assert alternatives(page) == shown
    assert parameters(page)["q"] == "red square"


def test_a_dropped_picture_finds_texts(page: Page, picture: bytes) -> None:
    page.open()
    page.settled()
    page.give("dragenter", picture)
    assert page.one("#drop").is_displayed()
    page.shot("dragging")
    page.give("drop", picture, "my scene.png")
    page.one(".row")
    page.settled()
    page.shot("drop")
    assert not page.all("#drop:not([hidden])")
    assert page.text("#query-label") == "my scene.png"
    assert page.one("#segments input[value=text] + span").is_displayed()
    assert page.script("return document.querySelector('#segments input:checked').value") == "text"
    assert page.text(".row .row-text")
    page.one("#query-clear").click()
    page.until_text("#summary", "of 300 documents")


def test_a_pasted_picture_finds_texts_and_back_goes_back(page: Page, picture: bytes) -> None:
    page.open("/?q=blue")
    page.settled()
    page.give("paste", picture)
    page.one(".row")
    page.driver.back()
    page.one(".tile")
    assert page.one("#words").get_attribute("value") == "blue"
    page.driver.forward()
    page.one(".row")
    assert page.one("#query").is_displayed()


def test_the_kind_of_result_can_be_chosen_and_shared(page: Page) -> None:
    page.open("/?q=green")
    page.settled()
    page.one("#segments input[value=document] + span").click()
    page.one(".card")
    page.settled()
    page.shot("documents")
    assert parameters(page) == {"q": "green", "target": "document"}
    page.open("/?q=green&target=text")
    page.one(".row")


def test_more_like_this_and_texts_for_this(page: Page) -> None:
    page.open("/?q=yellow")
    page.settled()
    page.one(".tile-open").click()
    title = page.text("#drawer-title")
    page.one(".actions .button").click()
    page.until(lambda: "like" in parameters(page))
    page.until_text("#query-label", title[:20])
    page.settled()
    page.shot("alike")
    assert alternatives(page)[0] != title
    page.one(".tile-open").click()
    page.all(".actions .button")[1].click()
    page.one(".row")
    assert parameters(page)["target"] == "text"
    page.open(urlsplit(page.driver.current_url).path + "?" + urlsplit(page.driver.current_url).query)
    page.one(".row")
    page.until_text("#query-label", "Like")


def test_nothing_matches_is_said_above_the_nearest(page: Page) -> None:
    page.open()
    page.settled()
    page.type("please send the invoice by friday")
    page.until_text("#notice", "Nothing here seems to match.")
    page.shot("no-match")
    assert len(page.all(".tile")) == 36
    page.type(alternatives(page)[0])
    page.until(lambda: not page.all(".notice"))


def test_a_picture_that_is_none_is_refused_in_plain_words(page: Page) -> None:
    page.allowed = ["/v1/search/image"]
    page.open()
    page.settled()
    page.give("drop", b"these are words", "words.jpg", "image/jpeg")
    page.until(lambda: page.text(".notice.error"))
    page.shot("bad-picture")
    page.give("drop", b"these are words", "words.txt", "text/plain")
    page.until_text("#notice", "not a picture")
    page.give("drop", png((220, 30, 30)))
    page.one(".row")
    page.until(lambda: not page.all(".notice.error"))
