"""Read NUS-WIDE as the National University of Singapore publishes it: text files of 269,648 lines each.

They are read a few thousand lines at a time; only the pairs with one of the ten most frequent concepts stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossbyte.arrays import Float32
from crossbyte.data.safe_open import OpenFile, file_errors, open_regular
from crossbyte.errors import DataFileError
from crossbyte.lab.datasets.collection import Collection, Part, make_collection, split_part
from crossbyte.lab.datasets.collection_files import LIMITS, DataFolder, PublishedSource, name_input_in_errors

MARKS = ("BoW_int.dat", "AllTags1k.txt", "Labels_sky.txt")
N_CONCEPTS = 10
N_QUERIES = 4000

_SOURCE = PublishedSource(
    "NUS-WIDE",
    "http://lms.comp.nus.edu.sg/research/NUS-WIDE.htm (low-level features: Low_Level_Features/BoW_int.dat; "
    "tags: NUS_WID_Tags/AllTags1k.txt; ground truth: Groundtruth/AllLabels/Labels_*.txt)",
)
_NOTE = "the pairs with one of the ten most frequent concepts, visual words and tags, queries drawn by seed"
_LINES = 4096  # read at a time
_LONGEST = 2**14  # bytes of a line
_MOST_FLAGS = 2**24  # bytes of a file of labels


def read_nus_wide(folder: DataFolder, name: str | None = None, *, seed: int, held_out: float) -> Collection:
    """Read the published folder.

    Parameters
    ----------
    folder : DataFolder
        With ``BoW_int.dat`` (500 counts in a line), ``AllTags1k.txt`` (1000 zeros and ones in a line) and a
        file ``Labels_<concept>.txt`` (0 or 1 in a line) for each concept in a folder ``AllLabels``.
    name : str, optional
    seed : int
        Seed of the choice of queries.
    held_out : float
        The largest share of the queries, of whom there are 4000 at most, the paper's number.

    Returns
    -------
    Collection
        Image features are the counts as they are; a pair without any of the 1000 tags stays.

    Raises
    ------
    DataFileError
    """
    words, tags, _ = folder.require(_SOURCE, "BoW_int.dat", "AllTags1k.txt", "Labels_*.txt")
    files = folder.all("Labels_*.txt", "AllLabels") or folder.all("Labels_*.txt")
    concepts, labels = _read_most_frequent(files)
    kept: NDArray[np.bool_] = np.asarray(labels.any(axis=1))
    part = Part(_read_counts(words, kept), _read_tags(tags, kept), np.ascontiguousarray(labels[kept]))
    with name_input_in_errors(folder.path):
        train, query = split_part(part, seed=seed, held_out=held_out, at_most=N_QUERIES)
        return make_collection(name or "nus-wide", train, query, concepts, _NOTE)


def _read_most_frequent(paths: list[Path]) -> tuple[list[str], NDArray[np.uint8]]:
    """Return the names of the ten most frequent concepts and their (n, 10) labels."""
    columns: list[NDArray[np.uint8]] = []
    for path in paths:
        columns.append(_read_flags(path))
        if len(columns[-1]) != len(columns[0]):
            raise DataFileError(
                f"{path}: expected {len(columns[0])} lines as in {paths[0].name}, got {len(columns[-1])}; "
                "it is cut short: unpack it again"
            )
    # of equally frequent concepts, the first by name: sorted is stable
    order = sorted(range(len(paths)), key=lambda place: -int(columns[place].sum()))[:N_CONCEPTS]
    names = [paths[place].stem.split("_", 1)[1] for place in order]
    labels = np.column_stack([columns[place] for place in order])
    if not labels.any():
        raise DataFileError(f"{paths[0].parent}: expected pairs with a concept, got none; unpack it again")
    return names, labels


def _read_flags(path: Path) -> NDArray[np.uint8]:
    """Return one 0 or 1 for each line; these files are small."""
    with file_errors(path), open_regular(path) as opened:
        if not 0 < opened.size <= _MOST_FLAGS:
            raise DataFileError(f"expected 1 to {_MOST_FLAGS} bytes, got {opened.size}; unpack it again")
        flags = _parse_flags(opened.file.read(), 0)
        if flags.shape[1] != 1:
            raise DataFileError(f"expected 0 or 1 in each line, got {flags.shape[1]}; unpack it again")
    return flags[:, 0]


def _read_tags(path: Path, kept: NDArray[np.bool_]) -> Any:
    """Return the tags of the kept lines, csr_array (n, width) float32."""
    blocks: list[Any] = []
    with file_errors(path), open_regular(path) as opened:
        for start, block in _iterate_kept_lines(opened, kept):
            blocks.append(sparse.csr_array(_parse_flags(b"".join(block), start).astype(np.float32)))
            _check_width(blocks, start)
    return sparse.csr_array(sparse.vstack(blocks, format="csr"))


def _read_counts(path: Path, kept: NDArray[np.bool_]) -> Float32:
    """Return the counts of the kept lines, (n, width) float32."""
    blocks: list[Float32] = []
    with file_errors(path), open_regular(path) as opened:
        for start, block in _iterate_kept_lines(opened, kept):
            blocks.append(_parse_counts(block, start))
            _check_width(blocks, start)
    return np.concatenate(blocks)


def _iterate_kept_lines(opened: OpenFile, kept: NDArray[np.bool_]) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the number of lines before, and the kept ones of some lines; check that all are there."""
    n_lines = 0
    for start, block in _iterate_lines(opened):
        n_lines = start + len(block)
        if n_lines > len(kept):
            break
        chosen = [line for line, wanted in zip(block, kept[start:n_lines], strict=True) if wanted]
        if chosen:
            yield start, chosen
    if n_lines != len(kept):
        got = "more" if n_lines > len(kept) else n_lines
        raise DataFileError(
            f"expected {len(kept)} lines as in the files of labels, got {got}; the files do not "
            "belong together, or one is cut short: unpack it again"
        )


