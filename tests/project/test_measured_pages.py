"""Figures of the README and of the pages are those of the kept results: a stale table fails here."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

from support.paths import ROOT

sys.path.insert(0, str(ROOT))  # benchmarks are no part of the package
summary = import_module("benchmarks.summary")
PAGES: dict[Path, dict[str, str]] = summary.pages()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tables_are_those_of_the_kept_results(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for mark, table in PAGES[page].items():
        written = text.split(f"<!-- {mark} -->\n")[1].split(f"<!-- /{mark} -->")[0]
        assert written == table, f"{page.name}, {mark}: run python -m benchmarks.summary"


def test_pictures_are_those_of_the_kept_results() -> None:
    for path, picture in summary.pictures().items():
        stale = f"{path.name}: run python -m benchmarks.summary"
        assert path.read_text(encoding="utf-8") == picture, stale


def test_commands_ask_for_what_was_measured() -> None:
    """Fewer seeds, lengths or peers than usual stand in the command that is printed beside the figures."""
    tables = import_module("benchmarks.answer_tables")
    settings = {"seeds": 2, "bytes": [2, 4], "peers": ["RQ", "PQ"], "faiss": "1.15.1"}
    expected = "python -m benchmarks answers --part documents --seeds 2 --bytes 2,4 --peers RQ,PQ"
    assert tables.command("documents", settings) == expected
    assert tables.command("mixed", {"seeds": 3}) == "python -m benchmarks answers --part mixed --seeds 3"


def test_every_benchmark_is_run_once() -> None:
    names = import_module("benchmarks.__main__").BENCHMARKS
    assert len(set(names)) == len(names)
    assert all((ROOT / "benchmarks" / f"{name}.py").is_file() for name in names)
