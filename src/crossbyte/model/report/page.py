"""The quality report as one page that needs nothing else: no script, no outside resource, no inline style."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html import escape

from crossbyte.model.report.plots import bytes_plots, reliability_plots, size_plot, system_plot
from crossbyte.model.report.report import Report
from crossbyte.model.report.svg import Drawing, element
from crossbyte.model.report.tables import Table
from crossbyte.model.report.words import Section, sections

__all__ = ["report_page"]

# Colours after Okabe and Ito, darker on white and lighter on black: told apart by who sees fewer, and each
# comes with its own mark and dashes.
_STYLE = """
:root { color-scheme: light dark; --back: #fff; --ink: #1b1f24; --soft: #57606a; --rule: #d8dee4;
  --card: #f6f8fa; --s0: #0072b2; --s1: #b35900; --s2: #00795a; --s3: #57606a; --s4: #7d8590; --s5: #a3407b;
  --s6: #8a6d00; --s7: #5b4bb5; }
@media (prefers-color-scheme: dark) { :root { --back: #0f1419; --ink: #e6edf3; --soft: #9aa5b1;
  --rule: #2d343c; --card: #171d24; --s0: #56b4e9; --s1: #e69f00; --s2: #2fc99a; --s3: #b6c0ca; --s4: #8b949e;
  --s5: #e394c0; --s6: #e5d75f; --s7: #a99cf5; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 66rem; margin: 0 auto; padding: 1.25rem 1rem 3rem; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.25rem 0 .5rem; }
p { max-width: 44rem; margin: .5rem 0; overflow-wrap: anywhere; }
.verdict { background: var(--card); border-left: .3rem solid var(--s0); border-radius: .3rem;
  padding: .5rem 1rem; }
.verdict p:first-child { font-size: 1.15rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 1rem;
  margin: 1rem 0; }
figure { margin: 0; padding: .75rem; border: 1px solid var(--rule); border-radius: .4rem; max-width: 32rem; }
@media (max-width: 34rem) { main { padding: 1rem .6rem 2rem; } figure { padding: .5rem .15rem; }
  figcaption { padding-left: .5rem; } }
figcaption { font-weight: 600; margin-bottom: .5rem; }
svg { display: block; width: 100%; height: auto; font: 12.5px system-ui, sans-serif; }
.label { fill: var(--soft); }
.title { fill: var(--ink); stroke: var(--back); stroke-width: 4px; paint-order: stroke; }
.grid { stroke: var(--rule); }
.line { stroke: currentColor; stroke-width: 2; fill: none; }
.bar { stroke: currentColor; stroke-width: 2; opacity: .55; }
.mark { fill: currentColor; }
.s0 { color: var(--s0); } .s1 { color: var(--s1); } .s2 { color: var(--s2); } .s3 { color: var(--s3); }
.s4 { color: var(--s4); } .s5 { color: var(--s5); } .s6 { color: var(--s6); } .s7 { color: var(--s7); }
.tables { display: flex; flex-wrap: wrap; gap: 0 3rem; }
.scroll { overflow-x: auto; min-width: min(100%, 18rem); max-width: 100%; margin: .75rem 0; }
table { border-collapse: collapse; min-width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding-bottom: .25rem; }
th, td { padding: .25rem .75rem .25rem 0; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--rule); }
th { font-weight: 500; } th:first-child { text-align: left; } thead th { color: var(--soft); }
summary { cursor: pointer; color: var(--soft); }
"""


def report_page(report: Report, title: str = "Quality report") -> str:
    """Give a report as one HTML page.

    Parameters
    ----------
    report : Report
    title : str
        Plain text.

    Returns
    -------
    str
        Light or dark as the reader's system is; every plot stands beside a table of its numbers.
    """
    parts = [_section_markup(section, _drawings(report, section.key)) for section in sections(report)]
    body = element("main", element("h1", escape(title)), *parts)
    return f'<!DOCTYPE html>\n<html lang="en">\n{_head(title)}\n<body>\n{body}\n</body>\n</html>\n'


def _head(title: str) -> str:
    # Whatever a title or a damaged model might smuggle in, the browser runs and fetches nothing.
    digest = b64encode(sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return (
        '<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>"
    )


def _drawings(report: Report, key: str) -> list[Drawing]:
    """Give the drawings of a section."""
    if key == "systems":
        return [system_plot(report)]
    if key == "bytes":
        return bytes_plots(report)
    if key == "sizes":
        return [size_plot(report)]
    return reliability_plots(report) if key == "probabilities" else []


def _section_markup(section: Section, drawings: Sequence[Drawing]) -> str:
    paragraphs = [element("p", escape(words)) for words in section.paragraphs]
    if section.key == "verdict":
        return element("section", *paragraphs, class_="verdict")
    parts = [element("h2", escape(section.heading)), *paragraphs]
    if drawings:
        parts.append(element("div", *map(_figure, drawings), class_="plots"))
    if section.tables:
        parts.append(_tables_markup(section.tables))
    if section.details:
        inside = [element("summary", "The same in numbers"), _tables_markup(section.details)]
        parts.append(element("details", *inside))
    return element("section", *parts)


def _figure(drawing: Drawing) -> str:
    return element("figure", element("figcaption", escape(drawing.title)), drawing.markup)


def _tables_markup(tables: Sequence[Table]) -> str:
    return element("div", *map(_table_markup, tables), class_="tables")


def _table_markup(table: Table) -> str:
    header = [element("th", escape(cell), scope="col") for cell in table.header]
    rows = [
        element("tr", element("th", escape(first), scope="row"), *(element("td", escape(c)) for c in others))
        for first, *others in table.rows
    ]
    caption = element("caption", escape(table.caption))
    whole = element("table", caption, element("thead", element("tr", *header)), element("tbody", *rows))
    return element("div", whole, class_="scroll", tabindex="0", role="region", aria_label=table.caption)
