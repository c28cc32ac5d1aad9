"""The laboratory's report: its figures are those of the result files, and files cannot harm its readers."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any
from xml.etree import ElementTree

import pytest

from crossbyte.errors import InvalidInput
from crossbyte.lab.methods import registry
from crossbyte.lab.methods.method import INTRA_DOCUMENT, About
from crossbyte.lab.report import presentation
from crossbyte.lab.report.ablations import ablation_sections, distortion_sections
from crossbyte.lab.report.curves import curve_sections
from crossbyte.lab.report.paper_tables import declarations, table1_section, table2_section, table3_sections
from crossbyte.lab.report.presentation import STYLES, categories, format_seconds, style_of
from crossbyte.lab.report.recall import quality_sections, recall_interval, recall_sections
from crossbyte.lab.report.sensitivity import sensitivity_sections
from crossbyte.lab.report.study import _ORDER, OURS, Scope, Study, read_study
from crossbyte.lab.report.write import report_sections, write_report
from crossbyte.lab.results import Result, write_result
from crossbyte.report.content import (
    BarChart,
    Bars,
    Cell,
    Line,
    LineChart,
    Section,
    Table,
    linear_axis,
    log_axis,
)
from crossbyte.report.svg import INKS, chart_file, chart_markup, chart_rules, sheet_file
from support.laboratory_samples import everything, result

SVG_PARTS = {"svg", "title", "desc", "style", "rect", "path", "text"}
HOSTILE = '"><img src=x onerror=alert(1)><script>alert(2)</script> | [a](http://bad.example) \n# b'


def scored(method: str, value: float, seed: int = 0, **given: object) -> Result:
    """A result with the same figure in every task and measure."""
    scores = {"map@50": value, "map@100": value / 2, "recall@1": value / 4, "recall@10": value}
    tasks = given.pop("tasks", ("image-to-text", "text-to-image"))
    return result(method, seed=seed, scores=dict.fromkeys(tasks, scores), **given)


def scope_of(*results: Result) -> Scope:
    return Scope(results[0].run.data, results[0].run.protocol, results)


def row(table: Table, name: str) -> tuple[Cell, ...]:
    return next(each.cells for each in table.rows if each.cells[0].text == name)


def words(sections: list[Section]) -> str:
    return "\n".join(line for section in sections for line in section.paragraphs)


# Published figures


def test_published_figures_are_the_papers() -> None:
    assert presentation.published_figure("map@50", "wiki", "image-to-text", "cmfh", 64) == 0.2594
    assert presentation.published_figure("map@50", "mirflickr", "image-to-text", "cmssh", 16) == 0.6468
    assert presentation.published_figure("map@50", "nus-wide", "text-to-image", "cmcq", 128) == 0.7254
    assert presentation.quoted_figure("map@50", "wiki", "text-to-image", "ccq", 16) == 0.6351
    assert presentation.quoted_figure("map@50", "wiki", "image-to-text", "ccq", 128) is None
    assert presentation.published_figure("map@50", "wiki", "image-to-text", "ccq", 16) is None
    assert presentation.published_figure("map@100", "wiki", "image-to-text", "cmcq", 16) is None
    assert presentation.table3_figure("A", "text-to-image", "seph", 64) == 0.746
    assert presentation.table3_figure("B", "image-to-text", "cmcq", 128) == 0.535
    assert len(presentation.categories()) == 16
    cvh = next(each for each in presentation.categories() if each.key == "cvh")
    assert cvh.relations == ("intra-document", "inter-document")
    assert (cvh.codes, cvh.coding) == ("separate", "hash")


# Tables


def test_table_2_has_mean_spread_published_figure_and_difference() -> None:
    values = (0.2601, 0.2512, 0.2555)
    results = [scored("cmfh", value, seed) for seed, value in enumerate(values)]
    table = table2_section(scope_of(*results, scored("ccq", 0.2)))
    cells = row(table.tables[0], "CMFH")
    assert cells[2].text == f"{fmean(values):.4f} ± {stdev(values):.4f}"
    assert cells[2].below == "(0.2591) −0.0035"  # 0.2556 as printed, less 0.2591
    assert cells[2].best
    ccq = row(table.tables[0], "CCQ")[2]
    assert (ccq.text, ccq.below, ccq.best) == ("0.2000", "(0.2529 quoted) −0.0529; 1 of 3 seeds", False)
    assert row(table.tables[0], "(CCQ)")[2].text == "(0.2529)"
    assert row(table.tables[0], "(CMFH)")[2].text == "(0.2582)"
    assert row(table.tables[0], "chance")[2].text == "0.1800"
    assert "Wiki, protocol A, 3 seeds" in table.tables[0].caption
    assert row(table.tables[2], "CMFH")[2].below == ""  # MAP@100 is not in the paper


def test_it_is_said_what_a_system_took_of_a_part_of_the_documents_only() -> None:
    results = [
        scored("mlbe", 0.2),
        scored("mmnn", 0.2, details={"n_neighbours_among": 1_500}),
        scored("mmnn", 0.3, similarity="labels", details={"n_neighbours_among": 0}),
        scored("imh", 0.2, details={"n_learned_from": 2_173}),
    ]
    said = words([table2_section(scope_of(*results))])
    assert "MLBE learned from 500 documents only." in said
    assert "MMNN looked for neighbours among 1,500 documents only." in said
    assert said.count("documents only.") == 2


def test_quoted_rows_stand_without_a_run_of_that_system() -> None:
    table = table2_section(scope_of(scored("cmcq", 0.25))).tables[1]
    assert row(table, "(CCQ)")[2].text == "(0.6394)"
    assert row(table, "CMCQ")[2].below == "(0.6474) −0.3974"


def test_only_coded_systems_that_learn_from_pairs_can_be_best() -> None:
    scope = scope_of(scored("cca", 0.9), scored("seph", 0.8), scored("cmcq", 0.3), scored("cmfh", 0.2))
    section = table2_section(scope)
    best = [each.cells[0].text for each in section.tables[0].rows if each.cells[2].best]
    assert best == ["CMCQ"]
    assert row(section.tables[0], "SePH_km [labels]")[1].text == "labels"
    assert "MAP@50: a CMCQ variant is first of the pairs-only systems at every length run, 32 bits." in words(
        [section]
    )


def test_other_data_sets_have_no_published_figures() -> None:
    section = table2_section(scope_of(scored("cmfh", 0.5, data="mine")))
    assert row(section.tables[0], "CMFH")[2].below == ""
    assert [each.cells[0].text for each in section.tables[0].rows] == ["CMFH", "chance"]
    assert "The paper has no figures on this data set." in section.paragraphs


def test_sizes_other_than_the_papers_are_said() -> None:
    found = scored("cmfh", 0.5)
    smaller = replace(found, data={**found.data, "n_train": 100, "n_queries": 7})
    said = words([table2_section(scope_of(smaller))])
    assert "100 training documents and 7 queries, in the paper 2,173 and 693" in said


def test_table_3_on_the_papers_data_has_its_figures_in_brackets() -> None:
    study = Study([scored("seph", 0.6, data="nus-wide"), scored("cmcq", 0.61, data="nus-wide")])
    (section,) = table3_sections(study)
    assert row(section.tables[0], "SePH_km [labels]")[3] == Cell("0.6000", "(0.586) +0.0140")
    assert row(section.tables[0], "CMCQ")[3] == Cell("0.6100", "(0.590) +0.0200", best=True)
    assert "above SePH in 2 of 2 comparisons" in words([section])


def test_table_3_calls_only_coded_systems_best() -> None:
    given = {"data": "flickr8k", "protocol": "D"}
    (section,) = table3_sections(Study([scored("cmcq", 0.5, **given), scored("cca", 0.5, **given)]))
    marks = {each.cells[0].text: each.cells[-1].best for each in section.tables[0].rows}
    assert marks["CMCQ"] and not any(best for name, best in marks.items() if name != "CMCQ")
    assert "the best coded system of a column and task" in words([section])


def test_table_3_on_other_data_shows_the_papers_apart() -> None:
    given = {"data": "fashion", "protocol": "D"}
    results = [scored("seph", 0.4, **given), scored("cmcq", 0.5, **given)]
    results[0] = replace(results[0], data={**results[0].data, "new_labels": ["boots", "hats"]})
    results.append(scored("cmcq", 0.45, variant="side", **given))
    (section,) = table3_sections(Study(results))
    ours, papers = section.tables
    assert [cell.text for cell in papers.rows[0].cells] == [
        *("SePH_km", "Image to text"),
        *("0.442", "0.436", "0.435"),
    ]
    assert {each.cells[3].below for each in ours.rows} == {""}
    assert [each.cells[2].text for each in ours.rows[:3]] == ["both sides", "both sides", "searched side"]
    assert "The paper's Table 3 is on NUS-WIDE, this one on Fashion" in words([section])
    assert "New classes: boots, hats." in section.paragraphs


def test_recall_tables_say_plainly_where_ours_does_not_win() -> None:
    given = {"data": "flickr8k", "protocol": "B", "tasks": ("text-to-image",)}
    results = [
        scored("cmcq-cca", 0.31, bits=16, **given),
        scored("cca-lsq", 0.30, bits=16, **given),
        scored("cmcq-cca", 0.35, bits=32, **given),
        scored("cca-lsq", 0.36, bits=32, **given),
    ]
    (section,) = recall_sections(Study(results))
    said = words([section])
    assert "recall@10: a CMCQ variant is first of the pairs-only systems at 2 bytes." in said
    assert "CMCQ does not win at 4 bytes (CCA + LSQ 0.3600 against CMCQ (CCA) 0.3500)." in said
    assert [each.best for each in row(section.tables[0], "CCA + LSQ")] == [False, False, True]
    assert row(section.tables[1], "CMCQ (CCA)")[1].text == "0.0775"
    assert section.tables[0].header == ("system", "2 bytes", "4 bytes")


@pytest.mark.parametrize(
    ("number", "said"), [(1, "the share of 1 query whose"), (1_200, "of 1,200 queries whose")]
)
def test_recall_tables_count_their_queries(number: int, said: str) -> None:
    found = scored("cmcq", 0.3, data="flickr8k", protocol="C", tasks=("text-to-text",))
    study = Study([replace(found, data={**found.data, "n_queries": number})])
    assert said in words(recall_sections(study))


def test_a_draw_is_no_victory() -> None:
    given = {"data": "flickr8k", "protocol": "C", "tasks": ("text-to-text",)}
    study = Study([scored("cmcq", 0.3, **given), scored("cca-pq", 0.3, **given)])
    assert "no CMCQ variant is first at any length" in words(recall_sections(study))


def test_quality_on_data_without_labels_has_intervals() -> None:
    given = {"data": "mine", "protocol": "B", "labels": False, "partners": True}
    (section,) = quality_sections(Study([result("cmcq-auto", **given), result("cca-pq", **given)]))
    cell = row(section.tables[0], "CMCQ (auto)")[3]
    assert re.fullmatch(r"\(0\.\d{4} to 0\.\d{4}\)", cell.below)
    assert row(section.tables[0], "chance")[3].text == "0.0100"
    assert not quality_sections(Study([result("cmcq-auto", data="mine", protocol="B", partners=True)]))


def test_every_system_has_its_place_and_its_line_and_ours_are_no_rivals() -> None:
    keys = set(registry.list_keys())
    assert {key for key in keys if key.partition("-")[0] == "cmcq"} == set(OURS)
    assert set(_ORDER) == keys and keys - {"random"} <= set(STYLES)


def test_bootstrap_intervals() -> None:
    assert recall_interval([{"recall@10": [1.0] * 50}], 10) == (1.0, 1.0)
    low, high = recall_interval([{"recall@10": [0.0, 1.0] * 200}], 10) or (0.0, 0.0)
    assert 0.44 < low < 0.5 < high < 0.56
    assert recall_interval([{"recall@1": [0.0]}, {"recall@1": [0.0, 1.0]}], 1) is None
    assert recall_interval([{"recall@1": ["x"]}], 1) is None
    assert recall_interval([{}], 10) is None


def test_quality_says_when_a_simpler_system_wins() -> None:
    given = {"data": "mine", "protocol": "B", "labels": False, "partners": True}
    study = Study([result("cmcq-auto", shift=-0.6, **given), result("cca-rq", shift=0.3, **given)])
    assert "With 4 bytes: A simpler system wins: crossbyte finds" in words(quality_sections(study))
    assert not recall_sections(study)  # nothing to add to the quality table
    damaged = replace(study.results[0], per_query={"image-to-text": {"recall@1": [3, "x"]}})
    assert "CMCQ does not win at 4 bytes" in words(quality_sections(Study([damaged, study.results[1]])))


def test_ablations_count_losses() -> None:
    results = [scored("cmcq", 0.5), scored("cmcq", 0.4, variant="gamma=0")]
    results += [scored("cmcq", 0.52, variant="lambda=0"), scored("cmcq", 0.5, variant="C=D")]
    correlation, dictionary = ablation_sections(Study(results))
    said = words([correlation])
    assert (
        "γ = 0 is below the full system in 2 of 2 comparisons (data sets × tasks × lengths), by 0.1000"
        in said
    )
    assert "λ = 0 is below the full system in 0 of 2 comparisons" in said
    assert "by −0.0200 in the mean" in said
    assert "C = D is below the full system in 0 of 2 comparisons" in words([dictionary])
    chart = correlation.figures[0].charts[0]
    assert isinstance(chart, BarChart)
    assert [bars.values for bars in chart.bars] == [[0.5], [0.4], [0.52]]


def test_ablations_say_their_own_seeds_and_chance() -> None:
    results = [scored("cmfh", 0.5, seed=seed) for seed in range(5)]
    results += [scored("cmcq", 0.5, seed=seed) for seed in range(2)] + [scored("cmcq", 0.4, variant="C=D")]
    (section,) = ablation_sections(Study(results))
    table = section.details[0]
    assert "(Wiki, protocol A, 2 seeds)" in table.caption
    assert row(table, "CMCQ in full")[1].below == "" and row(table, "C = D")[1].below == "1 of 2 seeds"
    assert row(table, "chance")[1].text == "0.1800"


def test_precision_tables_have_chance_and_no_empty_rows() -> None:
    section, _ = curve_sections(Study([result("cmfh", 32), result("cmcq", 16)]))
    table = section.details[0]
    assert [each.cells[0].text for each in table.rows] == ["CMFH", "chance"]
    assert all(0 < float(cell.text) < 1 for cell in row(table, "chance")[1:])
    assert "beside CMCQ" not in words([section])


def test_lines_taught_with_labels_are_told_from_those_taught_with_pairs() -> None:
    results = [result("imh", similarity=similarity) for similarity in ("pairs", "labels")]
    chart = curve_sections(Study(results))[0].figures[0].charts[0]
    assert isinstance(chart, LineChart)
    assert [(line.name, line.style, line.hollow) for line in chart.lines[:2]] == [
        ("IMH", style_of("imh"), False),
        ("IMH [labels]", style_of("imh"), True),
    ]
    first, second = (
        chart_markup(chart._replace(lines=[chart.lines[0]._replace(hollow=way)])) for way in (False, True)
    )
    assert 'class="mark hollow s7"' in second and "hollow" not in first
    widths = [re.findall(r'stroke-width="([\d.]+)"', markup) for markup in (first, second)]
    assert {float(each) for each in widths[1]} == {0.6 * float(each) for each in widths[0]}


def test_times_have_two_digits() -> None:
    assert [format_seconds(value) for value in (0.006, 0.0612, 0.25, 12.34, 1234.5)] == [
        "0.0060", "0.061", "0.25", "12.3", "1,234",
    ]  # fmt: skip


def test_sensitivity_has_the_best_other_system_as_a_level() -> None:
    given = {"data": "flickr8k", "protocol": "V"}
    values = {"0.001": 0.3, "0.1": 0.5, "10": 0.35, "0": 0.9, "nan": 0.9, "x": 0.9}
    results = [scored("cmcq", value, variant=f"gamma={text}", **given) for text, value in values.items()]
    results += [scored("cmfh", 0.4, **given), scored("lssh", 0.2, **given), scored("cca", 0.8, **given)]
    (section,) = sensitivity_sections(Study(results))
    chart = section.figures[0].charts[0]
    assert isinstance(chart, LineChart)
    own, level = chart.lines
    assert (own.across, own.up) == ([0.001, 0.1, 10.0], [0.3, 0.5, 0.35])
    assert (level.name, level.up) == ("best other: CMFH", [0.4, 0.4])
    assert "above the best other system at 2 of 6 settings" in words([section])
    assert "here the data are Flickr8k" in words([section])


def test_the_claim_on_quantization_errors_is_judged() -> None:
    def stating(method: str, image: float, text: float) -> Result:
        return replace(scored(method, 0.5), details={"quantization_error": {"image": image, "text": text}})

    (section,) = distortion_sections(Study([stating("cmcq", 0.3, 0.4), stating("ccq", 0.35, 0.39)]))
    assert "the claim holds in part: the error of CMCQ is smaller than that of CCQ in 1 of 2" in words(
        [section]
    )
    assert row(section.tables[0], "CCQ")[2].text == "0.3500"


def test_table_1_is_what_systems_declare() -> None:
    about = About("cvh", "CVH", "somebody", (INTRA_DOCUMENT,), "separate", "hash", "hamming")
    section = table1_section([about])
    marks = [cell.text for cell in section.tables[0].rows[0].cells]
    assert marks == ["CVH", "", "", "△", "", "", "△", "△", "", "pairs"]
    assert (
        "CVH: the paper's Table 1 has intra-document, inter-document, separate, hash." in section.paragraphs
    )
    assert {about.key for about in declarations()} == set(registry.list_keys())


def test_table_1_of_all_sixteen_is_the_papers() -> None:
    section = table1_section(declarations())
    assert len(section.paragraphs) == 1  # no declaration is other than the paper's
    rows = [[cell.text for cell in row.cells[1:-1]] for row in section.tables[0].rows[:16]]
    heads = section.tables[0].header[1:-1]
    papers = [{*row.relations, row.codes, row.coding} for row in categories()]
    assert [{head for head, mark in zip(heads, row, strict=True) if mark} for row in rows] == papers
    assert [about.key for about in declarations()[:16]] == [row.key for row in categories()]
    assert not any(row.quiet for row in section.tables[0].rows[:16])


def test_every_section_is_made_and_well_formed() -> None:
    sections = report_sections(Study(everything()))
    headings = "\n".join(section.heading for section in sections)
    for part in ("Table 1", "Table 2", "Table 3 A", "Table 3 B", "Quality on", "one side coded", "folded in"):
        assert part in headings
    for part in ("alignments", "dictionary", "Precision@T", "recall", "Sensitivity", "error", "times"):
        assert part in headings
    tables = [table for section in sections for table in (*section.tables, *section.details)]
    assert all(len(each.cells) == len(table.header) for table in tables for each in table.rows)
    keys = [chart.key for section in sections for figure in section.figures for chart in figure.charts]
    assert len(keys) == len(set(keys))
    assert len({section.key for section in sections}) == len(sections)


# Files


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidInput, match=r"expected results .* got none; make some with `crossbyte evaluate"
    ):
        write_report(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "bad.json").write_text("{")
    with pytest.raises(InvalidInput, match=r"got 1 damaged \(bad.json: "):
        write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_damaged_files_are_named_and_left_out(tmp_path: Path) -> None:
    good = write_result(tmp_path, result())
    text = good.read_text()
    for name, damaged in {
        "cut": text[: len(text) // 2],
        "bits": text.replace('"bits":32', '"bits":"32"'),
        "zero": text.replace('"bits":32', '"bits":0'),
        "scores": re.sub(r'"scores":\{"image-to-text":\{', '"scores":{"extra":3,"image-to-text":{', text),
    }.items():
        (good.parent / f"{name}.json").write_text(damaged)
    (good.parent / "bytes.json").write_bytes(b"\xff\xfe")
    study = read_study(tmp_path)
    assert len(study.results) == 1
    named = sorted(line.partition(":")[0] for line in study.damaged)
    assert named == ["bits.json", "bytes.json", "cut.json", "scores.json", "zero.json"]
    assert not any(str(tmp_path) in line for line in study.damaged)
    assert all(f"could not be read: {line}" in words(report_sections(study)) for line in study.damaged)


def test_of_two_results_of_one_run_the_later_counts(tmp_path: Path) -> None:
    early = scored("cmfh", 0.3)
    late = replace(scored("cmfh", 0.4), finished=2.0, run=replace(early.run, parameters={"ridge": 2.0}))
    write_result(tmp_path, late)
    write_result(tmp_path, early)
    (kept,) = read_study(tmp_path).results
    assert kept.scores["image-to-text"]["map@50"] == 0.4


def test_figures_that_are_no_numbers_are_dashes() -> None:
    broken = replace(
        scored("cmfh", 0.5), scores={"image-to-text": {"map@50": "0.5", "pr_curve": {"recall": 3}}}
    )
    scope = scope_of(broken)
    assert scope.measure(scope.systems[0], 32, "image-to-text", "map@50") is None
    assert scope.curve(scope.systems[0], 32, "image-to-text", "pr_curve") is None
    assert report_sections(Study([broken]))


def test_the_page_is_whole_in_itself_and_hostile_names_stay_text(tmp_path: Path) -> None:
    about = {"name": HOSTILE, "codes": "separate", "coding": "hash"}
    given = {"data": HOSTILE, "tasks": ("image-to-text",), "bits": 32}
    hostile = replace(result("cmfh", **given), about=about)
    write_result(tmp_path, replace(hostile, versions={HOSTILE: HOSTILE}))
    write_result(tmp_path, result("cmcq", **given))
    (tmp_path / "runs" / "<b>.json").write_text("{")
    written = write_report(tmp_path, tmp_path / "out")

    page = (tmp_path / "out" / "report.html").read_text()
    assert not re.search(r"<(script|img|link|iframe|object|image)\b", page)
    assert not re.search(r"""(src|srcset|style)=["']|@import|url\((?!#)""", page)
    assert set(re.findall(r'href="([^"]?)', page)) == {"#"}
    assert "http://bad.example" in page and "https:" not in page  # as text alone
    assert page.count("http:") == page.count("http://bad.example")
    assert "default-src &#x27;none&#x27;" in page or "default-src 'none'" in page
    assert "&lt;b&gt;.json" in page
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    targets = re.findall(r'href="#([^"]+)"', page) + re.findall(r"url\(#([^)]+)\)", page)
    assert set(targets) <= set(ids)

    text = (tmp_path / "out" / "report.md").read_text()
    links = re.findall(r"!\[[^\n]*?\]\((report/[^)]+)\)", text)
    assert len(links) == 3  # precision, precision over recall, times
    assert {tmp_path / "out" / link for link in links} == set(written[2:])
    for path in written[2:]:
        picture = path.read_text()
        root = ElementTree.fromstring(picture)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert {node.tag.partition("}")[2] for node in root.iter()} <= SVG_PARTS
        names = {name for node in root.iter() for name in node.attrib}
        assert not {name for name in names if name.startswith(("on", "href", "style", "{"))}
        assert picture.count("http:") == 1 + picture.count("http://bad.example")  # its own name, and text
        assert "@import" not in picture and "url(" not in picture
    assert "<script" not in text and "<img" not in text and not re.search(r"(?<!\\)\]\(http", text)
    assert not re.search(r"^# b", text, flags=re.MULTILINE)


