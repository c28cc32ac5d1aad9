"""The rules of the house that a machine can check."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version

import pytest

import crossbyte
from support.paths import PACKAGE, ROOT

SOURCES = sorted(PACKAGE.rglob("*.py"))

# Modules that load code or objects from data.
FORBIDDEN_MODULES = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}
FORBIDDEN_CALLS = {"eval", "exec", "os.system", "os.popen"}
FORBIDDEN_KEYWORDS = {"allow_pickle", "shell"}  # harmless only when given as False


def forbidden_in(tree: ast.AST) -> Iterator[str]:
    """Yield what a parsed file does that our files never do."""
    for node in ast.walk(tree):
        for name in sorted(forbidden_names(node)):
            yield f"line {getattr(node, 'lineno', '?')}: {name}"


def forbidden_names(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name.split(".")[0] for alias in node.names} & FORBIDDEN_MODULES
    if isinstance(node, ast.ImportFrom):
        return {(node.module or "").split(".")[0]} & FORBIDDEN_MODULES
    if isinstance(node, ast.Call):
        return {ast.unparse(node.func)} & FORBIDDEN_CALLS
    if isinstance(node, ast.keyword) and node.arg in FORBIDDEN_KEYWORDS:
        given_as_false = isinstance(node.value, ast.Constant) and node.value.value is False
        return set() if given_as_false else {node.arg}
    return set()


def newest_version(changelog: str) -> str:
    match = re.search(r"^## \[(\d+\.\d+\.\d+)\]", changelog, flags=re.MULTILINE)
    assert match, "CHANGELOG.md has no heading of the form '## [1.2.3]'"
    return match[1]


def test_version_is_the_newest_in_the_changelog() -> None:
    assert newest_version((ROOT / "CHANGELOG.md").read_text(encoding="utf-8")) == crossbyte.__version__


def test_version_is_the_installed_one() -> None:
    assert version("crossbyte") == crossbyte.__version__


def test_import_alone_loads_no_heavy_library() -> None:
    program = "import sys, crossbyte; print(*sorted({'numpy', 'scipy', 'sklearn'} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == ""


def test_source_never_runs_data() -> None:
    assert SOURCES
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert [
        f"{path.relative_to(PACKAGE)} {found}" for path, tree in trees.items() for found in forbidden_in(tree)
    ] == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from pickle import loads",
        "import joblib.memory",
        "eval('1')",
        "os.system('ls')",
        "np.load(path, allow_pickle=True)",
        "subprocess.run(command, shell=flag)",
    ],
)
def test_forbidden_lines_are_found(line: str) -> None:
    assert list(forbidden_in(ast.parse(line)))


def test_no_file_name_is_in_three_folders() -> None:
    names = Counter(path.name for path in SOURCES if not path.name.startswith("__"))
    assert [name for name, folders in names.items() if folders > 2] == []
