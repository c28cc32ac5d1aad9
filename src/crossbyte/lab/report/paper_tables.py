"""Make the tables of the paper, beside what it prints.

Table 1 has what the systems learn from and how they code, as they declare it of themselves; Table 2 MAP of
all systems at all lengths; Table 3 CMCQ against SePH, which is taught with labels, on known classes (A) and
on new ones (B).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from crossbyte._format import count
from crossbyte.lab.methods import registry
from crossbyte.lab.methods.method import INTER_DOCUMENT, INTER_MODALITY, INTRA_DOCUMENT, INTRA_MODALITY, About
from crossbyte.lab.report import presentation
from crossbyte.lab.report.leaderboard import best_figure, candidates, describe_leaders
from crossbyte.lab.report.presentation import TASK_NAMES, categories, data_name, format_figure, row_name
from crossbyte.lab.report.study import Scope, Study, System, number
from crossbyte.lab.results import SIDE
from crossbyte.report.content import Cell, Row, Section, Table

# Table 1: the systems

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


# Table 2: MAP at all lengths

_METRICS = ("map@50", "map@100")
_QUOTED = {"cmfh": "(CMFH)", "ccq": "(CCQ)"}
_PARTLY = {"n_learned_from": "learned from", "n_neighbours_among": "looked for neighbours among"}


def table2_sections(study: Study) -> list[Section]:
    """Make Table 2, one section per data set with results by protocol A."""
    return [table2_section(scope) for scope in study.scopes("A") if scope.has_labels and scope.systems]


def table2_section(scope: Scope) -> Section:
    """Make Table 2 of one data set."""
    tables = [map_table(scope, task, metric) for metric in _METRICS for task in scope.tasks]
    words = [f"All systems by {presentation.PROTOCOLS['A']}.", *_reading(scope), *subsample_notes(scope)]
    words += [line for metric in _METRICS for line in describe_leaders(scope, metric, as_bytes=False)]
    return Section(
        f"table2-{scope.data}", f"Table 2: MAP on {presentation.data_name(scope.data)}", words, tables
    )


def _reading(scope: Scope) -> list[str]:
    said = [
        "Each cell: mean ± spread over seeds. Bold: the best coded system that learned from pairs alone; "
        "[labels] marks systems that were taught with the labels of the training documents."
    ]
    sizes = presentation.data_sizes(scope.data)
    if sizes is None:
        return [*said, "The paper has no figures on this data set."]
    said.append(
        "Below, in brackets: the figure that the paper prints, then ours minus the paper's. Rows in "
        "parentheses are quoted by the paper from the papers of those systems. The paper says that it "
        "reports MAP@100 too, but prints MAP@50 alone, so MAP@100 has no figure beside it."
    )
    return said + _size_notes(scope, sizes)


def _size_notes(scope: Scope, sizes: tuple[int, int]) -> list[str]:
    data = scope.results[0].data
    n_train, n_queries = number(data.get("n_train")), number(data.get("n_queries"))
    if n_train is None or n_queries is None or (n_train, n_queries) == sizes:
        return []
    ours = f"{count(n_train)} training documents and {count(n_queries)} queries"
    return [
        f"Here are {ours}, in the paper {count(sizes[0])} and "
        f"{count(sizes[1])}: the figures in brackets are for orientation only."
    ]


def subsample_notes(scope: Scope) -> list[str]:
    """Say which systems learned from fewer documents than there were, or looked at fewer in part."""
    said = {}
    for result, (detail, did) in product(scope.results, _PARTLY.items()):
        used, there = number(result.details.get(detail)), number(result.data.get("n_train"))
        if used and there and used < there:
            name = str(result.about.get("name") or result.run.method)
            said[name, detail] = f"{name} {did} {count(used)} documents only."
    return list(said.values())


def map_table(scope: Scope, task: str, metric: str) -> Table:
    """Make the table of one task and one depth: systems by lengths, with chance."""
    header = ("system", "learns from", *(presentation.n_bits(bits) for bits in scope.bits))
    rows = [row for system in scope.systems for row in _system_rows(scope, system, task, metric)]
    run = {system.method for system in scope.systems}
    rows += [row for each in _QUOTED if each not in run for row in _quoted_rows(scope, each, task, metric)]
    rows.append(_chance_row(scope, task, metric, 1))
    return Table(presentation.table_caption(scope, metric, task), header, rows, 2)


def _system_rows(scope: Scope, system: System, task: str, metric: str) -> list[Row]:
    """Give the row of a system, and below it what the paper quotes of it."""
    cells = [
        figure_cell(scope, system, bits, task, metric, _published_note(scope, system, bits, task, metric))
        for bits in scope.bits
    ]
    name = (Cell(row_name(scope, system)), Cell(_teacher(scope, system)))
    row = Row((*name, *cells), quiet=not scope.is_coded(system))
    return [row, *_quoted_rows(scope, system.method, task, metric)]


def _teacher(scope: Scope, system: System) -> str:
    if system.method in ("random", "keywords"):
        return "nothing"
    return system.similarity if scope.is_coded(system) else f"{system.similarity}, no code"


def _published_note(scope: Scope, system: System, bits: int, task: str, metric: str) -> str:
    """Give the published figure in brackets, and how far ours is from it."""
    place = (metric, scope.data, task, system.method, bits)
    measured = presentation.published_figure(*place)
    theirs = presentation.quoted_figure(*place) if measured is None else measured
    found = scope.measure(system, bits, task, metric)
    if theirs is None or found is None:
        return ""
    mark = " quoted" if measured is None else ""
    return f"({format_figure(theirs)}{mark}) {presentation.format_gap(found.mean, theirs)}"


def figure_cell(scope: Scope, system: System, bits: int, task: str, metric: str, beside: str = "") -> Cell:
    """Show one figure, bold if it is the best of the pairs-only systems, noted if of fewer seeds."""
    found = scope.measure(system, bits, task, metric)
    if found is None:
        return Cell("–")
    rivals = candidates(scope)
    best = system in rivals and round(found.mean, 4) == best_figure(scope, rivals, bits, task, metric)
    fewer = presentation.describe_missing_seeds(found, scope.n_seeds)
    return Cell(presentation.format_estimate(found), "; ".join(filter(None, [beside, fewer])), best)


def _quoted_rows(scope: Scope, method: str, task: str, metric: str) -> list[Row]:
    found = [presentation.quoted_figure(metric, scope.data, task, method, bits) for bits in scope.bits]
    if all(value is None for value in found):
        return []
    cells = [Cell("–" if value is None else f"({format_figure(value)})") for value in found]
    return [Row((Cell(_QUOTED[method]), Cell("quoted"), *cells), quiet=True)]


def plain_rows(scope: Scope, task: str, metric: str) -> list[Row]:
    """Make the rows of all plain systems and of chance, without figures of the paper."""
    rows = []
    for system in scope.systems:
        cells = [figure_cell(scope, system, bits, task, metric) for bits in scope.bits]
        rows.append(Row((Cell(row_name(scope, system)), *cells), quiet=not scope.is_coded(system)))
    return [*rows, _chance_row(scope, task, metric, 0)]


def _chance_row(scope: Scope, task: str, metric: str, n_empty: int) -> Row:
    cell = Cell(format_figure(scope.chance(task, metric)))
    return Row((Cell("chance"), *[Cell("")] * n_empty, *[cell] * len(scope.bits)), quiet=True)


# Table 3: CMCQ against SePH

_METRIC = "map@50"
_LENGTHS = (32, 64, 128)
_NAMES = {"seph": "SePH_km", "cmcq": "CMCQ"}


def table3_sections(study: Study) -> list[Section]:
    """Make Table 3, both parts, for every data set with results of SePH by protocol A or of any by D."""
    known = [scope for scope in study.scopes("A") if any(each.method == "seph" for each in scope.systems)]
    parts = [(scope, "A") for scope in known] + [(scope, "B") for scope in study.scopes("D")]
    return [_section(scope, part) for scope, part in parts if scope.has_labels]


def _section(scope: Scope, part: str) -> Section:
    words = [
        f"By {presentation.PROTOCOLS[scope.protocol]}. MAP@50, mean ± spread; bold: the best coded system "
        "of a column and task."
    ]
    tables = [_table(scope, part)]
    if _is_the_papers(scope):
        words.append("Below, in brackets: the paper's figure, then ours minus the paper's.")
    else:
        words.append(
            f"The paper's Table 3 is on NUS-WIDE, this one on {data_name(scope.data)}: its figures stand "
            "in a table of their own, for context only, and no difference is taken."
        )
        tables.append(_papers_table(part))
    words += _new_labels(scope)
    title = "known classes" if part == "A" else "new classes"
    heading = f"Table 3 {part}: {title}, on {data_name(scope.data)}"
    return Section(f"table3-{part}-{scope.data}", heading, words + _verdicts(scope), tables)


def _new_labels(scope: Scope) -> list[str]:
    """Name the classes that nothing was learned from, where they have names."""
    found = scope.results[0].data.get("new_labels")
    names = [each for each in found if isinstance(each, str)] if isinstance(found, list) else []
    return [f"New classes: {', '.join(names)}."] if names else []


def _is_the_papers(scope: Scope) -> bool:
    return scope.data == presentation.table3_data_name()


def _lengths(scope: Scope) -> list[int]:
    return [bits for bits in scope.bits if bits in _LENGTHS] or scope.bits


def _rivals(scope: Scope) -> list[System]:
    """SePH and ours by protocol A, where Table 2 has the rest; everything by protocol D."""
    if scope.protocol == "D":
        return scope.every_system
    return [each for each in scope.systems if each.method == "seph" or each.is_ours]


def _table(scope: Scope, part: str) -> Table:
    header = ("system", "task", "coded from", *(presentation.n_bits(bits) for bits in _lengths(scope)))
    rows = [row for task in scope.tasks for row in _task_rows(scope, part, task)]
    return Table(f"MAP@50 ({presentation.describe_setting(scope)})", header, rows, 3)


def _task_rows(scope: Scope, part: str, task: str) -> list[Row]:
    rows = [_row(scope, part, task, system) for system in _rivals(scope)]
    cell = Cell(presentation.format_figure(scope.chance(task, _METRIC)))
    words = (Cell("chance"), Cell(TASK_NAMES[task]), Cell(""))
    return [*rows, Row((*words, *[cell] * len(_lengths(scope))), quiet=True)]


def _row(scope: Scope, part: str, task: str, system: System) -> Row:
    name = (
        presentation.row_name(scope, system._replace(variant=""))
        if _has_plain(scope, system)
        else scope.name(system)
    )
    words = (Cell(name), Cell(TASK_NAMES[task]), Cell(_source(scope, system)))
    cells = [_cell(scope, part, task, system, bits) for bits in _lengths(scope)]
    return Row((*words, *cells), quiet=not scope.is_coded(system))


def _has_plain(scope: Scope, system: System) -> bool:
    return system._replace(variant="") in scope.systems and system.variant in ("", SIDE)


def _source(scope: Scope, system: System) -> str:
    if scope.protocol == "A":
        return "as learned"
    return "searched side" if system.variant == SIDE else "both sides"


def _cell(scope: Scope, part: str, task: str, system: System, bits: int) -> Cell:
    found = scope.measure(system, bits, task, _METRIC)
    if found is None:
        return Cell("–")
    theirs = (
        presentation.table3_figure(part, task, system.method, bits)
        if _is_the_papers(scope) and not system.variant
        else None
    )
    beside = "" if theirs is None else f"({theirs:.3f}) {presentation.format_gap(found.mean, theirs)}"
    best = scope.is_coded(system) and round(found.mean, 4) == _best(scope, task, bits)
    return Cell(presentation.format_estimate(found), beside, best)


def _best(scope: Scope, task: str, bits: int) -> float | None:
    found = [scope.measure(each, bits, task, _METRIC) for each in _rivals(scope) if scope.is_coded(each)]
    return max((round(each.mean, 4) for each in found if each is not None), default=None)


def _papers_table(part: str) -> Table:
    rows = [
        Row((Cell(_NAMES[method]), Cell(TASK_NAMES[task]), *_papers_cells(part, task, method)))
        for task in ("image-to-text", "text-to-image")
        for method in _NAMES
    ]
    header = ("system", "task", *map(presentation.n_bits, _LENGTHS))
    return Table(f"The paper's Table 3 {part}: MAP@50 on NUS-WIDE", header, rows, 2)


def _papers_cells(part: str, task: str, method: str) -> list[Cell]:
    return [Cell(f"{presentation.table3_figure(part, task, method, bits):.3f}") for bits in _LENGTHS]


def _verdicts(scope: Scope) -> list[str]:
    """Count where the best variant of ours is above SePH, like with like."""
    won = total = 0
    for task in scope.tasks:
        for bits in _lengths(scope):
            ours = _highest(scope, task, bits, ours=True)
            other = _highest(scope, task, bits, ours=False)
            if ours is not None and other is not None:
                won, total = won + (ours > other), total + 1
    if not total:
        return []
    return [f"The best CMCQ variant is above SePH in {won} of {total} comparisons (tasks × lengths)."]


def _highest(scope: Scope, task: str, bits: int, *, ours: bool) -> float | None:
    systems = [each for each in scope.systems if (each.is_ours if ours else each.method == "seph")]
    found = [scope.measure(each, bits, task, _METRIC) for each in systems]
    return max((each.mean for each in found if each is not None), default=None)
