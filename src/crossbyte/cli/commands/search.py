"""Run ``crossbyte search``: find the nearest documents of every query."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crossbyte.cli import options
from crossbyte.cli.exit_codes import ExitCode, print_error
from crossbyte.cli.inputs import QueryOptions, check_free, read_queries
from crossbyte.cli.output import Table, emit, escape_control
from crossbyte.errors import InvalidInput

if TYPE_CHECKING:
    from crossbyte.index.hits import Hits


class Distinct(StrEnum):
    """What counts once."""

    GROUP = "group"


class SearchMode(StrEnum):
    """What a text is compared by."""

    BOTH = "both"
    VECTORS = "vectors"
    WORDS = "words"


def search(
    path: options.IndexPath,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORDS", help="Ask with these words; the same as --text."),
    ] = None,
    text: options.QueryWords = None,
    image: options.QueryPicture = None,
    texts: options.QueryTexts = None,
    images: options.QueryImages = None,
    like: options.Like = None,
    row: options.Row = None,
    rows: Annotated[
        str | None,
        typer.Option("--rows", metavar="A:B", help="Ask with rows A to B of the file, B not included."),
    ] = None,
    target: options.Target = None,
    mode: Annotated[
        SearchMode | None,
        typer.Option(
            "--mode", help="What --text is compared by; default: both, where the index keeps words."
        ),
    ] = None,
    k: Annotated[int, typer.Option("--number", "-k", help="How many at most.")] = 10,
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="FILTER", help="A filter over payloads (docs/filters.md)."),
    ] = None,
    min_probability: Annotated[
        float | None, typer.Option("--min-probability", help="Nothing less likely to be the true partner.")
    ] = None,
    prior: Annotated[
        float | None,
        typer.Option("--prior", help="Probability of any one document; one in all if not given."),
    ] = None,
    match_threshold: Annotated[
        float,
        typer.Option("--match-threshold", help="Nothing matches where a match is less probable than this."),
    ] = 0.5,
    max_distance: Annotated[float | None, typer.Option("--max-distance", help="Nothing farther.")] = None,
    distinct: Annotated[
        Distinct | None, typer.Option("--distinct", help="Count every group once, by its nearest document.")
    ] = None,
    n_probe: Annotated[
        str | None,
        typer.Option(
            "--n-probe", metavar="CELLS|all", help="How many cells of an index with cells to search."
        ),
    ] = None,
    payloads: Annotated[
        bool, typer.Option("--payloads", help="Show the payloads of what was found.")
    ] = False,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Show how probably each is the one document meant.")
    ] = False,
    trec: Annotated[
        Path | None, typer.Option("--trec", metavar="FILE", help="Also write the answers as a TREC run.")
    ] = None,
    run_name: Annotated[str, typer.Option("--run-name", help="Name of the TREC run.")] = "crossbyte",
    fail_if_none: Annotated[
        bool, typer.Option("--fail-if-none", help="Exit code 4 if no query found anything that matches.")
    ] = False,
    image_encoder: options.ImageEncoder = None,
    text_encoder: options.TextEncoder = None,
    jobs: options.Jobs = None,
    overwrite: options.Overwrite = False,
    as_json: options.AsJson = False,
) -> int:
    """Find the nearest documents of every query.

    The answer is exact, among the cells visited where an index has cells. Texts search images and
    images search texts, unless --target says otherwise. Captions with a phrase that stands in
    quotes come first.

    Example:
      crossbyte search photos.cb a dog on the beach
      crossbyte search photos.cb --text '"purple zeppelin" castle' --mode words
      crossbyte search photos.cb --image dog.jpg --target image
      crossbyte search photos.cb --texts queries.npz:text_query --row 3
      crossbyte search photos.cb --like p17 -k 5 --where "year >= 2020" --payloads
    """
    from crossbyte.gallery.gallery import Gallery

    check_free(trec, overwrite=overwrite)
    text = _join_words(words, text)
    with Gallery.open(path, image_encoder=image_encoder, text_encoder=text_encoder, n_jobs=jobs) as gallery:
        queries = read_queries(
            gallery,
            text=text,
            image=image,
            texts=texts,
            images=images,
            like=like,
            row=row,
            rows=rows,
            mode=mode and mode.value,
        )
        answers = gallery.index.search(
            **{queries.keyword: queries.value},
            words=queries.words,
            mode=mode and mode.value,
            target=target and target.value,
            k=k,
            where=where,
            max_distance=max_distance,
            min_probability=min_probability,
            distinct=distinct and distinct.value,
            prior=prior,
            match_threshold=match_threshold,
            payloads=payloads or queries.by_words,
            n_probe=_parse_probe(n_probe),
        )
        if queries.words is not None:
            asked = zip(answers, queries.words, strict=True)
            answers = [gallery.name_unknown_words(hits, words) for hits, words in asked]
    if trec is not None:
        from crossbyte.index.export.trec import write_trec

        names = list(map(str, queries.labels))
        write_trec(trec, answers, names, run_name=run_name, overwrite=overwrite)
    document = {"index": path, "queries": list(map(_describe_hits, queries.labels, answers))}
    shown = _format_answers(queries, answers, payloads=payloads, probabilities=probabilities)
    emit(document, shown, as_json=as_json)
    return _choose_exit_code(answers, fail_if_none)


def _join_words(words: list[str] | None, text: str | None) -> str | None:
    """Join the words that stand behind the index to one text, or give that of ``--text``."""
    if not words:
        return text
    if text is not None:
        raise InvalidInput(f"expected one text, got --text and {' '.join(words)!r}; ask with one of them")
    return " ".join(words)


def _parse_probe(n_probe: str | None) -> int | str | None:
    """Parse ``--n-probe``: a number of cells, or a word that the index judges; None where it is not given."""
    return int(n_probe) if n_probe is not None and n_probe.isascii() and n_probe.isdigit() else n_probe


def _describe_hits(label: Any, hits: Hits) -> dict[str, Any]:
    found = []
    for hit in hits:
        entry = hit._asdict()
        payload = entry.pop("payload")
        found.append(entry if hits.payloads is None else entry | {"payload": payload})
    return {
        "query": label,
        "verdict": hits.verdict,
        "no_match": hits.no_match,
        "unknown_words": hits.unknown_words,
        "partial": hits.partial,
        "hits": found,
    }


def _format_answers(
    queries: QueryOptions, answers: list[Hits], *, payloads: bool, probabilities: bool
) -> Iterator[str | Table]:
    for label, hits in zip(queries.labels, answers, strict=True):
        name, said = _name_query(queries, label), _say_verdict(hits)
        yield f"{name}: {said}" if said else name
        yield from _name_unknown_words(hits.unknown_words or [])
        if len(hits):
            yield _make_table(hits, payloads=payloads, probabilities=probabilities)
        yield ""


def _say_verdict(hits: Hits) -> str | None:
    """Say how sure an answer is; None where that is not known."""
    if not len(hits):
        return "nothing found"
    return "nothing matches" if hits.no_match else hits.verdict


def _name_unknown_words(words: list[str]) -> Iterator[str]:
    if words:
        yield f"no caption has: {', '.join(map(escape_control, words))}"


def _name_query(queries: QueryOptions, label: Any) -> str:
    if queries.by_words:
        return escape_control(label)
    return (
        f"like {escape_control(label)}"
        if queries.keyword == "like"
        else f"row {label} of the {queries.keyword}"
    )


def _make_table(hits: Hits, *, payloads: bool, probabilities: bool) -> Table:
    columns: dict[str, list[str]] = {
        ">": [str(place) for place in range(1, len(hits) + 1)],
        "distance>": [f"{distance:.4f}" for distance in hits.distances],
    }
    if probabilities and hits.probabilities is not None:
        columns["probability>"] = [f"{probability:.3f}" for probability in hits.probabilities]
    if hits.strengths is not None:
        columns["strength"] = list(hits.strengths)
    if hits.found_by is not None:
        columns["found by"] = list(hits.found_by)
    columns["id"] = list(map(str, hits.ids))
    if payloads:
        columns["payload"] = [json.dumps(payload, ensure_ascii=False) for payload in hits.payloads or []]
    elif hits.payloads is not None and any(captions := list(map(_join_captions, hits.payloads))):
        columns["captions"] = captions
    return Table(list(columns), list(zip(*columns.values(), strict=True)))


def _join_captions(payload: dict[str, Any] | None) -> str:
    captions = (payload or {}).get("captions")
    return " / ".join(map(str, captions)) if isinstance(captions, list) else ""


def _choose_exit_code(answers: list[Hits], fail_if_none: bool) -> int:
    if not fail_if_none or any(len(hits) and not hits.no_match for hits in answers):
        return ExitCode.FINE
    print_error("no query found anything that matches", "ask otherwise, or relax --where and the limits")
    return ExitCode.NOTHING_FOUND
