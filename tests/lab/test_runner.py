"""The laboratory: protocols scored by hand, and runs that are done once, whole, wherever they are done."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from crossbyte import extras
from crossbyte.errors import FitInterrupted, InvalidInput, MissingExtra
from crossbyte.lab import parameter_search, systems
from crossbyte.lab.datasets.collection import Collection, Part, collection_digest
from crossbyte.lab.parameter_search import (
    GRIDS,
    Choice,
    RecordedParameters,
    choose_parameters,
    read_parameters,
    read_recorded,
    to_recorded_form,
)
from crossbyte.lab.protocols import make_trial
from crossbyte.lab.results import Result, Run, read_result, read_results, runs_folder
from crossbyte.lab.run_plan import RunRequest, plan_runs
from crossbyte.lab.runner import Outcome, run_all, run_here, run_in_processes
from crossbyte.lab.score_tables import summarise_results
from support.laboratory import Plain, collection, part
from support.tasks import judge_number

Fits = list[tuple[Any, ...]]


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> Fits:
    """Every run is of the plain system; what its fits were given."""
    log: Fits = []

    def made(run: Run) -> Plain:
        return Plain(n_bits=run.bits, similarity=run.similarity, log=log, **run.parameters)

    monkeypatch.setattr("crossbyte.lab.runner.make_system", made)
    return log


def run_of(protocol: str, **changed: Any) -> Run:
    common = {"data": "tiny", "data_digest": "d", "method": "plain", "bits": 16, "seed": 0}
    return Run(**(common | {"protocol": protocol} | changed))


def results_of(data: Collection, out: Path, *runs: Run) -> list[Result]:
    outcome = run_all(runs, data, out)
    assert [each.failure.message for each in outcome.failed] == []
    return outcome.results


LABELLED = collection(
    part([0, 1, 2, 3], [0, 1, 2, 3], [[1, 0], [1, 0], [0, 1], [0, 1]]),
    part([0.1, 2.9], [0.2, 3.1], [[1, 0], [1, 0]]),
)


# Protocols, by hand


def test_protocol_a_searches_training_documents_by_label(tmp_path: Path, fits: Fits) -> None:
    (result,) = results_of(LABELLED, tmp_path, run_of("A"))
    # 0.1 finds both relevant items first; 2.9 finds 3, 2, then the relevant 1 and 0: (1/3 + 2/4) / 2.
    for task in ("image-to-text", "text-to-image"):
        assert result.scores[task]["map@50"] == pytest.approx((1 + 5 / 12) / 2)
        assert result.per_query[task] == {"ap@50": [1.0, pytest.approx(5 / 12, abs=1e-6)]}
        assert "recall@10" not in result.scores[task]
        assert result.chance[task]["precision@1"] == pytest.approx(0.5)
    assert result.data | {"about": ""} == {
        "name": "tiny",
        "about": "",
        "digest": "d",
        "n_train": 4,
        "n_items": 4,
        "n_queries": 2,
        "image_dim": 1,
        "text_dim": 1,
    }
    assert fits == [(4, None)]


def test_protocol_a_leaves_out_documents_without_a_label(tmp_path: Path, fits: Fits) -> None:
    data = collection(
        part([0, 5, 1], [0, 5, 1], [[1, 0], [0, 0], [0, 1]]), part([5, 0.4], [5, 0.4], [[0, 0], [0, 1]])
    )
    (result,) = results_of(data, tmp_path, run_of("A"))
    assert (result.data["n_train"], result.data["n_items"], result.data["n_queries"]) == (2, 2, 1)
    assert result.score("map@50") == pytest.approx(0.5)


def test_labels_are_given_only_to_who_learns_from_them(tmp_path: Path, fits: Fits) -> None:
    results_of(LABELLED, tmp_path, run_of("A", similarity="labels"))
    assert fits == [(4, [[1, 0], [1, 0], [0, 1], [0, 1]])]


def test_protocol_b_looks_for_partners_among_unseen_documents(tmp_path: Path, fits: Fits) -> None:
    data = collection(part([0, 1], [0, 1]), part([0, 10, 20], [1, 19, 11]))
    (result,) = results_of(data, tmp_path, run_of("B"))
    # Image 0 finds its text 1; image 10 finds 11, then 1 and its own 19 tie; image 20 finds 19, then its own.
    assert result.per_query["image-to-text"]["rank"] == [0, 1.5, 1]
    assert result.per_query["text-to-image"]["rank"] == [0, 1, 1]
    assert result.score("recall@1") == pytest.approx(1 / 3)
    assert result.per_query["image-to-text"]["recall@1"] == [1, 0, 0]
    assert "map@50" not in result.scores["image-to-text"] and "ap@50" not in result.per_query["image-to-text"]
    assert result.chance["image-to-text"]["recall@1"] == pytest.approx(1 / 3)
    assert (result.data["n_train"], result.data["n_items"], result.data["n_queries"]) == (2, 3, 3)


def test_protocol_b_judges_by_labels_too_where_there_are_some(tmp_path: Path, fits: Fits) -> None:
    (result,) = results_of(LABELLED, tmp_path, run_of("B"))
    assert result.score("map@50") == pytest.approx(1.0) and result.score("recall@1") == pytest.approx(1.0)


def test_protocol_c_asks_pairs_by_other_texts(tmp_path: Path, fits: Fits) -> None:
    data = collection(part([0, 1], [0, 1]), part([0, 10], [4, 20], None, [1, 16], [9, 14]))
    (result,) = results_of(data, tmp_path, run_of("C"))
    # Pairs stand at 2 and 15. Texts 1, 16, 9, 14: the third, of document 0, is nearer to 15.
    assert result.tasks == ["text-to-image", "text-to-text"]
    for task in result.tasks:
        assert result.per_query[task]["rank"] == [0, 0, 1, 0]
        assert result.scores[task]["recall@1"] == pytest.approx(0.75)
    assert result.data["n_queries"] == 4 and result.data["texts_per_item"] == 2


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_protocol_c_asks_within_groups_where_documents_have_one_text(form: Callable[..., Any]) -> None:
    texts = form(np.array([[1, 0], [2, 0], [1, 0], [3, 1], [1, 2], [9, 9]], dtype=np.float32))
    unseen = Part(np.arange(6, dtype=np.float32)[:, None], texts, None, groups=np.array([4, 2, 4, 2, 4, 7]))
    trial = make_trial("C", Collection("grouped", unseen, unseen))
    # Documents are rows 1, 0 and 5. Row 2 repeats the text of row 0; group 7 has no other row.
    assert trial.database.part.images.ravel().tolist() == [1, 0, 5] and trial.notes == {"texts_per_item": 1}
    for task in trial.tasks:
        asked = task.queries.toarray() if sp.issparse(task.queries) else task.queries
        assert asked.tolist() == [[3, 1], [1, 2]]
        assert task.partners is not None and task.partners.tolist() == [0, 1]
    with pytest.raises(InvalidInput, match="further texts"):
        make_trial("C", Collection("alone", unseen, replace(unseen, groups=np.arange(6))))
    assert collection_digest(Collection("g", unseen, unseen)) != collection_digest(
        Collection("g", unseen, replace(unseen, groups=None))
    )


def test_protocol_c_stacks_sparse_texts() -> None:
    texts = sp.csr_array(np.eye(3, 4, dtype=np.float32))
    unseen = Part(np.zeros((3, 2), np.float32), texts, None, (texts, texts[::-1]))
    trial = make_trial("C", Collection("sparse", unseen, unseen))
    assert trial.tasks[0].queries.shape == (6, 4)
    assert trial.tasks[0].partners is not None and trial.tasks[0].partners.tolist() == [0, 1, 2, 0, 1, 2]


def test_protocol_d_searches_new_classes(tmp_path: Path, fits: Fits) -> None:
    # In training, b has 4 documents, d 3, a 2, c 1: b and a are old, d and c are new.
    train = part(
        [0, 1, 2, 3, 4, 5, 6, 7],
        [0, 1, 2, 3, 4, 5, 6, 9],
        [
            [0, 1, 0, 0],
            [0, 1, 0, 0],
            [1, 0, 0, 0],
            [0, 1, 0, 1],
            [0, 0, 0, 1],
            [0, 0, 0, 1],
            [0, 0, 1, 0],
            [1, 1, 0, 0],
        ],
    )
    query = part([3.2, 1, 6.1], [3.2, 1, 6.1], [[0, 1, 0, 1], [0, 1, 0, 0], [0, 0, 1, 0]])
    data = collection(train, query, ("a", "b", "c", "d"))
    pair, side = results_of(data, tmp_path, run_of("D"), run_of("D", variant="side"))
    assert pair.data["new_labels"] == ["c", "d"]
    # Rows 0, 1, 2 and 7 are learned from; rows 3, 4, 5 (d) and 6 (c) are searched; the second query is old.
    assert (pair.data["n_train"], pair.data["n_items"], pair.data["n_queries"]) == (4, 4, 2)
    assert fits == [(4, None)]  # once for both
    assert pair.score("map@50") == pytest.approx(1.0)
    assert side.run.variant == "side" and side.score("map@50") == pytest.approx(1.0)


def test_protocol_d_codes_documents_as_pairs_or_by_one_side(tmp_path: Path, fits: Fits) -> None:
    train = part([0, 10, 20], [0, 40, 2], [[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    query = part([11], [30], [[0, 1, 0]])
    data = collection(train, query)
    # As many of each: columns 0 and 2 are old, 1 is new. Only row 1 is searched: at 25, or at 10 and 40.
    pair = make_trial("D", data)
    system = Plain().fit(pair.train.images, pair.train.texts)
    assert pair.database.items(system, "image").tolist() == [[25.0]]
    side = make_trial("D", data, "side")
    assert side.database.items(system, "image").tolist() == [[10.0]]
    assert side.database.items(system, "text").tolist() == [[40.0]]
    assert pair.train.labels is not None and pair.train.labels.tolist() == [[1, 0], [0, 1]]


def test_validation_asks_a_part_of_the_training_documents() -> None:
    n = 400
    labels = np.ones((n, 1), np.uint8)
    train = Part(np.arange(n, dtype=np.float32)[:, None], np.arange(n, dtype=np.float32)[:, None], labels)
    data = collection(train, train.take(np.arange(3)))
    trial = make_trial("V", data)
    asking, learned = trial.tasks[0].queries[:, 0], trial.train.images[:, 0]
    assert len(asking) == 100 and sorted([*asking, *learned]) == list(range(n))
    again = make_trial("P", data)
    assert again.tasks[0].queries[:, 0].tolist() == asking.tolist()
    assert again.database.coding == "side" and trial.database.coding == "training"


@pytest.mark.parametrize(
    ("protocol", "data", "said"),
    [
        ("A", collection(part([0], [0]), part([0], [0])), "judges by labels, and these data have none"),
        ("A", collection(part([0], [0], [[0]]), part([0], [0], [[0]])), "documents with a label"),
        ("C", LABELLED, "further texts of the same documents, and tiny has none"),
        ("D", collection(part([0], [0], [[1]]), part([0], [0], [[1]])), "at least two labels"),
        ("V", LABELLED, "at least 20 training documents"),
        ("X", LABELLED, "expected one of A, B, C, D, V, P, L, got 'X'"),
    ],
)
def test_protocols_refuse_what_they_cannot_do(protocol: str, data: Collection, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        make_trial(protocol, data)


# Runs


def test_one_fit_serves_the_protocols_that_learn_from_the_same_documents(tmp_path: Path, fits: Fits) -> None:
    runs = [run_of("A"), run_of("B"), run_of("A", seed=1), run_of("B", seed=1)]
    assert len(results_of(LABELLED, tmp_path, *runs)) == 4
    assert len(fits) == 2


def test_what_is_done_is_not_done_again(tmp_path: Path, fits: Fits) -> None:
    runs = [run_of("A", seed=seed) for seed in range(3)]
    run_all(runs[:2], LABELLED, tmp_path)
    assert len(fits) == 2
    outcome = run_all(runs, LABELLED, tmp_path)
    assert len(fits) == 3 and outcome.n_found == 2 and len(outcome.results) == 3
    assert [result.run.seed for result in outcome.results] == [0, 1, 2]
    run_all(runs, LABELLED, tmp_path, again=True)
    assert len(fits) == 6


@pytest.mark.parametrize(
    "changed",
    [{"parameters": {"shift": 1.0}}, {"data_digest": "e"}, {"similarity": "labels"}, {"full": True}],
)
def test_a_run_with_anything_else_is_another_run(tmp_path: Path, fits: Fits, changed: dict[str, Any]) -> None:
    results_of(LABELLED, tmp_path, run_of("A"))
    results_of(LABELLED, tmp_path, run_of("A", **changed))
    assert len(fits) == 2 and len(list(runs_folder(tmp_path).iterdir())) == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "[]",
        lambda text: text.replace('"format":1', '"format":2'),
        lambda text: text.replace('"scores":{', '"scorer":{'),
        lambda text: text.replace('"seed":0', '"seeds":0'),
        lambda text: text.replace("tiny", "\udc80"),
    ],
)
def test_a_damaged_result_is_made_again(tmp_path: Path, fits: Fits, damage: Callable[[str], str]) -> None:
    (before,) = results_of(LABELLED, tmp_path, run_of("A"))
    (path,) = runs_folder(tmp_path).iterdir()
    path.write_bytes(damage(path.read_text()).encode(errors="surrogateescape"))
    with pytest.raises(InvalidInput, match="remove the file"):
        read_results(tmp_path)
    outcome = run_all([run_of("A")], LABELLED, tmp_path)
    assert len(fits) == 2 and outcome.notes == [f"{path.name} was damaged and is made again"]
    assert outcome.results[0].scores == before.scores
    assert read_result(path).scores == before.scores


def test_a_result_is_what_was_written(tmp_path: Path, fits: Fits) -> None:
    (result,) = results_of(LABELLED, tmp_path, run_of("A", variant="odd/name", parameters={"shift": 0.5}))
    (path,) = runs_folder(tmp_path).iterdir()
    assert path.name == f"tiny-A-plain-odd_name-16-0-{result.run.digest[:8]}.json"
    document = json.loads(path.read_text())
    assert document["run"] == {
        "data": "tiny",
        "protocol": "A",
        "method": "plain",
        "variant": "odd/name",
        "bits": 16,
        "seed": 0,
        "similarity": "pairs",
        "parameters": {"shift": 0.5},
        "full": False,
    }
    assert document["about"]["name"] == "Plain" and set(document["seconds"]) == {"fit", "code", "search"}
    assert {"crossbyte", "numpy", "python"} <= set(document["versions"])
    assert document["details"]["parameters"]["shift"] == 0.5
    assert read_result(path).to_dict() == document == result.to_dict()


def test_of_two_settings_the_later_result_counts(tmp_path: Path, fits: Fits) -> None:
    results_of(LABELLED, tmp_path, run_of("A"))
    results_of(LABELLED, tmp_path, run_of("A", parameters={"shift": 0.5}), run_of("B"))
    assert [(each.run.protocol, dict(each.run.parameters)) for each in read_results(tmp_path)] == [
        ("A", {"shift": 0.5}),
        ("B", {}),
    ]


def test_no_results_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="expected results of an evaluation"):
        read_results(tmp_path)


def test_a_run_that_fails_stops_no_other(tmp_path: Path, fits: Fits) -> None:
    runs = [run_of("A", parameters={"shift": "x"}), run_of("A", seed=1)]
    outcome = run_all(runs, LABELLED, tmp_path)
    assert [each.run.seed for each in outcome.failed] == [0] and len(outcome.results) == 1
    failure = outcome.failed[0].failure
    assert isinstance(failure.error, TypeError | RuntimeError) and "queries" in failure.trace


def test_ctrl_c_keeps_what_is_done(tmp_path: Path, fits: Fits, monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(self: Plain, images: Any, texts: Any, labels: Any = None) -> Plain:
        if self.shift:
            raise KeyboardInterrupt
        return original(self, images, texts, labels)

    original = Plain.fit
    monkeypatch.setattr(Plain, "fit", fit)
    runs = [run_of("A", bits=32), run_of("A", parameters={"shift": 1.0})]
    with pytest.raises(FitInterrupted, match=r"after 1 of 2 runs.*run the same command again to go on"):
        run_all(runs, LABELLED, tmp_path)
    assert len(read_results(tmp_path)) == 1
    with pytest.raises(FitInterrupted, match="interrupted before the first of 1 run was done"):
        run_all(runs[1:], LABELLED, tmp_path / "other")


def test_progress_counts_runs(tmp_path: Path, fits: Fits) -> None:
    steps: list[tuple[str, int, int]] = []
    runs = [run_of("A"), run_of("A", seed=1)]
    run_all(runs[:1], LABELLED, tmp_path)
    run_all(
        runs, LABELLED, tmp_path, callback=lambda step: steps.append((step.detail, step.done, step.total))
    )
    assert steps == [("", 0, 1), ("plain, 16 bits, protocol A, seed 1", 1, 1)]  # what was there took no time
    steps.clear()
    run_all(runs, LABELLED, tmp_path, callback=lambda step: steps.append((step.detail, 0, 0)))
    assert not steps


def test_a_folder_that_takes_no_files_is_refused_before_any_run(tmp_path: Path, fits: Fits) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(InvalidInput, match=r"expected a folder to write results into, got .*nothing was run"):
        run_all([run_of("A")], LABELLED, tmp_path / "taken")
    assert not fits and (tmp_path / "taken").read_text() == "a file"


# Processes


def test_processes_do_what_one_process_does() -> None:
    tasks = [1, -2, 4, -5]
    here = dict(run_here(judge_number, tasks))
    there = dict(run_in_processes(judge_number, tasks, 2))
    assert list(here) == tasks and set(there) == set(tasks)
    for number, failure in there.items():
        expected = here[number]
        assert (failure is None) == (expected is None)
        if failure is not None and expected is not None:
            assert (failure.kind, failure.message) == (expected.kind, expected.message)
            assert isinstance(failure.error, InvalidInput)


def test_a_process_that_dies_takes_only_its_task_with_it() -> None:
    found = dict(run_in_processes(judge_number, [3, 1, 2], 1))
    assert found[1] is None and found[2] is None
    assert found[3] is not None and "ended with code 7" in found[3].message


# Plans


def asked(**changed: Any) -> RunRequest:
    return RunRequest(**({"methods": ("cca",), "bits": (16,)} | changed))


def test_a_plan_has_a_run_for_everything_that_was_asked_for() -> None:
    plan = plan_runs(
        asked(bits=(16, 32), seeds=(0, 1), protocols=("A", "B")), LABELLED, "d", RecordedParameters()
    )
    assert len(plan.runs) == 8 and plan.notes == []
    assert len({run.digest for run in plan.runs}) == 8


def test_slow_systems_have_limits_unless_full() -> None:
    wanted = asked(methods=("mlbe",), bits=(64, 128))
    plan = plan_runs(wanted, LABELLED, "d", RecordedParameters())
    assert [run.bits for run in plan.runs] == [64]
    assert plan.notes == ["mlbe with 128 bits is left out: it would take hours; --full runs it"]
    plan = plan_runs(replace(wanted, full=True), LABELLED, "d", RecordedParameters())
    assert [(run.bits, run.full) for run in plan.runs] == [(64, True), (128, True)]


def test_systems_that_need_labels_are_refused_by_name_and_left_out_of_a_group() -> None:
    data = collection(part([0, 1], [0, 1]), part([0], [0]))
    with pytest.raises(InvalidInput, match="learns from labels, and these data have none"):
        plan_runs(asked(methods=("seph",), protocols=("B",)), data, "d", RecordedParameters())
    plan = plan_runs(asked(methods=("table3",), protocols=("B",)), data, "d", RecordedParameters())
    assert [run.method for run in plan.runs] == ["cmcq"]
    assert len(plan.notes) == 1 and plan.notes[0].startswith("seph is left out: SePH")


def test_faiss_systems_are_refused_by_name_and_left_out_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "is_installed", lambda module: False)
    with pytest.raises(MissingExtra, match=r"cca-rq needs FAISS; install it with"):
        plan_runs(asked(methods=("cca-rq",)), LABELLED, "d", RecordedParameters())
    with pytest.raises(MissingExtra, match=r"cca-pq needs FAISS; install it with"):
        plan_runs(asked(methods=("quantizers",)), LABELLED, "d", RecordedParameters())
    plan = plan_runs(asked(methods=("quantizers", "cca")), LABELLED, "d", RecordedParameters())
    assert [run.method for run in plan.runs] == ["cca"] and len(plan.notes) == 4


def test_ablations_change_one_part_of_cmcq() -> None:
    plan = plan_runs(asked(methods=("cmcq", "cca"), ablations=True), LABELLED, "d", RecordedParameters())
    found = {run.variant: dict(run.parameters) for run in plan.runs if run.method == "cmcq"}
    assert found == {
        "": {},
        "gamma=0": {"correlation": 0.0},
        "lambda=0": {"alignment": 0.0},
        "C=D": {"shared_codebooks": True},
    }
    assert sum(run.method == "cca" for run in plan.runs) == 1
    with pytest.raises(InvalidInput, match="varies cmcq, which is not among the systems"):
        plan_runs(asked(ablations=True), LABELLED, "d", RecordedParameters())


def test_sensitivity_varies_one_parameter_at_a_time_on_a_validation_part() -> None:
    n = 40
    rows = np.arange(n, dtype=np.float32)[:, None]
    data = collection(
        Part(rows, rows, np.ones((n, 1), np.uint8)), Part(rows, rows, np.ones((n, 1), np.uint8))
    )
    kept = RecordedParameters({"cmcq": {"*": {"correlation": 0.7, "max_iter": 2}}})
    plan = plan_runs(asked(methods=("cmcq", "cca"), seeds=(0, 1), sensitivity=True), data, "d", kept)
    runs = [run for run in plan.runs if run.protocol == "V"]
    assert {run.bits for run in runs} == {32} and {run.seed for run in runs} == {0}
    assert sorted(run.method for run in runs if not run.variant) == ["cca", "cmcq"]
    varied = {run.variant: dict(run.parameters) for run in runs if run.variant}
    assert len(varied) == 36
    assert varied["gamma=10"] == {"correlation": 10.0, "max_iter": 2}
    assert varied["rho=0.001"] == {"correlation": 0.7, "max_iter": 2, "sparsity": 0.001}
    assert max(float(name.split("=")[1]) for name in varied if name.startswith("rho")) == 1.0


def test_wrong_parameters_are_refused_before_any_run() -> None:
    with pytest.raises(InvalidInput, match="nonsense"):
        plan_runs(asked(), LABELLED, "d", RecordedParameters({"cca": {"*": {"nonsense": 1}}}))
    with pytest.raises(InvalidInput, match="expected the key of a system"):
        plan_runs(asked(methods=("nothing",)), LABELLED, "d", RecordedParameters())


def test_similarity_is_for_those_who_know_it() -> None:
    assert systems.choose_similarity("cca", "labels", has_labels=True) == "pairs"
    assert systems.choose_similarity("cvh", "labels", has_labels=True) == "labels"
    assert systems.choose_similarity("cvh", None, has_labels=False) == "pairs"


# Parameters that were chosen before


def test_recorded_parameters_hold_for_the_same_features_only(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"tiny": {"digest": "d", "methods": {"cca": {"*": {"a": 1, "b": 1}, "32": {"b": 2}}}}}
    monkeypatch.setattr(parameter_search, "parse_json", lambda text: known)
    found = read_recorded("tiny", "d")
    assert found.parameters("cca", 16, "pairs") == {"a": 1, "b": 1}
    assert found.parameters("cca", 32, "pairs") == {"a": 1, "b": 2}
    assert found.parameters("cvh", 32, "pairs") == {}
    other = read_recorded("tiny", "e")
    assert other.parameters("cca", 16, "pairs") == {} and "for other features named tiny" in other.note
    assert read_recorded("unknown", "d") == RecordedParameters()


def test_parameters_of_a_similarity_go_first() -> None:
    found = RecordedParameters({"cvh": {"*": {"a": 1}}, "cvh/labels": {"*": {"a": 2}}})
    assert found.parameters("cvh", 16, "pairs") == {"a": 1}
    assert found.parameters("cvh", 16, "labels") == {"a": 2}


def test_the_recorded_file_fits_the_systems() -> None:
    """Every recorded parameter is one of its system, and can be made."""
    from crossbyte.lab.methods import registry

    path = Path(parameter_search.__file__).with_name("recorded.json")
    for entry in json.loads(path.read_text()).values():
        assert len(entry["digest"]) == 32
        for name, by_length in entry["methods"].items():
            key, _, similarity = name.partition("/")
            for length in by_length:
                bits = 32 if length == "*" else int(length)
                parameters = {**by_length.get("*", {}), **by_length[length]}
                registry.make_method(key, bits, similarity=similarity or None, parameters=parameters)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"tiny": 1}', '{"tiny": {"methods": {"cca": {"*": 1}}}}', "\xff"]
)
def test_files_of_another_form_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(InvalidInput, match=r"p.json: expected"):
        read_parameters(path, "tiny", "d")


def test_a_users_file_is_used_and_odd_features_are_said(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text('{"tiny": {"digest": "d", "methods": {"cca": {"*": {"a": 1}}}}}')
    assert read_parameters(path, "tiny", "d").parameters("cca", 16, "pairs") == {"a": 1}
    odd = read_parameters(path, "tiny", "e")
    assert odd.parameters("cca", 16, "pairs") == {"a": 1} and "other features" in odd.note
    with pytest.raises(InvalidInput, match="expected parameters for 'wiki', got them for tiny"):
        read_parameters(path, "wiki", "d")


# Digests and tables


def test_a_digest_is_of_contents() -> None:
    same = collection(LABELLED.train.take(np.arange(4)), LABELLED.query)
    assert collection_digest(same) == collection_digest(replace(LABELLED, name="other", about=""))
    others = [
        collection(LABELLED.query, LABELLED.train),
        collection(part([0, 1, 2, 3], [0, 1, 2, 3]), LABELLED.query),
        collection(part([0, 1, 2, 3], [0, 1, 2, 4], [[1, 0], [1, 0], [0, 1], [0, 1]]), LABELLED.query),
    ]
    assert len({collection_digest(each) for each in [LABELLED, *others]}) == 4


def test_a_digest_of_sparse_texts_does_not_depend_on_the_type_of_positions() -> None:
    texts = sp.csr_array(np.eye(3, dtype=np.float32))
    wide = sp.csr_array(
        (texts.data, texts.indices.astype(np.int64), texts.indptr.astype(np.int64)), shape=(3, 3)
    )
    digests = {
        collection_digest(Collection("x", each, each))
        for each in (Part(np.zeros((3, 1), np.float32), rows, None) for rows in (texts, wide))
    }
    assert len(digests) == 1


def test_tables_have_means_over_seeds_and_chance(tmp_path: Path, fits: Fits) -> None:
    runs = [run_of("A"), run_of("A", seed=1, parameters={"shift": 2.0}), run_of("A", variant="v")]
    first, second = summarise_results(results_of(LABELLED, tmp_path, *runs))
    assert (first.task, second.task, first.metric, first.bits) == (
        "image-to-text",
        "text-to-image",
        "map@50",
        [16],
    )
    assert set(first.rows) == {"Plain", "Plain v"}
    assert first.rows["Plain"][16].n_seeds == 2 and first.rows["Plain v"][16].spread is None
    assert 0 < first.chance < 1


# Choosing


def do_with(data: Collection, out: Path) -> Callable[[list[Run]], Outcome]:
    return lambda runs: run_all(runs, data, out)


def test_every_grid_is_of_parameters_that_its_system_has() -> None:
    from crossbyte.lab.methods import registry

    for key, grid in GRIDS.items():
        for name, values in grid.items():
            for value in values:
                assert registry.make_method(key, 16, parameters={name: value}).parameters[name] == value


def test_one_parameter_is_varied_while_the_others_stay(
    tmp_path: Path, fits: Fits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shift and scale of a system whose queries are right at 3 and at 2."""
    monkeypatch.setattr(parameter_search, "GRIDS", {"plain": {"shift": (1.0, 3.0, 9.0), "scale": (2.0, 5.0)}})
    monkeypatch.setattr(parameter_search, "make_system", lambda run: Plain(**run.parameters))
    numbers = np.arange(0, 400, 8, dtype=np.float32)
    train = Part(((numbers / 2) - 3)[:, None], numbers[:, None], None)
    data = collection(train, train.take(np.arange(3)))
    choices, outcomes = choose_parameters([run_of("P")], (0, 1), "pairs", do_with(data, tmp_path))
    (choice,) = choices
    tried = [dict(trial.params) for trial in choice.trials]
    assert [trial["shift"] for trial in tried[:4]] == [0.0, 1.0, 3.0, 9.0]
    assert [trial["scale"] for trial in tried[4:]] == [1.0, 2.0, 5.0]
    assert len({trial.get("shift", 0.0) for trial in tried[4:]}) == 1
    assert choice.score == max(trial.score for trial in choice.trials)
    assert len(fits) == 2 * (4 + 2)  # the setting of the first turn is known in the second
    assert [outcome.n_found for outcome in outcomes] == [0, 2]


