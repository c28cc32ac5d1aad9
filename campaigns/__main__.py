"""Run campaigns, one after the other, and write their figures: ``python -m campaigns [name ...]``.

Options after a single name are that campaign's own: ``python -m campaigns power_loss --states 50000``. A
campaign that was interrupted goes on where it was; parts that failed, or whose sources have changed, are run
anew.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from campaigns import ROOT
from campaigns.page import write_page

CAMPAIGNS = (
    "kill_points",
    "power_loss",
    "stateful_steps",
    "flips",
    "resealed",
    "readers",
    "contract",
    "soak",
)


def main() -> int:
    """Run the named campaigns, or all; each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"one of {', '.join(CAMPAIGNS)}")
    first = next((place for place, word in enumerate(sys.argv[1:], 1) if word.startswith("-")), len(sys.argv))
    own, options = sys.argv[1:first], sys.argv[first:]
    names = parser.parse_args(own if len(own) == 1 else sys.argv[1:]).names or CAMPAIGNS
    unknown = sorted(set(names) - set(CAMPAIGNS))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; expected some of {', '.join(CAMPAIGNS)}")
    ended = [
        subprocess.run([sys.executable, "-m", f"campaigns.{name}", *options], cwd=ROOT).returncode
        for name in names
    ]
    write_page()
    return max(ended)


if __name__ == "__main__":
    raise SystemExit(main())
