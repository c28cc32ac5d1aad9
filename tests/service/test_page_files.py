"""The page's files without a browser: whole, of their own, and asking only for what the service has."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from crossbyte.service.permissions import PERMISSIONS

PAGE = Path(str(files("crossbyte.service") / "page"))
FILES = sorted(path for path in PAGE.iterdir() if path.is_file())
SCRIPTS = [path for path in FILES if path.suffix == ".js"]
SVG = "http://www.w3.org/2000/svg"


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def without_comments(path: Path) -> str:
    return re.sub(r"^\s*(//|/?\*).*$", "", text_of(path), flags=re.MULTILINE)


def test_the_page_is_in_the_package() -> None:
    assert {"index.html", "style.css", "app.js", "icon.svg"} <= {path.name for path in FILES}
    assert {path.suffix for path in FILES} == {".html", ".css", ".js", ".svg"}


def test_nothing_comes_from_outside() -> None:
    """The name of the SVG language looks like an address; no other may be there."""
    address = r"(?:https?:)?//[\w-]+\.[\w./-]+|@import"
    found = {path.name: re.findall(address, text_of(path).replace(SVG, "")) for path in FILES}
    assert {name: addresses for name, addresses in found.items() if addresses} == {}


def test_scripts_never_turn_text_into_markup_or_code() -> None:
    dangerous = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|srcdoc|createContextualFragment"
        r"|\beval\(|new Function|setTimeout\(\s*[\"'`]|\.cssText|setAttribute\(\s*[\"']style"
    )
    found = {path.name: re.findall(dangerous, without_comments(path)) for path in SCRIPTS}
    assert {name: calls for name, calls in found.items() if calls} == {}


def test_html_has_no_script_style_or_handler_inside() -> None:
    """The policy of the service would block them."""
    html = text_of(PAGE / "index.html")
    assert re.findall(r"<script(?![^>]*\bsrc=)", html) == []
    assert re.findall(r"<style|\sstyle=|\son\w+=|javascript:", html) == []


def test_every_file_that_is_named_is_there_and_every_file_is_used() -> None:
    html = text_of(PAGE / "index.html")
    named = set(re.findall(r"/static/([\w.-]+)", html))
    imported = {name for path in SCRIPTS for name in re.findall(r'from "\./([\w.-]+)"', text_of(path))}
    assert named | imported | {"index.html"} == {path.name for path in FILES}


def test_elements_that_scripts_look_for_are_in_the_page() -> None:
    html = text_of(PAGE / "index.html")
    known = set(re.findall(r'\bid="([\w-]+)"', html))
    wanted = {name for path in SCRIPTS for name in re.findall(r'byId\("([\w-]+)"\)', text_of(path))}
    assert wanted <= known
    assert len(known) == len(re.findall(r'\bid="', html)), "two elements have one id"


def test_names_that_are_imported_are_exported() -> None:
    for path in SCRIPTS:
        for names, source in re.findall(r'import \{ ([^}]+) \} from "\./([\w.-]+)"', text_of(path)):
            exported = set(
                re.findall(r"^export (?:async )?(?:const|function|class) (\w+)", text_of(PAGE / source), re.M)
            )
            assert set(names.split(", ")) <= exported, f"{path.name} wants more than {source} has"


def test_routes_that_scripts_ask_for_are_served() -> None:
    api = text_of(PAGE / "api.js")
    asked = {(kind.upper(), path) for kind, path in re.findall(r'\b(get|post)\("(/v1/[\w/]+)"', api)}
    asked |= {("POST", path) for path in re.findall(r'\bupload\("(/v1/[\w/]+)"', api)}
    assert len(asked) >= 10
    assert asked <= set(PERMISSIONS)
    elsewhere = [path.name for path in SCRIPTS if path.name != "api.js" and "/v1/" in without_comments(path)]
    assert elsewhere == []
