"""An index for the browser whose every text is an attack: on the page, none of them may become markup."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crossbyte import CMCQ, Index
from crossbyte.data.synthetic import make_pairs

ATTACKS = (
    "<script>window.attacked = 1</script>",
    "<img src=x onerror='window.attacked = 1'>",
    "\"><svg onload='window.attacked = 1'>",
    "javascript:window.attacked=1",
    "it's a `quote` and a \\ backslash, 100 %",
    "</title><iframe srcdoc='<script>parent.attacked = 1</script>'></iframe>",
)
FIELD = "odd `name' <b>"
"""A field that has to be spelled in backquotes, with one of them inside."""


def payload_of(row: int) -> dict[str, Any]:
    """What a document carries: markup as captions, values and names of fields."""
    attack = ATTACKS[row % len(ATTACKS)]
    return {
        "captions": [attack, f"caption {row}"],
        "kind": attack,
        FIELD: f"it's {row % 2}",
        "year": 2000 + row % 9,
    }


def hostile_index(path: Path) -> Path:
    """Make an index of 60 documents from features, without encoders or thumbnails."""
    images, texts, _ = make_pairs(160, 24, 40, random_state=0)
    model = CMCQ(n_bits=16, mapping="cca", random_state=0).fit(images[:100], texts[:100])
    ids = [f"{ATTACKS[row % len(ATTACKS)]} {row}" for row in range(60)]
    with Index.create(path, model) as index:
        index.add(
            ids, images=images[100:], texts=texts[100:], payloads=[payload_of(row) for row in range(60)]
        )
    return path
