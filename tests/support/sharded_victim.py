"""A process of its own whose part of Ray is killed while it has shards open; called with their folder."""

from __future__ import annotations

import os
import signal
import sys

from crossbyte import ShardedIndex
from crossbyte.errors import ClusterError
from support.cluster_samples import wait_until
from support.cluster_victim import _child, _is_dead
from support.sharded_samples import TEXTS


def main(folder: str) -> None:
    with ShardedIndex.open(folder, "rw", cluster="local", timeout=2.0) as shards:
        process = _child("raylet")
        os.kill(process, signal.SIGKILL)
        wait_until(lambda: _is_dead(process))
        print(wait_until(lambda: _said(shards)))
    print("closed")


def _said(shards: ShardedIndex) -> str:
    """The error of a search; for a while, actors may answer without the rest of Ray."""
    try:
        shards.search(texts=TEXTS)
    except ClusterError as error:
        return f"ClusterError: {error}"
    return ""


if __name__ == "__main__":
    main(sys.argv[1])
