"""Render a report as plain text for a terminal, and as Markdown with its charts as files beside it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from textwrap import fill

from crossbyte.report.content import Cell, Chart, Figure, Row, Section, Table

WIDTH = 100  # characters of a line of plain text


# Plain text


def render_text(sections: Sequence[Section]) -> str:
    """Give a report in lines of at most 100 characters; charts and details are left out."""
    return "\n\n".join(part for section in sections for part in _text_parts(section)) + "\n"


def _text_parts(section: Section) -> list[str]:
    heading = [f"{section.heading}\n{'-' * len(section.heading)}"] if section.heading else []
    paragraphs = [fill(words, WIDTH).replace("\u00a0", " ") for words in section.paragraphs]
    return heading + paragraphs + [_text_table(table) for table in section.tables]


def _text_table(table: Table) -> str:
    rows = [tuple(cell.text for cell in row.cells) for row in table.rows]
    widths = [max(map(len, column)) for column in zip(table.header, *rows, strict=True)]
    rule = tuple("-" * width for width in widths)
    lines = [_text_row(row, widths, table.words) for row in (table.header, rule, *rows)]
    return "\n".join([f"{table.caption}:", *lines])


def _text_row(row: tuple[str, ...], widths: list[int], n_words: int) -> str:
    return "  ".join(
        cell.ljust(width) if place < n_words else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(row, widths, strict=True))
    )


# Markdown


def render_markdown(title: str, sections: Sequence[Section], folder: str) -> str:
    """Give a report as Markdown.

    Parameters
    ----------
    title : str
        Plain text.
    sections : sequence of Section
    folder : str
        Where the charts lie, from the Markdown file; each is named by its key.
    """
    parts = [f"# {_escape(title)}"]
    for section in sections:
        parts += [
            f"## {_escape(section.heading)}",
            *(_escape(words) for words in section.paragraphs if words),
        ]
        parts += [text for figure in section.figures for text in _figure_lines(figure, folder)]
        parts += [text for table in section.tables for text in _table_lines(table)]
        if section.details:
            inside = [text for table in section.details for text in _table_lines(table)]
            parts += [f"<details><summary>{_escape(section.details_title)}</summary>", *inside, "</details>"]
    return "\n\n".join(parts) + "\n"


def _escape(text: str) -> str:
    """Escape plain text for Markdown: no markup in a name takes effect, and no line ends early."""
    quiet = escape(" ".join(text.split()), quote=False)
    quiet = re.sub(r"([\\`*_\[\]|~#!])", r"\\\1", quiet)
    return quiet.replace("://", "&#58;//")  # else many readers make a link of it


def _figure_lines(figure: Figure, folder: str) -> list[str]:
    return [f"### {_escape(figure.caption)}", *(_chart_lines(chart, folder) for chart in figure.charts)]


def _chart_lines(chart: Chart, folder: str) -> str:
    title = _escape(chart.title)
    return f"**{title}**\n\n![{title}. {_escape(chart.description)}]({folder}/{chart.key}.svg)"


def _table_lines(table: Table) -> list[str]:
    sides = [":--" if place < table.words else "--:" for place in range(len(table.header))]
    lines = [
        _join_cells([_escape(name) for name in table.header]),
        _join_cells(sides),
        *map(_row_line, table.rows),
    ]
    return [f"**{_escape(table.caption)}**", "\n".join(lines)]


def _row_line(row: Row) -> str:
    return _join_cells([_cell_text(cell) for cell in row.cells])


def _cell_text(cell: Cell) -> str:
    text = f"**{_escape(cell.text)}**" if cell.best else _escape(cell.text)
    return f"{text}<br>{_escape(cell.below)}" if cell.below else text


def _join_cells(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
