"""Natural queries, judged by eye: are the first eight photographs what was asked for?

    python -m benchmarks free_queries [--case network|minilm|builtin] [--sheets FOLDER]

Galleries of Flickr8k's 1,000 test photographs with captions 0 and 1, made as in ``benchmarks/words.py``
with the bytes that the program chooses. Twenty queries, written before the first of them was asked.
``--sheets`` draws contact sheets; whoever looks at them writes into ``results/free_queries.json`` which
photographs are "right" and which are "wrong", by query. Photographs that nobody has judged count as wrong,
and are listed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image, ImageDraw

from benchmarks.datasets import data_root
from benchmarks.photographs import Photographs, write_folder
from benchmarks.words import CASES, build
from crossbyte.gallery.gallery import Gallery

QUERIES = (
    "a dog catching a frisbee",
    "kids playing in the snow",
    "two dogs running on the beach",
    "a man climbing a rock face",
    "surfer riding a big wave",
    "a girl on a swing",
    "people sitting at a restaurant table",
    "a skateboarder doing a trick",
    "mountain biker in the forest",
    "a baby laughing",
    "basketball game",
    "a crowd at a concert",
    "football players in uniforms",
    "a dog swimming with a stick",
    "motorcycle race",
    "a woman with an umbrella",
    "a child eating ice cream",
    "snowboarder in the air",
    "sunset over the water",
    "a boat on a lake",
)
N_SHOWN = 8
RESULTS = Path(__file__).parent / "results" / "free_queries.json"
_TILE = (190, 150)
_ROWS_PER_SHEET = 10


def ask(gallery: Gallery) -> dict[str, list[str]]:
    """Ask every query: the names of the first eight photographs of each."""
    return {query: list(map(str, gallery.search(text=query, k=N_SHOWN).ids)) for query in QUERIES}


def score(answers: dict[str, list[str]], judged: dict[str, dict[str, list[str]]]) -> dict[str, Any]:
    """Count how often the first photograph is right, and what share of the first eight is.

    A query may have fewer right photographs than eight in the whole collection: the share of those that were
    ever found, by any case, is told, too.
    """
    right = {query: set(judged.get(query, {}).get("right", ())) for query in answers}
    known = {query: right[query] | set(judged.get(query, {}).get("wrong", ())) for query in answers}
    marks = {query: [name in right[query] for name in names] for query, names in answers.items()}
    unjudged = {query: [n for n in names if n not in known[query]] for query, names in answers.items()}
    return {
        "n_queries": len(answers),
        "first_right": sum(each[0] for each in marks.values()),
        "share_of_eight": round(sum(map(sum, marks.values())) / sum(map(len, marks.values())), 4),
        "share_of_known": round(
            sum(map(sum, marks.values())) / sum(min(N_SHOWN, len(each)) for each in right.values()), 4
        ),
        "right_of_eight": {query: sum(each) for query, each in marks.items()},
        "unjudged": {query: names for query, names in unjudged.items() if names},
    }


def draw_sheets(answers: dict[str, list[str]], folder: Path, case: str) -> None:
    """Draw a row of photographs for every query, ten queries on a sheet."""
    folder.mkdir(parents=True, exist_ok=True)
    for start in range(0, len(QUERIES), _ROWS_PER_SHEET):
        some = QUERIES[start : start + _ROWS_PER_SHEET]
        sheet = Image.new("RGB", (_TILE[0] * N_SHOWN, (_TILE[1] + 16) * len(some)), "white")
        pen = ImageDraw.Draw(sheet)
        for row, query in enumerate(some):
            top = row * (_TILE[1] + 16)
            pen.text((4, top + 2), f"{start + row + 1}. {query}", fill="black")
            for column, name in enumerate(answers[query]):
                with Image.open(data_root() / "flickr8k" / "images_test" / name) as photograph:
                    photograph.thumbnail((_TILE[0] - 4, _TILE[1] - 4))
                    sheet.paste(photograph, (column * _TILE[0], top + 16))
        sheet.save(folder / f"{case}-{start // _ROWS_PER_SHEET + 1}.png")


def main() -> int:
    """Ask, draw where wanted, score, and keep the scores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--sheets", type=Path, metavar="FOLDER", help="draw contact sheets there")
    options = parser.parse_args()
    data = Photographs.read()
    kept: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept.setdefault("judged", {})
    for case in options.case:
        with TemporaryDirectory() as name:
            folder = Path(name)
            write_folder(folder / "photographs", data, range(len(data)))
            with Gallery.open(build(folder, "photographs", case, None)) as gallery:
                answers = ask(gallery)
        if options.sheets is not None:
            draw_sheets(answers, options.sheets, case)
        kept.setdefault("scores", {})[case] = score(answers, kept["judged"])
        print(case, json.dumps(kept["scores"][case]), flush=True)
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
