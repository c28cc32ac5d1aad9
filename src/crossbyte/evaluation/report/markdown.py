"""The report as Markdown, with pictures as files beside it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from crossbyte.evaluation.report.content import Cell, Chart, Figure, Row, Section, Table

__all__ = ["report_markdown"]


def report_markdown(title: str, sections: Sequence[Section], folder: str) -> str:
    """Give a report as Markdown.

    Parameters
    ----------
    title : str
        Plain text.
    sections : sequence of Section
    folder : str
        Where the pictures lie, from the Markdown file; each is named by its key.
    """
    parts = [f"# {_plain(title)}"]
    for section in sections:
        parts += [f"## {_plain(section.heading)}", *(_plain(words) for words in section.paragraphs if words)]
        parts += [text for table in section.tables for text in _table_lines(table)]
        parts += [text for figure in section.figures for text in _figure_lines(figure, folder)]
        if section.details:
            inside = [text for table in section.details for text in _table_lines(table)]
            parts += ["<details><summary>Further tables</summary>", *inside, "</details>"]
    return "\n\n".join(parts) + "\n"


def _plain(text: str) -> str:
    """Plain text as Markdown: no markup of a name from a file comes to life, no line ends early."""
    quiet = escape(" ".join(text.split()), quote=False)
    quiet = re.sub(r"([\\`*_\[\]|~#!])", r"\\\1", quiet)
    return quiet.replace("://", "&#58;//")  # else many readers make a link of it


def _figure_lines(figure: Figure, folder: str) -> list[str]:
    return [f"### {_plain(figure.caption)}", *(_picture(chart, folder) for chart in figure.charts)]


def _picture(chart: Chart, folder: str) -> str:
    title = _plain(chart.title)
    return f"**{title}**\n\n![{title}. {_plain(chart.said)}]({folder}/{chart.key}.png)"


def _table_lines(table: Table) -> list[str]:
    sides = [":--" if place < table.words else "--:" for place in range(len(table.header))]
    lines = [_line([_plain(name) for name in table.header]), _line(sides), *map(_row, table.rows)]
    return [f"**{_plain(table.caption)}**", "\n".join(lines)]


def _row(row: Row) -> str:
    return _line([_cell(cell) for cell in row.cells])


def _cell(cell: Cell) -> str:
    text = f"**{_plain(cell.text)}**" if cell.best else _plain(cell.text)
    return f"{text}<br>{_plain(cell.below)}" if cell.below else text


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