# Charts


def bar_chart(**given: Any) -> BarChart:
    bars = [
        Bars("$x_1$ <b>", style_of("first"), [0.1, None], [0.01, None]),
        Bars("y", style_of("second"), [0.2, 0.3], [None, 0.1]),
    ]
    chart = BarChart("bars", "Bars", "said", ["16", "32"], "MAP", "bits", bars, 0.05)
    return chart._replace(**given)


def line_chart(*lines: Line) -> LineChart:
    x = log_axis("γ", [value for line in lines for value in line.across])
    y = linear_axis("MAP", [value for line in lines for value in line.up], least_range=0.05)
    return LineChart("lines", "Lines", "said", x, y, list(lines))


def shapes(markup: str, kind: str) -> list[ElementTree.Element]:
    return [node for node in ElementTree.fromstring(markup).iter() if kind in node.get("class", "").split()]


def labels(markup: str) -> list[str]:
    return [node.text or "" for node in ElementTree.fromstring(markup).iter() if node.tag.endswith("text")]


def numbers(markup: str) -> list[float]:
    """All coordinates that are drawn."""
    nodes = ElementTree.fromstring(markup).iter()
    drawn = [node.get(name, "") for node in nodes for name in ("d", "x", "y", "transform", "points")]
    assert not re.search("nan|inf|None", " ".join(drawn))
    return [float(each) for each in re.findall(r"-?\d+\.?\d*", " ".join(drawn))]


