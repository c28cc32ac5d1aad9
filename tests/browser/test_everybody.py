"""The page for everybody: on a phone, by keyboard alone, in the dark, behind a token, when things fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.browser_page import DOWN, ENTER, ESCAPE, RIGHT, TAB, TOKEN, UP, Page, served

_SCROLLS = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.mark.parametrize(
    "address", ["/", "/?q=red", "/?q=red&target=text", "/?q=red&target=document", "/?tab=report"]
)
def test_a_phone_shows_everything_in_its_width(page: Page, address: str) -> None:
    page.open(address, 360, 740)
    page.until(lambda: page.all("#results > li") or page.all(".suspect"))
    name = address.strip("/?").replace("&", "-").replace("=", "-") or "browse"
    page.shot(f"phone-{name}")
    assert page.script(_SCROLLS) <= 0
    assert (
        page.overlaps(".brand, .box, .tabs, #theme, .segments, #filters-toggle, #summary, #results > li")
        == []
    )
    assert page.overlaps(".score, .figure, .suspect") == []


def test_a_phone_opens_filters_and_the_drawer(page: Page) -> None:
    page.open("/?q=red", 360, 740)
    page.settled()
    page.one("#filters-toggle").click()
    page.one(".facet")
    page.shot("phone-filters")
    assert page.script(_SCROLLS) <= 0
    assert page.overlaps(".facet .chip, .facet input, .facet legend") == []
    page.one("#filters-toggle").click()
    page.one(".tile-open").click()
    page.one(".why-line")
    page.shot("phone-drawer")
    assert page.script(_SCROLLS) <= 0
    assert page.script("return document.getElementById('drawer').getBoundingClientRect().width") == 360
    page.one(".drawer-head [aria-label=Close]").click()
    page.until(lambda: not page.all("#drawer:not([hidden])"))


def test_the_keyboard_alone_is_enough(page: Page) -> None:
    page.open()
    page.settled()
    page.press(TAB)
    assert page.focused().text == "Skip to the results"
    page.press(ENTER)
    page.press("/")
    assert page.focused().get_attribute("id") == "words"
    page.press("green star")
    page.until_text("#summary", "nearest")
    page.settled()
    page.press(DOWN)
    assert _place(page) == 0
    page.press(RIGHT)
    assert _place(page) == 1
    page.shot("keyboard")
    page.press(DOWN)
    below = _place(page)
    assert below > 1
    page.press(UP)
    assert _place(page) == 1
    page.press(ENTER)
    page.one(".why-line")
    page.press(RIGHT)
    page.until_text(".drawer-place", "3 of 36")
    page.press(ESCAPE)
    page.until(lambda: _place(page) == 2)
    page.press(UP)
    assert page.focused().get_attribute("id") == "words"
    page.press(ESCAPE)
    page.until_text("#summary", "of 300 documents")


def _place(page: Page) -> int:
    return page.script("return Number(document.activeElement.closest('[data-place]')?.dataset.place ?? -1)")


def test_tab_reaches_every_control(page: Page) -> None:
    page.open("/?q=red")
    page.settled()
    reached = []
    for _ in range(12):
        page.press(TAB)
        reached.append(
            page.script("const e = document.activeElement; return e.id || e.name || e.className || e.text")
        )
    for control in ("home", "words", "choose", "theme", "target", "filters-toggle", "open tile-open"):
        assert control in reached, f"{control} is not among {reached}"


def test_dark_by_the_system_and_by_choice(page: Page) -> None:
    page.media(prefers_color_scheme="dark")
    page.open("/?q=red")
    page.settled()
    page.shot("dark")
    assert _brightness(page) < 60
    page.one("#theme").click()  # light
    assert _brightness(page) > 200
    page.driver.refresh()
    page.settled()
    assert _brightness(page) > 200
    page.one("#theme").click()  # dark
    page.media(prefers_color_scheme="light")
    assert _brightness(page) < 60
    page.one("#theme").click()  # as the system
    assert _brightness(page) > 200


def _brightness(page: Page) -> float:
    colour = page.script("return getComputedStyle(document.body).backgroundColor")
    return sum(float(part) for part in colour.strip("rgb()").split(",")[:3]) / 3


def test_a_token_is_asked_for_and_kept(browse: Callable[[str], Page], guarded_url: str) -> None:
    page = browse(guarded_url)
    page.allowed = ["401"]
    page.open()
    page.one("#token-value").send_keys("not the right one", ENTER)
    page.one("#token-wrong")
    page.shot("token")
    page.one("#token-value").send_keys(TOKEN, ENTER)
    page.settled()
    assert all(each.get_attribute("src").startswith("blob:") for each in page.all(".tile img")[:6])
    page.driver.refresh()
    page.settled()
    assert not page.all("#token[open]")
    page.script("sessionStorage.clear()")


def test_a_server_that_is_gone_is_missed_in_plain_words(browse: Callable[[str], Page], gallery: Path) -> None:
    with served(gallery) as url:
        page = browse(url)
        page.open()
        page.settled()
    page.allowed = ["ERR_CONNECTION"]
    page.one("#words").send_keys("red")
    page.until_text(".notice.error", "The server does not answer.")
    page.shot("gone")
    assert page.text(".notice.error .button") == "Try again"


def test_an_error_of_the_server_is_shown(page: Page) -> None:
    page.allowed = ["/v1/search"]
    page.open()
    page.settled()
    page.script("document.getElementById('words').value = 'x'.repeat(9000)")
    page.one("#words").send_keys("x")
    page.until_text(".notice.error", "characters")


def test_a_lost_part_is_said_until_it_is_back(page: Page) -> None:
    page.open("/?q=red")
    page.settled()
    assert not page.all("#partial:not([hidden])")
    page.script(
        """
        const real = window.fetch;
        window.lost = true;
        const changed = async (answer) => JSON.stringify({...(await answer.json()), partial: window.lost});
        window.fetch = async (path, options) => {
          const answer = await real(path, options);
          return path.startsWith("/v1/search") ? new Response(await changed(answer)) : answer;
        };
        """
    )
    page.type("blue circle")
    page.until_text("#partial", "Part of the collection cannot be reached right now")
    page.until(
        lambda: "cannot be reached" in page.script("return document.getElementById('live').textContent")
    )
    page.shot("partial")
    page.size(360, 740)
    page.shot("phone-partial")
    assert page.script(_SCROLLS) <= 0
    assert page.overlaps(".segments, #summary, #partial, .notice, #results > li") == []
    page.script("window.lost = false")
    page.one("#partial button").click()
    page.until(lambda: not page.all("#partial:not([hidden])"))
