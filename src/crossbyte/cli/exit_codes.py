"""Turn errors into two lines on stderr (what happened, what to do) and an exit code. Only here."""

from __future__ import annotations

import errno
import functools
import os
import re
import sys
import traceback
from collections.abc import Callable
from enum import IntEnum
from typing import Any, TypeVar

import typer

from crossbyte import errors
from crossbyte.cli.output import escape_control

Command = TypeVar("Command", bound=Callable[..., Any])

DEBUG = "CROSSBYTE_DEBUG"

# The base of what typer raises on a wrong command line; its own name changed between versions of typer.
_UsageError: Any = typer.BadParameter.__mro__[1]


class ExitCode(IntEnum):
    """What the program's exit code means; docs/cli.md has the same table."""

    FINE = 0
    BUG = 1
    BAD_INPUT = 2
    QUALITY = 3
    NOTHING_FOUND = 4
    BAD_FILE = 5
    STORAGE = 6
    MISSING_EXTRA = 7
    CLUSTER = 8
    INTERRUPTED = 130


# The first class that an error is an instance of counts; the more special ones stand before their bases.
_CODES: tuple[tuple[type[BaseException], ExitCode], ...] = (
    (KeyboardInterrupt, ExitCode.INTERRUPTED),
    (typer.Abort, ExitCode.INTERRUPTED),
    (_UsageError, ExitCode.BAD_INPUT),
    (errors.NoPlan, ExitCode.QUALITY),
    (errors.InvalidInput, ExitCode.BAD_INPUT),
    (errors.MissingExtra, ExitCode.MISSING_EXTRA),
    (errors.ClusterError, ExitCode.CLUSTER),
    (errors.IndexExists, ExitCode.BAD_INPUT),
    (errors.StorageFull, ExitCode.STORAGE),
    (errors.StorageFailed, ExitCode.STORAGE),
    (errors.ModelFileError, ExitCode.BAD_FILE),
    (errors.IndexFileError, ExitCode.BAD_FILE),
    (FileNotFoundError, ExitCode.BAD_INPUT),
    (FileExistsError, ExitCode.BAD_INPUT),
    (PermissionError, ExitCode.BAD_INPUT),
    (IsADirectoryError, ExitCode.BAD_INPUT),
    (NotADirectoryError, ExitCode.BAD_INPUT),
    (errors.NumericalError, ExitCode.BUG),
    (OSError, ExitCode.STORAGE),
    (MemoryError, ExitCode.STORAGE),
)

# What to do where the message itself does not say so.
_ADVICE: tuple[tuple[type[BaseException], str], ...] = (
    (errors.UnknownField, "`crossbyte info INDEX` lists the fields"),
    (errors.FilterError, "docs/filters.md describes filters"),
    (errors.DuplicateId, "use --upsert to replace documents, or --skip-existing to leave them"),
    (errors.UnknownId, "check the id; a search lists ids"),
    (errors.DataFileError, "docs/files.md describes the files that can be read"),
    (errors.InvalidInput, "change the option or the data, and try again; --help describes them"),
    (errors.ClusterError, "check the address and that the cluster runs, or leave --cluster out"),
    (errors.IndexExists, "give another name, or remove the file"),
    (errors.IndexLocked, "wait until the other writer is done"),
    (errors.IndexBusy, "try again"),
    (errors.ModelFileError, "check the path, or restore the file from a copy"),
    (errors.IndexFileError, "check the path, or restore the file from a backup"),
    (FileNotFoundError, "check the path"),
    (FileExistsError, "give another name, or --overwrite where there is one"),
    (PermissionError, "check the permissions of the file and of its folder"),
    (IsADirectoryError, "give a file"),
    (NotADirectoryError, "check the path"),
    (OSError, "look at the disk, then try again"),
    (MemoryError, "give less at once, or use a machine with more memory"),
    (errors.FitInterrupted, "no file was written; run the command again when you like"),
    (KeyboardInterrupt, "nothing is half written; run the command again when you like"),
)
# What to do for single messages that do not say so, or say it for Python.
_SPECIAL_ADVICE = (
    (
        re.compile(r"token: expected one with"),
        "give a token by --token-file FILE or CROSSBYTE_TOKEN, or listen on 127.0.0.1",
    ),
    (
        re.compile(r"token: expected at least"),
        "make one: python -c 'import secrets; print(secrets.token_urlsafe())' > FILE",
    ),
    (
        re.compile(r"no document has the id .*; nothing was changed"),
        "check the id, or pass over with --missing-ok",
    ),
    (
        re.compile(r"is writing to this index"),
        "wait until the other writer is done, or end it, and try again",
    ),
    (
        re.compile(r"as many of everything, row by row"),
        "row i of everything is one document: give equally many rows",
    ),
    (
        re.compile(r"holds Python objects"),
        "save plain numbers instead: numpy.save(FILE, array.astype('float32'))",
    ),
    (
        re.compile(r"expected a sparse matrix in CSR form"),
        "CSR and CSC can be read: scipy.sparse.save_npz(FILE, matrix.tocsr())",
    ),
)
_BUG_ADVICE = f"this is a fault of crossbyte: please report it with what {DEBUG}=1 prints"

