"""Make Table 1: what the systems learn from and how they code, as they declare it of themselves."""

from __future__ import annotations

from collections.abc import Iterable

from crossbyte.lab.methods import registry
from crossbyte.lab.methods.method import INTER_DOCUMENT, INTER_MODALITY, INTRA_DOCUMENT, INTRA_MODALITY, About
from crossbyte.lab.report.presentation import categories
from crossbyte.report.content import Cell, Row, Section, Table

_RELATIONS = (INTRA_MODALITY, INTER_MODALITY, INTRA_DOCUMENT, INTER_DOCUMENT)
_CODES = ("unified", "separate")
_CODINGS = ("hash", "quantization")
_HEADER = ("system", *_RELATIONS, *_CODES, *_CODINGS, "learns from")
_TICK = "△"


def declarations() -> list[About]:
    """List what systems declare of themselves: the rows of the paper's Table 1 in its order, then others."""
    papers = registry.GROUPS["table1"]
    others = (key for key in registry.list_keys() if key not in papers)
    return [registry.about_method(key) for key in (*papers, *others)]


def table1_section(abouts: Iterable[About]) -> Section:
    """Make Table 1 from declarations, and say where the paper says otherwise."""
    abouts = list(abouts)
    words = [
        "Relations that a system learns from: within a modality (intra-modality), between them "
        "(inter-modality), image and text of one document (intra-document), documents among each other "
        "(inter-document). Unified: one code per document; separate: one per half.",
        *_deviations(abouts),
    ]
    built = Table("The systems compared here, by their own declarations", _HEADER, _rows(abouts))
    known = [Row((Cell(each.name), Cell(each.source), Cell(each.reconstructed))) for each in abouts]
    sources = Table(
        "Sources, and what is ours where they leave a gap", ("system", "source", "ours"), known, 3
    )
    return Section("table1", "Table 1: the systems", words, [built], details=[sources])


def _rows(abouts: Iterable[About]) -> list[Row]:
    rows = []
    for about in abouts:
        marks = _marks(about.relations, about.codes, about.coding)
        teachers = "nothing" if about.key in ("random", "keywords") else " or ".join(about.similarities)
        cells = (Cell(about.name), *marks, Cell(teachers))
        rows.append(Row(cells, quiet=not about.in_paper))
    return rows


def _marks(relations: Iterable[str], codes: str, coding: str) -> list[Cell]:
    found = {*relations, codes, coding}
    return [Cell(_TICK if each in found else "") for each in (*_RELATIONS, *_CODES, *_CODINGS)]


def _deviations(abouts: Iterable[About]) -> list[str]:
    """Say where a declaration is not what the paper's Table 1 has for that system."""
    papers = {row.key: row for row in categories()}
    said = []
    for about in abouts:
        row = papers.get(about.key)
        if row and (set(row.relations), row.codes, row.coding) != (
            set(about.relations),
            about.codes,
            about.coding,
        ):
            has = ", ".join([*row.relations, row.codes, row.coding])
            said.append(f"{about.name}: the paper's Table 1 has {has}.")
    return said
