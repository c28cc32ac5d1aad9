"""Render a report as one page that needs nothing else: no script, no outside resource, no inline style."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html import escape

from crossbyte.report.content import Cell, Chart, Figure, Row, Section, Table
from crossbyte.report.svg import INKS, chart_markup, chart_rules, element

_LIGHT = " ".join(f"--{name}: {light};" for name, (light, _) in INKS.items())
_DARK = " ".join(f"--{name}: {dark};" for name, (_, dark) in INKS.items())

_STYLE = f"""
:root {{ color-scheme: light dark; --card: #f6f8fa; {_LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ --card: #171d24; {_DARK} }} }}
* {{ box-sizing: border-box; }}
body {{ margin: 0; background: var(--back); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }}
main {{ max-width: 76rem; margin: 0 auto; padding: 1.25rem 1rem 3rem; }}
h1 {{ font-size: 1.6rem; line-height: 1.2; margin: 0 0 1rem; overflow-wrap: anywhere; }}
h2 {{ font-size: 1.25rem; margin: 2.5rem 0 .5rem; overflow-wrap: anywhere; }}
h3 {{ font-size: 1rem; margin: 1.25rem 0 .5rem; overflow-wrap: anywhere; }}
p {{ max-width: 46rem; margin: .5rem 0; overflow-wrap: anywhere; }}
nav ul {{ columns: 22rem; column-gap: 2rem; padding-left: 1.2rem; margin: .5rem 0; }}
a {{ color: var(--s0); overflow-wrap: anywhere; }}
.plots {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 21.5rem), 1fr));
  gap: 1rem; margin: .75rem 0; align-items: start; max-width: 62rem; }}
figure {{ margin: 0; padding: .6rem; border: 1px solid var(--rule); border-radius: .4rem; max-width: 31rem;
  break-inside: avoid; }}
figcaption {{ font-weight: 600; margin-bottom: .4rem; overflow-wrap: anywhere; }}
{chart_rules({name: f"var(--{name})" for name in INKS})}svg {{ display: block; width: 100%; height: auto; }}
.verdict {{ background: var(--card); border-left: .3rem solid var(--s0); border-radius: .3rem;
  padding: .5rem 1rem; }}
.verdict p:first-child {{ font-size: 1.15rem; }}
.scroll {{ overflow-x: auto; max-width: 100%; margin: 0 0 1.4rem; }}
table {{ border-collapse: separate; border-spacing: 0; font-size: .9rem;
  font-variant-numeric: tabular-nums; }}
.caption {{ font-weight: 600; font-size: .9rem; margin: 1rem 0 .1rem; }}
th, td {{ padding: .25rem .9rem .25rem 0; text-align: right; vertical-align: top; white-space: nowrap;
  border-bottom: 1px solid var(--rule); }}
th {{ font-weight: 500; }} thead th {{ color: var(--soft); vertical-align: bottom; }}
th:first-child {{ text-align: left; position: sticky; left: 0; background: var(--back); z-index: 1; }}
.word {{ text-align: left; }}
.prose {{ white-space: normal; min-width: 18rem; max-width: 46rem; text-align: left; }}
small {{ display: block; color: var(--soft); font-size: .8rem; font-weight: 400; }}
.quiet th, .quiet td {{ color: var(--soft); }}
b {{ font-weight: 700; }}
summary {{ cursor: pointer; color: var(--s0); margin: .5rem 0; }}
@media (max-width: 36rem) {{ main {{ padding: 1rem .5rem 2rem; }} figure {{ padding: .4rem .1rem; }}
  figcaption {{ padding-left: .4rem; }} nav ul {{ columns: auto; }}
  th:first-child {{ min-width: 5.5rem; max-width: 8.5rem; white-space: normal;
  overflow-wrap: break-word; }}
  th, td {{ padding-right: .5rem; }} td small {{ white-space: normal; min-width: 7rem; }} }}
