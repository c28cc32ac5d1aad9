"""The layers inside the index: a module imports, of the index, only what stands before it in one line.

Cells (IVF) have two places: what a search needs of them stands before the partitions that are laid out in
them, and what builds them, which searches, stands behind the scan.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from support.paths import PACKAGE as SOURCES

SOURCE = SOURCES.parent

LINE = [
    # What documents are counted and named by
    "crossbyte.index.bitset",
    "crossbyte.index.byte_cache",
    "crossbyte.index.docids",
    "crossbyte.index.verdict",
    "crossbyte.index.hits",
    # The file
    "crossbyte.index.storage.records",
    "crossbyte.index.storage.database",
    "crossbyte.index.storage.lock",
    "crossbyte.index.storage.creation",
    "crossbyte.index.storage.store",
    # Payloads
    "crossbyte.index.byte_cache",
    "crossbyte.index.lexical",
    "crossbyte.index.filters.grammar",
    "crossbyte.index.filters.vocabulary",
    "crossbyte.index.filters.columns",
    "crossbyte.index.filters.conditions",
    "crossbyte.index.filters.field_values",
    # Documents in memory, in cells or not
    "crossbyte.index.segment",
    "crossbyte.index.ivf.router",
    "crossbyte.index.ivf.centres",
    "crossbyte.index.ivf.state",
    "crossbyte.index.ivf.lists",
    "crossbyte.index.partition",
    "crossbyte.index.snapshot",
    "crossbyte.index.facets",
    "crossbyte.index.scroll",
    # Searching
    "crossbyte.index.scan",
    "crossbyte.index.probabilities",
    "crossbyte.index.fusion",
    "crossbyte.index.query",
    "crossbyte.index.explain.explanation",
    "crossbyte.index.explain.explain",
    # Changing
    "crossbyte.index.ivf.build",
    "crossbyte.index.compaction",
    "crossbyte.index.merging",
    "crossbyte.index.mutations",
    "crossbyte.index.index",
    # What is made of an index
    "crossbyte.index.export.trec",
    "crossbyte.index.export.vectors",
    "crossbyte.index.export.faiss_index",
    "crossbyte.index.plan.size_model",
    "crossbyte.index.plan.pilot",
    "crossbyte.index.plan.plan",
]
PLACES = {module: place for place, module in enumerate(LINE)}
PACKAGE = LINE[0].rpartition(".")[0]


def sources() -> dict[str, Path]:
    """Every module of the index, and its file."""
    files = SOURCE.joinpath(*PACKAGE.split(".")).rglob("*.py")
    dotted = {".".join(path.relative_to(SOURCE).with_suffix("").parts): path for path in files}
    return {name: path for name, path in dotted.items() if not name.endswith(".__init__")}


def imported(path: Path) -> Iterator[str]:
    """Everything of the index that a file imports: at its top, in its functions, or for types alone."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{path.name} line {node.lineno}: imports are absolute"
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in PLACES else str(node.module) for name in inner]
        yield from (name for name in names if name == PACKAGE or name.startswith(f"{PACKAGE}."))


def test_every_module_has_a_place() -> None:
    assert sources().keys() == PLACES.keys()


def test_imports_go_leftwards_file_by_file() -> None:
    wrong = [
        f"{module} imports {name}"
        for module, path in sources().items()
        for name in sorted(set(imported(path)))
        if PLACES.get(name, len(LINE)) >= PLACES[module]
    ]
    assert wrong == []


def test_what_a_search_needs_of_cells_builds_none() -> None:
    builder = "crossbyte.index.ivf.build"
    importers = {module for module, path in sources().items() if builder in imported(path)}
    assert importers == {"crossbyte.index.index"}
