"""Damage files of every form that is read, and see that each is read or refused.

Small files of arrays, tables, MATLAB, Parquet, pictures and models are changed and read: in every way, but
those that cost a process in one way at a time. Right is an answer or a typed error, in under 5 s of CPU, with
the memory of the reading process under 1 GB. What parses MATLAB files, Parquet and pictures is a child of
that process and may die; the process itself may not. ``python -m campaigns readers`` runs many,
``python -m crash.readers --samples build/readers 17`` in `tests/` case 17.
"""

from __future__ import annotations

import random
import resource
import tempfile
import traceback
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

from crossbyte.data import sandbox
from crossbyte.data.images.reader import PictureReader
from crossbyte.data.readers import describe, read_dataset, read_features, read_rows
from crossbyte.errors import DataFileError, ModelFileError
from crossbyte.model.file_format import parse_model_bytes
from support import hostile, hostile_pictures
from support.mutations import mutated
from support.paths import ROOT

from . import cases, shim, warm_children

SLOWEST = 5.0  # seconds of CPU
MOST_KILOBYTES = 2**20
FORMS = (*hostile.MAKERS, "picture", "safetensors")
COSTLY = ("mat", "parquet")  # each reading is a process
WAYS = (read_features, read_rows, read_dataset, describe)


@cache
def sound_files(form: str) -> list[bytes]:
    """Small files of a form that are read."""
    if form == "safetensors":
        return [path.read_bytes() for path in sorted((ROOT / "tests" / "golden").glob("*.cbm"))]
    if form == "picture":
        makers = (hostile_pictures.png_files, hostile_pictures.jpeg_files, hostile_pictures.gif_files)
        made = [data for maker in makers for name, data in maker() if name.startswith("ok-")]
        return [data for data in made if len(data) < 50_000]
    return [data for name, data in hostile.MAKERS[form]() if name.startswith("ok-") and len(data) < 5000]


@cache
def picture_reader() -> PictureReader:
    """One for all cases of this process, as in a server."""
    return PictureReader(n_children=1).__enter__()


def run_case(samples: Path, seed: int, number: int) -> str:
    """Damage and read one file; gives "read", "refused", or what is wrong."""
    chance = random.Random(f"{seed} {number}")
    form = chance.choice(FORMS)
    data = chance.choice(sound_files(form))
    keep = chance.choice((0, 0, 8, 32))  # most changes shall come past the first look
    data = data[:keep] + mutated(chance, data[keep:])
    started = used_seconds()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ways = (chance.choice(WAYS),) if form in COSTLY else WAYS
            outcome = "read" if read(form, data, ways) else "refused"
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            return f"wrong: {form}: {type(error).__name__} in {Path(place.filename).name}:{place.lineno}"
    if used_seconds() - started > SLOWEST:
        return f"wrong: {form}: over {SLOWEST:.0f} s"
    if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > MOST_KILOBYTES:
        return f"wrong: {form}: more than 1 GB"
    return f"{outcome}: {form}"


def used_seconds() -> float:
    """CPU time of this process and of its children that have ended; a busy machine makes no difference."""
    own, ended = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    children = ended.ru_utime + ended.ru_stime + warm_children.used_seconds
    return own.ru_utime + own.ru_stime + children


def read(form: str, data: bytes, ways: tuple[Callable[[Path], object], ...]) -> bool:
    """Read in these ways; True if any gave an answer."""
    if form == "safetensors":
        try:
            return parse_model_bytes(data, "a") is not None
        except ModelFileError:
            return False
    if form == "picture":
        return not isinstance(next(iter(picture_reader().read_many([data]))), DataFileError)
    answers = 0
    with tempfile.TemporaryDirectory(dir=shim.memory_folder()) as folder:
        path = Path(folder) / f"a.{form}"
        path.write_bytes(data)
        for reader in ways:
            try:
                answers += reader(path) is not None
            except DataFileError as error:
                assert str(error).startswith(f"{path}: "), "a message without the file"
    return answers > 0


CASES = cases.Cases("crash.readers", lambda folder: None, run_case)

if __name__ == "__main__":
    sandbox._start_child = warm_children.start_child
    cases.main(CASES, __doc__)