@media print {{ :root {{ {_LIGHT} --card: #fff; color-scheme: light; }} body {{ font-size: 10pt; }}
  main {{ max-width: none; padding: 0; }} nav {{ display: none; }} .scroll {{ overflow: visible; }}
  table {{ font-size: 8pt; }} small {{ font-size: 7pt; }} h2, h3, .caption {{ break-after: avoid; }}
  tr {{ break-inside: avoid; }} th:first-child {{ position: static; }}
  .plots {{ grid-template-columns: 1fr 1fr; }} }}
"""
_LONG = 40  # letters; longer cells are prose and may break


def render_page(title: str, sections: Sequence[Section], *, contents: bool = False) -> str:
    """Give a report as one HTML page.

    Parameters
    ----------
    title : str
        Plain text.
    sections : sequence of Section
    contents : bool
        Begin with links to all sections.

    Returns
    -------
    str
        Light or dark as the reader's system is; print is light.
    """
    parts = [_contents(sections)] if contents else []
    parts += map(_section_markup, sections)
    body = element("main", element("h1", escape(title)), *parts)
    return f'<!DOCTYPE html>\n<html lang="en">\n{_head(title)}\n<body>\n{body}\n</body>\n</html>\n'


def _head(title: str) -> str:
    # Whatever a title, a model or a result file might smuggle in, the browser runs and fetches nothing.
    digest = b64encode(sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return (
        '<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>"
    )


def _contents(sections: Sequence[Section]) -> str:
    links = [element("a", escape(each.heading), href=f"#{each.key}") for each in sections]
    return element("nav", element("ul", *(element("li", link) for link in links)), aria_label="Contents")


def _section_markup(section: Section) -> str:
    paragraphs = [element("p", escape(words)) for words in section.paragraphs if words]
    if not section.heading:
        return element("section", *paragraphs, class_="verdict", id=section.key)
    parts = [element("h2", escape(section.heading)), *paragraphs]
    parts += map(_figure_markup, section.figures)
    parts += map(_table_markup, section.tables)
    if section.details:
        inside = [element("summary", escape(section.details_title)), *map(_table_markup, section.details)]
        parts.append(element("details", *inside))
    return element("section", *parts, id=section.key)


def _figure_markup(figure: Figure) -> str:
    caption = element("h3", escape(figure.caption)) if figure.caption else ""
    return caption + element("div", *map(_chart_figure, figure.charts), class_="plots")


def _chart_figure(chart: Chart) -> str:
    return element("figure", element("figcaption", escape(chart.title)), chart_markup(chart))


def _table_markup(table: Table) -> str:
    names = [
        element("th", escape(cell), scope="col", **_word(place, table))
        for place, cell in enumerate(table.header)
    ]
    body = element("tbody", *(_row_markup(row, table) for row in table.rows))
    whole = element("table", element("thead", element("tr", *names)), body, aria_label=table.caption)
    # Outside of what scrolls, so that on a phone it is read whole.
    caption = element("p", escape(table.caption), class_="caption")
    region = element("div", whole, class_="scroll", tabindex="0", role="region", aria_label=table.caption)
    return caption + region


def _word(place: int, table: Table) -> dict[str, str]:
    return {"class_": "word"} if place < table.words else {}


def _row_markup(row: Row, table: Table) -> str:
    first, *others = row.cells
    cells = [element("th", _cell_markup(first), scope="row")]
    for place, cell in enumerate(others, start=1):
        kind = {"class_": "prose"} if len(cell.text) > _LONG else _word(place, table)
        cells.append(element("td", _cell_markup(cell), **kind))
    return element("tr", *cells, **({"class_": "quiet"} if row.quiet else {}))


def _cell_markup(cell: Cell) -> str:
    text = element("b", escape(cell.text)) if cell.best else escape(cell.text)
    return text + (element("small", escape(cell.below)) if cell.below else "")
