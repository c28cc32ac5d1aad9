"""Read and write the manifest (the list of shards), and route new documents to shards."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte._fs import flush_folder, new_folder_mode, replace_file
from crossbyte._json import canonical_json, parse_json
from crossbyte.errors import DamagedIndexFile, ForeignIndexFile, IndexExists, NewerIndexFile, WrongModel
from crossbyte.index.storage.records import Record, translate_system_errors
from crossbyte.index.storage.store import Store

NAME = "shards.json"
_FORMAT, _VERSION = "crossbyte shards", 1
_MAX_BYTES = 2**24  # a million shards
_KEYS = {"format", "version", "model", "shards"}

ATOMIC_ROWS = 16_384  # up to this many new documents go to one shard, in one commit: all or nothing
NOWHERE = -1
Homes = NDArray[np.intp]
"""The shard (n,) of every document, or `NOWHERE`."""


class Manifest(NamedTuple):
    """Lists the files of a sharded index.

    Attributes
    ----------
    folder : str
        Its real path.
    model : str
        Digest of the model, which is the same in all shards.
    shards : tuple of str
        Names of the index files, in order.
    """

    folder: str
    model: str
    shards: tuple[str, ...]

    @classmethod
    def new(cls, folder: str, model: str, n_shards: int) -> Manifest:
        """Name the files of ``n_shards`` new shards."""
        return cls(folder, model, tuple(f"shard-{i:04d}.cb" for i in range(n_shards)))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Manifest:
        """Read the manifest of a folder, and check that its shards are there.

        Raises
        ------
        FileNotFoundError
            There is nothing at the path.
        ForeignIndexFile
            A folder without a manifest, or something else of that name.
        NewerIndexFile, DamagedIndexFile
            A later version; or a shard is missing.
        """
        folder = os.path.realpath(os.fsdecode(path))
        name = os.path.join(folder, NAME)
        values = _parse_manifest(name, _read_manifest_text(folder, name))
        manifest = cls(folder, values["model"], tuple(values["shards"]))
        for shard in manifest.paths:
            if not os.path.isfile(shard):
                raise DamagedIndexFile(
                    f"{folder}: the shard {os.path.basename(shard)} is missing; put the file back, or shard "
                    "the index anew"
                )
        return manifest

    @property
    def paths(self) -> list[str]:
        """Paths of the shards."""
        return [os.path.join(self.folder, name) for name in self.shards]

    def write(self, folder: str) -> None:
        """Put the manifest into a folder in one step."""
        document = {"format": _FORMAT, "version": _VERSION, "model": self.model, "shards": list(self.shards)}
        replace_file(os.path.join(folder, NAME), canonical_json(document).encode() + b"\n")

    def check_model(self, shard: str, digest: str) -> None:
        """Refuse a shard with another model than the manifest names.

        Raises
        ------
        WrongModel
        """
        if digest != self.model:
            raise WrongModel(
                f"{os.path.join(self.folder, shard)}: the shard was made with another model than the others "
                "of this index; put the right file there"
            )


def find_model_record(store: Store) -> tuple[Record, str]:
    """Find the record of an index file that holds the model, and the model's digest; nothing is loaded."""
    with store.reading():
        record = next(record for record in store.records() if record.kind == "model")
    return record, record.parts["model"].checksum.hex()


@contextmanager
def create_folder(path: str | os.PathLike[str]) -> Iterator[str]:
    """Fill a folder that gets its name at the end; after an error nothing is left.

    Raises
    ------
    IndexExists
        Something has the name already.
    """
    target = Path(os.path.realpath(os.fsdecode(path)))
    _refuse_taken(target)
    staged = target.parent / f".{target.name}-{secrets.token_hex(8)}.partial"
    if not target.parent.is_dir():
        message = "there is no such folder to write to; make it first"
        raise FileNotFoundError(errno.ENOENT, message, str(target.parent))
    with translate_system_errors(str(target)):
        staged.mkdir(new_folder_mode())
    try:
        yield str(staged)
        with translate_system_errors(str(target)):
            _refuse_taken(target)
            os.rename(staged, target)
            flush_folder(str(target.parent))
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise


def _refuse_taken(path: Path) -> None:
    if os.path.lexists(path):
        raise IndexExists(
            f"{path}: expected a free name, but something is there; choose another or remove it"
        )


def _read_manifest_text(folder: str, name: str) -> bytes:
    if not os.path.exists(folder):
        message = "there is no sharded index here; check the path, or make one"
        raise FileNotFoundError(errno.ENOENT, message, folder)
    if os.path.isfile(name) and os.path.getsize(name) <= _MAX_BYTES:
        with translate_system_errors(name):
            return Path(name).read_bytes()
    raise ForeignIndexFile(
        f"{folder}: expected a folder of shards with a file {NAME}; use crossbyte.split_index to make one"
    )


def _parse_manifest(name: str, text: bytes) -> dict[str, Any]:
    try:
        values = parse_json(text.decode())
        if not isinstance(values, dict) or values.get("format") != _FORMAT:
            raise ForeignIndexFile(f"{name}: this is no list of crossbyte shards; check the path")
        if type(values.get("version")) is int and values["version"] > _VERSION:
            raise NewerIndexFile(
                f"{name}: expected version {_VERSION} or older, got {values['version']}; upgrade crossbyte"
            )
        _check_manifest(values)
    except (ValueError, RecursionError) as error:
        raise DamagedIndexFile(f"{name}: the list of shards cannot be understood ({error})") from error
    return values


def _check_manifest(values: dict[str, Any]) -> None:
    if set(values) != _KEYS or values["version"] != _VERSION:
        raise ValueError("other keys or another version")
    if not isinstance(values["model"], str):
        raise ValueError("no digest of a model")
    shards = values["shards"]
    if not isinstance(shards, list) or not shards or not all(map(_is_plain_name, shards)):
        raise ValueError("expected names of files in this folder as shards")
    if len(set(shards)) < len(shards):
        raise ValueError("a shard is there twice")


def _is_plain_name(name: Any) -> bool:
    """Say whether this names a file of the folder itself, and nothing outside."""
    return isinstance(name, str) and name == os.path.basename(name) and name not in ("", ".", "..")


def route_documents(homes: Homes, sizes: Sequence[int]) -> Homes:
    """Choose the shard of every document.

    A document that replaces another goes where that one is, so that one commit does both. New ones go to the
    smallest shard; where they are many, they level all shards, in runs that follow each other.

    Parameters
    ----------
    homes : (n,) intp
        The shard that has a document of the same id, or `NOWHERE`.
    sizes : sequence of int
        Documents of every shard.

    Returns
    -------
    (n,) intp
    """
    chosen = homes.copy()
    new = np.flatnonzero(homes == NOWHERE)
    chosen[new] = np.repeat(np.arange(len(sizes)), _share_documents(len(new), np.asarray(sizes)))
    return chosen


def _share_documents(n_new: int, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count the new documents that each shard gets."""
    shares = np.zeros(len(sizes), np.int64)
    if n_new <= ATOMIC_ROWS:
        shares[np.argmin(sizes)] = n_new
        return shares
    order = np.argsort(sizes, kind="stable")
    lowest = sizes[order]
    # The size to which the new documents fill up the smallest shards.
    levels = (n_new + np.cumsum(lowest)) // np.arange(1, len(sizes) + 1)
    below = int(np.flatnonzero(levels >= lowest)[-1]) + 1
    shares[order[:below]] = levels[below - 1] - lowest[:below]
    shares[order[: n_new - int(shares.sum())]] += 1
    return shares