def test_a_chart_is_drawn_the_same_twice_and_takes_the_pages_colours() -> None:
    charts = [bar_chart(), line_chart(Line("a", style_of("cmcq"), [0.1, 10.0], [0.2, 0.3]))]
    markup = "".join(map(chart_markup, charts))
    assert markup == "".join(map(chart_markup, charts))
    assert "$x_1$ &lt;b&gt;" in markup
    assert "style=" not in markup and "xmlns" not in markup and "#0072b2" not in markup
    assert "var(--s0)" in chart_rules({name: f"var(--{name})" for name in INKS})


def test_a_file_of_a_chart_has_its_colours_with_it_for_light_and_dark() -> None:
    picture = chart_file(bar_chart())
    light, dark = picture.split("@media (prefers-color-scheme: dark)")
    assert "color: #0072b2" in light and "color: #56b4e9" in dark
    assert "fill: #ffffff" in light and "fill: #0f1419" in dark  # letters stand on a ground of their own
    assert len(shapes(picture, "back")) == 1 and "var(" not in picture
    assert picture == chart_file(bar_chart())


def test_charts_of_one_file_stand_side_by_side_below_their_titles() -> None:
    charts = [bar_chart(), line_chart(), line_chart()]
    picture = sheet_file("All & everything", charts, 2)
    whole = ElementTree.fromstring(picture)
    _, _, width, height = map(float, whole.attrib["viewBox"].split())
    assert width == 2 * float(ElementTree.fromstring(chart_file(charts[0])).attrib["width"])
    moved = [node.attrib["transform"] for node in whole if node.tag.endswith("}g")]
    places = [tuple(map(float, re.findall(r"[\d.]+", each))) for each in moved]
    assert places[0] == (0.0, 0.0) and places[1] == (width / 2, 0.0)
    assert places[2][0] == 0.0 and 0.0 < places[2][1] < height
    assert {chart.title for chart in charts} <= set(labels(picture))
    assert "All &amp; everything" in picture and picture.count("prefers-color-scheme") == 1


