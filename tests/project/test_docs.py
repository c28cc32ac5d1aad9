"""The documents tell the truth: their code runs, and they name what there is."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import re
import runpy
import sqlite3
import struct
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import numpy as np
import pytest

from crossbyte import CMCQ, Index, errors
from crossbyte.lab.methods import registry
from support.paths import PACKAGE, ROOT

SOURCES = sorted(PACKAGE.rglob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

# Imports go only leftwards along this line.
LEAVES = {
    "__version__",
    "_format",
    "_fs",
    "_json",
    "_lazy",
    "_native",
    "_not_fitted",
    "_optim",
    "arrays",
    "compute",
    "errors",
    "extras",
    "progress",
    "validation",
}
LAYERS = dict.fromkeys(LEAVES, 0) | {
    "metrics": 2,
    "data": 2,
    "encoders": 3,
    "report": 4,
    "model": 5,
    "calibration": 5,  # CMCQ calibrates itself, so the two share a place; no module of them imports itself
    "index": 8,
    "export": 9,
    "sharding": 9,
    "gallery": 10,
    "demo": 11,
    "lab": 12,
    "service": 13,
    "cli": 14,
    "__main__": 15,
}


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def python_blocks(page: Path) -> list[tuple[int, str]]:
    """Line number and text of each block marked as Python."""
    text = read(page)
    found = re.finditer(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, match.start(1)), match[1]) for match in found]


def everything_written() -> str:
    return "\n".join(read(page) for page in PAGES)


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        *(
            f"docs/{page}.md"
            for page in ("arrays", "index", "cells", "explanation", "exports", "planning", "encoders")
        ),
    ],
)
def test_code_blocks_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after another in one namespace, as a reader would; line numbers are those of the page."""
    monkeypatch.chdir(tmp_path)
    blocks = python_blocks(ROOT / name)
    assert blocks
    namespace: dict[str, object] = {"__name__": "page"}
    for line, block in blocks:
        exec(compile("\n" * line + block, name, "exec"), namespace)


def test_example_runs_and_beats_chance(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "two_encoders.py"))["main"](600)
    *_, recall, chance = (float(value) for value in re.findall(r": (0\.\d+)$", capsys.readouterr().out, re.M))
    assert recall > 3 * chance


def test_index_example_runs_and_beats_chance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "one_file_index.py"))["main"](str(tmp_path))
    printed = capsys.readouterr().out
    found = [
        (int(hits), int(chance)) for hits, chance in re.findall(r": (\d+) of 200 \(by chance: (\d+)", printed)
    ]
    assert len(found) == 2 and all(hits > 3 * chance for hits, chance in found)
    assert "after an update: ['photo-3']" in printed
    assert [path.name for path in tmp_path.iterdir()] == ["photos.cb"]


def public_names(cls: type) -> Iterator[str]:
    """Methods and properties of our own classes (scikit-learn's add others)."""
    own = [base for base in cls.__mro__ if base.__module__.startswith("crossbyte")]
    for name, value in (item for base in own for item in vars(base).items()):
        is_own = inspect.isfunction(value) or isinstance(value, classmethod | property)
        if is_own and not name.startswith("_"):
            yield name


def test_every_public_name_of_the_estimator_is_written_about() -> None:
    text = everything_written()
    names = [*public_names(CMCQ), *inspect.signature(CMCQ).parameters]
    assert len(names) > 40
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []


def test_every_public_name_of_the_index_is_on_its_page() -> None:
    page = read(ROOT / "docs" / "index.md")
    names = {*public_names(Index), *inspect.signature(Index.search).parameters} - {"self"}
    assert {"create", "open", "add", "search", "compact", "generation", "where"} <= names
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", page)] == []


def test_every_error_of_the_index_is_on_its_page() -> None:
    page = read(ROOT / "docs" / "index.md")
    named = set(errors.__all__) - {"IndexFileError"}
    raised = [name for name in named if issubclass(getattr(errors, name), errors.IndexFileError)]
    raised += ["DuplicateId", "UnknownId", "PayloadTooLarge", "TooManyFields"]
    raised += ["FilterError", "UnknownField", "WrongModel"]
    assert len(raised) == 19
    assert [name for name in sorted(raised) if f"`{name}`" not in page] == []


def checksum_of(person: str, n_bytes: int, *values: int | bytes) -> bytes:
    """BLAKE2b as the page describes it."""
    message = b"".join(struct.pack("<q", value) if isinstance(value, int) else value for value in values)
    return hashlib.blake2b(message, digest_size=n_bytes, person=person.encode()).digest()


