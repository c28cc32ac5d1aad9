"""See crossbyte at work: ``python -m crossbyte.demo``, or ``make demo``.

Pairs are generated (:mod:`crossbyte.data.synthetic`): image features of one encoder, bags of words of
another, no space in common. Models of 2, 4 and 8 bytes per item learn from some of the pairs; all figures
are of pairs that were held out, each item coded from its own side alone.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

from crossbyte.data.synthetic import make_pairs
from crossbyte.kernels import implementation
from crossbyte.metrics import chance_recall, partner_ranks, recall_at
from crossbyte.model.cmcq import CMCQ
from crossbyte.model.scoring import PartnerRanks
from crossbyte.progress import Progress, ProgressCallback
from crossbyte.search.hits import Hits
from crossbyte.search.index import Index

__all__ = ["main"]

IMAGE_DIM, VOCABULARY, COMPONENTS = 256, 1000, 32
N_BYTES = (2, 4, 8)
SHOWN_BYTES = 4  # the model whose hits are printed, and the length at which the paper's space is compared
QUERIES, HITS, SHOWN_WORDS = 2, 3, 10
DEPTHS = (1, 10, 100)
MIN_PAIRS = 100
# Pairs, and atoms of the paper's space (it has 512): NumPy kernels would take minutes for as much.
PAIRS, ATOMS = (5000, 512) if implementation() != "numpy" else (800, 64)
ROUNDS = 4  # enough here; the default is 10
WIDTH = 110

# Where each stage of a fit begins and ends on its bar; the shares are rough.
STAGES = {"prepare": (0.0, 0.02), "space": (0.02, 0.1), "codebooks": (0.1, 0.4), "alternate": (0.4, 1.0)}


class Half(NamedTuple):
    """Images (n, 256) float32 and texts (n, 1000) sparse, row by row."""

    images: Any
    texts: Any


class World(NamedTuple):
    """Pairs to learn from, pairs held out, and a word for every column of the texts."""

    train: Half
    held_out: Half
    words: NDArray[np.str_]


class Fitted(NamedTuple):
    """A model, its ranks of true partners among the held-out pairs, and how long its fit took."""

    model: CMCQ
    ranks: PartnerRanks
    seconds: float


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; returns the exit code (130 after Ctrl-C, as shells expect)."""
    options = _parser().parse_args(argv)
    console = Console(record=options.svg is not None, width=WIDTH if options.svg else None)
    try:
        run(console, options.pairs, options.seed)
        if options.svg is not None:
            save_picture(console, options.svg)
    except KeyboardInterrupt:
        print("crossbyte demo: interrupted; nothing was written", file=sys.stderr)
        return 130
    return 0


def run(console: Console, n_pairs: int, seed: int) -> None:
    """Generate, fit, search both ways, and print what came out."""
    world = make_world(n_pairs, seed)
    _introduce(console, world)
    fits, paper = fit_all(world, seed)
    _print_hits(console, world, fits[SHOWN_BYTES].model)
    console.print(quality_table(world, fits))
    _print_reading(console, world, fits[SHOWN_BYTES], paper)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m crossbyte.demo", description=(__doc__ or "").split("\n")[0]
    )
    pairs, seed = _at_least(MIN_PAIRS), _at_least(0)
    parser.add_argument(
        "--pairs", type=pairs, default=PAIRS, metavar="N", help=f"pairs to learn from ({PAIRS})"
    )
    parser.add_argument("--seed", type=seed, default=0, help="seed of data and models (0)")
    parser.add_argument("--svg", type=_new_file, metavar="PATH", help="also save the output as a picture")
    return parser


def _at_least(low: int) -> Callable[[str], int]:
    def integer(text: str) -> int:
        if not text.isdecimal() or int(text) < low:
            raise argparse.ArgumentTypeError(f"expected an integer of at least {low}, got {text!r}")
        return int(text)

    return integer


def _new_file(text: str) -> Path:
    if not Path(text).parent.is_dir():  # said now, not after all the work
        raise argparse.ArgumentTypeError(f"expected a file in a folder that exists, got {text!r}")
    return Path(text)


# Data


