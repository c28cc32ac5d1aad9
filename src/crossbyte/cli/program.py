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


def execute(commands: Mapping[str, str], arguments: Sequence[str]) -> int:
    """Run one command line of a program with these commands (name to module).

    Typer's own ``main`` is not used: it turns Ctrl-C into an exit code without a word.
    """
    command = typer.main.get_command(_make_program(commands))
    try:
        with command.make_context("crossbyte", list(arguments)) as context:
            return int(command.invoke(context) or 0)
    except typer.Exit as end:
        return int(end.exit_code)


def _make_program(commands: Mapping[str, str]) -> typer.Typer:
    # Without rich's markup typer does not import rich for its help, which would double the time.
    program = typer.Typer(
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    program.callback(help="Search images by text and texts by image, in 2 to 64 bytes per item.")(
        _define_global_options
    )
    for name, module in commands.items():
        command = getattr(import_module(module), name)
        program.command(name, help=_format_help(command))(guard_command(command))
    return program


def _define_global_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Show the version and exit.",
            is_eager=True,
            callback=lambda wanted: _print_version(wanted),
        ),
    ] = False,
) -> None:
    pass


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"crossbyte {crossbyte.__version__}")
        raise typer.Exit


def _format_help(command: object) -> str:
    """Return the docstring of a command, with the mark (a backspace) that keeps its examples apart."""
    return re.sub(r"\n\n(Example:)", "\n\n\b\n\\1", getdoc(command) or "")
