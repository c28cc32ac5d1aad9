"""Flip every bit of every golden file: ``python -m campaigns flips``."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path

from campaigns.runner import Outcome, Unit, add_common_options, run_units
from crash import shim
from crossbyte import CMCQ
from crossbyte.errors import CrossbyteError
from support.paths import GOLDEN, with_tests

_AT_ONCE = 32_768  # bits of one unit


def main() -> int:
    """Flip every bit, or every so many-th."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stride", type=int, default=1, help="flip every so many-th bit")
    add_common_options(parser)
    given = parser.parse_args()
    units = []
    for path in sorted([*GOLDEN.glob("*.cb"), *GOLDEN.glob("*.cbm")]):
        n_bits = 8 * path.stat().st_size
        flip = flip_index if path.suffix == ".cb" else flip_model
        step = _AT_ONCE * given.stride
        for start in range(0, n_bits, step):
            bits = range(start, min(start + step, n_bits), given.stride)
            units.append(Unit(f"{path.name} {bits}", partial(flip, path, bits)))
    return run_units("flips", units, given)


def flip_index(path: Path, bits: range) -> Outcome:
    """Flip bits of an index file, in a process of its own."""
    with tempfile.TemporaryDirectory(dir=shim.memory_folder()) as folder:
        copy = Path(folder) / path.name
        shutil.copyfile(path, copy)
        bounds = [str(bound) for bound in (bits.start, bits.stop, bits.step)]
        command = [sys.executable, "-m", "crash.damage", str(copy), "flip", *bounds]
        done = subprocess.run(command, env=with_tests(), capture_output=True, text=True)
        if done.returncode != 0:
            case = next((each.read_text() for each in Path(folder).glob("*.case.*")), "?")
            return Outcome(
                0, [f"{path.name}, bit {case}: exit code {done.returncode}: {done.stderr[-2000:]}"]
            )
    report = json.loads(done.stdout)
    return Outcome(len(bits), report["wrong"], dict(Counter(report["stages"].values())))


def flip_model(path: Path, bits: range) -> Outcome:
    """Flip bits of a model file: each must be an error of ours, as it is read."""
    data, wrong = path.read_bytes(), []
    with tempfile.TemporaryDirectory(dir=shim.memory_folder()) as folder:
        copy = Path(folder) / path.name
        for bit in bits:
            spoiled = bytearray(data)
            spoiled[bit // 8] ^= 1 << bit % 8
            copy.write_bytes(spoiled)
            try:
                CMCQ.load(copy)
                wrong.append(f"{path.name}, bit {bit}: loaded")
            except CrossbyteError:
                pass
            except Exception as error:
                wrong.append(f"{path.name}, bit {bit}: {type(error).__name__}: {error}")
    return Outcome(len(bits), wrong, {"model refused": len(bits) - len(wrong)})


if __name__ == "__main__":
    raise SystemExit(main())
