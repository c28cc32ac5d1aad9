"""Write ``docs/campaigns.md`` from the kept figures: ``python -m campaigns.page``."""

from __future__ import annotations

import json
import math
from typing import Any

from campaigns import ROOT
from campaigns.contract import ARGUED
from campaigns.runner import RESULTS

PAGE = ROOT / "docs" / "campaigns.md"

TITLES = {
    "kill_points": "processes killed, calls failed, recoveries killed",
    "power_loss": "states of the disk after lost power",
    "stateful_steps": "steps beside a dictionary",
    "flips": "bits flipped in golden files",
    "resealed": "contents damaged and sealed again",
    "readers": "damaged files that were read",
    "contract": "requests held to the OpenAPI document",
    "soak": "calls to a server that is killed",
}

_HEAD = """# Campaigns

Made by `python -m campaigns`; do not edit. Long searches for what could be lost, torn or wrong. Each is one
command and goes on where it was interrupted; `make campaigns` runs all. A short form of each is among the
tests (`make test-all`).

- **Kill points**: a process is killed before, half-way through and after each of its changes of a file, or
  each fails with a full disk or an I/O error; so is the process that recovers from that. Then everything
  acknowledged must be there, and whole.
- **Power loss**: every byte that a process writes is recorded; from that come the states that a disk may be
  in when the power is back: what was not flushed is lost, torn at 512 bytes, out of order or zeros, names
  included, once more while recovering.
- **Stateful steps**: random calls of all kinds beside a dictionary that is searched by brute force.
- **Flips**: every bit of every golden file is flipped. The answer is an error of ours, or the right one.
- **Resealed**: what is in models and indexes is changed, all digests are computed anew, and then every call
  that reads it is made: an error of ours, or answers that are finite, whole and with NumPy's kernels the same
  to the last bit.
- **Readers**: files of every form that is read are changed: an answer or an error of ours, in under 5 s, with
  the memory of the reading process under 1 GB, which never dies, whatever its children do.
- **Contract**: no answer that the OpenAPI document does not announce, to requests of our own generator and of
  schemathesis with all its checks. What these find and is right as it is stands below, with its reason.
- **Soak**: a server under load (90 % searches, 9 % writes, 1 % compactions), killed every minute: nothing
  acknowledged is lost, and memory and descriptors stay as they were.
"""
_ARGUED = """## Findings of schemathesis that are right as they are

Its checks say what a request must meet that is right by the document, or wrong. Of these kinds, by check and
error code of the answer, all others would count as failures:"""


def make_page() -> str:
    """Make the page from the results that are kept."""
    lines = [
        _HEAD,
        "| campaign | cases | failures | hours of its parts | command |",
        "|---|---:|---:|---:|---|",
    ]
    notes = []
    for name, title in TITLES.items():
        found = read_result(name)
        if found is None:
            lines.append(f"| {title} | not run yet | | | `python -m campaigns {name}` |")
            continue
        hours = found["seconds"] / 3600
        share = found["units"] / found["units_asked"]
        some = "" if share == 1 else f" ({math.floor(100 * share)} % of its parts)"
        cases = f"{found['cases']:,}{some} | {found['failures']}"
        lines.append(f"| {title} | {cases} | {hours:.2f} | `{found['command']}` |")
        if found["counts"] or found["figures"]:
            notes.append(f"\n**{title[0].upper()}{title[1:]}**: {_list_counts(found)}.")
    argued = [
        f"- `{each.check}`, {' or '.join(f'`{code}`' for code in each.codes)}"
        f"{f' with “{each.said.strip()}”' if each.said else ''}: {each.reason}."
        for each in ARGUED
    ]
    return "\n".join([*lines, *notes, "", _ARGUED, "", *argued, ""])


def _list_counts(found: dict[str, Any]) -> str:
    counts = sorted(found["counts"].items(), key=lambda item: -item[1])
    return ", ".join(
        [
            *(f"{name} {count:,}" for name, count in counts),
            *(f"{k} {v:g}" for k, v in found["figures"].items()),
        ]
    )


def read_result(name: str) -> dict[str, Any] | None:
    """Read the figures of a campaign; None if there are none."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def write_page() -> None:
    """Write the page."""
    PAGE.write_text(make_page())


if __name__ == "__main__":
    write_page()