@pytest.fixture(scope="module", params=["unit", "likelihood"])
def index_file(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[sqlite3.Connection]:
    """A file of either format, with records of every kind, opened with nothing of crossbyte."""
    path = tmp_path_factory.mktemp("format") / "small.cb"
    rng = np.random.default_rng(0)
    model = CMCQ(n_bits=8, scoring=request.param, n_components=4, max_iter=1, random_state=0)
    model.fit(rng.normal(size=(300, 6)), rng.normal(size=(300, 5)))
    with Index.from_training(path, model, payloads=[{"year": row} for row in range(300)]) as index:
        index.add(["a", 1000], image_codes=np.array([[1], [2]], np.uint8), groups=["g", None])
        index.delete([5])
        index.update_payloads([6, 7], [{"kind": "x"}, None])
    connection = sqlite3.connect(path)
    yield connection
    connection.close()


def test_the_tables_on_the_page_are_those_of_a_file(index_file: sqlite3.Connection) -> None:
    page = read(ROOT / "docs" / "index.md")
    tables = re.search(r"^```sql\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    assert tables is not None
    rows = index_file.execute("SELECT sql FROM sqlite_master").fetchall()
    assert sorted(tables[1].splitlines()) == sorted(sql for (sql,) in rows)
    numbers = [
        index_file.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
    ]
    heads = [json.loads(head) for (head,) in index_file.execute("SELECT head FROM records")]
    codes = {name for head in heads for name in head["parts"] if name.startswith("codes.")}
    assert numbers == [0x63726279, 2 if "codes.document" in codes else 1]


def test_the_checksums_on_the_page_are_those_of_a_file(index_file: sqlite3.Connection) -> None:
    digest = bytes(16)
    for number, head, checksum in index_file.execute("SELECT * FROM records ORDER BY number"):
        assert checksum == checksum_of("crossbyte record", 16, number, head)
        digest = checksum_of("crossbyte chain", 16, digest, number, checksum)
    _, *numbers, stored, checksum = index_file.execute("SELECT * FROM catalogue").fetchone()
    assert stored == digest and checksum == checksum_of("crossbyte all", 16, *numbers, digest)
    rows = index_file.execute("SELECT * FROM payloads").fetchall()
    assert len(rows) == 301
    for number, version, body, checksum in rows:
        assert checksum == checksum_of("crossbyte row", 8, number, version, body)


def test_the_records_on_the_page_are_those_of_a_file(index_file: sqlite3.Connection) -> None:
    page, kinds = read(ROOT / "docs" / "index.md"), set()
    for number, head in index_file.execute("SELECT number, head FROM records ORDER BY number"):
        record = json.loads(head)
        kinds.add(record["kind"])
        assert head == json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        for place, (name, part) in enumerate(sorted(record["parts"].items())):
            assert (part["first"], part["pieces"]) == (place, 1)
            (body,) = index_file.execute(
                "SELECT body FROM pieces WHERE place = ?", (number * 2**20 + place,)
            ).fetchone()
            assert part["bytes"] == len(body)
            assert part["checksum"] == checksum_of("crossbyte part", 16, body).hex()
            assert f"`{re.sub(':.*', ':<field>', name)}`" in page
    assert kinds == {"model", "documents", "deletions", "updates"}
    assert all(f"| `{kind}` |" in page for kind in kinds)


def test_every_make_target_is_written_about() -> None:
    targets = re.findall(r"^([a-z-]+):.*## ", read(ROOT / "Makefile"), flags=re.MULTILINE)
    text = everything_written()
    assert {"demo", "test"} <= set(targets)
    assert [target for target in targets if not re.search(rf"make {target}(?![\w-])", text)] == []


def test_every_folder_is_in_the_architecture_page() -> None:
    page = read(ROOT / "docs" / "architecture.md")
    folders = {path.parent.relative_to(PACKAGE).as_posix() for path in SOURCES} - {"."}
    beside = {
        f"{name}/"
        for name in (
            "native",
            "tests",
            "tests/support",
            "benchmarks",
            "campaigns",
            "examples",
            "docs",
            "scripts",
        )
    }
    assert len(folders) > 20
    assert [
        name for name in sorted({f"{name}/" for name in folders} | beside) if f"`{name}`" not in page
    ] == []


def test_the_architecture_page_is_short() -> None:
    assert len(read(ROOT / "docs" / "architecture.md").splitlines()) <= 120


@pytest.mark.parametrize(
    "name", ["docs/architecture.md", "docs/decisions.md", "docs/notation.md", "CONTRIBUTING.md"]
)
def test_no_page_names_a_file_or_folder_that_is_gone(name: str) -> None:
    named = re.findall(r"`((?:[\w.]+/)*\w+\.(?:py|cpp|h)|(?:[\w.]+/)+)`", read(ROOT / name))
    homes = (PACKAGE, ROOT, ROOT / "native")
    assert named
    assert [name for name in named if not any((home / name).exists() for home in homes)] == []


def test_no_page_names_a_path_of_the_repository_that_is_gone() -> None:
    pattern = r"\b(?:src/crossbyte|tests|scripts|native)/[\w/]*(?:\.\w+)?"
    named = [(page.name, path) for page in PAGES for path in re.findall(pattern, read(page))]
    assert len(named) > 10
    assert [f"{page}: {path}" for page, path in named if not (ROOT / path).exists()] == []


def imported_modules(path: Path) -> Iterator[str]:
    """Yield the first name after ``crossbyte.`` of everything a file imports from the package."""
    for node in ast.walk(ast.parse(read(path))):
        if isinstance(node, ast.Import):
            full = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} line {node.lineno}: imports are absolute"
            base = node.module or ""
            full = [f"{base}.{alias.name}" for alias in node.names] if base == "crossbyte" else [base]
        else:
            continue
        yield from (name.split(".")[1] for name in full if name.startswith("crossbyte."))


def test_imports_go_leftwards() -> None:
    homes = {path: path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in SOURCES}
    homes.pop(PACKAGE / "__init__.py")  # the table of contents: it names everything and imports it on demand
    new = sorted(set(homes.values()) - set(LAYERS))
    assert new == [], f"{new} have no place in the line yet: give them one here and in docs/architecture.md"
    imports = [(path, own, name) for path, own in homes.items() for name in imported_modules(path)]
    assert [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path, own, name in imports
        if LAYERS[name] > LAYERS[own]
    ] == []


def test_no_module_imports_itself_by_a_detour() -> None:
    """What is imported while a module is imported, types aside, forms no circle."""
    modules = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in SOURCES}
    needed: dict[str, set[str]] = {}
    for name, path in modules.items():
        tops = [node for node in ast.parse(read(path)).body if isinstance(node, ast.ImportFrom)]
        named = {f"{node.module}.{alias.name}" for node in tops for alias in node.names}
        needed[name] = (named | {str(node.module) for node in tops}) & modules.keys()
    assert len(needed) > 100
    list(TopologicalSorter(needed).static_order())  # CycleError names the circle


