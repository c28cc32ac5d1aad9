"""Filters, the drawer, the quality tab; in a real browser."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from support.browser_page import ESCAPE, Page
from support.browser_samples import ATTACKS, FIELD


def where(page: Page) -> str:
    return parse_qs(urlsplit(page.driver.current_url).query).get("where", [""])[0]


def chip(page: Page, text: str, field: str) -> None:
    page.until(
        lambda: page.script(
            "const chip = [...document.querySelectorAll('.facet .chip')].find((each) => each.dataset.key"
            " === arguments[0] + '=' + arguments[1]); chip?.click(); return Boolean(chip)",
            field,
            text,
        )
    )


def test_filters_are_chosen_combined_and_taken_off(page: Page) -> None:
    page.open("/?q=circle")
    page.settled()
    page.one("#filters-toggle").click()
    chip(page, "red", "colour")
    page.until(lambda: where(page) == "colour = 'red'")
    page.until(lambda: all(_colours(page, "red")))
    chip(page, "blue", "colour")
    page.until(lambda: where(page) == "colour IN ('red', 'blue')")
    low = page.one(".range input")
    low.send_keys("2", "\t")
    page.until(lambda: where(page) == "colour IN ('red', 'blue') AND count >= 2")
    page.until(lambda: len(page.all("#active li")) == 2)
    page.settled()
    page.shot("filters")
    address = urlsplit(page.driver.current_url)
    page.open(f"{address.path}?{address.query}")
    page.until(
        lambda: (
            [each.text for each in page.all("#active .chip-name")]
            == ["colour: red, blue", "count at least 2"]
        )
    )
    page.one("#active button").click()
    page.until(lambda: where(page) == "count >= 2")


def _colours(page: Page, colour: str) -> list[bool]:
    """Whether the captions of all results fit a filter that was asked for."""
    asked = (
        "const where = encodeURIComponent(arguments[0]);"
        "return fetch('/v1/search?k=36&text=circle&where=' + where).then((answer) => answer.json())"
    )
    ids = [hit["payload"]["captions"][0] for hit in page.script(asked, f"colour = '{colour}'")["hits"]]
    shown = [each.get_attribute("alt") for each in page.all(".tile img")]
    return [text in ids for text in shown] if len(shown) == len(ids) else [False]


def test_filters_that_nothing_passes(page: Page) -> None:
    page.open("/?where=count%20%3E%3D%2099")
    page.until_text("#notice", "No document passes these filters.")
    page.shot("nothing")
    page.one("#notice .button").click()
    page.until_text("#summary", "of 300 documents")


def test_a_filter_of_another_form_is_kept_and_a_wrong_one_is_explained(page: Page) -> None:
    page.allowed = ["/v1/documents", "/v1/facets"]
    page.open("/?where=colour%20LIKE%20'r%25'%20OR%20count%20%3D%201")
    page.settled()
    assert page.text("#active .chip-name") == "colour LIKE 'r%' OR count = 1"
    page.open("/?where=colour%20%3E%3E%203")
    page.until_text(".notice.error", "expected")
    page.shot("error")


def test_the_drawer_says_why(page: Page) -> None:
    page.open("/?q=two red circles")
    page.settled()
    page.one(".tile-open").click()
    page.one(".why-line")
    page.until(page.pictures_are_there)
    page.shot("drawer")
    body = page.script("return document.getElementById('drawer').textContent")
    for title in (
        "How the distance adds up",
        "Words that weighed most",
        "What would have to change",
        "Training pairs",
    ):
        assert title in body
    _adds_up(page)
    page.all(".drawer-head button")[1].click()
    page.until_text(".drawer-place", "2 of 36")
    assert page.one(".tile.shown").get_attribute("data-place") == "1"
    page.press(ESCAPE)
    page.until(lambda: not page.all("#drawer:not([hidden])"))
    assert page.focused().get_attribute("class") == "open tile-open"


def _adds_up(page: Page) -> None:
    """The numbers of the staircase, and the ends of its bars."""
    steps = page.script(
        "return [...document.querySelectorAll('.why-lines')][0].querySelectorAll('.why-value').values()"
        ".map((each) => Number(each.textContent.replace('−', '-'))).toArray()"
    )
    assert abs(sum(steps[:-1]) - steps[-1]) < 0.01 * abs(steps[0])
    ends = page.script(
        "return [...document.querySelectorAll('.why-lines')[0].querySelectorAll('.why-fill')]"
        ".map((each) => { const box = each.getBoundingClientRect(); return [box.left, box.right]; })"
    )
    assert abs(ends[-1][1] - min(ends[-2], key=lambda end: abs(end - ends[-1][1]))) < 3


def test_values_in_the_drawer_are_filters_and_words_are_queries(page: Page) -> None:
    page.open("/?q=two red circles")
    page.settled()
    page.one(".tile-open").click()
    page.one(".why-line")
    word = page.one(".why .chip")
    text = word.text
    word.click()
    page.until(lambda: page.one("#words").get_attribute("value") == text)
    page.settled()
    page.one(".tile-open").click()
    page.one(".value.link").click()
    page.until(lambda: where(page) != "")


def test_the_quality_tab_has_curves_tables_and_suspects(page: Page) -> None:
    page.open("/?q=red")
    page.settled()
    page.one("[data-tab=report]").click()
    page.one(".chart")
    page.one(".suspect")
    page.until(page.pictures_are_there)
    page.shot("report")
    titles = [each.text for each in page.all(".figure h3")]
    assert titles == [
        "Words find pictures",
        "Pictures find texts",
        "As the index grows",
        "Are the probabilities true?",
    ]
    assert len(page.all(".figure table")) == 4
    assert all(each.get_attribute("aria-label") for each in page.all(".chart"))
    assert page.script(
        "return document.querySelector('.report-words pre').textContent.includes('bytes per item')"
    )
    page.one(".suspect-open").click()
    assert page.one("#drawer-title").text
    page.press(ESCAPE)
    page.driver.back()
    page.settled()
    assert page.one("#words").get_attribute("value") == "red"


def test_the_quality_tab_compares_how_documents_are_found(page: Page) -> None:
    """The scenes have one text each, so that another one cannot look for them: the figures are made up."""
    page.open("/")
    page.settled()
    page.script(
        """
        const url = document.querySelector("script[type=module]").src.replace("app.js", "report.js");
        const [{ showReport }, answer] = await Promise.all([import(url), fetch("/v1/report")]);
        const documents = [
          { name: "crossbyte", n_bytes: 2, recall: [0.7, 0.6, 0.8], gain: null },
          { name: "middle_rq", n_bytes: 2, recall: [0.6, 0.5, 0.7], gain: [0.1, -0.02, 0.3] },
          { name: "keywords", n_bytes: null, recall: [0.2, 0.1, 0.3], gain: [0.5, 0.4, 0.6] },
        ];
        await showReport(Promise.resolve({ ...(await answer.json()), documents }), () => {});
        """
    )
    page.one("[data-tab=report]").click()
    rows = [each.text for each in page.all(".document-systems tbody tr")]
    assert rows == [
        "crossbyte, one code 2 70 –",
        "CCA + RQ of the middle of both halves 2 60 10.0 (-2.0 to 30.0)",
        "keyword overlap with the document's own text – 20 50.0 (40.0 to 60.0)",
    ]


def test_markup_in_data_stays_text(browse, hostile_url: str) -> None:
    page = browse(hostile_url)
    page.open()
    page.until(lambda: page.all("#results > li"))
    assert "cannot be asked with words or pictures" in page.text("#notice")
    assert not page.one("#words").is_enabled()
    page.shot("hostile")
    page.one("#filters-toggle").click()
    chip(page, ATTACKS[1], "kind")
    page.until(lambda: where(page) == "kind = '" + ATTACKS[1].replace("'", "''") + "'")
    page.until(lambda: len(page.all("#results > li")) == 10)
    page.one("#active button").click()
    field = "`" + FIELD.replace("`", "``") + "`"
    chip(page, "it's 1", field)
    page.until(lambda: where(page) == f"{field} = 'it''s 1'")
    page.until(lambda: len(page.all("#results > li")) == 30)
    page.one(".open").click()
    page.one("#drawer-title")
    page.shot("hostile-drawer")
    page.one(".actions .button").click()
    page.until_text("#query-label", "Like")
    page.one(".open").click()
    page.one(".why-line")
    assert page.script("return window.attacked") is None
    assert not page.all(
        "main script, main iframe, #drawer script, #drawer iframe, main svg[onload], img[onerror]"
    )
