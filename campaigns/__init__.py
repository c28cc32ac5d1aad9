"""Campaigns: long searches for what could be lost, torn or wrong, each by one command.

``python -m campaigns [name ...]`` runs them, ``make campaigns`` all; see ``docs/campaigns.md``. What does the
work, drivers and checks, is in ``tests/``: a short form of each is a test marked ``long``.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

if str(ROOT / "tests") not in sys.path:
    sys.path.insert(0, str(ROOT / "tests"))
