"""Run ``crossbyte shard``: cut an index into shards."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from crossbyte._format import readable_bytes
from crossbyte.cli import options
from crossbyte.cli.output import emit


def shard(
    path: options.IndexPath,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DEST", help="A folder, such as photos.cbs.")],
    n_shards: Annotated[int, typer.Option("--shards", metavar="N", min=1, help="How many files.")],
    as_json: options.AsJson = False,
) -> None:
    """Cut an index into shards.

    Makes a folder of index files that answers as the one index does; serve --cluster holds each on a
    machine of its own. Documents keep their numbers and ids. What lies beside the index is copied.

    Example:
      crossbyte shard photos.cb -o photos.cbs --shards 4
    """
    from crossbyte.sharding.index import ShardedIndex
    from crossbyte.sharding.split import split_index

    split_index(path, out, n_shards)
    _copy_companion_files(path, out)
    with ShardedIndex.open(out) as index:
        stats = index.stats()
    size = stats["disk"]["bytes"]["file"]
    document = {"index": path, "out": out, "documents": stats["documents"], "bytes": size}
    document["shards"] = [{"name": each["name"], "documents": each["documents"]} for each in stats["shards"]]
    line = f"{out}: {stats['documents']:,} documents of {path} in {n_shards} shards, {readable_bytes(size)}"
    emit(document, [line], as_json=as_json)


def _copy_companion_files(path: Path, out: Path) -> None:
    """Copy thumbnails and the like; not the features, which only serve to resume encoding."""
    from crossbyte.gallery.companion import CompanionFiles

    old, new = CompanionFiles.of(path), CompanionFiles.of(out)
    if old.folder.is_dir() and not new.folder.exists():
        shutil.copytree(old.folder, new.folder, ignore=shutil.ignore_patterns(old.features.name + "*"))
