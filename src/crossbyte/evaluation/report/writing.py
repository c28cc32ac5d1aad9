"""Write the report of an evaluation: one page, and Markdown with pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from crossbyte._fs import replace_file
from crossbyte.errors import InvalidInput
from crossbyte.evaluation.report.ablations import ablation_sections
from crossbyte.evaluation.report.categories import declared, table1_section
from crossbyte.evaluation.report.comparing import map_sections
from crossbyte.evaluation.report.content import Section
from crossbyte.evaluation.report.curves import curve_sections
from crossbyte.evaluation.report.distortion import distortion_sections
from crossbyte.evaluation.report.drawing import Picture, check_matplotlib, draw
from crossbyte.evaluation.report.explaining import explanation, runs_section
from crossbyte.evaluation.report.generalizing import seph_sections
from crossbyte.evaluation.report.markdown import report_markdown
from crossbyte.evaluation.report.owndata import own_sections
from crossbyte.evaluation.report.page import report_page
from crossbyte.evaluation.report.phrases import data_name, joined, key_of
from crossbyte.evaluation.report.retrieving import recall_sections
from crossbyte.evaluation.report.sensitivity import sensitivity_sections
from crossbyte.evaluation.report.study import Study, read_study
from crossbyte.evaluation.report.times import time_sections

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
        ``report.html`` (whole in itself), ``report.md``, and the pictures of the latter, in ``report``.

    Raises
    ------
    InvalidInput
        There are no results.
    MissingExtra
        matplotlib is not installed.
    """
    return write_study(read_study(Path(directory)), Path(directory if out is None else out))


def write_study(study: Study, out: Path) -> list[Path]:
    """Make the report of results that are read already; see :func:`write_report`."""
    check_matplotlib()
    sections = [section._replace(key=key_of(section.key)) for section in report_sections(study)]
    pictures = _pictures(sections)
    return _written(out, _title(study), sections, pictures)


def report_sections(study: Study) -> list[Section]:
    """All parts of the report that there are results for."""
    return [
        explanation(study),
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
        table1_section(declared()),
    ]


def _title(study: Study) -> str:
    names = dict.fromkeys(data_name(scope.data) for scope in study.scopes())
    return f"Evaluation on {joined(list(names))}"


def _pictures(sections: Sequence[Section]) -> dict[str, Picture]:
    charts = [chart for section in sections for figure in section.figures for chart in figure.charts]
    return {chart.key: draw(chart) for chart in charts}


def _written(out: Path, title: str, sections: Sequence[Section], pictures: dict[str, Picture]) -> list[Path]:
    folder = out / _FOLDER
    try:
        (folder if pictures else out).mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise InvalidInput(f"{error.filename}: expected a folder to write into, got a file") from error
    files = {
        out / "report.html": report_page(title, sections, pictures).encode(),
        out / "report.md": report_markdown(title, sections, _FOLDER).encode(),
        **{folder / f"{key}.png": picture.png for key, picture in pictures.items()},
    }
    for path, contents in files.items():
        replace_file(str(path), contents)
    return list(files)
