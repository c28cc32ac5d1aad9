"""The layers inside the index: a module imports, of the index, only what stands before it in one line.

Cells (IVF) have two places: what a search needs of them stands before the partitions that are laid out in
them, and what builds them, which searches, stands behind the scan.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import crossbyte

SOURCE = Path(crossbyte.__file__).parent.parent

LINE = [
    # What documents are counted and named by
    "crossbyte.search.bits",
    "crossbyte.search.numbers",
    "crossbyte.search.ids",
    "crossbyte.search.lookup",
    "crossbyte.search.hits",
    # The file
    "crossbyte.search.storage.failures",
    "crossbyte.search.storage.checksum",
    "crossbyte.search.storage.records",
    "crossbyte.search.storage.schema",
    "crossbyte.search.storage.connection",
    "crossbyte.search.storage.lock",
    "crossbyte.search.storage.reading",
    "crossbyte.search.storage.writing",
    "crossbyte.search.storage.session",
    "crossbyte.search.storage.creation",
    "crossbyte.search.storage.copying",
    "crossbyte.search.storage.store",
    # Payloads
    "crossbyte.search.filters.fields",
    "crossbyte.search.filters.tree",
    "crossbyte.search.filters.language",
    "crossbyte.search.filters.vocabulary",
    "crossbyte.search.filters.column_parts",
    "crossbyte.search.filters.column_bytes",
    "crossbyte.search.filters.columns",
    "crossbyte.search.filters.conditions",
    "crossbyte.search.filters.field_values",
    # Documents in memory, in cells or not
    "crossbyte.search.segment",
    "crossbyte.search.cells.chooser",
    "crossbyte.search.cells.visiting",
    "crossbyte.search.cells.learning",
    "crossbyte.search.cells.metric",
    "crossbyte.search.cells.centres",
    "crossbyte.search.cells.state",
    "crossbyte.search.cells.cells",
    "crossbyte.search.cells.layout",
    "crossbyte.search.cells.numbering",
    "crossbyte.search.shelf",
    "crossbyte.search.snapshot",
    "crossbyte.search.loading",
    "crossbyte.search.measuring",
    "crossbyte.search.facets",
    "crossbyte.search.browsing",
    # Searching
    "crossbyte.search.ranking",
    "crossbyte.search.searched",
    "crossbyte.search.generation",
    "crossbyte.search.judging",
    "crossbyte.search.offsets",
    "crossbyte.search.asking",
    "crossbyte.search.explanations.explanation",
    "crossbyte.search.explanations.attribution",
    "crossbyte.search.explanations.comparison",
    "crossbyte.search.explanations.explaining",
    # Changing
    "crossbyte.search.cells.curve",
    "crossbyte.search.cells.pairs",
    "crossbyte.search.cells.site",
    "crossbyte.search.cells.building",
    "crossbyte.search.compaction",
    "crossbyte.search.batch",
    "crossbyte.search.changes",
    "crossbyte.search.reader",
    "crossbyte.search.index",
    # What is made of an index
    "crossbyte.search.exports.staging",
    "crossbyte.search.exports.listing",
    "crossbyte.search.exports.trec",
    "crossbyte.search.exports.vectors",
    "crossbyte.search.exports.faiss_index",
    "crossbyte.search.planning.costs",
    "crossbyte.search.planning.sampling",
    "crossbyte.search.planning.sizing",
    "crossbyte.search.planning.pilot",
    "crossbyte.search.planning.trying",
    "crossbyte.search.planning.plan",
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
    builder = "crossbyte.search.cells.building"
    importers = {module for module, path in sources().items() if builder in imported(path)}
    assert importers == {"crossbyte.search.index"}
