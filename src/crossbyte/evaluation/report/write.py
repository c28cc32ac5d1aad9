"""Write the report of an evaluation: one page, and Markdown with its charts as SVG files."""

from __future__ import annotations

from pathlib import Path

from crossbyte._format import join_words
from crossbyte._fs import replace_file
from crossbyte.errors import InvalidInput
from crossbyte.evaluation.report.ablations import ablation_sections, distortion_sections
from crossbyte.evaluation.report.curves import curve_sections
from crossbyte.evaluation.report.preamble import reading_section, runs_section
from crossbyte.evaluation.report.presentation import data_name, key_of
from crossbyte.evaluation.report.recall import own_sections, recall_sections
from crossbyte.evaluation.report.sensitivity import sensitivity_sections
from crossbyte.evaluation.report.study import Study, read_study
from crossbyte.evaluation.report.table1 import declarations, table1_section
from crossbyte.evaluation.report.table2 import map_sections
from crossbyte.evaluation.report.table3 import seph_sections
from crossbyte.evaluation.report.times import time_sections
from crossbyte.report.content import Section
from crossbyte.report.html import render_page
from crossbyte.report.svg import chart_file
from crossbyte.report.text import render_markdown

__all__ = ["report_sections", "write_report", "write_study"]

_FOLDER = "report"


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
    sections = [section._replace(key=key_of(section.key)) for section in report_sections(study)]
    title = _title(study)
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
    """All parts of the report that there are results for."""
    return [
        reading_section(study),
        runs_section(study),
        *own_sections(study),
        *map_sections(study),
        *seph_sections(study),
        *recall_sections(study),
        *ablation_sections(study),
        *curve_sections(study),
        *sensitivity_sections(study),
        *distortion_sections(study),
        *time_sections(study),
        table1_section(declarations()),
    ]


def _title(study: Study) -> str:
    names = dict.fromkeys(data_name(scope.data) for scope in study.scopes())
    return f"Evaluation on {join_words(list(names))}"
