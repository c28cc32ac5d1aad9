"""How the program begins and ends. Imports next to nothing before Ctrl-C is caught."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress

__all__ = ["VERBS", "main", "run"]

VERBS = (
    "demo",
    "fit",
    "add",
    "delete",
    "search",
    "explain",
    "serve",
    "info",
    "report",
    "verify",
    "cells",
    "compact",
    "backup",
    "shard",
    "export",
    "plan",
    "audit",
    "evaluate",
    "tune",
)


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