def test_bars_are_as_high_as_their_values() -> None:
    markup = chart_markup(bar_chart())
    first, second, third, *legend = shapes(markup, "box")
    assert len(legend) == 2

    def height(node: ElementTree.Element) -> float:
        found = re.fullmatch(r"M([\d.]+) ([\d.]+)H([\d.]+)V([\d.]+)H[\d.]+Z", node.attrib["d"])
        assert found is not None
        return float(found[4]) - float(found[2])

    assert height(second) == pytest.approx(2 * height(first), abs=0.2)
    assert height(third) == pytest.approx(3 * height(first), abs=0.3)
    assert len(shapes(markup, "spread")) == 2 * 3  # an interval and its two ends
    assert len(shapes(markup, "line")) == 2  # chance, and its piece in the legend
    assert {"16", "32", "MAP", "bits", "chance", "$x_1$ <b>"} <= set(labels(markup))


def test_lines_go_through_their_points_and_the_best_stands_above() -> None:
    lines = [
        Line("ours", style_of("cmcq"), [0.1, 1.0, 10.0], [0.2, 0.25, 0.3]),
        Line("other", style_of("cmfh"), [0.1, 1.0, 10.0], [0.3, 0.25, 0.2]),
        Line("", style_of("chance"), [0.1, 10.0], [0.1, 0.1]),
    ]
    markup = chart_markup(line_chart(*lines))
    drawn = [node for node in shapes(markup, "line") if node.attrib["d"].count("L") > 1]
    assert [node.attrib["class"] for node in drawn] == ["line s3", "line s0"]  # what comes later is above
    points = [[float(each) for each in re.findall(r"[\d.]+", node.attrib["d"])] for node in drawn]
    assert points[0][0::2] == points[1][0::2] and points[0][1::2] == points[1][1::2][::-1]
    assert points[0][2] == pytest.approx((points[0][0] + points[0][4]) / 2, abs=0.1)  # a logarithmic axis
    assert len(shapes(markup, "line")) == 3 + 2 and len(shapes(markup, "mark")) == 2 * (3 + 1)
    assert "" not in labels(markup) and {"ours", "other", "0.1", "1", "10"} <= set(labels(markup))


