"""The program on pictures and words: from a folder to answers, interrupted, misled, and asked oddly."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from crossbyte import CMCQ, _fs
from crossbyte.cli import app
from crossbyte.data.scenes import write_scenes
from crossbyte.gallery.gallery import Gallery
from support import raw_samples
from support.paths import with_tests
from support.raw_samples import COLOURS, WORDS, build, scenes

ENCODERS = ("--image-encoder", COLOURS, "--text-encoder", WORDS)
QUICK = ("--mapping", "cca", "--bits", "16", "--curve", "", "--param", "max_iter=2", "--quiet")
# The program as it is, but that it takes Ctrl-C also as a job in the background, and reports every step.
EAGER = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "import crossbyte.cli.app, crossbyte.cli.output\n"
    "crossbyte.cli.output.SECONDS_BETWEEN_LINES = 0.0; crossbyte.cli.app.main()"
)

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 30 scenes and their index."""
    folder = tmp_path_factory.mktemp("raw")
    build(scenes(folder / "scenes", 30), folder / "scenes.cb")
    return folder


@pytest.fixture
def in_made(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made)
    return made


def answer(capsys: Captured, *arguments: str, code: int = 0) -> Any:
    """Run the program and read its JSON."""
    assert app.run([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def refusal(capsys: Captured, *arguments: str, code: int = 2) -> str:
    """Run the program, which must refuse in two lines, and give these."""
    assert app.run(list(arguments)) == code
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.splitlines()) == 2
    return captured.err


# From a folder to answers


def test_the_whole_way_in_words(here: Path, capsys: Captured) -> None:
    """Built-in encoders, as a person without options would go."""
    write_scenes(here / "photos", 18)
    (here / "photos" / "scene-00002.png").write_text("this is no picture")
    assert app.run(["fit", "photos", "--quiet"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("photos.cb: 17 documents: 17 pictures with captions, in ")
    assert "1 thing left out" in said and "scene-00002.png: " in said
    assert "\nPictures: colours and textures, because no network" in said
    assert "crossbyte encoders download " in said
    assert "\nTexts: static sentence vectors, which know the words of these texts\n" in said
    assert "Quality was not measured" in said and "takes 20 pictures" in said
    assert '  crossbyte search photos.cb --text "' in said and "  crossbyte serve photos.cb" in said
    assert sorted(path.name for path in here.iterdir()) == ["photos", "photos.cb", "photos.cb.files"]

    assert app.run(["search", "photos.cb", "--text", "red star", "-k", "3"]) == 0
    table = capsys.readouterr().out
    assert "captions" in table and "scene-" in table and " / " in table
    assert app.run(["search", "photos.cb", "red", "star", "-k", "3"]) == 0
    assert capsys.readouterr().out == table
    assert app.run(["search", "photos.cb", "red", "--text", "star"]) == 2
    assert "ask with one of them" in capsys.readouterr().err
    assert app.run(["search", "photos.cb", "--image", "photos/scene-00000.png", "-k", "3"]) == 0
    assert "photos/scene-00000.png" in capsys.readouterr().out
    assert app.run(["explain", "photos.cb", "scene-00000.png", "--text", "red star"]) == 0
    assert "scene-00000.png" in capsys.readouterr().out


def test_words_that_no_caption_had_are_named(here: Path, capsys: Captured) -> None:
    write_scenes(here / "photos", 12)
    assert app.run(["fit", "photos", "--text-encoder", "builtin", "--quiet"]) == 0
    capsys.readouterr()
    for odd in ("zebrafish", "собака", "犬", "!!!"):
        assert app.run(["search", "photos.cb", "--text", odd, "-k", "2"]) == 0
        said = capsys.readouterr().out
        assert (f"no caption has: {odd}\n" in said) == odd.isalpha()


def test_fit_measures_saves_the_model_and_lists_everything(here: Path, capsys: Captured) -> None:
    write_scenes(here / "photos", 30)
    (here / "photos" / "scene-00001.png").unlink()
    found = answer(
        capsys, "fit", "photos", *ENCODERS, *QUICK, "-o", "m.cbm", "--index", "album.cb", "--no-thumbnails"
    )
    assert found["index"] == "album.cb" and found["documents"] == found["pairs"] == 29
    assert found["form"] == "csv" and found["encoders"] == {"image": COLOURS, "text": WORDS}
    assert any("scene-00001.png" in f"{each['name']} {each['reason']}" for each in found["skipped"])
    assert found["report"]["n_bytes"] == 2 and CMCQ.load("m.cbm").encoder_states_["text"].name == WORDS
    assert not (here / "album.cb.files" / "thumbnails.sqlite").exists()
    assert app.run(["report", "album.cb"]) == 0
    assert "the right picture is among the first 10 for" in capsys.readouterr().out


@pytest.mark.parametrize("options", [(), ("--bits", "16"), ("--bytes", "2")])
def test_bytes_are_chosen_or_named_and_what_they_find_is_told(
    here: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.setattr("crossbyte.gallery.build.LENGTHS", (1, 2))
    write_scenes(here / "photos", 90)
    quick = ("--curve", "", "--param", "max_iter=2", "--quiet")
    assert app.run(["fit", "photos", *ENCODERS, *quick, *options]) == 0
    said = capsys.readouterr().out
    told, served = answer(capsys, "info", "photos.cb"), answer(capsys, "report", "photos.cb")
    measured = told["words"]["measured"]
    assert measured == served["words"] and measured["n_held_out"] == 22
    tried = [each["n_bytes"] for each in measured["curve"]]
    assert tried == ([2] if options else [1, 2]) and measured["n_bytes"] in tried
    assert told["model"]["bits"] == 8 * measured["n_bytes"]
    for command in (None, "info", "report"):
        shown = said if command is None else (app.run([command, "photos.cb"]), capsys.readouterr().out)[1]
        assert "22 captions that were held out asked for their documents, among 90:" in shown
        assert "by words alone" in shown and "by vectors alone" in shown and "(chance: 11)" in shown
        assert ("Beside " in shown.partition("(chance: 11)")[2].partition("Among")[0]) == (not options)
        assert ", chosen " in shown


def test_bytes_are_named_once(here: Path, capsys: Captured) -> None:
    write_scenes(here / "photos", 4)
    assert "leave one out" in refusal(capsys, "fit", "photos", "--bytes", "2", "--bits", "16")
    assert "--bytes: expected" in refusal(capsys, "fit", "photos", "--bytes", "0")


def test_a_quality_that_is_not_reached_is_code_3(here: Path, capsys: Captured) -> None:
    write_scenes(here / "photos", 24)
    assert app.run(["fit", "photos", *ENCODERS, *QUICK, "--min-recall", "1"]) in (0, 3)
    assert (here / "photos.cb").exists() and "With 2 bytes per item" in capsys.readouterr().out


def test_a_table_of_captions_with_columns_of_its_own(here: Path, capsys: Captured) -> None:
    write_scenes(here / "photos", 4)
    (here / "photos" / "captions.csv").unlink()
    rows = [
        f"scene-0000{n}.png,s{n},a {colour} thing"
        for n, colour in enumerate(("red", "blue", "green", "pink"))
    ]
    (here / "photos" / "list.csv").write_text("\n".join(["datei,name,was", *rows]))
    columns = ("--image-column", "datei", "--text-column", "was", "--id-column", "name")
    found = answer(capsys, "fit", "photos/list.csv", *columns, *ENCODERS, *QUICK)
    assert found["index"] == "photos.cb" and found["pairs"] == 4
    hits = answer(capsys, "search", "photos.cb", "--text", "a pink thing", "-k", "4", *ENCODERS)["queries"][
        0
    ]["hits"]
    assert {hit["id"] for hit in hits} == {"s0", "s1", "s2", "s3"} and hits[0]["payload"]["captions"]
    assert "wo" in refusal(capsys, "fit", "photos/list.csv", "--image-column", "wo", "--index", "x.cb")


def test_add_encodes_as_the_index_does(here: Path, capsys: Captured) -> None:
    write_scenes(here / "photos", 24)
    build(scenes(here / "old", 20), here / "photos.cb")
    told = refusal(capsys, "add", "photos.cb", "photos", *ENCODERS, "-q")
    assert "--upsert" in told or "--skip-existing" in told
    found = answer(capsys, "add", "photos.cb", "photos", *ENCODERS, "--skip-existing", "-q")
    assert (found["added"], found["already_there"], found["documents"]) == (4, 20, 24)
    found = answer(capsys, "add", "photos.cb", "photos", *ENCODERS, "--upsert", "--side", "image", "-q")
    assert (found["added"], found["documents"]) == (24, 24)
    assert app.run(["add", "photos.cb", "photos", *ENCODERS, "--skip-existing", "-q"]) == 0
    assert "0 documents added" in capsys.readouterr().out
    assert "crossbyte fit photos" in refusal(capsys, "add", "none.cb", "photos")


# Pictures without captions


def test_pictures_without_captions_are_indexed_and_counted(here: Path, capsys: Captured) -> None:
    """A row for 12 of 24; one of these is empty, one picture of each half cannot be read."""
    write_scenes(here / "photos", 24)
    table = here / "photos" / "captions.csv"
    with table.open(newline="") as file:
        header, *rows = csv.reader(file)
    image, captions = header.index("image"), [n for n, name in enumerate(header) if "caption" in name]
    names = sorted({row[image] for row in rows})
    kept = [row for row in rows if row[image] in names[::2]]
    for row in kept:
        for column in captions:
            row[column] = "" if row[image] == names[4] else row[column]
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([header, *kept])
    for name in (names[2], names[3]):
        (here / "photos" / name).write_text("this is no picture")

    assert app.run(["fit", "photos", *ENCODERS, *QUICK, "-q"]) == 0
    said = capsys.readouterr().out
    kinds = "10 pictures with captions, 12 pictures without (found through their image), in "
    assert said.startswith(f"photos.cb: 22 documents: {kinds}")
    assert "2 things left out:" in said and names[2] in said and names[3] in said
    found = answer(capsys, "fit", "photos", *ENCODERS, *QUICK, "-q", "--index", "again.cb")
    counts = {name: found[name] for name in ("documents", "pairs", "without_text", "without_picture")}
    assert counts == {"documents": 22, "pairs": 10, "without_text": 12, "without_picture": 0}

    asked = ("--image", f"photos/{names[5]}", "-k", "30", *ENCODERS)
    hits = answer(capsys, "search", "photos.cb", *asked, "--target", "image")["queries"][0]["hits"]
    payloads = {hit["id"]: hit["payload"] for hit in hits}
    assert sorted(payloads) == [name for name in names if name not in names[2:4]]
    assert payloads[names[5]] == {"file": names[5]} and "captions" not in payloads[names[4]]

    assert app.run(["add", "photos.cb", "photos", *ENCODERS, "--upsert", "-q"]) == 0
    assert f"photos.cb: 22 documents added: {kinds}" in capsys.readouterr().out
    table.unlink()
    found = answer(capsys, "add", "again.cb", "photos", *ENCODERS, "--upsert", "-q")
    assert (found["added"], found["without_text"], found["documents"]) == (22, 22, 22)


def keep_captions(folder: Path, layout: str) -> tuple[list[str], list[str]]:
    """Write the captions of every second picture in a layout; all names, and those with captions."""
    with (folder / "captions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    (folder / "captions.csv").unlink()
    names = sorted({row["image"] for row in rows})
    texts = {name: [row["caption"] for row in rows if row["image"] == name] for name in names[::2]}
    if layout == "csv":
        lines = [[name, text] for name, own in texts.items() for text in own]
        with (folder / "captions.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["image", "caption"], *lines])
    elif layout == "jsonl":
        lines = [json.dumps({"image": name, "caption": own}) for name, own in texts.items()]
        (folder / "captions.jsonl").write_text("\n".join(lines))
    elif layout == "sidecar":
        for name, own in texts.items():
            (folder / name).with_suffix(".txt").write_text("\n".join(own))
    elif layout == "img2dataset":
        for name, own in texts.items():
            (folder / name).with_suffix(".json").write_text(json.dumps({"caption": own[0]}))
    elif layout == "coco":
        images = [{"id": place, "file_name": name} for place, name in enumerate(names)]
        numbers = {name: place for place, name in enumerate(names)}
        annotations = [
            {"image_id": numbers[name], "caption": text} for name, own in texts.items() for text in own
        ]
        (folder / "annotations").mkdir()
        document = {"images": images, "annotations": annotations}
        (folder / "annotations" / "captions.json").write_text(json.dumps(document))
    return names, list(texts)


def test_a_report_of_shards_is_that_of_the_index(in_made: Path, capsys: Captured) -> None:
    assert app.run(["shard", "scenes.cb", "-o", "many.cbs", "--shards", "2"]) == 0
    capsys.readouterr()
    assert answer(capsys, "report", "many.cbs") == answer(capsys, "report", "scenes.cb")


def test_tags_are_told(here: Path, capsys: Captured) -> None:
    write_scenes(here / "photos", 24)
    table = here / "photos" / "captions.csv"
    texts = {row["image"]: row["caption"] for row in csv.DictReader(table.read_text().splitlines())}
    rows = [f'{name},"{text}"' for name, own in texts.items() for text in (own, "holiday")]
    table.write_text("\n".join(["image,caption", *rows]))
    assert app.run(["fit", "photos", *ENCODERS, *QUICK]) == 0
    assert "Most pictures share captions" in capsys.readouterr().out


@pytest.mark.parametrize("layout", ["csv", "jsonl", "sidecar", "img2dataset", "coco"])
def test_no_picture_is_lost_in_any_layout(here: Path, capsys: Captured, layout: str) -> None:
    write_scenes(here / "photos", 24)
    names, captioned = keep_captions(here / "photos", layout)
    found = answer(capsys, "fit", "photos", *ENCODERS, *QUICK, "--no-calibrate")
    counts = {name: found[name] for name in ("form", "documents", "pairs", "without_text", "skipped")}
    assert counts == {"form": layout, "documents": 24, "pairs": 12, "without_text": 12, "skipped": []}

    told = answer(capsys, "info", "photos.cb")
    assert (told["documents"], told["items"]) == (24, {"image": 24, "text": 12})
    assert told["words"]["fields"] == ["captions"]
    assert app.run(["info", "photos.cb"]) == 0
    assert "(24 images, 12 texts; 12 with an image alone)" in capsys.readouterr().out

    for name in (names[1], names[-1]):
        asked = ("--image", f"photos/{name}", "--target", "image", "-k", "24", *ENCODERS)
        hits = answer(capsys, "search", "photos.cb", *asked)["queries"][0]["hits"]
        assert sorted(hit["id"] for hit in hits) == names
        assert name in [hit["id"] for hit in hits[:5]]
    by_words = answer(capsys, "search", "photos.cb", "--text", "a", "--mode", "words", "-k", "30", *ENCODERS)
    assert {hit["id"] for hit in by_words["queries"][0]["hits"]} <= set(captioned)

    found = answer(capsys, "add", "photos.cb", "photos", *ENCODERS, "--upsert", "-q")
    assert (found["added"], found["without_text"], found["documents"]) == (24, 12, 24)


def test_no_caption_at_all_is_added_to_an_index_from_elsewhere(here: Path, capsys: Captured) -> None:
    build(scenes(here / "old", 20), here / "photos.cb")
    write_scenes(here / "photos", 6, 5)
    names, _ = keep_captions(here / "photos", "none")
    for name in names:
        (here / "photos" / name).rename(here / "photos" / f"new-{name}")
    found = answer(capsys, "add", "photos.cb", "photos", *ENCODERS, "-q")
    assert (found["added"], found["without_text"], found["documents"]) == (6, 6, 26)
    asked = ("--image", f"photos/new-{names[0]}", "--target", "image", "-k", "5", *ENCODERS)
    hits = answer(capsys, "search", "photos.cb", *asked)["queries"][0]["hits"]
    assert f"new-{names[0]}" in [hit["id"] for hit in hits]
    assert "6 with an image alone" in (app.run(["info", "photos.cb"]), capsys.readouterr().out)[1]


def test_too_few_captions_and_what_to_do_instead(here: Path, capsys: Captured) -> None:
    write_scenes(here / "photos", 4)
    (here / "photos" / "captions.csv").unlink()
    told = refusal(capsys, "fit", "photos", *QUICK)
    assert "got 0 of 4 pictures and 0 texts" in told.splitlines()[0]
    for way in (
        "2 at least, 20 and more to measure",
        "--encoder NAME",
        "encoders list",
        "crossbyte add OTHER.cb",
    ):
        assert way in told.splitlines()[1]


def test_captions_that_contradict_each_other_are_several_captions(here: Path, capsys: Captured) -> None:
    write_scenes(here / "photos", 6)
    (here / "photos" / "captions.csv").unlink()
    rows = [f"scene-0000{n}.png,{text} {n}" for n in range(6) for text in ("red", "not red", "blue", "red")]
    (here / "photos" / "captions.csv").write_text("\n".join(["image,caption", *rows, *rows]))
    found = answer(capsys, "fit", "photos", *ENCODERS, *QUICK)
    assert (found["documents"], found["pairs"], found["skipped"]) == (6, 6, [])
    hits = answer(capsys, "search", "photos.cb", "--text", "not red 3", "-k", "6", *ENCODERS)["queries"][0][
        "hits"
    ]
    captions = {hit["id"]: hit["payload"]["captions"] for hit in hits}
    assert captions == {f"scene-0000{n}.png": [f"red {n}", f"not red {n}", f"blue {n}"] for n in range(6)}


def test_contradicting_captions_are_all_searched(here: Path, capsys: Captured) -> None:
    write_scenes(here / "photos", 4)
    who = ("ann", "bob", "cem", "dag")
    rows = [f"scene-0000{n}.png,{text} {who[n]}" for n in range(4) for text in ("day of", "night of")]
    (here / "photos" / "captions.csv").write_text("\n".join(["image,caption", *rows]))
    answer(capsys, "fit", "photos", *ENCODERS, *QUICK)
    for text in ("day", "night", '"night of cem"'):
        asked = ("search", "photos.cb", "--text", text, "--mode", "words", "-k", "4", *ENCODERS)
        (said,) = answer(capsys, *asked)["queries"]
        assert said["unknown_words"] == [] and len(said["hits"]) == (1 if "cem" in text else 4)


def test_captions_that_are_the_same_for_every_picture(here: Path, capsys: Captured) -> None:
    write_scenes(here / "photos", 4)
    rows = [f"scene-0000{n}.png,{text} {n}" for n in range(4) for text in ("day", "night")]
    (here / "photos" / "captions.csv").write_text("\n".join(["image,caption", *rows]))
    told = refusal(capsys, "fit", "photos", *ENCODERS, *QUICK)  # the encoder does not know numbers
    assert "expected pairs that differ" in told and "give texts that tell the images apart" in told
    assert not (here / "photos.cb").exists()


# Asked oddly


def test_words_on_the_command_line(in_made: Path, capsys: Captured) -> None:
    found = answer(capsys, "search", "scenes.cb", "--text", "red circles", "-k", "2", *ENCODERS)
    assert found["queries"][0]["query"] == "red circles" and len(found["queries"][0]["hits"]) == 2
    assert found["queries"][0]["hits"][0]["payload"]["captions"]
    nothing = answer(capsys, "search", "scenes.cb", "--text", "123", "--fail-if-none", *ENCODERS, code=4)
    assert nothing["queries"][0]["no_match"] is True and nothing["queries"][0]["verdict"] == "nothing"


@pytest.mark.parametrize("mode", ["both", "words", "vectors"])
@pytest.mark.parametrize("text", ["an orange ring", '"orange hoop" zeppelin', '" OR NEAR(" *', "123"])
def test_the_command_line_says_what_the_gallery_says(
    in_made: Path, capsys: Captured, text: str, mode: str
) -> None:
    asked = ("search", "scenes.cb", "--text", text, "--mode", mode, "-k", "3", *ENCODERS)
    (found,) = answer(capsys, *asked)["queries"]
    with Gallery.open("scenes.cb", image_encoder=COLOURS, text_encoder=WORDS) as gallery:
        hits = gallery.search(text=text, k=3, mode=mode)
    assert found["verdict"] == hits.verdict and found["no_match"] == hits.no_match
    assert found["unknown_words"] == hits.unknown_words
    said = [(hit["id"], hit["distance"], hit["strength"], hit["found_by"]) for hit in found["hits"]]
    assert said == [(hit.id, hit.distance, hit.strength, hit.found_by) for hit in hits]


def test_people_read_words_not_numbers(in_made: Path, capsys: Captured) -> None:
    def shown(*arguments: str) -> str:
        assert app.run(["search", "scenes.cb", "-k", "3", *arguments, *ENCODERS]) == 0
        return capsys.readouterr().out

    said = shown("--text", "orange zeppelin")
    assert "no caption has: zeppelin\n" in said and "found by" in said and "probability" not in said
    assert shown("--text", "123").startswith("123: nothing ")
    assert shown("--text", "zeppelin", "--mode", "words").startswith("zeppelin: nothing found\n")
    assert "found by" not in shown("--text", "orange", "--mode", "vectors")
    assert "ask with a text" in refusal(
        capsys, "search", "scenes.cb", "--image", "scenes/scene-00000.png", "--mode", "words", *ENCODERS
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--text", ""], "say something"),
        (["--text", "  "], "say something"),
        (["--text", "x", "--image", "y.jpg"], "exactly one"),
        (["--text", "x", "--row", "1"], "leave them out"),
        (["--image", "missing.jpg"], "missing.jpg"),
        (["--image", "scenes/captions.csv"], "captions.csv"),
        (["--image", "scenes"], "scenes"),
        ([], "exactly one"),
    ],
)
def test_wrong_questions_are_refused(
    in_made: Path, capsys: Captured, arguments: list[str], said: str
) -> None:
    assert said in refusal(capsys, "search", "scenes.cb", *arguments, *ENCODERS)


def test_an_encoder_that_the_index_cannot_make_is_asked_for(in_made: Path, capsys: Captured) -> None:
    assert "--text-encoder" in refusal(capsys, "search", "scenes.cb", "--text", "red")
    assert "builtin" in refusal(capsys, "search", "scenes.cb", "--text", "red", "--text-encoder", "builtin")
    assert "there is no encoder" in refusal(
        capsys, "search", "scenes.cb", "--text", "x", "--text-encoder", "???"
    )


# Misled


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("empty", "photos"),
        ("captions only", "picture"),
        ("text files only", "put 0.jpg beside 0.txt"),
        ("one picture", "at least 2 pictures"),
        ("pictures only", "at least 2 pictures"),
        ("all bad", "picture"),
        ("bad column", "nobody"),
    ],
)
def test_folders_that_cannot_be_learned_from(here: Path, capsys: Captured, case: str, said: str) -> None:
    more: list[str] = []
    if case == "empty":
        (here / "photos").mkdir()
    else:
        write_scenes(here / "photos", 1 if case == "one picture" else 4)
    pictures = sorted((here / "photos").glob("*.png"))
    if case in ("captions only", "text files only"):
        [picture.unlink() for picture in pictures]
    if case == "text files only":
        (here / "photos" / "captions.csv").unlink()
        [(here / "photos" / f"{n}.txt").write_text(f"text {n}") for n in range(3)]
    if case == "pictures only":
        (here / "photos" / "captions.csv").unlink()
    if case == "all bad":
        [picture.write_text("text that is called a picture") for picture in pictures]
    if case == "bad column":
        more = ["--image-column", "nobody"]
    assert said in refusal(capsys, "fit", "photos", *more, *QUICK)
    assert not (here / "photos.cb").exists()


def test_options_of_the_other_kind_of_data_are_refused(here: Path, capsys: Captured) -> None:
    write_scenes(here / "photos", 2)
    assert "--split" in refusal(capsys, "fit", "photos", "--split", "train")
    assert "--groups" in refusal(capsys, "fit", "photos", "--groups", "a")
    (here / "x.npz").write_bytes(b"")
    assert "--image-encoder" in refusal(capsys, "fit", "x.npz", "--image-encoder", "builtin", "-o", "m.cbm")
    assert "-o" in refusal(capsys, "fit", "x.npz")
    assert "--model" in refusal(capsys, "add", "x.cb", "photos", "--model", "m.cbm")
    assert "no such file or folder" in refusal(capsys, "fit", "nowhere")


def test_an_index_is_never_replaced(in_made: Path, capsys: Captured) -> None:
    assert "--index" in refusal(capsys, "fit", "scenes")
    assert "never overwritten" in refusal(capsys, "fit", "scenes", "--index", "scenes.cb")


def test_whether_the_name_is_free_is_asked_once_and_before_any_work(
    here: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_scenes(here / "photos", 4)
    asked, plain = [], _fs.check_free

    def counted(path: Any, *, overwrite: bool) -> None:
        asked.append(Path(path).name)
        plain(path, overwrite=overwrite)

    monkeypatch.setattr("crossbyte._fs.check_free", counted)
    monkeypatch.setattr("crossbyte.gallery.build.check_free", counted)
    answer(capsys, "fit", "photos", *ENCODERS, *QUICK)
    answer(capsys, "fit", "photos", *ENCODERS, *QUICK, "--index", "album.cb")
    assert asked == ["photos.cb", "album.cb"]
    monkeypatch.setattr("crossbyte.cli.commands.fit.read_raw_documents", None)  # must not be called
    assert "crossbyte add" in refusal(capsys, "fit", "photos", *ENCODERS, *QUICK)
    assert "no such folder" in refusal(capsys, "fit", "photos", "--index", "nowhere/album.cb")


def test_a_name_that_is_taken_meanwhile_is_not_overwritten(
    here: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_scenes(here / "photos", 4)
    plain = CMCQ.attach_encoders

    def take(self: CMCQ, **encoders: Any) -> CMCQ:
        (here / "photos.cb").write_text("mine")
        return plain(self, **encoders)

    monkeypatch.setattr(CMCQ, "attach_encoders", take)
    assert "give another name" in refusal(capsys, "fit", "photos", *ENCODERS, *QUICK)
    assert (here / "photos.cb").read_text() == "mine"
    assert not (here / "photos.cb.files" / "building.cb").exists()


def test_serve_refuses_before_it_listens(
    in_made: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CROSSBYTE_TOKEN", raising=False)
    assert "--token-file" in refusal(capsys, "serve", "scenes.cb", "--host", "0.0.0.0")
    (in_made / "token").write_text("short")
    assert "token_urlsafe" in refusal(capsys, "serve", "scenes.cb", "--token-file", "token")
    (in_made / "token").write_text("\n")
    assert "empty" in refusal(capsys, "serve", "scenes.cb", "--token-file", "token")
    assert "--port" in refusal(capsys, "serve", "scenes.cb", "--port", "99999")
    refusal(capsys, "serve", "missing.cb", "--port", "0")


def test_a_token_that_others_may_read_is_warned_of(
    in_made: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crossbyte.service.server.serve", lambda *_: None)
    token = in_made / "token"
    token.write_text("a-token-of-more-than-16-characters\n")
    for mode, n_lines in ((0o600, 0), (0o400, 0), (0o644, 2), (0o640, 2)):
        token.chmod(mode)
        assert app.run(["serve", "scenes.cb", "--token-file", "token"]) == 0
        said = capsys.readouterr().err
        assert len(said.splitlines()) == n_lines and ("chmod 600 token" in said) == bool(n_lines)
        assert "a-token" not in said


# Interrupted


def test_ctrl_c_while_pictures_are_encoded_and_then_again(here: Path, capsys: Captured) -> None:
    write_scenes(here / "photos", 200)
    (here / "small.py").write_text(Path(raw_samples.__file__).read_text(encoding="utf-8"))
    encoders = ("--image-encoder", "small:colours", "--text-encoder", "small:words")
    command = [
        sys.executable,
        "-c",
        EAGER,
        "fit",
        "photos",
        *encoders,
        *(part for part in QUICK if part != "--quiet"),
    ]
    running = subprocess.Popen(command, cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    seen = next((line for line in running.stderr if "pictures" in line and "16 of 200" in line), None)
    assert seen is not None and "pictures/s" in seen and " left" in seen
    running.send_signal(signal.SIGINT)
    rest, out = running.stderr.read(), running.communicate()[0]
    assert running.returncode == 130 and out == ""
    assert "what was encoded is kept" in rest and "run the same command again" in rest.splitlines()[-1]
    assert not (here / "photos.cb").exists() and (here / "photos.cb.files" / "features.sqlite").exists()
    again = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=120)
    assert again.returncode == 0 and "of 200 pictures" not in again.stderr
    assert "photos.cb: 200 documents" in again.stdout


def test_ctrl_c_ends_a_server_in_good_order(in_made: Path) -> None:
    command = [sys.executable, "-c", EAGER, "serve", "scenes.cb", "--port", "0", "--json", *ENCODERS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=with_tests()) as running:
        assert running.stdout is not None
        said = "".join(iter(running.stdout.readline, "}\n")) + "}"
        assert httpx.get(f"{json.loads(said)['url']}/v1/info").json()["documents"] == 30
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=30) == 0
