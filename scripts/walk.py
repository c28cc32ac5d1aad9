"""Count the files and functions that a reader meets on the way of a call, and measure the source tree.

    .venv/bin/python scripts/walk.py            # everything
    .venv/bin/python scripts/walk.py map        # only the figures of the source tree

A walk is one small call, watched by ``sys.setprofile`` in all threads: the files of the package that it
enters, the functions that it calls, how often a function of one file calls one of another, and how many calls
of the package lie above each other. Run it before and after a change of the layout: walks should not get
longer. ``tests/project/test_scripts.py`` holds the limits.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import contextlib
import io
import os
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import httpx
import numpy as np

import crossbyte

PACKAGE = Path(crossbyte.__file__).resolve().parent
_INSIDE = str(PACKAGE) + os.sep


class Walk:
    """The files and functions of the package that were called, counted between :meth:`counting`.

    Attributes
    ----------
    files : set of str
    functions : set of (file, first line)
    changes : int
        Calls from a function of one file to one of another.
    depth : int
        Most calls of the package above each other.
    """

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.functions: set[tuple[str, int]] = set()
        self.changes = self.depth = 0
        self._counting = False

    @contextlib.contextmanager
    def profiling(self) -> Iterator[Walk]:
        """Set the profiler of this thread and of every thread that starts inside; nothing is counted yet."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        try:
            yield self
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Count calls made inside, by the threads of :meth:`profiling`."""
        self._counting = True
        try:
            yield
        finally:
            self._counting = False

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not self._counting or not frame.f_code.co_filename.startswith(_INSIDE):
            return
        if frame.f_code.co_name == "<module>":  # importing is not walking
            return
        file = frame.f_code.co_filename
        self.files.add(file)
        self.functions.add((file, frame.f_code.co_firstlineno))
        callers = [each for each in _callers(frame) if each.f_code.co_filename.startswith(_INSIDE)]
        self.depth = max(self.depth, len(callers) + 1)
        self.changes += bool(callers) and callers[0].f_code.co_filename != file

    def describe(self) -> str:
        """Write the four figures as columns."""
        return f"{len(self.files):5} {len(self.functions):9} {self.changes:15,} {self.depth:5}"


def _callers(frame: FrameType) -> Iterator[FrameType]:
    """Yield the frames that called this one, the nearest first."""
    caller = frame.f_back
    while caller is not None:
        yield caller
        caller = caller.f_back


def walk(call: Callable[[], object]) -> Walk:
    """Make a call once, so that everything is imported, and count what it calls the second time."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        call()
        with Walk().profiling() as found, found.counting():
            call()
    return found


def walks(folder: Path) -> Iterator[tuple[str, Walk]]:
    """Yield the everyday calls, each by its name and with what it passes through."""
    rng = np.random.default_rng(0)
    hidden = rng.standard_normal((260, 6))
    images = (hidden @ rng.standard_normal((6, 20))).astype(np.float32)
    texts = (hidden @ rng.standard_normal((6, 30))).astype(np.float32)
    small = {"n_bits": 16, "n_components": 8, "n_atoms": 24, "max_iter": 2, "random_state": 0, "n_jobs": 1}
    for mapping in ("cca", "sparse"):
        model = crossbyte.CMCQ(mapping=mapping, **small)
        yield f"CMCQ.fit, {mapping}", walk(lambda model=model: model.fit(images, texts))
    model = crossbyte.CMCQ(mapping="cca", **small).fit(images[:200], texts[:200])
    model.calibrate(images[:200], texts[:200], curve=())
    payloads = [{"year": 2000 + place} for place in range(60)]
    names = iter(range(1_000_000))
    with crossbyte.Index.create(folder / "one.cb", model, n_jobs=1) as index:

        def add() -> object:
            ids = [next(names) for _ in range(60)]
            return index.add(ids, images=images[200:], texts=texts[200:], payloads=payloads)

        yield "Index.add", walk(add)
        yield "Index.search", walk(lambda: index.search(texts=texts[:1], k=5))
        yield (
            "Index.search, where and payloads",
            walk(lambda: index.search(texts=texts[:1], k=5, where="year > 2010", payloads=True)),
        )
    yield from walks_with_pictures(folder)


