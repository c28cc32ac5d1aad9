"""What every compared system promises, asked of each registered one and of each way of teaching it."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from crossbyte._not_fitted import NotFitted
from crossbyte.data.synthetic import Pairs, make_pairs
from crossbyte.errors import InvalidInput
from crossbyte.lab.methods import method as protocol
from crossbyte.lab.methods.method import Coding, Method, Side
from crossbyte.lab.methods.registry import GROUPS, METHODS, about_method, list_keys, make_method, resolve_keys
from crossbyte.metrics.scorer import Scorer

N_TRAIN, N_QUERIES, N_CLASSES, N_BITS = 300, 200, 4, 16
N_FEW = 80

# Smaller than by default where that only costs time.
QUICK: dict[str, dict[str, Any]] = {
    "mmnn": {"n_pairs": 1000},
    "crh": {"n_pairs": 1_500, "n_rounds": 2},
    "lssh": {"n_atoms": 64},
    "cq": {"n_atoms": 64, "max_iter": 3},
    "cca-lsq": {"train_iters": 5},
    "cmcq": {"n_atoms": 64, "max_iter": 3},
    "cmcq-auto": {"n_components": 16, "max_iter": 1},
}
# The paper's Table 1: relations, codes and coding of the systems that have a row of their own there.
TABLE_1 = {
    "cmssh": ("inter-modality", "separate", "hash"),
    "scm": ("inter-modality", "separate", "hash"),
    "crh": ("inter-modality", "separate", "hash"),
    "mlbe": ("intra-modality inter-modality", "separate", "hash"),
    "mmnn": ("intra-modality inter-modality", "separate", "hash"),
    "sm2h": ("intra-modality inter-modality", "separate", "hash"),
    "imh": ("intra-modality intra-document", "separate", "hash"),
    "cvh": ("intra-document inter-document", "separate", "hash"),
    "mvsh": ("intra-document inter-document", "separate", "hash"),
    "seph": ("intra-document inter-document", "unified", "hash"),
    "lssh": ("intra-document", "unified", "hash"),
    "cmfh": ("intra-document", "unified", "hash"),
    "stmh": ("intra-document", "unified", "hash"),
    "qch": ("inter-modality", "separate", "hash"),
    "ccq": ("intra-document", "unified", "quantization"),
    "cmcq": ("intra-document", "separate", "quantization"),
}
# Another value for every parameter of the systems that only the paper's Table 1 names.
CHANGED: dict[str, dict[str, Any]] = {
    "scm": {"variant": "orthogonal", "ridge": 3.0},
    "crh": {
        "similarity_weight": 1000.0,
        "shrinkage": 3.0,
        "n_pairs": 400,
        "n_rounds": 1,
        "n_steps": 5,
        "batch_size": 10,
    },
    "mmnn": {
        "n_hidden": 16,
        "image_weight": 2.0,
        "text_weight": 2.0,
        "margin": 2.0,
        "decay": 0.3,
        "n_pairs": 500,
        "n_neighbours": 3,
        "max_documents": 40,
        "n_components": 3,
        "ridge": 3.0,
        "learning_rate": 0.05,
        "n_epochs": 2,
    },
    "sm2h": {
        "sparsity": 0.7,
        "shrinkage": 10.0,
        "neighbour_weight": 30.0,
        "pair_weight": 1.0,
        "label_weight": 30.0,
        "n_neighbours": 3,
        "set_size": 2,
        "n_components": 3,
        "ridge": 3.0,
        "max_iter": 2,
        "max_documents": 40,
    },
    "imh": {
        "n_neighbours": 3,
        "smoothness": 3.0,
        "ridge": 3.0,
        "pair_weight": 100.0,
        "skip_constant": False,
        "max_documents": 40,
    },
    "mvsh": {
        "alpha": -1.0,
        "label_share": 0.9,
        "width": 0.2,
        "n_anchors": 10,
        "ridge": 1.0,
        "max_documents": 40,
    },
    "stmh": {
        "image_weight": 5.0,
        "text_weight": 5.0,
        "link_weight": 5.0,
        "shrinkage": 0.01,
        "max_iter": 1,
        "tolerance": 1e6,
    },
}
TASKS: list[tuple[Side, Side]] = [("image", "text"), ("text", "image")]
"""Side of the query, searched side."""
# What systems that answer only some tasks can be asked; all others must answer everything.
ANSWERS = {"keywords": {("text", "image", "training"), ("text", "image", "pair")}}

TAUGHT = [(key, similarity) for key in list_keys() for similarity in about_method(key).similarities]
each_key = pytest.mark.parametrize("key", list_keys())
each_taught = pytest.mark.parametrize(("key", "similarity"), TAUGHT)


@cache
def pairs(sparse_text: bool) -> Pairs:
    """Pairs whose partners and classes can be found; the dense texts are the sparse ones."""
    drawn = make_pairs(
        N_TRAIN + N_QUERIES,
        24,
        60,
        n_classes=N_CLASSES,
        n_topics=12,
        noise=0.1,
        words_per_text=40,
        random_state=0,
    )
    return drawn if sparse_text else drawn._replace(texts=drawn.texts.toarray())


def draw_few_pairs() -> Pairs:
    return make_pairs(N_FEW, 6, 5, n_classes=N_CLASSES, n_topics=4, words_per_text=4, random_state=1)


@cache
def few_pairs() -> Pairs:
    """Fewer pairs than codewords, fewer dimensions than bits; nothing can be written to."""
    drawn = draw_few_pairs()
    for array in (drawn.images, drawn.texts.data, drawn.texts.indices, drawn.texts.indptr):
        array.flags.writeable = False
    return drawn


def one_hot(data: Pairs) -> Any:
    return np.eye(N_CLASSES, dtype=np.uint8)[data.labels]


@cache
def fitted(key: str, similarity: str, sparse_text: bool) -> Method:
    data = pairs(sparse_text)
    method = make_method(key, N_BITS, similarity=similarity, parameters=QUICK.get(key))
    return method.fit(data.images[:N_TRAIN], data.texts[:N_TRAIN], one_hot(data)[:N_TRAIN])


@cache
def fit_few(
    key: str, similarity: str, labels: str = "their own", n_bits: int = N_BITS, n_jobs: int = 1
) -> Method:
    data = few_pairs()
    own = one_hot(data)
    own.flags.writeable = False
    given = {"their own": own, "others": own[::-1], "none": None}[labels]
    method = make_method(key, n_bits, seed=3, similarity=similarity, parameters=QUICK.get(key), n_jobs=n_jobs)
    return method.fit(data.images, data.texts, given)


def tasks_of(method: Method, coding: Coding) -> list[tuple[Side, Side]]:
    """The tasks that a system answers, among documents coded in this way."""
    return [task for task in TASKS if method.answers(*task, coding)]


def features(data: Pairs, side: Side) -> Any:
    return data.images if side == "image" else data.texts


def few_distances(method: Method) -> list[Any]:
    """All kinds of items, both ways."""
    data = few_pairs()
    make: dict[Coding, Callable[[Side], Any]] = {
        "training": method.training_items,
        "side": lambda searched: method.side_items(searched, features(data, searched)),
        "pair": lambda searched: method.pair_items(searched, data.images, data.texts),
    }
    return [
        method.distances(searched, method.queries(query, features(data, query)), items(searched))
        for coding, items in make.items()
        for query, searched in tasks_of(method, coding)
    ]


def assert_distances(distances: Any, shape: tuple[int, int]) -> None:
    assert distances.shape == shape and distances.dtype == np.float32 and np.isfinite(distances).all()


def same(left: list[Any], right: list[Any]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))


# What a system says of itself


@each_key
def test_it_declares_itself_wholly(key: str) -> None:
    own = about_method(key)
    order = [
        protocol.INTRA_MODALITY,
        protocol.INTER_MODALITY,
        protocol.INTRA_DOCUMENT,
        protocol.INTER_DOCUMENT,
    ]
    assert own.key == key and own.name and own.source
    assert list(own.relations) == [relation for relation in order if relation in own.relations]
    distances = {"hash": ("hamming", "jaccard"), "quantization": ("table",), "none": ("exact",)}
    assert own.distance in distances[own.coding]
    assert (own.codes == "none") == (own.coding == "none")
    assert own.similarities and set(own.similarities) <= {"pairs", "labels"}
    assert inspect.getdoc(METHODS[key]) and own.bit_step in (1, 8)


@pytest.mark.parametrize("key", TABLE_1)
def test_it_declares_what_the_paper_says_of_it(key: str) -> None:
    own = about_method(key)
    assert (" ".join(own.relations), own.codes, own.coding) == TABLE_1[key] and own.in_paper


@each_key
def test_it_answers_every_task_unless_we_know_why_not(key: str) -> None:
    method = make_method(key, N_BITS)
    codings: list[Coding] = ["training", "side", "pair"]
    found = {(*task, coding) for coding in codings for task in tasks_of(method, coding)}
    assert found == ANSWERS.get(key, {(*task, coding) for coding in codings for task in TASKS})


@each_taught
def test_what_it_keeps_of_a_fit_can_be_written_down(key: str, similarity: str) -> None:
    method = fitted(key, similarity, True)
    assert method.parameters["similarity"] == similarity
    assert json.loads(json.dumps([method.parameters, dict(method.details)], allow_nan=False))


@each_taught
def test_one_code_for_both_sides_where_it_says_so(key: str, similarity: str) -> None:
    method = fitted(key, similarity, True)
    images, texts = (method.training_items(side) for side in ("image", "text"))
    assert images.shape[0] == texts.shape[0] == N_TRAIN
    if about_method(key).codes == "unified":
        assert np.array_equal(images, texts)
    if about_method(key).coding == "hash":
        assert images.dtype == texts.dtype == np.uint8
        assert images.shape == texts.shape == (N_TRAIN, N_BITS // 8)


# What it finds


@pytest.mark.parametrize("sparse_text", [True, False], ids=["sparse", "dense"])
@each_taught
def test_it_finds_partners_and_classes(key: str, similarity: str, sparse_text: bool) -> None:
    method, data = fitted(key, similarity, sparse_text), pairs(sparse_text)
    known, new = data.labels[:N_TRAIN], slice(N_TRAIN, None)
    for query, searched in tasks_of(method, "training"):
        queries, by_class = method.queries(query, features(data, query)[new]), Scorer(N_TRAIN)
        trained = method.distances(searched, queries, method.training_items(searched))
        assert_distances(trained, (N_QUERIES, N_TRAIN))
        by_class.add(trained, data.labels[new, None] == known)
        gain = by_class.scores()["map@all"] - by_class.chance()["map@all"]
        assert abs(gain) < 0.02 if key == "random" else gain > 0.05
    for query, searched in tasks_of(method, "side"):
        queries = method.queries(query, features(data, query)[new])
        by_partner = Scorer(N_QUERIES, labels_relevant=False, partners=True)
        unseen = method.distances(
            searched, queries, method.side_items(searched, features(data, searched)[new])
        )
        assert_distances(unseen, (N_QUERIES, N_QUERIES))
        by_partner.add(unseen, partners=np.arange(N_QUERIES))
        ratio = by_partner.scores()["recall@10"] / by_partner.chance()["recall@10"]
        assert 0.4 < ratio < 1.6 if key == "random" else ratio > 1.75


@each_taught
def test_pairs_can_be_folded_in(key: str, similarity: str) -> None:
    method, data, new = fitted(key, similarity, True), pairs(True), slice(N_TRAIN, N_TRAIN + 50)
    for query, searched in tasks_of(method, "pair"):
        items = method.pair_items(searched, data.images[new], data.texts[new])
        distances = method.distances(searched, method.queries(query, features(data, query)[new]), items)
        assert_distances(distances, (50, 50))
        if key != "random":
            assert np.diag(distances).mean() < distances.mean()


@each_taught
def test_a_batch_is_its_parts(key: str, similarity: str) -> None:
    method, data = fitted(key, similarity, True), pairs(True)
    for query, searched in tasks_of(method, "training"):
        rows = features(data, query)[N_TRAIN : N_TRAIN + 12]
        items = method.training_items(searched)
        together = method.distances(searched, method.queries(query, rows), items)
        alone = [method.distances(searched, method.queries(query, rows[i : i + 1]), items) for i in range(12)]
        assert np.array_equal(together, np.concatenate(alone))
        assert np.array_equal(
            together[:, :7], method.distances(searched, method.queries(query, rows), items[:7])
        )


@each_taught
def test_a_text_without_a_known_word_is_no_accident(key: str, similarity: str) -> None:
    method, data = fitted(key, similarity, True), pairs(True)
    empty = sparse.csr_array((1, data.texts.shape[1]), dtype=np.float32)
    found = method.distances("image", method.queries("text", empty), method.training_items("image"))
    assert_distances(found, (1, N_TRAIN))
    if not method.answers("image", "text", "pair"):
        return
    item = method.pair_items("text", data.images[:1], empty)
    assert_distances(method.distances("text", method.queries("image", data.images[:2]), item), (2, 1))


# What it does with little


@each_taught
def test_the_same_seed_gives_the_same_distances_with_any_threads(key: str, similarity: str) -> None:
    once, again = (fit_few(key, similarity, n_jobs=n_jobs) for n_jobs in (1, 2))
    assert once is not again and same(few_distances(once), few_distances(again))


@pytest.mark.parametrize(("key", "name"), [(key, name) for key in CHANGED for name in CHANGED[key]])
def test_every_parameter_changed_changes_some_distance(key: str, name: str) -> None:
    data, parameters = few_pairs(), QUICK.get(key, {}) | {name: CHANGED[key][name]}

    def differs(similarity: str) -> bool:
        changed = make_method(key, N_BITS, seed=3, similarity=similarity, parameters=parameters)
        changed.fit(data.images, data.texts, one_hot(data))
        return not same(few_distances(changed), few_distances(fit_few(key, similarity)))

    assert any(differs(similarity) for similarity in about_method(key).similarities)


@pytest.mark.parametrize("key", CHANGED)
def test_no_parameter_is_forgotten(key: str) -> None:
    assert set(CHANGED[key]) == set(make_method(key, N_BITS).parameters) - {"similarity"}


@each_taught
def test_arguments_are_not_written_to(key: str, similarity: str) -> None:
    data = few_pairs()
    arrays = data.images, data.texts.data, data.texts.indices, data.texts.indptr
    assert not any(array.flags.writeable for array in arrays)
    few_distances(fit_few(key, similarity))
    fresh = draw_few_pairs()
    again = fresh.images, fresh.texts.data, fresh.texts.indices, fresh.texts.indptr
    assert [array.tobytes() for array in arrays] == [array.tobytes() for array in again]


@each_taught
def test_more_bits_than_dimensions_and_the_shortest_code(key: str, similarity: str) -> None:
    for n_bits in (N_BITS, about_method(key).bit_step):
        for distances in few_distances(fit_few(key, similarity, n_bits=n_bits)):
            assert_distances(distances, (N_FEW, N_FEW))


@each_key
def test_lengths_that_it_has_not_are_refused_before_any_work(key: str) -> None:
    with pytest.raises(InvalidInput, match="n_bits"):
        make_method(key, 0)
    if about_method(key).bit_step > 1:
        with pytest.raises(InvalidInput, match="multiple of 8"):
            make_method(key, 1)


@each_taught
def test_labels_count_only_where_it_is_taught_with_them(key: str, similarity: str) -> None:
    if similarity == "labels":
        with pytest.raises(InvalidInput, match="label"):
            fit_few(key, similarity, "none")
    else:
        others, none = (few_distances(fit_few(key, similarity, labels)) for labels in ("others", "none"))
        assert same(others, none)


@each_key
def test_before_fit_it_knows_nothing(key: str) -> None:
    method, data = make_method(key, N_BITS), few_pairs()
    with pytest.raises(NotFitted, match="fit"):
        method.queries("image", data.images)
    with pytest.raises(NotFitted, match="fit"):
        method.training_items("text")


# The registry


def test_groups_are_the_rows_of_the_tables() -> None:
    assert GROUPS["all"] == list_keys() == tuple(METHODS) and len(METHODS) == 30
    assert resolve_keys(["table2", "seph", "cmcq"])[-2:] == ("cmcq", "seph")
    assert {key for key in METHODS if about_method(key).in_paper} == set(GROUPS["table1"]) == set(TABLE_1)
    assert len(GROUPS["table1"]) == 16 and set(resolve_keys(["table2", "table3"])) < set(GROUPS["table1"])
    assert all(key in METHODS for keys in GROUPS.values() for key in keys)


@pytest.mark.parametrize(
    "call", [about_method, lambda key: make_method(key, 16), lambda key: resolve_keys([key])]
)
def test_an_unknown_key_is_answered_with_those_there_are(call: Any) -> None:
    with pytest.raises(InvalidInput, match="cmssh, scm.*table2"):
        call("cmsh")


def test_unknown_parameters_and_similarities_are_refused() -> None:
    with pytest.raises(InvalidInput, match="has the parameters .*correlation.*got 'gamma'"):
        make_method("cmcq", 16, parameters={"gamma": 0.0})
    with pytest.raises(InvalidInput, match="n_bits"):
        make_method("cmcq", 16, parameters={"n_bits": 32})
    with pytest.raises(InvalidInput, match="learns from pairs"):
        make_method("cmfh", 16, similarity="labels")


def test_names_are_known_without_importing_any_system() -> None:
    program = (
        "import sys; from crossbyte.lab.methods.registry import list_keys, resolve_keys; "
        "list_keys(); resolve_keys(['all']); "
        "print(sorted({'numpy', 'scipy', 'sklearn', 'faiss'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
