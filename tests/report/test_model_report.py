"""The quality report: words that follow from numbers, a page that is whole and harmless, JSON both ways."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from dataclasses import replace
from graphlib import TopologicalSorter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import crossbyte
from crossbyte.report.content import Axis, Chart, share_axis
from crossbyte.report.measurements import DIRECTIONS, CurvePoint, Estimate, Reliability
from crossbyte.report.model_report import (
    Report,
    bytes_charts,
    reliability_charts,
    report_sections,
    size_chart,
    system_chart,
)
from crossbyte.report.svg import chart_markup
from support.report_samples import (
    chance,
    near,
    point,
    sample_report,
    system,
    tiny_report,
    with_gains,
    with_recall,
)


def report_text(report: Report) -> str:
    """The whole text in one line."""
    return " ".join(report.to_text().split())


def flat(recall: float) -> CurvePoint:
    """A point of crossbyte alone, of one size."""
    by = dict.fromkeys(DIRECTIONS, near(recall, 0.0))
    return CurvePoint(4, {"crossbyte": by}, [(700, recall)])


def edge_cases() -> dict[str, Report]:
    report = sample_report()
    nothing = Reliability("image", "text", [], 0.0, 0.5, 0.5)
    return {
        "usual": report,
        "tiny": tiny_report(7),
        "one pair": tiny_report(1),
        "no curve": replace(report, curve=(), n_curve_pairs=0),
        "no gains": replace(report, gains={}),
        "no probabilities": replace(report, reliability=()),
        "no bins": replace(report, reliability=(nothing,)),
        "crossbyte alone": replace(report, systems=report.systems[:1], gains={}),
        "uncompressed equal": with_gains({"uncompressed": Estimate(0.0, 0.0, 0.0)}),
        "nothing found": replace(with_recall(0.0, 0.0), curve=(flat(0.0),)),
        "all found": replace(with_recall(1.0, 1.0), curve=(flat(1.0),)),
        "one direction": with_recall(0.6, 0.02),
        "other bytes in the curve": replace(report, n_bytes=3),
        "large": replace(
            report,
            n_held_out=1_000_000,
            systems=(
                system("crossbyte", 16, 0.66, 0.66, 10**6),
                system("uncompressed", 4_096, 0.667, 0.6, 10**6),
            ),
        ),
    }


CASES = edge_cases()
every_case = pytest.mark.parametrize("report", CASES.values(), ids=CASES.keys())


# Words


def test_first_sentences_are_plain() -> None:
    assert report_text(sample_report()).startswith(
        "With 4 bytes per item, the right picture is among the first 10 for 59 of 100 texts, and the right "
        "text for 57 of 100 pictures (among 700 unseen pairs; chance: 1). Uncompressed (256 bytes): 60 and "
        "61. Compression from 256 to 4 bytes costs 2.7 of 100 queries their partner among the first 10 "
        "(95 % interval: 1.1 to 4.1). crossbyte finds 13.5 more of 100 than CCA + product quantization"
    )


@pytest.mark.parametrize(
    ("gain", "words"),
    [
        (
            Estimate(-0.03, -0.05, -0.01),
            "residual quantization with 4 bytes is better: it finds 3.0 more of 100",
        ),
        (Estimate(0.01, -0.01, 0.03), "No measurable difference to CCA + residual quantization with 4 bytes"),
        (Estimate(-0.01, -0.02, 0.0), "(95 % interval: 2.0 fewer to 0.0)"),
        (Estimate(0.05, 0.03, 0.07), "crossbyte finds 5.0 more of 100 than CCA + residual quantization"),
    ],
)
def test_winner_is_named(gain: Estimate, words: str) -> None:
    text = report_text(with_gains({"cca_rq": gain}))
    assert words in text
    assert ("So a simpler system finds more" in text) == (gain.high < 0)


@pytest.mark.parametrize(
    ("gain", "words"),
    [
        (
            Estimate(0.0, 0.0, 0.0),
            "costs nothing that can be measured: 0.0 of 100 (95 % interval: 0.0 to 0.0)",
        ),
        (
            Estimate(0.02, 0.01, 0.03),
            "costs nothing: 2.0 more of 100 queries succeed (95 % interval: 1.0 to 3.0)",
        ),
        (
            Estimate(-0.02, -0.2, 0.1),
            "cannot be told from so few pairs (95 % interval: 20.0 fewer to 10.0 more",
        ),
    ],
)
def test_cost_of_compression_is_said(gain: Estimate, words: str) -> None:
    assert words in report_text(with_gains({"uncompressed": gain}))


def test_without_intervals_differences_are_still_said() -> None:
    text = report_text(CASES["no gains"])
    assert (
        "Compression from 256 to 4 bytes: of 100 queries, 2.7 fewer succeed (no interval was measured)"
        in text
    )
    assert "quantization with 4 bytes: of 100 queries, 13.5 more succeed (no interval was measured)" in text


@pytest.mark.parametrize(
    ("recall", "words"),
    [(0.014, "cannot be told from chance"), (0.0, "cannot be told from chance"), (0.5, None)],
)
def test_chance_is_called_chance(recall: float, words: str | None) -> None:
    text = report_text(with_recall(recall, recall))
    assert words in text if words else "from chance" not in text and "above chance" not in text


def test_hardly_above_chance() -> None:
    report = with_recall(0.02, 0.02)
    own = report.systems[0]
    sure = {
        each: scores._replace(recall=scores.recall | {10: near(0.02, 0.001)})
        for each, scores in own.directions.items()
    }
    assert "hardly above chance" in report_text(
        replace(report, systems=(own._replace(directions=sure), *report.systems[1:]))
    )


def test_few_pairs_are_called_few() -> None:
    assert "Only 40 pairs could be held out: the intervals are wide" in report_text(tiny_report(40))
    assert "these numbers say nothing" in report_text(tiny_report(10))
    assert "could be held out" not in report_text(tiny_report(100))


def test_one_bad_direction_is_named() -> None:
    words = (
        "pictures are found by a text far more often than texts are found by a picture (60 against 2 of 100)"
    )
    assert words in report_text(with_recall(0.6, 0.02))
    assert "directions differ" not in report_text(sample_report())


@pytest.mark.parametrize(
    ("recalls", "words"),
    [
        (
            (0.47, 0.58, 0.62, 0.625),
            "8 bytes would find 4 more; 16 bytes would find 5 more; 2 bytes would lose 11.",
        ),
        ((0.47, 0.58, 0.62, 0.625), "Where memory allows, 8 bytes are worth it."),
        ((0.58, 0.58, 0.58, 0.59), "2 bytes would find as many. 2 bytes would do."),
        ((0.40, 0.58, 0.58, 0.59), "4 bytes are a good choice: more would hardly help."),
        ((0.40, 0.58), "2 bytes would lose 18. Whether more bytes would help was not measured."),
    ],
)
def test_curve_gives_advice(recalls: tuple[float, ...], words: str) -> None:
    curve = tuple(point(size, recall) for size, recall in zip((2, 4, 8, 16), recalls, strict=False))
    assert words in report_text(replace(sample_report(), curve=curve))


@pytest.mark.parametrize(
    ("error", "auroc", "raw", "words"),
    [
        (
            0.01,
            0.9,
            0.7,
            ("can be taken at their word", "well recognised (AUROC 0.90; a raw distance threshold 0.70"),
        ),
        (
            0.07,
            0.7,
            0.8,
            ("are roughly right", "only hinted at (AUROC 0.70; a raw distance threshold would do better"),
        ),
        (
            0.2,
            0.52,
            0.5,
            ("are not to be trusted", "hardly recognised: these data do not allow it (AUROC 0.52"),
        ),
    ],
)
def test_probabilities_are_judged(error: float, auroc: float, raw: float, words: tuple[str, str]) -> None:
    one = Reliability("text", "image", [(0.1, 0.1, 50)], error, auroc, raw)
    text = report_text(replace(sample_report(), reliability=(one,)))
    assert all(each in text for each in words)
    assert "the surest hits are given only 10 %" in text


def test_probabilities_that_tell_nothing_apart_are_not_praised() -> None:
    one = Reliability("text", "image", [(0.01, 0.0, 50), (0.03, 0.04, 50)], 0.01, 0.5, 0.5)
    text = report_text(replace(sample_report(), reliability=(one,)))
    assert "probabilities are small throughout and tell little; the surest hits are given only 3 %" in text
    assert "at their word" not in text


def test_shares_that_would_round_away_are_kept() -> None:
    text = report_text(
        replace(with_recall(0.004, 0.997), systems=(system("crossbyte", 1, 0.004, 0.9971), chance(10**6)))
    )
    assert "for 0.4 of 100 texts, and the right text for 99.7 of 100 pictures" in text
    assert "chance: under 0.1" in text


@every_case
def test_lines_are_short_and_clean(report: Report) -> None:
    text = report.to_text()
    assert max(map(len, text.splitlines())) <= 100
    assert set(text) - {"\n", "–"} <= set(map(chr, range(32, 127)))
    assert not re.search(r"nan|inf\b|None|-0\.0| $", text, flags=re.MULTILINE)
    assert str(report) == text


def test_what_was_not_measured_is_left_out() -> None:
    keys = [section.key for section in report_sections(CASES["usual"])]
    assert keys == ["verdict", "systems", "bytes", "sizes", "probabilities", "method"]
    assert [section.key for section in report_sections(CASES["tiny"])] == ["verdict", "systems", "method"]


# Charts


def charts(report: Report) -> list[Chart]:
    sizes = [size_chart(report)] if report.curve else []
    return [system_chart(report), *bytes_charts(report), *sizes, *reliability_charts(report)]


@every_case
def test_charts_are_whole_and_inside_their_frame(report: Report) -> None:
    for chart in charts(report):
        root = ElementTree.fromstring(chart_markup(chart))
        left, top, width, height = map(float, root.attrib["viewBox"].split())
        title, description = (root.find(name) for name in ("title", "desc"))
        assert title is not None and title.text == chart.title
        assert description is not None and description.text
        for across, down in places(root):
            assert left <= across <= width and top <= down <= height


def places(root: ElementTree.Element) -> list[tuple[float, float]]:
    """Every point that is drawn, labels by where they begin."""
    pair = r"(-?[\d.]+) (-?[\d.]+)"
    found = [(node.get("x"), node.get("y")) for node in root.iter("text") if node.get("x")]
    found += [
        place
        for node in root.iter()
        for place in re.findall(rf"translate\({pair}\)", node.get("transform", ""))
    ]
    found += [
        place
        for node in root.iter("path")
        if not node.get("transform")
        for place in re.findall(pair, node.get("d", ""))
    ]
    return [(float(across or 0), float(down or 0)) for across, down in found]


def test_marks_are_where_the_numbers_are() -> None:
    """One mark per system and direction, further right for a larger recall."""
    root = ElementTree.fromstring(chart_markup(system_chart(sample_report())))
    marks = [node for node in root.iter("path") if "mark" in node.attrib["class"]]
    across = [float(re.findall(r"[\d.]+", node.attrib["transform"])[0]) for node in marks]
    assert len(marks) == 10
    order = ["chance", "cca_pq", "cca_rq", "crossbyte", "uncompressed"]
    assert across[4] < across[2] < across[3] < across[0] < across[1], order


def test_every_point_of_the_curve_has_a_mark() -> None:
    report = sample_report()
    found = (*bytes_charts(report), size_chart(report))
    counted = [chart_markup(chart).count('class="mark') for chart in found]
    assert counted == [3 * 4 + 3, 3 * 4 + 3, 4 * 4 + 4]  # with those of the legend


def test_axes_place_values() -> None:
    assert Axis("", 0.0, 1.0, [], "sqrt").at(0.25) == 0.5
    assert Axis("", 1.0, 100.0, [], "log").at(10.0) == pytest.approx(0.5)
    assert Axis("", 0.0, 2.0, []).at(5.0) == 1.0
    assert share_axis(0.59, "").high == 0.6
    assert share_axis(1.0, "").ticks[-1] == (1.0, "100")


# Page


class Outline(HTMLParser):
    """Tags that are left open, attributes, and text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, *each) for each in attrs]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def outline(page: str) -> Outline:
    found = Outline()
    found.feed(page)
    found.close()
    return found


