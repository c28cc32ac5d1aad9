"""Start and end the program. Imports next to nothing before Ctrl-C is caught."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

COMMANDS = {
    "demo": "crossbyte.cli.commands.demo",
    "fit": "crossbyte.cli.commands.fit",
    "add": "crossbyte.cli.commands.add",
    "delete": "crossbyte.cli.commands.maintenance",
    "search": "crossbyte.cli.commands.search",
    "explain": "crossbyte.cli.commands.explain",
    "serve": "crossbyte.cli.commands.serve",
    "info": "crossbyte.cli.commands.info",
    "report": "crossbyte.cli.commands.report",
    "verify": "crossbyte.cli.commands.maintenance",
    "cells": "crossbyte.cli.commands.cells",
    "compact": "crossbyte.cli.commands.maintenance",
    "backup": "crossbyte.cli.commands.maintenance",
    "shard": "crossbyte.cli.commands.shard",
    "export": "crossbyte.cli.commands.export",
    "plan": "crossbyte.cli.commands.plan",
    "encoders": "crossbyte.cli.commands.encoders",
    "audit": "crossbyte.cli.commands.audit",
    "evaluate": "crossbyte.cli.commands.evaluate",
    "tune": "crossbyte.cli.commands.evaluate",
}
"""The module of every command, which has a function of the command's name; in the order of ``--help``."""


def main() -> None:
    """Run the program with the arguments of this process, and leave with its exit code."""
    if os.environ.get("CROSSBYTE_SHARED_FILES", "") != "1":
        os.umask(os.umask(0o077) | 0o077)  # for what libraries write, too; our own files do without
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; every error ends here as two lines on stderr."""
    try:
        from crossbyte.cli.exit_codes import report_error
    except KeyboardInterrupt:
        return _report_early_interrupt()
    try:
        return _execute_commands(arguments)
    except (Exception, KeyboardInterrupt) as error:
        return report_error(error)


def _execute_commands(arguments: Sequence[str]) -> int:
    from crossbyte.cli.program import execute

    _escape_unprintable_output()
    code = execute(COMMANDS, arguments or ["--help"])
    sys.stdout.flush()  # a closed pipe is noticed here, not when the interpreter leaves
    return code


def _report_early_interrupt() -> int:
    """Report Ctrl-C as ``exit_codes`` does, before that module is imported."""
    print("crossbyte: interrupted\n  nothing was begun; run the command again when you like", file=sys.stderr)
    return 130


def _escape_unprintable_output() -> None:
    """Escape letters that a terminal cannot show, so that no answer ends in the middle."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # a stream that somebody put there instead
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