@pytest.mark.parametrize(
    "chart",
    [
        line_chart(),
        line_chart(Line("a", style_of("cmcq"), [1.0], [0.5])),
        line_chart(Line("a", style_of("cmcq"), [2.1, 4.2], [0.5, 0.5])),
        line_chart(Line("a", style_of("cmcq"), [1.0, float("nan"), 3.0], [float("inf"), 0.2, 0.3])),
        line_chart(Line("a", style_of("x"), [1e-300, 1e300], [-1e308, 1e308])),
        line_chart(Line("a" * 500, style_of("cmcq"), [1e-9, 1.0], [1e-12, 2e-12])),
        bar_chart(bars=[Bars("a", style_of("first"), [None, None], [None, None])], chance=None),
        bar_chart(bars=[Bars("a", style_of("first"), [-0.1, 0.2], [0.5, None])]),
        bar_chart(bars=[Bars("a", style_of("first"), [0.0, 0.0], [None, None])], chance=None),
        bar_chart(bars=[Bars("\x00\x1b]0;\ud800&", style_of("x"), [0.1, 0.2], [None] * 2)], title="\x01"),
        bar_chart(level=True, chance=None),
        bar_chart(level=True, bars=[Bars("a", style_of("first"), [None, None], [None, None])]),
        bar_chart(level=True, bars=[Bars("a", style_of("first"), [1e-9, 1e9], [None, None])]),
        bar_chart(level=True, groups=["g" * 400, "h"]),
        bar_chart(groups=[str(place) for place in range(60)], bars=[]),
    ],
)  # fmt: skip
def test_charts_of_odd_numbers_have_no_place_outside_the_frame(chart: LineChart | BarChart) -> None:
    for markup in (chart_markup(chart), chart_file(chart)):
        *_, width, height = map(float, ElementTree.fromstring(markup).attrib["viewBox"].split())
        places = numbers(markup)
        assert places and max(map(abs, places)) <= max(width, height)


