"""Run ``crossbyte demo``: show search at work on real pictures."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crossbyte.cli import options
from crossbyte.cli.output import emit, show_progress

if TYPE_CHECKING:
    from crossbyte.demo.demo import Answer, DemoResults


class Subject(StrEnum):
    """What the demo is about."""

    ICONS = "icons"
    SCENES = "scenes"


def demo(
    subject: Annotated[
        Subject, typer.Argument(help="icons: Font Awesome Free; scenes: generated shapes.")
    ] = Subject.ICONS,
    out: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Where pictures and index are written.")
    ] = Path("crossbyte-demo"),
    number: Annotated[
        int | None,
        typer.Option("--number", metavar="N", help="Take only so many icons, or make so many scenes."),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Another seed: other pictures are kept away.")
    ] = 0,
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE", help="Also save what is printed, as SVG.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Make the index anew, also in the place of an earlier demo's.")
    ] = False,
    jobs: options.Jobs = None,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """See it at work: pictures from a package, searched by words and by pictures.

    Draws the pictures into a folder with captions, learns, measures, writes an index, and
    asks it. A second run opens the index that is there.

    Example:
      crossbyte demo
      crossbyte demo scenes --number 500 --out /tmp/scenes
    """
    from crossbyte.demo.demo import Choice, run_demo

    _check_picture(picture)
    with show_progress("demo", quiet=quiet) as callback:
        results = run_demo(Choice(subject.value, out, number, seed, overwrite, jobs), callback)
    if as_json:
        emit(_make_document(results), [], as_json=True)
    if picture is not None or not as_json:
        _print_page(results, picture, visible=not as_json)


def _check_picture(path: Path | None) -> None:
    from crossbyte.errors import InvalidInput

    if path is not None and not path.parent.is_dir():  # said now, not after all the work
        raise InvalidInput(f"--picture: expected a file in a folder that exists, got {str(path)!r}")


def _print_page(results: DemoResults, picture: Path | None, *, visible: bool) -> None:
    import io

    from rich.console import Console

    from crossbyte.demo.demo import WIDTH, make_page, save_picture

    terminal = visible and sys.stdout.isatty()
    console = Console(
        record=picture is not None,
        width=None if terminal and picture is None else WIDTH,
        file=None if visible else io.StringIO(),
        highlight=False,
    )
    for part in make_page(results, pictures=_can_draw(console.encoding) or picture is not None):
        console.print(part)
    if picture is not None:
        save_picture(console, picture, "crossbyte demo")


def _can_draw(encoding: str) -> bool:
    return encoding.lower().replace("-", "").startswith("utf")


def _make_document(results: DemoResults) -> dict[str, Any]:
    choice = results.choice
    return {
        "subject": choice.subject,
        "index": choice.index,
        "pictures": choice.pictures,
        "unseen": choice.unseen,
        "documents": results.n_documents,
        "bytes_per_item": results.n_bytes,
        "seconds": results.seconds,
        "answers": [_describe_answer(answer) for answer in results.answers],
        "report": results.report.to_dict(),
    }


def _describe_answer(answer: Answer) -> dict[str, Any]:
    names = ("id", "distance", "probability", "strength", "found_by")
    hits = [{name: getattr(hit, name) for name in names} for hit in answer.hits]
    return {
        "text": answer.text,
        "picture": answer.picture,
        "where": answer.where,
        "own_caption": answer.own,
        "hits": hits,
    }