@every_case
def test_page_is_whole_and_needs_nothing_else(report: Report) -> None:
    page = report.to_html("A title")
    found = outline(page)
    assert found.open == []
    assert not {"script", "link", "img", "iframe", "a"} & {tag for tag, _, _ in found.attributes}
    assert not {"style", "src", "href", "onload"} & {name for _, name, _ in found.attributes}
    assert page.count("<style>") == 1 and "url(" not in page and "@import" not in page and "http:" not in page
    identifiers = [value for _, name, value in found.attributes if name == "id"]
    assert len(identifiers) == len(set(identifiers))
    assert not re.search(r"\bnan\b|\binf\b|None", " ".join(found.text))


@every_case
def test_page_says_what_the_text_says(report: Report) -> None:
    text = " ".join(outline(report.to_html()).text)
    for section in report_sections(report):
        assert all(words in text for words in section.paragraphs)
        assert all(cell.text in text for table in section.tables for row in table.rows for cell in row.cells)


def test_page_allows_its_own_style_and_nothing_more() -> None:
    from base64 import b64encode
    from hashlib import sha256

    page = sample_report().to_html("A title")
    style = page.split("<style>")[1].split("</style>")[0]
    digest = b64encode(sha256(style.encode()).digest()).decode()
    assert f"content=\"default-src 'none'; style-src 'sha256-{digest}'; " in page
    assert "prefers-color-scheme: dark" in style