def test_axes_have_round_ticks_inside() -> None:
    assert [text for _, text in linear_axis("", [0.0, 1000.0], from_zero=True).ticks] == [
        "0", "200", "400", "600", "800", "1,000",
    ]  # fmt: skip
    calm = linear_axis("", [0.501, 0.502], least_range=0.05)
    assert calm.high - calm.low == pytest.approx(0.05) and calm.low < 0.501 < calm.high
    assert [text for _, text in log_axis("", [0.001, 10.0]).ticks] == ["0.001", "0.01", "0.1", "1", "10"]
    assert [text for _, text in log_axis("", [0.02, 30.0], whole=True).ticks] == [
        "0.01",
        "0.1",
        "1",
        "10",
        "100",
    ]
    for values in ([0.12, 0.37], [3.0, 3.0], [0.0], [-5.0, 123456.0], [1e-12, 2e-12], []):
        axis = linear_axis("", values)
        assert 3 <= len(axis.ticks) <= 7 and len({text for _, text in axis.ticks}) == len(axis.ticks)
        assert all(axis.low <= tick <= axis.high for tick, _ in axis.ticks[1:-1])


def test_a_report_with_figures_needs_no_plotting_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_result(tmp_path, result())
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    page, text, *charts = write_report(tmp_path)
    assert len(charts) == 5 and {path.suffix for path in charts} == {".svg"}
    assert page.read_text().count("<svg") == len(charts) == text.read_text().count("![")


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    write_result(tmp_path, result(tasks=("image-to-text",)))
    (tmp_path / "report").write_text("mine")
    with pytest.raises(InvalidInput, match="expected a folder to write into, got a file"):
        write_report(tmp_path)
    assert (tmp_path / "report").read_text() == "mine"
