"""The page in Chromium: a gallery of generated scenes, served for real, and one browser for all tests.

These tests are run by ``make test-browser``. A run that does not name this folder leaves them out, because
they need Chromium and take minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from crossbyte.data.captions.layout import read_raw
from crossbyte.data.scenes import write_scenes
from crossbyte.gallery.build import build_gallery
from support.asked_for import is_asked_for
from support.browser_page import TOKEN, Page, chromium, screenshots, served
from support.browser_samples import hostile_index

_HERE = Path(__file__).resolve().parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave this folder out unless it, or something in it, was asked for by name."""
    return None if is_asked_for(_HERE, config) else True


@pytest.fixture(scope="session")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of 300 scenes, with its report and thumbnails; of built-in words, which explanations name."""
    folder = tmp_path_factory.mktemp("gallery")
    write_scenes(folder / "scenes", 300, 0)
    documents = read_raw(folder / "scenes")
    path = folder / "scenes.cb"
    build_gallery(documents, path, n_bits=16, text_encoder="builtin", curve=(1, 2), n_jobs=2)
    return path


@pytest.fixture(scope="session")
def picture(gallery: Path) -> bytes:
    """The first scene, as a file."""
    return (gallery.parent / "scenes" / "scene-00000.png").read_bytes()


@pytest.fixture(scope="session")
def url(gallery: Path) -> Iterator[str]:
    with served(gallery) as address:
        yield address


@pytest.fixture(scope="session")
def guarded_url(gallery: Path) -> Iterator[str]:
    """The same behind a token, as other machines would see it."""
    with served(gallery, token=TOKEN, read_only=True, token_for_reading=True) as address:
        yield address


@pytest.fixture(scope="session")
def hostile_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An index of features only, whose ids, fields and values are markup."""
    with served(hostile_index(tmp_path_factory.mktemp("hostile") / "hostile.cb")) as address:
        yield address


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def browse(driver: webdriver.Chrome, tmp_path: Path) -> Iterator[Callable[[str], Page]]:
    """Make a page of a server; when the test is over, the console must be empty."""
    pages: list[Page] = []

    def make(url: str) -> Page:
        driver.get("about:blank")
        driver.get_log("browser")
        pages.append(Page(driver, url, screenshots(tmp_path)))
        return pages[-1]

    yield make
    said = [message for page in pages for message in page.console()]
    for page in pages:
        page.media()
    assert said == []


@pytest.fixture
def page(browse: Callable[[str], Page], url: str) -> Page:
    """The usual page."""
    return browse(url)
