"""How the program begins and ends. Imports next to nothing before Ctrl-C is caught."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress

__all__ = ["VERBS", "main", "run"]

VERBS = {
    "demo": "crossbyte.cli.verbs.demo",
    "fit": "crossbyte.cli.verbs.fit",
    "add": "crossbyte.cli.verbs.add",
    "delete": "crossbyte.cli.verbs.delete",
    "search": "crossbyte.cli.verbs.search",
    "explain": "crossbyte.cli.verbs.explain",
    "serve": "crossbyte.cli.verbs.serve",
    "info": "crossbyte.cli.verbs.info",
    "report": "crossbyte.cli.verbs.report",
    "verify": "crossbyte.cli.verbs.verify",
    "cells": "crossbyte.cli.verbs.cells",
    "compact": "crossbyte.cli.verbs.compact",
    "backup": "crossbyte.cli.verbs.backup",
    "shard": "crossbyte.cli.verbs.shard",
    "export": "crossbyte.cli.verbs.export",
    "plan": "crossbyte.cli.verbs.plan",
    "audit": "crossbyte.cli.verbs.audit",
    "evaluate": "crossbyte.cli.verbs.evaluate",
    "tune": "crossbyte.cli.verbs.tune",
}
"""The module of every command, which has a function of the command's name; in the order of ``--help``."""


def main() -> None:
    """Run the program with the arguments of this process, and leave with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; every error ends here as two lines on stderr."""
    try:
        from crossbyte.cli.failures import report
    except KeyboardInterrupt:
        return _interrupted_early()
    try:
        return _run(arguments)
    except (Exception, KeyboardInterrupt) as error:
        return report(error)


def _run(arguments: Sequence[str]) -> int:
    from crossbyte.cli.program import execute

    _make_streams_forgiving()
    code = execute(VERBS, arguments or ["--help"])
    sys.stdout.flush()  # a closed pipe is noticed here, not when the interpreter leaves
    return code


def _interrupted_early() -> int:
    """What ``failures`` says of Ctrl-C, which came before that was there."""
    print("crossbyte: interrupted\n  nothing was begun; run the command again when you like", file=sys.stderr)
    return 130


def _make_streams_forgiving() -> None:
    """Let a terminal that cannot show a letter show its number: an answer never ends in the middle."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # a stream that somebody put there instead
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
