"""Run ``crossbyte demo`` as ``python -m crossbyte.demo``."""

from __future__ import annotations

import runpy
import sys

if __name__ == "__main__":
    # By name and not by import: the demo is in a layer below the command line.
    sys.argv[1:1] = ["demo"]
    runpy.run_module("crossbyte", run_name="__main__")