def test_page_escapes_everything() -> None:
    bad = "</title></style><script>alert('1')</script>\"&"
    report = replace(
        sample_report(), mapping=bad, reliability=(Reliability(bad, bad, [(0.1, 0.1, 9)], 0.0, 0.5, 0.5),)
    )
    page = report.to_html(bad)
    assert "<script" not in page and page.count("</style>") == 1 and page.count("</title>") == 6
    assert outline(page).open == []
    assert "&lt;script&gt;" in page


def test_pages_of_equal_reports_are_equal() -> None:
    assert sample_report().to_html("t") == Report.from_dict(sample_report().to_dict()).to_html("t")


def test_no_module_of_reports_imports_itself_by_way_of_others() -> None:
    package = Path(crossbyte.__file__).parent
    imports: dict[str, set[str]] = {}
    for path in package.glob("**/report/*.py"):
        name = ".".join(("crossbyte", *path.relative_to(package).with_suffix("").parts))
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        imports[name] = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    assert len(imports) > 15
    assert set(TopologicalSorter(imports).static_order()) >= set(imports)  # a cycle raises


# JSON


@every_case
def test_json_comes_back(report: Report) -> None:
    written = json.dumps(report.to_dict(), allow_nan=False)
    assert Report.from_dict(json.loads(written)) == report


