"""Faults planted on purpose: the kill points must find each of them, else they prove little.

A commit that is not forced to the disk (``synchronous = OFF``) is not among them: a killed process loses
nothing that the system has taken, so no kill can show it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from crossbyte.errors import StorageFailed, StorageFull
from crossbyte.index.index import Index
from crossbyte.index.storage import creation, store
from crossbyte.index.storage import creation as copying
from crossbyte.index.storage import database as connection
from crossbyte.index.storage import records as store_writing

from .workloads import Session


@dataclass(frozen=True)
class Fault:
    """A way to spoil the library, and the run of the driver that must notice."""

    plant: Callable[[], None]
    workload: str
    options: tuple[str, ...] = ()


def spoil(owner: Any, name: str, value: Any) -> None:
    """Put something else in the place of what is there; a fault that hits nothing would go unnoticed."""
    assert hasattr(owner, name), f"{owner} has no {name} any more: plant this fault elsewhere"
    setattr(owner, name, value)


def commit_twice() -> None:
    """Rows in one transaction, the catalogue in the next."""
    write_catalogue = store_writing._write_catalogue

    def spoiled(database: sqlite3.Connection, row: Any) -> None:
        database.execute("COMMIT")
        database.execute("BEGIN IMMEDIATE")
        write_catalogue(database, row)

    spoil(store_writing, "_write_catalogue", spoiled)


def keep_no_journal() -> None:
    """Write over the old pages with no way back."""
    settings = connection._SETTINGS[1:]
    none = ("PRAGMA journal_mode = OFF", "PRAGMA journal_mode", "off")
    spoil(connection, "_SETTINGS", (none, *settings))


def drop_the_journal() -> None:
    """Take away at open what a killed writer left, as tidy people do."""
    check_file = store.check_file

    def spoiled(path: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(path + "-journal")
        check_file(path)

    spoil(store, "check_file", spoiled)


def acknowledge_early() -> None:
    """Take each step only when the next one comes."""
    take, close = Session.take, Session.close
    waiting: list[Any] = []

    def catch_up(worker: Session) -> None:
        while waiting:
            take(worker, *waiting.pop())

    def spoiled(worker: Session, name: str, values: dict[str, Any]) -> None:
        catch_up(worker)
        waiting.append((name, values))

    def spoiled_close(worker: Session) -> None:
        catch_up(worker)
        close(worker)

    spoil(Session, "take", spoiled)
    spoil(Session, "close", spoiled_close)


def upsert_by_two_calls() -> None:
    """Delete, then add."""

    def spoiled(index: Index, ids: Any, **values: Any) -> None:
        index.delete(ids, missing_ok=True)
        index.add(ids, **values)

    spoil(Index, "upsert", spoiled)


def copy_in_place() -> None:
    """Give a copy its name before it is complete."""

    def spoiled(partial: str, source: str, target: str) -> None:
        copying.create_empty(target)
        copying._copy_pages(source, target)

    spoil(copying, "_copy_through", spoiled)


def create_in_two_steps() -> None:
    """The tables first, what belongs into them later."""
    write_schema = creation.write_schema

    def spoiled(database: sqlite3.Connection, format: int) -> None:
        write_schema(database, format)
        database.execute("COMMIT")
        database.execute("BEGIN EXCLUSIVE")

    spoil(creation, "write_schema", spoiled)


def ignore_failures() -> None:
    """Report success whatever the system says."""
    take = Session.take

    def spoiled(worker: Session, name: str, values: dict[str, Any]) -> None:
        with suppress(StorageFailed, StorageFull):
            take(worker, name, values)

    spoil(Session, "take", spoiled)


FAULTS = {
    "commit twice": Fault(commit_twice, "add"),
    "keep no journal": Fault(keep_no_journal, "add"),
    "drop the journal": Fault(drop_the_journal, "add"),
    "acknowledge early": Fault(acknowledge_early, "delete"),
    "upsert by two calls": Fault(upsert_by_two_calls, "upsert"),
    "copy in place": Fault(copy_in_place, "backup"),
    "create in two steps": Fault(create_in_two_steps, "create"),
    "ignore failures": Fault(ignore_failures, "delete", ("--mode", "fail", "--errors", "5", "28")),
}
