"""Run ``crossbyte serve``: serve an index to browsers and programs."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from typing import Annotated

import typer

from crossbyte.cli import options
from crossbyte.cli.exit_codes import ExitCode
from crossbyte.cli.output import emit
from crossbyte.errors import InvalidInput

_TOKEN_VARIABLE = "CROSSBYTE_TOKEN"


def serve(
    path: options.IndexPath,
    host: Annotated[str, typer.Option("--host", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port; 0 for any that is free.")] = 8765,
    token_file: Annotated[
        typer.FileText | None,
        typer.Option(
            "--token-file", metavar="FILE", help=f"A file with the token; else {_TOKEN_VARIABLE} has it."
        ),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Nobody writes, token or not.")] = False,
    token_for_reading: Annotated[
        bool, typer.Option("--token-for-reading", help="Ask for the token on this machine, too.")
    ] = False,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option("--allowed-host", metavar="NAME", help="A name browsers may use; may be repeated."),
    ] = None,
    image_encoder: options.ImageEncoder = None,
    text_encoder: options.TextEncoder = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster", metavar="local|ADDRESS", help="Hold the shards of INDEX in actors of a Ray cluster."
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> int:
    """Serve an index to browsers and programs, until Ctrl-C.

    Only this machine can reach it, and nobody can write, unless there is a token. INDEX is a file, or a
    folder of shards.

    Example:
      crossbyte serve photos.cb
      crossbyte serve photos.cb --host 0.0.0.0 --token-file token.txt
      crossbyte serve photos.cbs --cluster local
    """
    from crossbyte.service.server import serve as run
    from crossbyte.service.settings import Settings

    settings = Settings(
        host=host,
        port=port,
        token=_read_token(token_file),
        read_only=read_only,
        token_for_reading=token_for_reading,
        allowed_hosts=tuple(allowed_host or ()),
        image_encoder=image_encoder,
        text_encoder=text_encoder,
        cluster=cluster,
    )

    if token_file is not None:
        _warn_of_readers(token_file)

    def ready(url: str) -> None:
        emit(
            {"index": path, "url": url}, [f"{path}: open {url} in a browser; Ctrl-C ends it"], as_json=as_json
        )

    run(path, settings, ready)
    return ExitCode.FINE


def _read_token(file: typer.FileText | None) -> str | None:
    """Read the token from a file or the environment: other users can see command lines."""
    if file is None:
        return os.environ.get(_TOKEN_VARIABLE) or None
    token = file.read(10_000).strip()
    if not token:
        raise InvalidInput(f"--token-file: expected a token, got an empty file; or set {_TOKEN_VARIABLE}")
    return token


def _warn_of_readers(file: typer.FileText) -> None:
    """Warn of a file with the token that others on this machine may read."""
    with file, suppress(OSError):  # a pipe has no descriptor in every place
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o077:
            print(
                f"crossbyte: {file.name}: expected a token that only its owner may read, got mode {mode:o}\n"
                f"  others on this machine may write to the index: chmod 600 {file.name}, make a new token",
                file=sys.stderr,
            )