def test_lengths_chosen_for_together_share_one_choice_by_their_mean(
    tmp_path: Path, fits: Fits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parameter_search, "GRIDS", {"plain": {"shift": (1.0, 3.0)}})
    monkeypatch.setattr(parameter_search, "make_system", lambda run: Plain(**run.parameters))
    numbers = np.arange(0, 400, 8, dtype=np.float32)
    train = Part(((numbers / 2) - 3)[:, None], numbers[:, None], None)
    data = collection(train, train.take(np.arange(3)))
    bases = [run_of("P", bits=16), run_of("P", bits=32), run_of("P", bits=16, similarity="labels")]
    choices, _ = choose_parameters(bases, (0, 1), "pairs", do_with(data, tmp_path), together=True)
    assert [choice.bits for choice in choices] == [(16, 32), (16,)]
    assert len(fits) == 3 * (2 * 2 + 2)  # three values; two lengths and one, with two seeds each
    results = [read_result(path) for path in runs_folder(tmp_path).iterdir()]
    for trial in choices[0].trials:
        given = {name: value for name, value in trial.params.items() if value}
        found = [r for r in results if r.run.similarity == "pairs" and dict(r.run.parameters) == given]
        assert {r.run.bits for r in found} == {16, 32} and len(found) == 4
        assert trial.score == pytest.approx(np.mean([r.score("recall@10") for r in found]))


def test_what_is_chosen_has_the_form_of_the_recorded_file(tmp_path: Path, fits: Fits) -> None:
    choice = Choice(run_of("V", parameters={"shift": 1.0}), (16, 64), 0.5)
    labels = Choice(run_of("V", similarity="labels", bits=32), (32,), 0.25)
    nothing = Choice(run_of("V", method="failed"), (16,))
    document = to_recorded_form([choice, labels, nothing], "so")
    path = tmp_path / "chosen.json"
    path.write_text(json.dumps(document))
    found = read_parameters(path, "tiny", "d")
    assert found.note == ""
    assert found.parameters("plain", 16, "pairs") == found.parameters("plain", 64, "pairs") == {"shift": 1.0}
    assert found.parameters("plain", 32, "labels") == {}
    assert set(document["tiny"]["methods"]) == {"plain", "plain/labels"}
    assert document["tiny"]["scores"] == {"plain": {"16": 0.5, "64": 0.5}, "plain/labels": {"32": 0.25}}