def walks_with_pictures(folder: Path) -> Iterator[tuple[str, Walk]]:
    """Yield the calls of the program and of the service, on a folder of generated pictures."""
    from crossbyte.cli.app import main
    from crossbyte.data import write_scenes
    from crossbyte.service import create_app

    write_scenes(folder / "photos", 8)
    targets = iter(range(1_000_000))

    def fit() -> None:
        target = folder / f"{next(targets)}.cb"
        run_program(main, "fit", folder / "photos", "--index", target, "--mapping", "cca", "--bits", "16")

    yield "crossbyte fit FOLDER", walk(fit)
    index = folder / "0.cb"
    yield "crossbyte search --text", walk(lambda: run_program(main, "search", index, "--text", "a red star"))
    app = create_app(index)
    with Walk().profiling() as found:  # before the service starts its threads, which live on
        get_page(app, "/v1/search?text=a+red+star")
        with found.counting():
            get_page(app, "/v1/search?text=a+red+star")
    app.state.service.close()
    yield "GET /v1/search", found


def get_page(app: Any, path: str) -> None:
    """Send a GET request to an application in this process."""

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://localhost:8765"
        ) as client:
            return await client.get(path)

    asyncio.run(ask()).raise_for_status()


def run_program(main: Callable[[], object], *arguments: object) -> None:
    """Call the program as the shell would, in this process."""
    before, sys.argv = sys.argv, ["crossbyte", *map(str, arguments)]
    try:
        main()
    except SystemExit as end:
        if end.code not in (None, 0):
            raise RuntimeError(f"crossbyte {arguments[0]} ended with {end.code}") from end
    finally:
        sys.argv = before


class SourceMap(NamedTuple):
    """Figures of the source tree.

    Attributes
    ----------
    n_files, n_lines : int
    import_share : float
        Lines of imports and of ``__all__`` over all lines.
    single_importers : list of str
        Modules that only one other file imports.
    repeated_names : list of str
        File names that three or more folders have, ``__init__.py`` and the like left out.
    """

    n_files: int
    n_lines: int
    import_share: float
    single_importers: list[str]
    repeated_names: list[str]


@cache
def measure_map() -> SourceMap:
    """Parse all sources of the package and measure them."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    n_lines = sum(len(text.splitlines()) for text in texts.values())
    n_import_lines = sum(map(_count_import_lines, trees.values()))
    folders = defaultdict(set)
    for path in trees:
        if not path.name.startswith("__"):
            folders[path.name].add(path.parent)
    return SourceMap(
        len(trees),
        n_lines,
        n_import_lines / n_lines,
        sorted(name for name, files in _find_importers(trees).items() if len(files) == 1),
        sorted(name for name, homes in folders.items() if len(homes) > 2),
    )


def describe_map() -> str:
    """Say how many files, lines, imports and single importers there are, and which names recur."""
    found = measure_map()
    return (
        f"{found.n_files} files, {found.n_lines:,} lines; import and __all__ lines {found.import_share:.1%}; "
        f"{len(found.single_importers)} modules with a single importer; "
        f"names in three folders: {', '.join(found.repeated_names) or 'none'}"
    )


def _count_import_lines(tree: ast.Module) -> int:
    def counts(node: ast.AST) -> bool:
        if isinstance(node, ast.Assign):
            return any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)
        return isinstance(node, ast.Import | ast.ImportFrom)

    return sum(node.end_lineno - node.lineno + 1 for node in ast.walk(tree) if counts(node))  # type: ignore[attr-defined]


def _find_importers(trees: dict[Path, ast.Module]) -> dict[str, set[Path]]:
    """Find the files that import each module of the package; packages themselves are left out."""
    known = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for path in trees
        if not path.name.startswith("__")
    }
    importers: dict[str, set[Path]] = {name: set() for name in known}
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for name in {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)} & known:
                    importers[name].add(path)
    return importers


def main() -> None:
    """Print the figures of the source tree, and those of all walks unless only the map is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", nargs="?", choices=["all", "map"], default="all")
    options = parser.parse_args()
    print(describe_map())
    if options.what == "map":
        return
    print(f"\n{'call':34} files functions changes of file depth")
    with tempfile.TemporaryDirectory() as folder:
        for name, found in walks(Path(folder)):
            print(f"{name:34} {found.describe()}")


if __name__ == "__main__":
    main()
