"""Galleries: built from pictures and texts, resumed, asked and changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas
import pytest
from PIL import Image
from scipy import sparse

from crossbyte import CMCQ, Index
from crossbyte.data.captions.layout import read_raw
from crossbyte.data.captions.raw_documents import RawDocuments
from crossbyte.data.synthetic import make_pairs
from crossbyte.encoders.base import EncoderState
from crossbyte.errors import (
    DamagedIndexFile,
    DuplicateId,
    FitInterrupted,
    InvalidInput,
    NoEncoder,
    NotCalibrated,
    PictureError,
    StorageFull,
    UnknownId,
    WrongEncoder,
)
from crossbyte.gallery.build import add_documents, take_documents
from crossbyte.gallery.cache import FeatureCache, digest_file, digest_text
from crossbyte.gallery.companion import CompanionFiles, Database, Thumbnail, Thumbnails
from crossbyte.gallery.gallery import Gallery, NewDocument
from crossbyte.model.space.gaussian import GaussianSpace, view_weights
from crossbyte.progress import Progress
from crossbyte.report.model_report import words_section
from support.raw_samples import COLOURS, QUICK, WIDTH, WORDS, build, scenes

N = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("gallery")
    build(scenes(made / "scenes", N), made / "scenes.cb")
    return made


@pytest.fixture
def gallery(folder: Path) -> Iterator[Gallery]:
    with Gallery.open(folder / "scenes.cb", image_encoder=COLOURS, text_encoder=WORDS) as opened:
        yield opened


# Asking


def test_a_picture_may_be_a_path_bytes_an_image_or_pixels(folder: Path, gallery: Gallery) -> None:
    path = next((folder / "scenes").rglob("*.png"))
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB"))
        wanted = gallery.search(image=path)
        for given in (
            str(path),
            path.read_bytes(),
            image,
            pixels,
            pixels[::-1][::-1],
            gallery.read_picture(path),
        ):
            found = gallery.search(image=given)
            assert found.ids == wanted.ids and np.array_equal(found.distances, wanted.distances)
        both = gallery.search(image=[image, path])
    assert [hits.ids for hits in both] == [wanted.ids, wanted.ids]


def test_an_image_in_memory_is_upright_over_white_and_left_as_it_is(folder: Path, gallery: Gallery) -> None:
    grey = np.arange(12, dtype=np.uint8).reshape(3, 4)
    assert np.array_equal(gallery.read_picture(grey).pixels, gallery.read_picture(grey[..., None]).pixels)
    clear = np.zeros((3, 4, 4), np.uint8)
    assert (gallery.read_picture(clear).pixels == 255).all()
    image = Image.new("RGB", (30, 10))
    image.getexif()[0x0112] = 6  # a quarter turn
    picture = gallery.read_picture(image)
    assert (picture.width, picture.height) == (10, 30) and image.size == (30, 10)
    large = gallery.read_picture(Image.new("L", (2000, 1000)))
    assert large.pixels.shape == (512, 1024, 3) and (large.width, large.height) == (2000, 1000)


def test_a_list_of_texts_gives_a_list_of_answers(gallery: Gallery) -> None:
    texts = ["red circle", "blue"]
    one_by_one = [gallery.search(text=text).ids for text in texts]
    for given in (texts, tuple(texts), np.array(texts), pandas.Series(texts)):
        assert [hits.ids for hits in gallery.search(text=given)] == one_by_one
    assert [hits.ids for hits in gallery.search(text=texts[:1])] == one_by_one[:1]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"text": 3}, "got int"),
        ({"text": []}, "empty list"),
        ({"text": ["a", " "]}, "got none"),
        ({"text": ["a", 3]}, "a list of int, str"),
        ({"image": 3}, "got int"),
        ({"image": []}, "empty list"),
        ({"image": np.zeros((0, 3, 3), np.uint8)}, "some pixels"),
        ({"image": np.zeros((3, 3))}, "float64"),
        ({"image": np.zeros((3, 3, 2), np.uint8)}, r"\(3, 3, 2\)"),
        ({"image": np.zeros(9, np.uint8)}, r"\(9,\)"),
        ({"image": Image.new("RGB", (0, 5))}, "0 x 5"),
        ({"text": "a", "image": "b.png"}, "one kind of query"),
    ],
)
def test_what_is_no_query_is_refused_by_name(gallery: Gallery, query: dict, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        gallery.search(**query)


def test_an_image_of_too_many_pixels_is_refused(gallery: Gallery) -> None:
    with pytest.raises(PictureError, match="50 million pixels"):
        gallery.search(image=np.zeros((10_001, 5_000), np.uint8))


def test_hits_are_a_sequence_and_a_table(gallery: Gallery) -> None:
    hits = gallery.search(text="red circle", k=3, payloads=True)
    assert hits[0] == list(hits)[0] and hits[-1].id == hits.ids[-1]
    table = hits.to_pandas()
    assert list(table["id"]) == hits.ids and list(table["distance"]) == hits.distances.tolist()
    assert list(table["captions"]) == [payload["captions"] for payload in hits.payloads]
    assert (
        list(gallery.search(text="red", where="count > 999").to_pandas().columns) == list(table.columns)[:5]
    )


def test_two_captions_of_a_picture_teach_what_asks_for_a_document(folder: Path, gallery: Gallery) -> None:
    documents = scenes(folder / "scenes", N)
    assert {len(texts) for texts in documents.texts} == {2}
    space = gallery.index.model.fitted_.space
    assert isinstance(space, GaussianSpace)
    ratios = space.document_weights / view_weights(space.correlations, 2)
    assert np.abs(ratios - 1).max() > 0.05


def test_words_find_pictures_and_pictures_find_texts(folder: Path, gallery: Gallery) -> None:
    documents = take_documents(scenes(folder / "scenes", N), range(20))
    by_words = [gallery.search(text=texts[0], k=5).ids for texts in documents.texts]
    by_picture = [gallery.search(image=path, k=5).ids for path in documents.pictures if path is not None]
    for found in (by_words, by_picture):
        right = sum(id in ids for id, ids in zip(documents.ids, found, strict=True))
        assert right >= 10  # by chance: 1.7 of 20


def test_a_picture_may_come_as_bytes_path_or_read(folder: Path, gallery: Gallery) -> None:
    path = folder / "scenes" / "scene-00003.png"
    ways = (path, str(path), path.read_bytes(), gallery.read_picture(path))
    answers = [gallery.search(image=way, k=4) for way in ways]
    assert all(answer.ids == answers[0].ids for answer in answers)


def test_options_of_the_index_pass_through(gallery: Gallery) -> None:
    hits = gallery.search(text="red circles", k=3, where="count >= 3", payloads=True)
    assert len(hits) == 3 and all(hit.payload is not None and hit.payload["count"] >= 3 for hit in hits)
    assert hits.ids[0] in gallery.search(like=hits.ids[0], k=10).ids


def test_words_alone_are_searched_without_an_encoder(folder: Path) -> None:
    with Gallery.open(folder / "scenes.cb") as gallery:
        with pytest.raises((NoEncoder, WrongEncoder), match='mode "words"'):
            gallery.search(text="red circles")
        found = gallery.search(text="red circles", mode="words", k=5)
    with Gallery.open(folder / "scenes.cb", image_encoder=COLOURS, text_encoder=WORDS) as gallery:
        expected = gallery.search(text="red circles", mode="words", k=5)
    assert sorted(found.word_scores.tolist()) == sorted(expected.word_scores.tolist())


def test_a_picture_finds_pictures_where_no_document_has_a_text(folder: Path, tmp_path: Path) -> None:
    with Gallery.open(folder / "scenes.cb") as gallery:
        model = gallery.index.model
    with Index.create(tmp_path / "a.cb", model) as index:
        index.add(range(5), images=np.random.default_rng(0).random((5, model.n_features_in_)))
        assert len(index.search(images=np.ones(model.n_features_in_))[0]) == 5
        index.add(["text"], texts=np.ones((1, WIDTH)))
        assert index.search(images=np.ones(model.n_features_in_))[0].ids == ["text"]


@pytest.mark.parametrize("text", ["", "   ", "\n\t"])
def test_an_empty_query_says_what_to_do(gallery: Gallery, text: str) -> None:
    with pytest.raises(InvalidInput, match="expected some words"):
        gallery.search(text=text)


def test_a_query_that_says_nothing_matches_nothing(gallery: Gallery) -> None:
    assert gallery.search(text="???", k=3).no_match is True


def test_words_and_a_picture_at_once_are_refused(folder: Path, gallery: Gallery) -> None:
    with pytest.raises(InvalidInput, match="a text and a picture"):
        gallery.search(text="red", image=folder / "scenes" / "scene-00000.png")


def test_what_is_no_picture_is_refused_and_the_gallery_goes_on(gallery: Gallery) -> None:
    with pytest.raises(PictureError):
        gallery.search(image=b"no picture at all")
    assert len(gallery.search(text="red")) == 10


def test_many_threads_get_the_same_answers(folder: Path, gallery: Gallery) -> None:
    texts = [f"{colour} {shape}" for colour in ("red", "blue", "green") for shape in ("star", "circle")]
    alone = [gallery.search(text=text, k=5).ids for text in texts]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda text: gallery.search(text=text, k=5).ids, texts * 5))
    assert found == alone * 5


def test_explanations_know_the_document(gallery: Gallery) -> None:
    found = gallery.explain(gallery.search(text="red circles", k=1).ids[0], text="red circles")
    assert found.to_dict()["distance"] == pytest.approx(gallery.search(text="red circles", k=1).distances[0])
    shown = [gallery.training_id(example.row) for example in found.examples]
    assert shown and all(id in gallery.index for id in shown) and gallery.training_id(2 * N) is None
    assert gallery.training_id(0) == gallery.training_id(1) == "scene-00000.png"
    assert gallery.vocabulary() is None and gallery.unknown_words("red") is None


def test_thumbnails_audit_and_encoders(gallery: Gallery) -> None:
    thumbnail = gallery.thumbnail("scene-00000.png")
    assert thumbnail is not None and thumbnail.startswith(b"\xff\xd8\xff")
    assert gallery.thumbnail("nobody") is None and gallery.has_thumbnails
    audit = gallery.audit()
    assert audit is not None and audit["n_pairs"] == N and audit["rows"][0]["id"] in gallery.index
    assert {side: state.name for side, state in gallery.encoders.items()} == {"image": COLOURS, "text": WORDS}


# Building


def test_everything_is_in_the_index_with_its_payload(gallery: Gallery) -> None:
    document = gallery.index.get("scene-00007.png")
    assert len(gallery) == N and document is not None and document.coding == "document"
    stats = gallery.index.stats()
    assert (stats["codings"], stats["format"], stats["codes"]) == ({"document": N}, 3, "document")
    assert stats["items"] == {"image": N, "text": N}
    assert document.payload is not None and document.payload["file"] == "scene-00007.png"
    assert len(document.payload["captions"]) == 2 and "colour" in document.payload
    assert gallery.index.model.report_.n_held_out > 0


def test_bad_pictures_are_listed_and_one_sided_documents_kept(tmp_path: Path) -> None:
    documents = scenes(tmp_path / "scenes", 12)
    (tmp_path / "scenes" / "scene-00004.png").write_text("no picture")
    documents.texts[5], documents.pictures[6] = (), None
    built = build(documents, tmp_path / "s.cb")
    assert [each.name for each in built.skipped] == ["scene-00004.png"] and built.skipped[0].reason
    assert (built.n_documents, built.n_pairs) == (11, 9)
    with Index.open(tmp_path / "s.cb") as index:
        codings = {id: document.coding for id in index.ids() if (document := index.get(id)) is not None}
    assert codings.pop("scene-00005.png") == "image" and codings.pop("scene-00006.png") == "text"
    assert set(codings.values()) == {"document"} and "scene-00004.png" not in codings


class Stop:
    """A callback that raises what Ctrl-C raises once a stage has come so far; it counts the pictures."""

    def __init__(self, stage: str, done: int) -> None:
        self.stage, self.done, self.pictures = stage, done, 0

    def __call__(self, step: Progress) -> None:
        if step.stage in ("pictures", "sample"):
            self.pictures = max(self.pictures, step.total)
        if step.stage == self.stage and step.done >= self.done:
            raise KeyboardInterrupt


@pytest.mark.parametrize("encoder", [COLOURS, "builtin"])
def test_an_interrupted_build_goes_on_where_it_was(tmp_path: Path, encoder: str) -> None:
    documents, path = scenes(tmp_path / "scenes", 18), tmp_path / "s.cb"
    whole = build(documents, tmp_path / "whole.cb", image_encoder=encoder, curve=None)
    with pytest.raises(FitInterrupted, match=r"there is no s\.cb yet.*; run the same command again"):
        build(documents, path, image_encoder=encoder, curve=None, callback=Stop("pictures", 16))
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(
        ["s.cb.files", "scenes", "whole.cb", "whole.cb.files"]
    )
    again = Stop("never", 0)
    built = build(documents, path, image_encoder=encoder, curve=None, callback=again)
    assert again.pictures <= 18 - 16
    assert built.model.to_bytes() == whole.model.to_bytes() and built.n_documents == 18


@pytest.mark.parametrize("stage", ["space", "calibrate", "audit", "code"])
def test_interrupted_anywhere_leaves_nothing_at_the_path(tmp_path: Path, stage: str) -> None:
    documents, path = scenes(tmp_path / "scenes", 24), tmp_path / "s.cb"
    with pytest.raises(FitInterrupted):
        build(documents, path, callback=Stop(stage, 1))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["s.cb.files", "scenes"]
    assert not (tmp_path / "s.cb.files" / "building.cb").exists()


def test_a_second_build_with_other_bits_reads_no_picture(folder: Path, tmp_path: Path) -> None:
    documents = scenes(tmp_path / "scenes", 12)
    build(documents, tmp_path / "s.cb")
    (tmp_path / "s.cb").unlink()
    again = Stop("never", 0)
    assert build(documents, tmp_path / "s.cb", n_bits=32, callback=again).model.n_bits == 32
    assert again.pictures == 0


def test_a_changed_picture_is_read_again(tmp_path: Path) -> None:
    documents = scenes(tmp_path / "scenes", 12)
    build(documents, tmp_path / "s.cb")
    (tmp_path / "s.cb").unlink()
    (tmp_path / "scenes" / "scene-00000.png").write_bytes(
        (tmp_path / "scenes" / "scene-00001.png").read_bytes()
    )
    build(documents, tmp_path / "s.cb")
    with Gallery.open(tmp_path / "s.cb") as gallery:
        assert gallery.thumbnail("scene-00000.png") == gallery.thumbnail("scene-00001.png")


@pytest.mark.parametrize(("n_pictures", "n_texts"), [(1, 1), (0, 5), (5, 0), (5, 1)])
def test_too_few_pairs_say_what_is_needed(tmp_path: Path, n_pictures: int, n_texts: int) -> None:
    documents = scenes(tmp_path / "scenes", 5)
    documents.pictures[n_pictures:] = [None] * (5 - n_pictures)
    documents.texts[n_texts:] = [()] * (5 - n_texts)
    with pytest.raises(InvalidInput, match="at least 2 pictures with a text.*20 and more to measure"):
        build(documents, tmp_path / "s.cb")
    assert [each.name for each in tmp_path.iterdir()] == ["scenes"]


def _give_captions(documents: RawDocuments, captions: list[tuple[str, ...]], folder: Path) -> RawDocuments:
    """Read the pictures of these documents anew, with other captions."""
    (folder / "captions.csv").unlink()
    for id, texts in zip(documents.ids, captions, strict=True):
        (folder / id).with_suffix(".txt").write_text("\n".join(texts))
    return read_raw(folder)


@pytest.mark.parametrize("n_each", [1, 2])
def test_captions_that_are_tags_teach_and_are_told(tmp_path: Path, n_each: int) -> None:
    tags = ["red", "green", "blue", "round", "square", "big", "small", "dark"]
    pairs = list(combinations(tags, 2))
    # two tags each of few words; or one tag nearly everywhere
    texts = [pairs[n % len(pairs)] if n_each == 2 else (tags[max(0, n - 34)],) for n in range(40)]
    found = _give_captions(scenes(tmp_path / "s", 40), texts, tmp_path / "s")
    built = build(found, tmp_path / "s.cb", curve=())
    assert built.grouping is not None and "Most pictures share captions" in built.grouping
    assert ("exactly the same captions" in built.grouping) == (n_each == 2)
    assert built.n_groups == (28 if n_each == 2 else 40) and built.model.calibration_ is not None


def test_groups_of_ones_own_stay(tmp_path: Path) -> None:
    documents = scenes(tmp_path / "s", 30)
    documents.groups[:20] = ["burst"] * 20
    built = build(documents, tmp_path / "s.cb", curve=None)
    assert built.grouping is None and built.n_groups == 11


def test_one_caption_for_all_is_refused_in_words_of_the_folder(tmp_path: Path) -> None:
    found = _give_captions(scenes(tmp_path / "s", 5), [("holiday",)] * 5, tmp_path / "s")
    with pytest.raises(InvalidInput, match="all 5 pictures have the same .'holiday'.*say what each picture"):
        build(found, tmp_path / "s.cb")


def test_one_caption_each_is_measured_by_pictures_alone_and_never_called_strong_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crossbyte.gallery.build.LENGTHS", (1, 2))
    documents = scenes(tmp_path / "scenes", 90)
    single = replace(documents, texts=[texts[:1] for texts in documents.texts])
    build(single, tmp_path / "a.cb", n_bits=None, curve=(2,))
    with Gallery.open(tmp_path / "a.cb", image_encoder=COLOURS, text_encoder=WORDS) as gallery:
        settings = gallery.index.word_settings
        assert settings is not None and settings.measured["n_held_out"] == 22
        assert set(settings.measured["recall"]) == set(settings.evidence) == {"vectors"}
        assert [each["n_bytes"] for each in settings.measured["curve"]] == [1, 2]
        for mode in ("both", "words"):
            said = {gallery.search(text=texts[0][:-1], mode=mode).verdict for texts in documents.texts[:40]}
            assert said and said <= {"weak", "fair", "strong"}
            assert gallery.search(text="zebrafish castle", mode=mode).verdict in ("nothing", "weak")
    section = words_section(settings.measured)
    assert section is not None and "one caption each" in section.paragraphs[0]


def test_few_pairs_make_a_gallery_without_a_report(tmp_path: Path) -> None:
    built = build(scenes(tmp_path / "scenes", 3), tmp_path / "s.cb", mapping="auto")
    assert built.model.calibration_ is None and built.model.mapping_ == "cca"
    with pytest.raises(NotCalibrated):
        assert built.model.report_
    with Gallery.open(tmp_path / "s.cb", text_encoder=WORDS) as gallery:
        hits = gallery.search(text="red", k=2)
        assert hits.probabilities is None and gallery.audit() is None


def test_no_picture_can_be_read(tmp_path: Path) -> None:
    documents = scenes(tmp_path / "scenes", 4)
    for picture in documents.pictures:
        assert picture is not None
        picture.write_text("no picture")
    for encoder in (COLOURS, "builtin"):
        with pytest.raises(InvalidInput, match="expected .*pictures"):
            build(documents, tmp_path / "s.cb", image_encoder=encoder)


def test_what_can_be_told_is_told_before_any_picture_is_read(tmp_path: Path) -> None:
    documents = scenes(tmp_path / "scenes", 4)
    (tmp_path / "taken.cb").write_text("")
    for path, options, message in (
        ("taken.cb", {}, "never overwritten"),
        ("s.cb", {"n_bits": 7}, "multiple of 8|n_bits"),
        ("s.cb", {"text_encoder": "nonsense"}, "there is no encoder"),
        ("s.cb", {"image_encoder": "support.raw_samples:nobody"}, "no function"),
        ("s.cb", {"mapping": "magic"}, "mapping"),
    ):
        with pytest.raises(InvalidInput, match=message):
            build(documents, tmp_path / path, **options)
    with pytest.raises(DuplicateId):
        build(replace(documents, ids=["a"] * 4), tmp_path / "s.cb")
    assert not (tmp_path / "s.cb.files").exists() and not (tmp_path / "s.cb.lock").exists()


# Adding and deleting


def test_documents_come_and_go_with_their_thumbnails(tmp_path: Path) -> None:
    documents = scenes(tmp_path / "scenes", 8)
    build(documents, tmp_path / "s.cb")
    with Gallery.open(tmp_path / "s.cb", "rw", image_encoder=COLOURS, text_encoder=WORDS) as gallery:
        picture = gallery.read_picture(tmp_path / "scenes" / "scene-00000.png")
        features = np.arange(WIDTH, dtype=np.float32)
        new = [
            NewDocument("both", picture, "a red star", payload={"year": 2020}),
            NewDocument("picture", picture),
            NewDocument(7, text="a blue circle"),
            NewDocument("features", text_features=features, payload={"captions": ["own"]}),
        ]
        assert gallery.add(new) == 4 and len(gallery) == 12
        found = gallery.index.get("both")
        assert found is not None and found.payload == {"captions": ["a red star"], "year": 2020}
        assert gallery.thumbnail("both") == picture.thumbnail and gallery.thumbnail(7) is None
        with pytest.raises(DuplicateId):
            gallery.add([NewDocument("new", picture), NewDocument("both", text="x")])
        assert len(gallery) == 12
        assert gallery.add([NewDocument("both", text="x")], upsert=True) == 1
        assert gallery.thumbnail("both") is None
        assert gallery.delete(["both", 7, "picture"]) == 3 and gallery.thumbnail("picture") is None
        with pytest.raises(UnknownId):
            gallery.delete(["both"])
        with pytest.raises(InvalidInput, match="expected a picture, a text"):
            gallery.add([NewDocument("nothing")])


def test_a_document_is_found_by_its_own_text_beside_other_captions(tmp_path: Path) -> None:
    build(scenes(tmp_path / "scenes", 8), tmp_path / "s.cb")
    with Gallery.open(tmp_path / "s.cb", "rw", image_encoder=COLOURS, text_encoder=WORDS) as gallery:
        captions = {"list": ["a kite"], "text": "a kite", "own": ["a kite", "my caption blimp"], "none": None}
        gallery.add(
            [
                NewDocument(id, text="my caption blimp", payload={"captions": each, "year": 2020})
                for id, each in captions.items()
            ]
        )
        hits = gallery.search(text="blimp", mode="words", target="text")
        assert set(hits.ids) == set(captions) and hits.unknown_words == []
        kept = {id: document.payload for id in captions if (document := gallery.index.get(id)) is not None}
        own = ["my caption blimp", "a kite"]
        assert [each and each["captions"] for each in kept.values()] == [own, own, own[::-1], own[:1]]
        for wrong in (5, {"en": "a kite"}):
            with pytest.raises(InvalidInput, match="'x': expected captions to be a text or a list of texts"):
                gallery.add([NewDocument("x", text="y", payload={"captions": wrong})])
        assert gallery.add([NewDocument("x", text=" ", payload={"captions": 5})]) == 1  # no text of its own


def test_files_are_added_with_the_recorded_encoders(tmp_path: Path) -> None:
    documents = scenes(tmp_path / "scenes", 30)
    build(take_documents(documents, range(20)), tmp_path / "s.cb")
    with Gallery.open(tmp_path / "s.cb", "rw", image_encoder=COLOURS, text_encoder=WORDS) as gallery:
        more = take_documents(documents, range(20, 30))
        with pytest.raises(DuplicateId):
            add_documents(gallery, documents)
        with pytest.raises(KeyboardInterrupt):
            add_documents(gallery, more, callback=Stop("pictures", 1))
        again = Stop("never", 0)
        added = add_documents(gallery, more, batch=4, callback=again)
        assert added.n_added == 10 and again.pictures == 0 and len(gallery) == 30
        assert gallery.thumbnail("scene-00025.png") is not None
        assert add_documents(gallery, more, upsert=True).n_added == 10 and len(gallery) == 30
        assert gallery.index.stats()["codings"] == {"document": 30}
        assert add_documents(gallery, more, upsert=True, codes="sides").n_added == 10
        assert gallery.index.stats()["codings"] == {"document": 20, "pair": 10}


def test_a_gallery_has_two_codes_where_asked_or_where_its_model_has_two(tmp_path: Path) -> None:
    documents = scenes(tmp_path / "scenes", 24)
    build(documents, tmp_path / "sides.cb", codes="sides")
    with Index.open(tmp_path / "sides.cb") as index:
        stats = index.stats()
    assert (stats["codings"], stats["format"], stats["codes"]) == ({"pair": 24}, 3, "document")
    two = QUICK["parameters"] | {"scoring": "unit"}
    with pytest.raises(InvalidInput, match="has no codes of whole documents, only two codes"):
        build(documents, tmp_path / "two.cb", codes="document", parameters=two)
    with pytest.raises(InvalidInput, match="codes"):
        build(documents, tmp_path / "two.cb", codes="both")
    assert not (tmp_path / "two.cb").exists() and not (tmp_path / "two.cb.files").exists()
    build(documents, tmp_path / "two.cb", parameters=two)
    with Gallery.open(tmp_path / "two.cb", "rw", image_encoder=COLOURS, text_encoder=WORDS) as gallery:
        stats = gallery.index.stats()
        assert (stats["codings"], stats["format"], stats["codes"]) == ({"pair": 24}, 3, "sides")
        never = Stop("never", 0)
        with pytest.raises(InvalidInput, match="no codes of whole documents"):
            add_documents(gallery, documents, upsert=True, codes="document", callback=never)
        assert never.pictures == 0 and gallery.index.generation == stats["generation"]


# Encoders that the index cannot make by itself


def test_encoders_must_be_named_and_be_the_right_ones(folder: Path) -> None:
    with Gallery.open(folder / "scenes.cb") as gallery:
        with pytest.raises(NoEncoder, match="--text-encoder"):
            gallery.search(text="red")
        assert len(gallery.search(like="scene-00000.png")) == 10
    with (
        Gallery.open(folder / "scenes.cb", text_encoder="builtin") as gallery,
        pytest.raises(WrongEncoder),
    ):
        gallery.search(text="red")


def test_an_index_of_features_says_so(tmp_path: Path) -> None:
    pairs = make_pairs(40, 8, WIDTH, random_state=0)
    model = CMCQ(16, mapping="cca", random_state=0).fit(pairs.images, pairs.texts)
    Index.from_training(tmp_path / "f.cb", model).close()
    with Gallery.open(tmp_path / "f.cb") as gallery:
        assert gallery.encoders == {} and not gallery.has_thumbnails and gallery.audit() is None
        with pytest.raises(NoEncoder, match="made from features"):
            gallery.search(text="red")
    with Gallery.open(tmp_path / "f.cb", image_encoder=COLOURS, text_encoder=WORDS) as gallery:
        assert len(gallery.search(text="red", k=3)) == 3
        picture = np.zeros((8, 8, 3), dtype=np.uint8)
        with pytest.raises(WrongEncoder, match="width 8"):
            gallery._encoders.encode("image", [picture])


def test_a_file_beside_the_index_names_only_onnx_files(tmp_path: Path) -> None:
    beside = CompanionFiles.of(tmp_path / "s.cb")
    beside.keep_local_encoders({"image": "model.onnx", "text": "os:system"})
    assert list(beside.local_encoders()) == ["image"]
    (beside.folder / "local.json").write_text(json.dumps({"image": "os:system", "text": ["x.onnx"]}))
    assert beside.local_encoders() == {}
    (beside.folder / "local.json").write_text("{broken")
    assert beside.local_encoders() == {} and beside.audit() is None


# What is kept


def state(fingerprint: str = "f", dimension: int = 5) -> EncoderState:
    return EncoderState("kind", "name", dimension, fingerprint, {}, {"a": np.arange(3.0)})


def test_features_come_back_as_they_went(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(700, 5)).astype(np.float32)
    thin = sparse.random_array((700, 5), density=0.3, format="csr", dtype=np.float32, rng=rng)
    thin = sparse.csr_matrix(thin)
    digests = [digest_text(str(row)) for row in range(700)]
    cache = FeatureCache(tmp_path / "f.sqlite")
    cache.put(state("dense"), digests, dense)
    cache.put(state("thin"), digests, thin)
    order = rng.permutation(700)[:650].tolist() + [0, 0, 1]
    chosen = [digests[row] for row in order]
    np.testing.assert_array_equal(cache.get(state("dense"), chosen), dense[order])
    found = cache.get(state("thin"), chosen)
    assert sparse.issparse(found)
    np.testing.assert_array_equal(found.toarray(), thin[order].toarray())
    assert cache.known(state("thin")) == set(digests) and cache.known(state("other")) == set()
    assert cache.get(state(), []).shape == (0, 5)
    cache.close()


def test_encoders_are_kept_by_their_sample_and_damage_is_noticed(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path / "f.sqlite")
    cache.keep_encoder("key", "image", state())
    found = cache.encoder("key")
    assert found is not None and found.fingerprint == "f" and found.arrays["a"].tolist() == [0, 1, 2]
    assert cache.encoder("other") is None
    cache._database.write("UPDATE encoders SET body = ?", [(b"nonsense",)])
    with pytest.raises(DamagedIndexFile, match="remove this file"):
        cache.encoder("key")
    cache._database.write("INSERT INTO features VALUES ('f', ?, ?)", [("x", b"d123"), ("y", b"s1234")])
    for digest in ("x", "y", "z"):
        with pytest.raises(DamagedIndexFile, match="remove this file"):
            cache.get(state(), [digest])
    cache.close()


def test_thumbnails_by_id(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    assert Thumbnails.open(path) is None
    kept = Thumbnails.write(path)
    kept.put(
        [
            Thumbnail("1", "d", b"\xff\xd8\xff1"),
            Thumbnail(1, "d", b"\xff\xd8\xff2"),
            Thumbnail("x", "d", b"<svg>"),
        ]
    )
    assert (kept.get("1"), kept.get(1), kept.get("x")) == (b"\xff\xd8\xff1", b"\xff\xd8\xff2", None)
    kept.keep_only(["1"])
    assert kept.get(1) is None and kept.digest("1") == "d" and kept.digest(1) is None
    kept.close()
    assert kept.get("1") is None
    path.write_bytes(b"this is no database at all, only text" * 50)
    damaged = Thumbnails.open(path)
    assert damaged is None or damaged.get("1") is None


def test_a_full_disk_is_no_damage(tmp_path: Path) -> None:
    schema = "CREATE TABLE IF NOT EXISTS kept (body BLOB)"
    with closing(Database(tmp_path / "t.sqlite", schema, writable=True)) as database:
        database.write("INSERT INTO kept VALUES (?)", [(b"one",)])
        database.rows("PRAGMA max_page_count = 8")  # SQLite then reports a full disk, and rolls back itself
        with pytest.raises(StorageFull):
            database.write("INSERT INTO kept VALUES (?)", [(b"x" * 9_000,)] * 10)
        assert database.rows("SELECT body FROM kept") == [(b"one",)]
        database.write("INSERT INTO kept VALUES (?)", [(b"two",)])


def test_digests_of_files_are_those_of_pictures(folder: Path, gallery: Gallery, tmp_path: Path) -> None:
    path = folder / "scenes" / "scene-00000.png"
    assert digest_file(path, 10**6) == gallery.read_picture(path).digest
    assert digest_file(path, 10) is None and digest_file(tmp_path, 10**6) is None
    assert digest_file(tmp_path / "missing", 10**6) is None


def test_quick_settings_are_parameters() -> None:
    assert set(QUICK["parameters"]) <= set(CMCQ().get_params())
