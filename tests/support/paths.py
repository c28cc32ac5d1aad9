"""Where things are, for tests in any folder, and how other processes find them, too."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["GOLDEN", "PACKAGE", "ROOT", "TESTS", "with_tests"]

TESTS = Path(__file__).resolve().parent.parent
ROOT = TESTS.parent
PACKAGE = ROOT / "src" / "crossbyte"
GOLDEN = TESTS / "golden"


def with_tests(**changes: str) -> dict[str, str]:
    """The environment for a process that imports ``support``."""
    path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": path} | changes
