"""The page in a real browser: what the browser tests do with it, in words of their own."""

from __future__ import annotations

import base64
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from crossbyte.service.server import make_server
from crossbyte.service.settings import Settings

TOKEN = "a-token-for-the-tests"
PATIENCE = 30  # seconds, for machines with much else to do

_ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)

_DROP = """
const [name, kind, type, body] = arguments;
const bytes = Uint8Array.from(atob(body), (letter) => letter.charCodeAt(0));
const data = new DataTransfer();
data.items.add(new File([bytes], name, {type}));
const on = kind === "paste" ? document.getElementById("words") : document.body;
const event = kind === "paste"
  ? new ClipboardEvent("paste", {clipboardData: data, bubbles: true, cancelable: true})
  : new DragEvent(kind, {dataTransfer: data, bubbles: true, cancelable: true});
on.dispatchEvent(event);
"""

_OVERLAPS = """
const boxes = [...document.querySelectorAll(arguments[0])]
  .filter((each) => each.getClientRects().length)
  .map((each) => [each, each.getBoundingClientRect()]);
const found = [];
boxes.forEach(([one, a], place) => boxes.slice(place + 1).forEach(([other, b]) => {
  if (one.contains(other) || other.contains(one)) return;
  const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
  const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
  if (wide > 1 && high > 1) found.push(`${one.className || one.id} and ${other.className || other.id}`);
}));
return found;
"""


@contextmanager
def served(path: Path, **settings: Any) -> Iterator[str]:
    """Serve an index on a free port; gives its URL."""
    ready: list[str] = []
    told = threading.Event()

    def tell(url: str) -> None:
        ready.append(url)
        told.set()

    server = make_server(path, Settings(port=0, **settings), tell)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert told.wait(PATIENCE), "the server did not start"
    try:
        yield ready[0]
    finally:
        server.should_exit = True
        thread.join(PATIENCE)


@contextmanager
def chromium(profile: Path) -> Iterator[webdriver.Chrome]:
    """Start Debian's Chromium with a profile of its own."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for argument in (*_ARGUMENTS, f"--user-data-dir={profile}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    driver.set_script_timeout(PATIENCE)
    try:
        yield driver
    finally:
        driver.quit()


class Page:
    """One tab with the page in it."""

    def __init__(self, driver: webdriver.Chrome, url: str, folder: Path) -> None:
        self.driver, self.url, self._folder = driver, url, folder
        self.allowed: list[str] = []  # parts of console messages that a test expects

    # Going somewhere

    def open(self, address: str = "/", width: int = 1280, height: int = 860) -> None:
        """Open an address of the page in a window of this size."""
        self.size(width, height)
        self.driver.get(self.url + address)

    def size(self, width: int, height: int) -> None:
        """Make the window so large; phones are narrower than a window of Chromium can be."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def media(self, **features: str) -> None:
        """Pretend that the system prefers dark, or less motion."""
        wanted = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wanted})

    # Looking

    def all(self, selector: str) -> list[WebElement]:
        """Every element of a selector."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        """Wait for an element that can be seen."""
        return self.until(lambda: next((each for each in self.all(selector) if each.is_displayed()), None))

    def text(self, selector: str) -> str:
        """The visible text of an element."""
        return self.one(selector).text

    def until(self, test: Callable[[], Any]) -> Any:
        """Wait until something is true; elements may come and go meanwhile."""
        from selenium.common.exceptions import StaleElementReferenceException, WebDriverException

        ignored = (StaleElementReferenceException, WebDriverException)
        wait = WebDriverWait(self.driver, PATIENCE, poll_frequency=0.05, ignored_exceptions=ignored)
        return wait.until(lambda _: test())

    def until_text(self, selector: str, part: str) -> None:
        """Wait until an element says this."""
        self.until(lambda: part in self.one(selector).text)

    def script(self, text: str, *arguments: Any) -> Any:
        """Run JavaScript."""
        return self.driver.execute_script(text, *arguments)

    def overlaps(self, selector: str) -> list[str]:
        """Pairs of visible elements that lie on each other."""
        return self.script(_OVERLAPS, selector)

    def settled(self) -> None:
        """Wait until there are results and their pictures are there."""
        self.until(lambda: self.all("#results > li") and self.pictures_are_there())

    def pictures_are_there(self) -> bool:
        """Whether every picture on the screen has been drawn; those far below are fetched later."""
        return self.script(
            "const all = document.querySelectorAll('#results img, #drawer img, .suspect img');"
            "return [...all].every((each) => {"
            " const box = each.getBoundingClientRect();"
            " return box.top > innerHeight || box.bottom < 0 || !each.getClientRects().length"
            " || (each.complete && each.naturalWidth > 0); })"
        )

    def focused(self) -> WebElement:
        """What has the focus."""
        return self.driver.switch_to.active_element

    # Doing

    def type(self, words: str) -> None:
        """Type into the box, and wait for the answer."""
        box = self.one("#words")
        box.clear()
        box.send_keys(words)
        self.until(lambda: f"q={words.split()[0]}" in self.driver.current_url)
        self.until(lambda: "nearest" in self.text("#summary"))
        self.settled()

    def press(self, *keys: str) -> None:
        """Press keys where the focus is."""
        self.focused().send_keys(*keys)

    def give(self, kind: str, picture: bytes, name: str = "picture.png", type: str = "image/png") -> None:
        """Drop or paste a file; kind: "drop", "dragenter" or "paste"."""
        self.script(_DROP, name, kind, type, base64.b64encode(picture).decode())

    def console(self) -> list[str]:
        """What the browser complained about."""
        said = [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] != "INFO"]
        return [message for message in said if not any(part in message for part in self.allowed)]

    def shot(self, name: str) -> Path:
        """Keep a picture of the window."""
        path = self._folder / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(str(path))
        return path


def screenshots(otherwise: Path) -> Path:
    """Where screenshots go: CROSSBYTE_SCREENSHOTS, or a temporary folder."""
    return Path(os.environ.get("CROSSBYTE_SCREENSHOTS") or otherwise)


def png(colour: tuple[int, int, int], size: tuple[int, int] = (96, 96)) -> bytes:
    """A plain picture."""
    buffer = BytesIO()
    Image.new("RGB", size, colour).save(buffer, "PNG")
    return buffer.getvalue()


ENTER, ESCAPE, TAB, DOWN, UP, RIGHT = (
    Keys.ENTER,
    Keys.ESCAPE,
    Keys.TAB,
    Keys.ARROW_DOWN,
    Keys.ARROW_UP,
    Keys.ARROW_RIGHT,
)
