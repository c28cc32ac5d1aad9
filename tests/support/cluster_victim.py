"""A process of its own whose Ray is killed in the middle of its work; it tells what became of it.

Called with what to do ("fit" or "add"), which part of Ray to kill ("raylet" or "gcs_server"), and the path of
an index.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from crossbyte import CMCQ, Index
from crossbyte.errors import ClusterError
from crossbyte.progress import Progress
from support.cluster_samples import pairs, wait_until


def main(work: str, part: str, path: str) -> None:
    images, texts = pairs(40_000)
    model = CMCQ(n_bits=16, mapping="cca", max_iter=2, random_state=0).fit(images[:500], texts[:500])
    before = signal.getsignal(signal.SIGTERM)
    with Index.create(path, model) as index:
        index.add(range(500), images=images[:500])
        was = Path(path).read_bytes()
        kill = Kill(part)
        try:
            if work == "add":
                blocks = {"images": images, "texts": texts}
                index.add(range(1_000, 41_000), **blocks, cluster="local", callback=kill)
            else:
                model.set_params(callback=kill).fit(images, texts, cluster="local")
            print("finished")
        except ClusterError as error:
            print(f"ClusterError: {error}")
        print("unchanged" if Path(path).read_bytes() == was else "changed")
        print("usable", index.add([501], images=images[:1]), len(model.image_codes_))
    print("left" if signal.getsignal(signal.SIGTERM) is before else "signals changed")


class Kill:
    """A callback that kills a part of Ray when it is first called in the middle of something."""

    def __init__(self, part: str) -> None:
        self.part = part

    def __call__(self, step: Progress) -> None:
        if self.part != "none" and (step.stage in ("code", "codebooks")):
            process = _child(self.part)
            os.kill(process, signal.SIGKILL)
            wait_until(lambda: _is_dead(process))
            self.part = "none"


def _child(name: str) -> int:
    """The process of that name that this one has started."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and _is(folder, name):
            return int(folder.name)
    raise AssertionError(f"no {name} here")


def _is_dead(process: int) -> bool:
    """Whether all its threads have ended; nobody else has looked at it yet."""
    state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    return state == "Z" and len(list(Path(f"/proc/{process}/task").iterdir())) == 1


def _is(folder: Path, name: str) -> Any:
    try:
        parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        program = (folder / "cmdline").read_bytes().partition(b"\0")[0]
    except OSError:
        return False
    return parent == os.getpid() and program.endswith(b"/" + name.encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
