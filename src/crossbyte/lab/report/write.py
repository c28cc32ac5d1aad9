"""Write the laboratory's report: the preamble and all sections, as a page and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from crossbyte._format import count, join_words, plural
from crossbyte._fs import replace_file
from crossbyte.errors import InvalidInput
from crossbyte.lab.report.ablations import ablation_sections, distortion_sections
from crossbyte.lab.report.curves import curve_sections
from crossbyte.lab.report.paper_tables import declarations, table1_section, table2_sections, table3_sections
from crossbyte.lab.report.presentation import PROTOCOLS, data_name, make_key
from crossbyte.lab.report.recall import quality_sections, recall_sections
from crossbyte.lab.report.sensitivity import sensitivity_sections
from crossbyte.lab.report.study import Scope, Study, number, read_study
from crossbyte.lab.report.times import time_sections
from crossbyte.report.content import Cell, Row, Section, Table
from crossbyte.report.html import render_page
from crossbyte.report.svg import chart_file
from crossbyte.report.text import render_markdown

_FOLDER = "report"
_CHANCE = (
    "Chance is what a random order of the database scores by the same measure. Read every figure against it: "
    "a system near chance has learned nothing that helps."
)
_MEASURE = (
    "MAP@T is the paper's: the average precision of a query is divided by the relevant items among the first "
    "T, not by all relevant ones in the database. One early hit is enough for a high value, and chance is "
    "high, too. The result files also hold MAP with the other denominators. Items that tie are ranked in "
    "every order at once: a figure is the mean over all orders."
)
_PROTOCOL_A = (
    "Protocol A is the paper's: the database is the training documents, with codes that were learned from "
    "both of their halves. So text to image is in good part text-to-text retrieval: a text query meets codes "
    "that the texts of those documents shaped. It says little of pictures without text; protocol B does."
)
_SPREAD = (
    "± is the sample standard deviation over seeds; figures of one seed have none. It does not tell how the "
    "figures would change with other queries."
)
_TEACHING = (
    "Systems learn from pairs (which image belongs to which text) or, where marked [labels], from the labels "
    "of the training documents, which is more than pairs tell. No system sees a label of a query."
)


def write_report(directory: Path, out: Path | None = None) -> list[Path]:
    """Make the report of everything in a folder of results.

    Parameters
    ----------
    directory : Path
        Folder of an evaluation, with its results in ``runs``.
    out : Path, optional
        Where to write; the same folder if not given.

    Returns
    -------
    list of Path
        ``report.html`` (whole in itself), ``report.md``, and the charts of the latter, in ``report``.

    Raises
    ------
    InvalidInput
        There are no results.
    """
    return write_study(read_study(Path(directory)), Path(directory if out is None else out))


def write_study(study: Study, out: Path) -> list[Path]:
    """Make the report of results that are read already; see :func:`write_report`."""
    sections = [section._replace(key=make_key(section.key)) for section in report_sections(study)]
    title = _make_title(study)
    charts = [chart for section in sections for figure in section.figures for chart in figure.charts]
    folder = out / _FOLDER
    try:
        (folder if charts else out).mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise InvalidInput(f"{error.filename}: expected a folder to write into, got a file") from error
    files = {
        out / "report.html": render_page(title, sections, contents=True),
        out / "report.md": render_markdown(title, sections, _FOLDER),
        **{folder / f"{chart.key}.svg": chart_file(chart) for chart in charts},
    }
    for path, contents in files.items():
        replace_file(str(path), contents.encode())
    return list(files)


def report_sections(study: Study) -> list[Section]:
    """Make all parts of the report that there are results for."""
    return [
        reading_section(study),
        runs_section(study),
        *quality_sections(study),
        *table2_sections(study),
        *table3_sections(study),
        *recall_sections(study),
        *ablation_sections(study),
        *curve_sections(study),
        *sensitivity_sections(study),
        *distortion_sections(study),
        *time_sections(study),
        table1_section(declarations()),
    ]


def _make_title(study: Study) -> str:
    names = dict.fromkeys(data_name(scope.data) for scope in study.scopes())
    return f"Evaluation on {join_words(list(names))}"


def reading_section(study: Study) -> Section:
    """Explain how to read the report."""
    used = {result.run.protocol for result in study.results}
    by_label = any(scope.has_labels for scope in study.scopes())
    words = [_CHANCE, *([_MEASURE] if by_label else []), *([_PROTOCOL_A] if "A" in used else [])]
    return Section("reading", "How to read this", [*words, _SPREAD, _TEACHING])


def runs_section(study: Study) -> Section:
    """Say what was run, with which versions, and which files were left out."""
    scopes = study.scopes()
    words = [
        _describe_protocols(scopes),
        *_describe_data(scopes),
        *_list_versions(study),
        *_warn_of_mixtures(scopes),
    ]
    words += [f"Left out, because it could not be read: {line}" for line in study.damaged]
    header = ("data", "protocol", "learned from", "database", "queries", "systems", "bits", "seeds")
    table = Table(f"{plural(len(study.results), 'run')}", header, [_row(scope) for scope in scopes], 2)
    return Section("runs", "What was run", words, [table])


def _describe_protocols(scopes: Iterable[Scope]) -> str:
    known = [PROTOCOLS[each] for each in dict.fromkeys(s.protocol for s in scopes) if each in PROTOCOLS]
    said = "; ".join(known)
    return said[:1].upper() + said[1:] + "." if said else ""


def _describe_data(scopes: Iterable[Scope]) -> list[str]:
    said = {s.data: str(r.data.get("about") or "") for s in scopes for r in s.results[:1]}
    known = [(data_name(data), words.removeprefix(f"{data}: ")) for data, words in said.items()]
    return [f"{name}: {words}" for name, words in known if words]


def _list_versions(study: Study) -> list[str]:
    found: dict[str, set[str]] = {}
    for result in study.results:
        for name, version in result.versions.items():
            found.setdefault(str(name), set()).add(str(version))
    said = [f"{name} {' and '.join(sorted(versions))}" for name, versions in sorted(found.items())]
    mixed = " Runs of several versions are mixed." if any(len(each) > 1 for each in found.values()) else ""
    return [f"Made with {join_words(said)}.{mixed}"] if said else []


def _warn_of_mixtures(scopes: Iterable[Scope]) -> list[str]:
    """Name data sets whose contents differ between runs: their figures do not belong in one table."""
    digests: dict[str, set[str]] = {}
    for scope in scopes:
        digests.setdefault(scope.data, set()).update(r.run.data_digest for r in scope.results)
    return [
        f"{data_name(data)}: runs on {len(found)} different contents of this name are mixed here."
        for data, found in digests.items()
        if len(found) > 1
    ]


def _row(scope: Scope) -> Row:
    sizes = [_sizes(scope, name) for name in ("n_train", "n_items", "n_queries")]
    systems = str(len({system._replace(variant="") for system in scope.every_system}))
    bits = ", ".join(map(str, scope.bits))
    words = (data_name(scope.data), scope.protocol, *sizes, systems, bits, str(scope.n_seeds))
    return Row(tuple(map(Cell, words)))


def _sizes(scope: Scope, name: str) -> str:
    found = {number(result.data.get(name)) for result in scope.results} - {None}
    return " or ".join(count(each) for each in sorted(each for each in found if each is not None)) or "–"
