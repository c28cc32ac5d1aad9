"""SVG as matplotlib writes it, made fit for a page: no outside names, no inline style, light and dark."""

from __future__ import annotations

import re
from html import escape

from crossbyte.evaluation.report.drawing import INKS, Picture
from crossbyte.model.report.svg import element

__all__ = ["Inliner"]

_NAMES = {light: f"var(--{name})" for name, (light, _) in INKS.items()}


class Inliner:
    """Puts pictures into one page; what their styles say becomes rules of the page.

    So the page's policy can forbid inline styles, and colours follow the reader's light or dark.
    """

    def __init__(self) -> None:
        self._classes: dict[str, str] = {}

    @property
    def rules(self) -> str:
        """Rules for the page's style sheet."""
        return "".join(f".{name} {{ {style} }}\n" for style, name in self._classes.items())

    def __call__(self, picture: Picture) -> str:
        """Give one picture as markup, with its title and words for readers that are read to."""
        _, _, inner = picture.svg.partition("<svg")
        attributes, _, body = inner.partition(">")
        body = body.rpartition("</svg>")[0]
        for unwanted in ("metadata", "style"):
            body = re.sub(rf"<{unwanted}\b.*?</{unwanted}>", "", body, flags=re.DOTALL)
        body = re.sub(r"<!--.*?-->", "", body, flags=re.DOTALL)
        body = _apart(body, picture.key)
        body = re.sub(r'style="([^"]*)"', lambda found: f'class="{self._class(found[1])}"', body)
        return self._wrapped(picture, attributes, body)

    def _wrapped(self, picture: Picture, attributes: str, body: str) -> str:
        view = re.search(r'viewBox="([\d. ]+)"', attributes)
        words = [
            element("title", escape(picture.title), id=f"{picture.key}-title"),
            element("desc", escape(picture.said), id=f"{picture.key}-desc"),
        ]
        labelled = f"{picture.key}-title {picture.key}-desc"
        size = view[1] if view else "0 0 252 200"
        return element("svg", *words, body, role="img", viewBox=size, aria_labelledby=labelled)

    def _class(self, style: str) -> str:
        kept = [part.strip() for part in style.split(";") if part.strip()]
        kept = [_plain(part) for part in kept if not part.startswith("font-family")]
        return self._classes.setdefault("; ".join(kept), f"m{len(self._classes)}")


def _plain(declaration: str) -> str:
    """Letters in the page's own font, colours by the page's names."""
    name, _, value = declaration.partition(":")
    if name == "font":
        value = re.sub(r"\s'.*$", " system-ui, sans-serif", value)
    for light, variable in _NAMES.items():
        value = value.replace(light, variable)
    return f"{name}:{value}"


def _apart(body: str, key: str) -> str:
    """Make names unique in the page, and references to them plain."""
    body = body.replace("xlink:href", "href")
    body = re.sub(r'\bid="([^"]+)"', rf'id="{key}-\1"', body)
    body = re.sub(r'href="#([^"]+)"', rf'href="#{key}-\1"', body)
    return re.sub(r"url\(#([^)]+)\)", rf"url(#{key}-\1)", body)
