"""The documents tell the truth: their code runs, and they name what there is."""

from __future__ import annotations

import ast
import inspect
import re
import runpy
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest

from crossbyte import CMCQ

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "crossbyte"
SOURCES = sorted(PACKAGE.rglob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

# Imports go only leftwards along this line.
LEAVES = {
    "arrays",
    "errors",
    "validation",
    "blocks",
    "kernels",
    "kernels_numpy",
    "progress",
    "metrics",
    "_native",
}
LAYERS = dict.fromkeys(LEAVES, 0) | {
    "data": 1,
    "mapping": 2,
    "quantization": 3,
    "model": 4,
    "search": 5,
    "demo": 6,
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


@pytest.mark.parametrize("name", ["README.md", "docs/tutorial.md"])
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


def test_every_make_target_is_written_about() -> None:
    targets = re.findall(r"^([a-z-]+):.*## ", read(ROOT / "Makefile"), flags=re.MULTILINE)
    text = everything_written()
    assert {"demo", "test"} <= set(targets)
    assert [target for target in targets if not re.search(rf"make {target}(?![\w-])", text)] == []


def test_every_file_is_in_the_architecture_page() -> None:
    page = read(ROOT / "docs" / "architecture.md")
    files = [path.relative_to(PACKAGE).as_posix() for path in SOURCES if path.name != "__init__.py"]
    files += [f"native/{path.name}" for path in sorted((ROOT / "native").iterdir()) if path.is_file()]
    assert [name for name in ["__init__.py", *files] if f"`{name}`" not in page] == []


def test_the_architecture_page_names_no_file_that_is_gone() -> None:
    page = read(ROOT / "docs" / "architecture.md")
    named = re.findall(r"`((?:\w+/)?\w+\.(?:py|cpp|h))`", page)
    homes = (PACKAGE, ROOT)
    assert [name for name in named if not any((home / name).is_file() for home in homes)] == []


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


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_leftwards(path: Path) -> None:
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if own == "__init__":  # the table of contents: it names everything and imports it on demand
        return
    assert own in LAYERS, f"{own} has no place in the line yet: give it one here and in docs/architecture.md"
    assert [name for name in imported_modules(path) if LAYERS[name] > LAYERS[own]] == []


def test_every_objective_term_is_in_the_notation_page() -> None:
    from crossbyte.model.objective import TERMS

    page = read(ROOT / "docs" / "notation.md")
    assert [name for name in TERMS if f"`{name}`" not in page] == []


def test_functions_named_in_the_notation_page_exist() -> None:
    page, source = read(ROOT / "docs" / "notation.md"), "\n".join(map(read, SOURCES))
    named = set(re.findall(r"`((?:update|encode|decode|transform|select)_\w+)`", page))
    assert len(named) > 10
    assert [name for name in sorted(named) if f"def {name}(" not in source] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", read(page))
    local = [target for target in targets if not target.startswith(("http://", "https://"))]
    assert [target for target in local if not (page.parent / target).exists()] == []


def test_pictures_are_whole() -> None:
    pictures = sorted((ROOT / "docs" / "images").glob("*.svg"))
    assert pictures
    for picture in pictures:
        assert ElementTree.fromstring(read(picture)).tag.endswith("svg")
        assert "url(http" not in read(picture)


def test_readme_promises_nothing_that_is_not_built() -> None:
    readme = read(ROOT / "README.md")
    assert not re.search(r"\bIndex\b|crossbyte (fit|search|serve|add)\b", readme)
    assert len(readme.splitlines()) < 120
