"""Make Table 2: MAP of all systems at all lengths, beside what the paper prints."""

from __future__ import annotations

from itertools import product

from crossbyte._format import count
from crossbyte.lab.report import presentation
from crossbyte.lab.report.leaderboard import best_figure, candidates, describe_leaders
from crossbyte.lab.report.presentation import format_figure, row_name
from crossbyte.lab.report.study import Scope, Study, System, number
from crossbyte.report.content import Cell, Row, Section, Table

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
