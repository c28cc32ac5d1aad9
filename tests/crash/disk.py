"""What a disk may hold after the power was lost: a recording of all changes, of which some did not get there.

A recording (``shim.c`` makes it) is played up to a moment. What was synced until then is on the disk. Of the
rest, each change is there, or not, or in part, in any combination:

* bytes of a file: written whole, not at all, only some of their sectors of 512 bytes, or as zeros (the file
  has grown, its bytes have not come); a cut of a file made or not;
* names (made, removed, renamed, linked) made or not, until their folder is synced. A rename is one change.

That a synced file has its name only once its folder is synced as well, and that no order holds between two
syncs, is what POSIX allows; common file systems are kinder.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path, PurePosixPath
from typing import NamedTuple

SECTOR = 512
_HEAD = struct.Struct("<4I3Q")

Tree = dict[str, "bytes | None"]
"""Contents of files by relative name; None for a folder."""


class Change(IntEnum):
    """As in shim.c."""

    MARKED = 0
    CREATED = 1
    WRITTEN = 2
    CUT = 3
    SYNCED = 4
    REMOVED = 5
    RENAMED = 6
    LINKED = 7
    FOLDER_MADE = 8
    FOLDER_REMOVED = 9


class Operation(NamedTuple):
    """One change, in the order in which they were made; names are relative to the folder."""

    change: Change
    inode: int = 0
    name: str = ""
    other: str = ""
    place: int = 0
    data: bytes = b""

    def __str__(self) -> str:
        what = " ".join(filter(None, [self.name, self.other])) or f"inode {self.inode}"
        size = f" {len(self.data)} bytes at {self.place}" if self.change is Change.WRITTEN else ""
        return f"{self.change.name.lower()} {what}{size}"


def read_recording(log: Path, folder: Path) -> list[Operation]:
    """The operations that the shim wrote down."""
    data, at, operations = log.read_bytes(), 0, []
    while at < len(data):
        change, n_name, n_other, _, inode, place, n_bytes = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        parts = []
        for n in (n_name, n_other, n_bytes):
            parts.append(data[at : at + n])
            at += n
        name, other = (_relative(os.fsdecode(part), folder, Change(change)) for part in parts[:2])
        operations.append(Operation(Change(change), inode, name, other, place, parts[2]))
    return operations


def _relative(name: str, folder: Path, change: Change) -> str:
    if change is Change.MARKED or name in ("", "/"):
        return ""
    return os.path.relpath(name, folder)


@dataclass(eq=False)
class Node:
    """A file, or a folder with its entries."""

    is_folder: bool
    durable: bytes = b""
    entries: dict[str, Node] = field(default_factory=dict)  # on the disk
    now: dict[str, Node] = field(default_factory=dict)  # as running programs see them
    pending: list[Pending] = field(default_factory=list)  # not synced yet


@dataclass(eq=False)
class Pending:
    """A change that may not have got to the disk: bytes of a file, or names of folders."""

    number: int  # of the operation
    operation: Operation
    file: Node | None = None  # whose bytes
    names: tuple[
        tuple[Node, str, Node, bool], ...
    ] = ()  # folder, name, what it names, whether it is put there

    @property
    def is_name(self) -> bool:
        return self.file is None


class Fate(NamedTuple):
    """What became of a change that was not synced."""

    applied: bool
    sectors: frozenset[int] | None = None  # of a write: only these, counted from its first; None for all
    zeros: bool = False  # of a write: the file has grown, the bytes have not come


WHOLE, LOST, ZEROS = Fate(True), Fate(False), Fate(True, zeros=True)
Fates = Mapping[int, Fate]
"""By the number of the operation."""


class Disk:
    """A folder on a disk, on which recorded operations are played."""

    def __init__(self, folder: Path, ignored: Callable[[str, bool], bool] | None = None) -> None:
        """Begin with what is there; ``ignored`` says of which names (is it a folder?) a sync does nothing."""
        self._nodes: dict[int, Node] = {}
        self._ignored = ignored or (lambda name, is_folder: False)
        self.root = self._scan(folder)
        self.played, self.marks = 0, 0

    def _scan(self, path: Path) -> Node:
        node = Node(path.is_dir())
        self._nodes[path.stat().st_ino] = node
        if node.is_folder:
            for child in sorted(path.iterdir()):
                node.entries[child.name] = self._scan(child)
            node.now = dict(node.entries)
        else:
            node.durable = path.read_bytes()
        return node

    # Playing

    def play(self, operation: Operation) -> None:
        """Take one operation."""
        number, self.played = self.played, self.played + 1
        match operation.change:
            case Change.MARKED:
                self.marks += 1
            case Change.WRITTEN | Change.CUT:
                file = self._nodes[operation.inode]
                file.pending.append(Pending(number, operation, file))
            case Change.SYNCED:
                self._sync(self._nodes[operation.inode])
            case Change.CREATED | Change.FOLDER_MADE:
                node = self._nodes[operation.inode] = Node(operation.change is Change.FOLDER_MADE)
                self._rename(number, operation, [(*self._find(operation.name), node, True)])
            case Change.REMOVED | Change.FOLDER_REMOVED:
                folder, name = self._find(operation.name)
                self._rename(number, operation, [(folder, name, folder.now[name], False)])
            case Change.LINKED:
                folder, name = self._find(operation.name)
                self._rename(number, operation, [(*self._find(operation.other), folder.now[name], True)])
            case Change.RENAMED:
                folder, name = self._find(operation.name)
                node = folder.now[name]
                moves = [(*self._find(operation.other), node, True), (folder, name, node, False)]
                self._rename(number, operation, moves)

    def _find(self, name: str) -> tuple[Node, str]:
        *folders, last = PurePosixPath(name).parts
        node = self.root
        for each in folders:
            node = node.now[each]
        return node, last

    def _rename(self, number: int, operation: Operation, names: list[tuple[Node, str, Node, bool]]) -> None:
        change = Pending(number, operation, None, tuple(names))
        for folder, name, node, put in names:
            _enter(folder.now, name, node, put)
            if change not in folder.pending:
                folder.pending.append(change)

    def _sync(self, node: Node) -> None:
        if self._ignored(self.name_of(node), node.is_folder):
            return
        if not node.is_folder:
            node.durable = _written(node, dict.fromkeys((each.number for each in node.pending), WHOLE))
            node.pending = []
            return
        for change in list(node.pending):
            for folder, name, named, put in change.names:  # a rename from another folder is one change
                _enter(folder.entries, name, named, put)
                if change in folder.pending:
                    folder.pending.remove(change)

    def name_of(self, node: Node) -> str:
        """Give a name that a node has for running programs; "" for the folder itself, or for none."""
        return next((name for name, each in _walk(self.root, now=True) if each is node), "")

    # The power is lost

    def pending(self) -> list[Pending]:
        """What may not be on the disk, in the order of doing, of all that has a name or may have one."""
        seen: dict[int, Pending] = {}
        done: set[int] = set()
        self._collect(self.root, seen, done)
        return [seen[number] for number in sorted(seen)]

    def _collect(self, node: Node, seen: dict[int, Pending], done: set[int]) -> None:
        if id(node) in done:
            return
        done.add(id(node))
        for change in node.pending:
            seen[change.number] = change
            for _, _, named, _ in change.names:
                self._collect(named, seen, done)
        for child in node.entries.values():
            self._collect(child, seen, done)

    def tree(self, fates: Fates) -> Tree:
        """What is found afterwards; changes without a fate are lost."""
        return dict(_contents(self.root, "", fates))

    def seen(self) -> Tree:
        """What running programs see."""
        return self.tree(dict.fromkeys((change.number for change in self.pending()), WHOLE))


def write_tree(tree: Tree, folder: Path) -> None:
    """Put it into a new folder."""
    folder.mkdir(parents=True)
    for name, data in tree.items():
        if data is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(data)


def read_tree(folder: Path) -> Tree:
    """Give what is in a folder."""
    paths = sorted(folder.rglob("*"))
    return {str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes() for path in paths}


def sectors_of(operation: Operation) -> int:
    """Count the sectors that a write touches."""
    first, end = operation.place // SECTOR, -(-(operation.place + len(operation.data)) // SECTOR)
    return end - first


def _enter(entries: dict[str, Node], name: str, node: Node, put: bool) -> None:
    if put:
        entries[name] = node
    elif entries.get(name) is node:
        del entries[name]


def _walk(node: Node, now: bool, prefix: str = "") -> Iterator[tuple[str, Node]]:
    for name, child in (node.now if now else node.entries).items():
        yield f"{prefix}{name}", child
        yield from _walk(child, now, f"{prefix}{name}/")


def _contents(folder: Node, prefix: str, fates: Fates) -> Iterator[tuple[str, bytes | None]]:
    entries = dict(folder.entries)
    for change in folder.pending:
        if fates.get(change.number, LOST).applied:
            for where, name, node, put in change.names:
                if where is folder:
                    _enter(entries, name, node, put)
    for name, node in sorted(entries.items()):
        if node.is_folder:
            yield prefix + name, None
            yield from _contents(node, f"{prefix}{name}/", fates)
        else:
            yield prefix + name, _written(node, fates)


def _written(file: Node, fates: Fates) -> bytes:
    data = bytearray(file.durable)
    for change in file.pending:
        fate, operation = fates.get(change.number, LOST), change.operation
        if not fate.applied:
            continue
        if operation.change is Change.CUT:
            del data[operation.place :]
            data.extend(bytes(operation.place - len(data)))
            continue
        end = operation.place + len(operation.data)
        data.extend(bytes(max(0, end - len(data))))
        if fate.zeros:
            continue
        if fate.sectors is None:
            data[operation.place : end] = operation.data
            continue
        base = operation.place // SECTOR * SECTOR
        for sector in fate.sectors:
            start = max(operation.place, base + sector * SECTOR)
            stop = min(end, base + (sector + 1) * SECTOR)
            data[start:stop] = operation.data[start - operation.place : stop - operation.place]
    return bytes(data)