def _iterate_lines(opened: OpenFile) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the number of lines before, and some lines; no more of them in memory, and none too long."""
    if opened.size > LIMITS.text_bytes:
        raise DataFileError(f"expected at most {LIMITS.text_bytes} bytes of text, got {opened.size}")
    start = 0
    lines = iter(lambda: opened.file.readline(_LONGEST + 1), b"")
    while block := list(islice(lines, _LINES)):
        longest = max(map(len, block))
        if longest > _LONGEST:
            raise DataFileError(
                f"lines from {start + 1}: expected at most {_LONGEST} bytes in one; is it text?"
            )
        yield start, block
        start += len(block)


def _parse_flags(lines: bytes, start: int) -> NDArray[np.uint8]:
    """Return the zeros and ones of some whole lines, (n, width)."""
    text = lines.translate(None, b" \t\r")
    text += b"" if text.endswith(b"\n") else b"\n"
    width = text.index(b"\n")
    cells = np.frombuffer(text, dtype=np.uint8)
    if not width or len(cells) % (width + 1):
        raise DataFileError(f"lines from {start + 1}: expected {width or 'some'} zeros and ones in each")
    rows = cells.reshape(-1, width + 1)
    flags = rows[:, :-1] - np.uint8(ord("0"))  # whatever comes before 0 in ASCII wraps around
    if flags.max() > 1 or (rows[:, -1] != ord("\n")).any():
        raise DataFileError(f"lines from {start + 1}: expected {width} zeros and ones in each, got others")
    return flags


def _parse_counts(block: list[bytes], start: int) -> Float32:
    """Return the counts of some lines, (n, width)."""
    try:
        found = np.loadtxt(block, dtype=np.float32, ndmin=2, comments=None)
    except ValueError as error:
        raise DataFileError(f"lines from {start + 1}: expected counts in each ({error!s:.200})") from error
    if found.shape[0] != len(block) or not np.isfinite(found).all() or found.min() < 0:
        raise DataFileError(f"lines from {start + 1}: expected counts in each, got something else")
    return found


def _check_width(blocks: list[Any], start: int) -> None:
    """Refuse a block that is not as wide as the first."""
    expected, got = blocks[0].shape[1], blocks[-1].shape[1]
    if got != expected:
        raise DataFileError(f"lines from {start + 1}: expected {expected} values in each, got {got}")
