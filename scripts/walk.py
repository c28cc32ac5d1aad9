"""Count what a reader meets: files, functions and changes of file on the way of a call, and their map.

    .venv/bin/python scripts/walk.py            # everything
    .venv/bin/python scripts/walk.py map        # only the figures of the source tree

A walk is one small call, watched by ``sys.setprofile`` in all threads: the files of the package that it
enters, the functions that it calls, how often control passes from one file to another, and how deep the
calls lie. Run it before and after a change of the layout: the way should not get longer.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import contextlib
import io
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import numpy as np

import crossbyte

PACKAGE = Path(crossbyte.__file__).resolve().parent


class Walk:
    """What was met on a way; watches while it is entered as a context."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.functions: set[tuple[str, int]] = set()
        self.changes = self.depth = 0
        self._watching = False

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Count what is called inside, in this thread and in those made inside :meth:`installed`."""
        self._watching = True
        try:
            yield
        finally:
            self._watching = False

    @contextlib.contextmanager
    def installed(self) -> Iterator[Walk]:
        """Look at every thread that is made inside; nothing is counted yet."""
        threading.setprofile(self._see)
        sys.setprofile(self._see)
        try:
            yield self
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]

    def _see(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not self._watching or not frame.f_code.co_filename.startswith(str(PACKAGE)):
            return
        if frame.f_code.co_name == "<module>":  # importing is not walking
            return
        own = frame.f_code.co_filename
        self.files.add(own)
        self.functions.add((own, frame.f_code.co_firstlineno))
        stack = [f for f in _frames(frame.f_back) if f.f_code.co_filename.startswith(str(PACKAGE))]
        self.depth = max(self.depth, len(stack) + 1)
        self.changes += bool(stack) and stack[0].f_code.co_filename != own

    def describe(self) -> str:
        return f"{len(self.files):5} {len(self.functions):9} {self.changes:15,} {self.depth:5}"


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def walk(call: Callable[[], object]) -> Walk:
    """Make a call once, so that everything is imported, and watch it the second time."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        call()
        with Walk().installed() as seen, seen.watch():
            call()
    return seen


def walks(folder: Path) -> Iterator[tuple[str, Walk]]:
    """Yield the ways that people take through the package, with what they meet."""
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
    from crossbyte.cli.app import main
    from crossbyte.data import write_scenes
    from crossbyte.service import create_app

    write_scenes(folder / "photos", 8)
    targets = iter(range(1_000_000))

    def fit() -> None:
        target = folder / f"{next(targets)}.cb"
        run(main, "fit", folder / "photos", "--index", target, "--mapping", "cca", "--bits", "16")

    yield "crossbyte fit FOLDER", walk(fit)
    index = folder / "0.cb"
    yield "crossbyte search --text", walk(lambda: run(main, "search", index, "--text", "a red star"))
    app = create_app(index)
    with Walk().installed() as seen:
        get(app, "/v1/search?text=a+red+star")
        with seen.watch():
            get(app, "/v1/search?text=a+red+star")
    app.state.service.close()
    yield "GET /v1/search", seen


def get(app: Any, path: str) -> None:
    """Ask an application in this process, as a browser would."""

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://localhost:8765"
        ) as client:
            return await client.get(path)

    asyncio.run(ask()).raise_for_status()


def run(main: Callable[[], object], *arguments: object) -> None:
    """Call the program as the shell would, in this process."""
    before, sys.argv = sys.argv, ["crossbyte", *map(str, arguments)]
    try:
        main()
    except SystemExit as end:
        if end.code not in (None, 0):
            raise RuntimeError(f"crossbyte {arguments[0]} ended with {end.code}") from end
    finally:
        sys.argv = before


def describe_map() -> str:
    """Say how many files, lines, imports and single importers there are, and which names recur."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in trees)
    spent = sum(_import_lines(tree) for tree in trees.values())
    importers = _importers(trees)
    single = [name for name in importers if len(importers[name]) == 1]
    homes = defaultdict(set)
    for path in trees:
        if not path.name.startswith("__"):
            homes[path.name].add(path.parent)
    shared = sorted(name for name, folders in homes.items() if len(folders) > 2)
    return (
        f"{len(trees)} files, {lines:,} lines; import and __all__ lines {spent / lines:.1%}; "
        f"{len(single)} modules with a single importer; names in three folders: {', '.join(shared) or 'none'}"
    )


def _import_lines(tree: ast.Module) -> int:
    def counts(node: ast.AST) -> bool:
        if isinstance(node, ast.Assign):
            return any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)
        return isinstance(node, ast.Import | ast.ImportFrom)

    return sum(node.end_lineno - node.lineno + 1 for node in ast.walk(tree) if counts(node))  # type: ignore[attr-defined]


def _importers(trees: dict[Path, ast.Module]) -> dict[str, Counter[Path]]:
    """Who imports each module of the package, packages left out."""
    known = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for path in trees
        if not path.name.startswith("__")
    }
    importers: dict[str, Counter[Path]] = {name: Counter() for name in known}
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for name in {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)} & known:
                    importers[name][path] += 1
    return importers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", nargs="?", choices=["all", "map"], default="all")
    print(describe_map())
    if parser.parse_args().what == "map":
        return
    print(f"\n{'way':34} files functions changes of file depth")
    with tempfile.TemporaryDirectory() as folder:
        for name, seen in walks(Path(folder)):
            print(f"{name:34} {seen.describe()}")


if __name__ == "__main__":
    main()