def test_a_compared_system_cannot_see_the_metrics() -> None:
    """Metrics are a leaf, which the line of layers alone would let the compared systems import."""
    compared = sorted(Path(registry.__file__).parent.glob("*.py"))
    assert len(compared) > 20
    assert [path.name for path in compared if "metrics" in imported_modules(path)] == []


def test_nothing_but_the_command_line_imports_the_laboratory() -> None:
    importers = {path.relative_to(PACKAGE).parts[0] for path in SOURCES if "lab" in imported_modules(path)}
    assert importers == {"lab", "cli"}


def test_every_objective_term_is_in_the_notation_page() -> None:
    from crossbyte.model.objective import TERMS

    page = read(ROOT / "docs" / "notation.md")
    assert [name for name in TERMS if f"`{name}`" not in page] == []


def test_functions_named_in_the_notation_page_exist() -> None:
    page, source = read(ROOT / "docs" / "notation.md"), "\n".join(map(read, SOURCES))
    named = set(re.findall(r"`((?:update|encode|decode|transform|select)_\w+)`", page))
    assert len(named) > 10
    assert [name for name in sorted(named) if f"def {name}(" not in source] == []


def test_links_lead_somewhere() -> None:
    targets = [(page, target) for page in PAGES for target in re.findall(r"\]\(([^)#\s]+)", read(page))]
    local = [(page, target) for page, target in targets if not target.startswith(("http://", "https://"))]
    assert [f"{page.name}: {target}" for page, target in local if not (page.parent / target).exists()] == []


def test_pictures_are_whole() -> None:
    pictures = sorted((ROOT / "docs" / "images").glob("*.svg"))
    assert pictures
    for picture in pictures:
        assert ElementTree.fromstring(read(picture)).tag.endswith("svg")
        assert "url(http" not in read(picture)


def test_every_compared_system_is_on_the_laboratory_page() -> None:
    page = read(ROOT / "docs" / "evaluation.md")
    names = [*registry.list_keys(), *registry.GROUPS]
    assert [name for name in names if f"`{name}`" not in page] == []


def test_readme_is_short_and_promises_nothing_that_is_not_built() -> None:
    from crossbyte.cli.app import COMMANDS

    readme = read(ROOT / "README.md")
    named = set(
        re.findall(r"crossbyte ([a-z]+)\b", "\n".join(re.findall(r"`[^`]+`|```.*?```", readme, re.S)))
    )
    assert {"fit", "search", "serve"} <= named <= set(COMMANDS) | {"import"}
    assert len(readme.splitlines()) < 120
