"""Pictures and captions on the command line: which data are such, and what is said of those left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from crossbyte._format import plural
from crossbyte.cli.inputs import Given
from crossbyte.errors import InvalidInput

if TYPE_CHECKING:
    from crossbyte.data.folders.documents import RawDocuments, Skipped

__all__ = ["RawGiven", "is_raw_data", "left_out", "left_out_lines", "read_raw_documents"]

_SHOWN = 5


class RawGiven(NamedTuple):
    """The options that only pictures and captions have, as the user gave them."""

    image_column: str | None = None
    text_columns: list[str] | None = None
    id_column: str | None = None
    image_encoder: str | None = None
    text_encoder: str | None = None


def is_raw_data(given: Given, raw: RawGiven) -> bool:
    """Whether DATA are pictures and captions themselves; options of the other kind are refused."""
    if given.data is None:
        found = False
    elif not given.data.exists():
        raise FileNotFoundError(2, "there is no such file or folder", str(given.data))
    else:
        from crossbyte.data.folders.reading import is_raw

        found = is_raw(given.data)
    options = _features_options(given) if found else _raw_options(raw)
    wrong = next((name for name, value in options.items() if value is not None), None)
    if wrong is not None:
        kinds = ("features", "pictures and captions") if found else ("pictures and captions", "features")
        raise InvalidInput(f"{wrong}: this option is for {kinds[0]}, and DATA are {kinds[1]}; leave it out")
    return found


def _features_options(given: Given) -> dict[str, Any]:
    named = {"--split": given.split, "--images": given.images, "--texts": given.texts}
    return named | {"--payloads": given.payloads, "--ids": given.ids, "--groups": given.groups}


def _raw_options(raw: RawGiven) -> dict[str, Any]:
    named = {"--image-column": raw.image_column, "--text-column": raw.text_columns or None}
    named |= {"--id-column": raw.id_column, "--image-encoder": raw.image_encoder}
    return named | {"--text-encoder": raw.text_encoder}


def read_raw_documents(path: Path, raw: RawGiven) -> RawDocuments:
    """Read a folder or a table of captions; no picture is opened yet."""
    from crossbyte.data.folders.reading import read_raw

    return read_raw(
        path, image_column=raw.image_column, text_columns=raw.text_columns or None, id_column=raw.id_column
    )


def left_out(skipped: Sequence[Skipped]) -> list[dict[str, str]]:
    """What was left out, for JSON."""
    return [each._asdict() for each in skipped]


def left_out_lines(skipped: Sequence[Skipped]) -> Iterator[str]:
    """Say what was left out, the first few by name."""
    if not skipped:
        return
    more = " (--json lists all)" if len(skipped) > _SHOWN else ""
    yield f"{plural(len(skipped), 'thing')} left out{more}:"
    yield from (f"  {each.name}: {each.reason}" for each in skipped[:_SHOWN])