def change(*keys: str | int, to: Any) -> Callable[[Any], None]:
    def changed(document: Any) -> None:
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = to

    return changed


@pytest.mark.parametrize(
    "damage",
    [
        lambda document: document.pop("systems"),
        lambda document: document.pop("n_pairs"),
        lambda document: document.update(more=1),
        change("systems", 0, "name", to="magic"),
        change("systems", 0, "directions", to={}),
        change("systems", 0, "directions", "image_to_text", "recall", to={"1": [0, 0, 0]}),
        change("systems", 0, "directions", "image_to_text", "median_rank", to=[1, 2]),
        change("gains", "cca_pq", to=[float("nan"), 0, 0]),
        change("gains", "cca_pq", to=["0", 0, 0]),
        change("gains", "cca_pq", to=[True, 0, 0]),
        change("curve", 0, "by_size", to=[]),
        change("curve", 0, "by_size", to=[[100, 0.5], [100, 0.4]]),
        change("curve", 0, "recall", "crossbyte", to={}),
        change("reliability", 0, "bins", to=[[0.1, 0.2]]),
        change("reliability", 0, "more", to=1),
        change("reliability", to=None),
    ],
)
def test_damaged_documents_are_refused(damage: Callable[[Any], object]) -> None:
    document = json.loads(json.dumps(sample_report().to_dict()))
    damage(document)
    with pytest.raises((KeyError, TypeError, ValueError)):
        Report.from_dict(document)