# No advice for the command line: a last clause that says how things stand, or what to call in Python.
_STATE = re.compile(r"nothing was|the model is as it was")
_CALL = re.compile(r"\w\(")
# Parameters, as messages name them, that the command line spells otherwise.
_SPELLINGS = (
    (re.compile(r"^n_bits:"), "--bits:"),
    (re.compile(r"^random_state:"), "--seed:"),
    (re.compile(r"^n_jobs:"), "--jobs:"),
    (re.compile(r"^k:"), "-k:"),
    (re.compile(r"^curve:"), "--curve:"),
    (re.compile(r"^host:"), "--host:"),
    (re.compile(r"^port:"), "--port:"),
    (re.compile(r"^groups:"), "--groups:"),
    (re.compile(r"^cluster:"), "--cluster:"),
    (re.compile(r"\bkey="), "FILE:KEY"),
    (re.compile(r"\bsplit="), "--split"),
    (re.compile(r"\blike=|^like\b"), "--like"),
    (re.compile(r"\boverwrite=True"), "--overwrite"),
    (re.compile(r"\bmin_probability\b"), "--min-probability"),
    (re.compile(r"\bmax_distance\b"), "--max-distance"),
    (re.compile(r"\bmatch_threshold\b"), "--match-threshold"),
    (re.compile(r"\bmin_recall\b"), "--min-recall"),
    (re.compile(r"\bmax_memory\b"), "--max-memory"),
    (re.compile(r"\bmax_disk\b"), "--max-disk"),
)


def guard_command(command: Command) -> Command:
    """Make a command end in two lines and an exit code whatever it raises, Ctrl-C included."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> int:
        try:
            code = command(*arguments, **options)
            sys.stdout.flush()
            return int(code or 0)
        except typer.Exit:
            raise
        except (Exception, KeyboardInterrupt) as error:
            return report_error(error)

    return run  # type: ignore[return-value]


def report_error(error: BaseException) -> int:
    """Print two lines on stderr and return the exit code; a closed pipe is no error."""
    if isinstance(error, BrokenPipeError):
        _close_output()
        return ExitCode.FINE
    if os.environ.get(DEBUG, "0") not in ("", "0"):
        traceback.print_exception(error, file=sys.stderr)
    print_error(*describe_error(error))
    return exit_code(error)


def print_error(what: str, what_to_do: str) -> None:
    """Print what happened and what to do about it, a line each, on stderr."""
    print(f"crossbyte: {escape_control(what)}\n  {escape_control(what_to_do)}", file=sys.stderr, flush=True)


def exit_code(error: BaseException) -> ExitCode:
    """Return the exit code of an error; every unexpected one is 1."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ExitCode.STORAGE
    if _is_not_fitted(error):
        return ExitCode.BAD_INPUT
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.BUG)


def describe_error(error: BaseException) -> tuple[str, str]:
    """Say what happened and what to do: the last clause of the message, or advice for its kind of error."""
    what = _format_message(error)
    if isinstance(error, _UsageError):
        return what, _advise_on_usage(error)
    if exit_code(error) is ExitCode.BUG:
        return f"unexpected {what}", _BUG_ADVICE
    head, _, tail = what.rpartition("; ")
    advice = _advise_on_kind(error)
    if special := next((advice for pattern, advice in _SPECIAL_ADVICE if pattern.search(what)), None):
        return head if head and not _STATE.match(tail) else what, special
    if not head or not isinstance(error, errors.CrossbyteError | OSError) or _STATE.match(tail):
        return what, advice
    return head, advice if _CALL.search(tail) else tail


def _advise_on_kind(error: BaseException) -> str:
    if isinstance(error, errors.NotCalibrated):
        from crossbyte.model.selection import MIN_GROUPS  # too heavy for a program that may end well

        return (
            f"measuring needs at least {MIN_GROUPS} captioned pictures (or groups of pairs) that differ, and "
            "a fit without --no-calibrate: fit anew with `crossbyte fit`"
        )
    return next((advice for kind, advice in _ADVICE if isinstance(error, kind)), "try again")


def _format_message(error: BaseException) -> str:
    if isinstance(error, _UsageError):
        return " ".join(str(error.format_message()).split())  # typer lists choices line by line
    text = " ".join(line.strip() for line in str(error).splitlines() if line.strip() != "^")
    if isinstance(error, errors.CrossbyteError):
        return functools.reduce(
            lambda message, spelling: spelling[0].sub(spelling[1], message), _SPELLINGS, text
        )
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return "interrupted"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, OSError) and text:  # raised by us, with a sentence of its own
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _advise_on_usage(error: Any) -> str:
    command = error.ctx.command_path if error.ctx is not None else "crossbyte"
    return f"`{command} --help` describes the options"


def _is_not_fitted(error: BaseException) -> bool:
    """Recognise the class by its name: importing it would import scikit-learn."""
    return type(error).__name__ == "NotFitted"


def _close_output() -> None:
    """Send what is still to be written to nowhere: the interpreter flushes once more when it exits."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
