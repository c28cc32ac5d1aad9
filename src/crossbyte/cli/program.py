"""Make the typer program of all commands. Imports nothing heavy: ``--help`` is quick."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from inspect import getdoc
from typing import Annotated

import typer

import crossbyte
from crossbyte.cli.exit_codes import guard_command


def execute(verbs: Mapping[str, str], arguments: Sequence[str]) -> int:
    """Run one command line of the program with these commands, each with the module that has it.

    Not by typer's own ``main``, which makes an exit code of Ctrl-C without a word.
    """
    command = typer.main.get_command(_make_program(verbs))
    try:
        with command.make_context("crossbyte", list(arguments)) as context:
            return int(command.invoke(context) or 0)
    except typer.Exit as end:
        return int(end.exit_code)


def _make_program(verbs: Mapping[str, str]) -> typer.Typer:
    # Without rich's markup typer needs no rich for its help, which takes half of the time with it.
    made = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)
    made.callback(help="Search images by text and texts by image, in 2 to 16 bytes per item.")(
        _define_global_options
    )
    for name, module in verbs.items():
        verb = getattr(import_module(module), name)
        made.command(name, help=_format_help(verb))(guard_command(verb))
    return made


def _define_global_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Show the version and exit.",
            is_eager=True,
            callback=lambda asked: _print_version(asked),
        ),
    ] = False,
) -> None:
    pass


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"crossbyte {crossbyte.__version__}")
        raise typer.Exit


def _format_help(verb: object) -> str:
    """Give a command's docstring, with the mark (a backspace) that keeps the lines of its examples apart."""
    return re.sub(r"\n\n(Example:)", "\n\n\b\n\\1", getdoc(verb) or "")