def make_world(n_pairs: int, seed: int) -> World:
    """Draw ``n_pairs`` training pairs, and a third as many (200 to 2,000) to hold out."""
    n_held = min(2000, max(200, n_pairs // 3))
    # Noise and length of the texts are set so that partners can be found, but not all of them.
    pairs = make_pairs(
        n_pairs + n_held,
        IMAGE_DIM,
        VOCABULARY,
        n_classes=12,
        n_topics=48,
        noise=0.5,
        words_per_text=24.0,
        random_state=seed,
    )
    train, held = (Half(pairs.images[at], pairs.texts[at]) for at in (slice(n_pairs), slice(n_pairs, None)))
    return World(train, held, make_words(VOCABULARY))


def make_words(n_words: int) -> NDArray[np.str_]:
    """Invent words that can be pronounced, all different: two syllables each."""
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvwz" for vowel in "aeiou"]
    chosen = np.random.default_rng(0).permutation(len(syllables) ** 2)[:n_words]
    return np.array([syllables[i // len(syllables)] + syllables[i % len(syllables)] for i in chosen])


# Fitting


def fit_all(world: World, seed: int) -> tuple[dict[int, Fitted], Fitted]:
    """Fit a model per length on a canonical space, and one on the paper's space; bars go to stderr."""
    columns = TextColumn("{task.description:<24}"), BarColumn(40), TimeElapsedColumn()
    common: dict[str, Any] = {"max_iter": ROUNDS, "random_state": seed}
    fits = {}
    with Bars(*columns, console=Console(stderr=True)) as bars:
        for n_bytes in N_BYTES:
            model = CMCQ(
                8 * n_bytes,
                mapping="cca",
                n_components=COMPONENTS,
                correlation=1.0,
                cross_term="stored",
                **common,
            )
            fits[n_bytes] = _fit(model, world, bars, f"{n_bytes} bytes")
        paper = _fit(
            CMCQ(8 * SHOWN_BYTES, n_atoms=ATOMS, **common), world, bars, f"{SHOWN_BYTES} bytes, sparse"
        )
    return fits, paper


def _fit(model: CMCQ, world: World, bars: Bars, name: str) -> Fitted:
    task = bars.add_task(name, total=1.0)
    model.set_params(callback=_watch(bars, task, name))
    began = time.perf_counter()
    model.fit(*world.train)
    seconds = time.perf_counter() - began
    bars.update(task, completed=1.0, description=f"{name}: fitted")  # a fit that settles early skips steps
    return Fitted(model, model.partner_ranks(*world.held_out), seconds)


def _watch(bars: Bars, task: Any, name: str) -> ProgressCallback:
    def show(step: Progress) -> None:
        begin, end = STAGES[step.stage]
        share = begin + (end - begin) * step.done / step.total
        bars.update(task, completed=share, description=f"{name}: {step.stage}")

    return show


# Hits


def _introduce(console: Console, world: World) -> None:
    n_train, n_held = len(world.train.images), len(world.held_out.images)
    console.print(
        f"[bold]crossbyte[/]: {n_train:,} generated pairs to learn from, {n_held:,} held out. Images are "
        f"{IMAGE_DIM} numbers of one encoder, texts are bags of {VOCABULARY:,} words; the two share no "
        f"space. Kernels: {implementation()}."
    )


def _print_hits(console: Console, world: World, model: CMCQ) -> None:
    """Put the held-out items into an index, each coded from its own side, and search both ways."""
    n_items = len(world.held_out.images)
    with TemporaryDirectory() as folder, _index(world, model, Path(folder) / "demo.cb") as index:
        stats, ask = index.stats(), slice(QUERIES)
        to_images = index.search(texts=world.held_out.texts[ask], k=n_items)
        to_texts = index.search(images=world.held_out.images[ask], k=n_items)
    console.print(
        f"\n[bold]Search[/] in an index of {n_items:,} unseen images and as many texts, {SHOWN_BYTES} bytes "
        f"each: one file of {stats['disk']['bytes']['file'] / 1e6:.1f} MB, the model included, verified. The "
        f"queries are the first {QUERIES} items, not picked; an image is described by the words of its own "
        "caption, which the search never saw; [green]green[/] words are the query's too.\n"
    )
    _print_direction(console, world, "text", "image", to_images)
    _print_direction(console, world, "image", "text", to_texts)


def _index(world: World, model: CMCQ, path: Path) -> Index:
    """Write an index, and open it again as a reader would."""
    held = world.held_out
    with Index.create(path, model) as index:
        index.add([f"image {row}" for row in range(len(held.images))], images=held.images)
        index.add([f"text {row}" for row in range(len(held.images))], texts=held.texts)
    reader = Index.open(path)
    reader.verify()
    return reader


def _print_direction(console: Console, world: World, query: str, item: str, answers: list[Hits]) -> None:
    for row, hits in enumerate(answers):
        wanted = set(_words(world, row))
        table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
        for place, hit in enumerate(islice(hits, HITS), start=1):
            words = _words(world, int(str(hit.id).split()[1]))
            mark = (
                f"[bold yellow]← its own {item}[/]"
                if hit.id == f"{item} {row}"
                else f"{len(wanted.intersection(words))} shared"
            )
            table.add_row(f"  {place}", f"{hit.distance:.3f}", _describe(words, wanted), mark)
        console.print(f"[bold cyan]{query} → {item}[/]  {_listed(_words(world, row))}")
        console.print(table)
        rank = hits.ids.index(f"{item} {row}") + 1
        console.print(f"   its own {item} is at rank {rank:,} of {len(hits):,}\n", style="dim")


def _words(world: World, row: int) -> list[str]:
    """Words of a held-out text, the most frequent first, as the columns are."""
    texts = world.held_out.texts
    columns = texts.indices[texts.indptr[row] : texts.indptr[row + 1]]
    return [str(world.words[column]) for column in sorted(columns)]


def _listed(words: list[str]) -> str:
    return " ".join(words[:SHOWN_WORDS]) + (" …" if len(words) > SHOWN_WORDS else "")


def _describe(words: list[str], wanted: set[str]) -> Text:
    """List the words of a hit, those of the query first and in green."""
    ordered = sorted(words, key=lambda word: word not in wanted)
    text = Text(_listed(ordered))
    for word in wanted.intersection(ordered[:SHOWN_WORDS]):
        text.highlight_words([word], style="green")
    return text


# Quality


def quality_table(world: World, fits: dict[int, Fitted]) -> Table:
    """Recall and median rank of the true partner, both directions, beside the best and the worst possible."""
    n_items = len(world.held_out.images)
    title = f"Where is the true partner among {n_items:,} unseen items?"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    table.add_column("bytes per\nitem")
    for name in (*_column_names("T→I"), *_column_names("I→T"), "\nfit"):
        table.add_column(name, justify="right")
    for n_bytes, fitted in fits.items():
        table.add_row(f"{n_bytes}", *_scores(fitted.ranks), f"{fitted.seconds:.1f} s")
    table.add_section()
    table.add_row("not coded", *_scores(uncompressed_ranks(world, fits)), "")
    chance = [*(f"{chance_recall(n_items, k):.3f}" for k in DEPTHS), f"{(n_items + 1) / 2:,.0f}"]
    table.add_row("chance", *chance, *chance, "", style="dim")
    return table


def uncompressed_ranks(world: World, fits: dict[int, Fitted]) -> PartnerRanks:
    """Ranks by exact distance in the common space, which is the same for all lengths."""
    model = fits[SHOWN_BYTES].model
    x, y = model.transform_images(world.held_out.images), model.transform_texts(world.held_out.texts)
    distances = -(x @ y.T)  # points have unit length
    return PartnerRanks(partner_ranks(distances), partner_ranks(distances.T))


def _column_names(direction: str) -> list[str]:
    return [*(f"{direction}\n@{k}" for k in DEPTHS), f"{direction}\nmedian"]


def _scores(ranks: PartnerRanks) -> list[str]:
    """Cells of both directions, text to image first."""
    both = (ranks.text_to_image, ranks.image_to_text)
    return [
        cell
        for one in both
        for cell in (*(f"{recall_at(one, k):.3f}" for k in DEPTHS), f"{np.median(one) + 1:,.0f}")
    ]


def _print_reading(console: Console, world: World, shown: Fitted, paper: Fitted) -> None:
    model, say = shown.model, _speaker(console)
    features, code = 4 * IMAGE_DIM, SHOWN_BYTES
    recalls = [f"{recall_at(ranks, 10):.3f}" for ranks in reversed(paper.ranks)]
    say(
        "T→I: texts search images, I→T: images search texts; @k: share of queries whose partner is among the "
        "first k; median: its middle rank; not coded: exact distances in the same "
        f"space, {4 * COMPONENTS} bytes per item."
    )
    say(
        f"Size: an image is {features:,} bytes of float32 features or {code} bytes of code "
        f"({features // code} times less): a million images are {features:,} MB or {code} MB. A search holds "
        f"one byte more per item (its cross term); the model is {len(model.to_bytes()) / 1e6:.1f} MB."
    )
    say(
        f'Settings: mapping="cca", n_components={COMPONENTS}, a canonical space, which is good at finding '
        "the partner of an unseen item; correlation=1 pulls the two codes of a pair together; "
        'cross_term="stored" adds each item\'s own cross term; taking it for constant, as the paper '
        "does, costs recall on unseen items."
    )
    say(
        f'The paper\'s own space (mapping="sparse", n_atoms={ATOMS}, its weights) at {SHOWN_BYTES} bytes: '
        f"@10 {recalls[0]} text→image, {recalls[1]} image→text, fitted in "
        f"{paper.seconds:.1f} s. It is made for finding documents of a kind among those trained on, "
        "whose codes have seen both halves."
    )


def _speaker(console: Console) -> Callable[[str], None]:
    return lambda text: console.print(text, highlight=False, markup=False)


def save_picture(console: Console, path: Path) -> None:
    """Save what was printed as SVG, without rich's link to a font on the web."""
    picture = console.export_svg(title="make demo", unique_id="crossbyte")
    path.write_text(re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
