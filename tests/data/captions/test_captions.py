"""Pairs from files: every layout people have, both relations, and what is odd or hostile in them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from unicodedata import normalize

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossbyte.data.captions.layout import is_raw, read_raw
from crossbyte.data.captions.raw_documents import RawDocuments, Skipped
from crossbyte.data.safe_open import Limits
from crossbyte.data.scenes import write_scenes
from crossbyte.errors import DataFileError
from support.hostile_captions import AB, CASES, Case, make


def consistent(found: RawDocuments, root: Path) -> None:
    n = len(found)
    assert len(set(found.ids)) == n == len(found.pictures) == len(found.texts) == len(found.payloads)
    assert len(found.groups) == n and all(isinstance(one, Skipped) for one in found.skipped)
    for picture, texts, payload in zip(found.pictures, found.texts, found.payloads, strict=True):
        assert payload.get("captions", []) == list(texts)
        assert ("file" in payload) == (picture is not None)
        assert picture is None or picture.resolve().is_relative_to(root.resolve())
    json.dumps(found.payloads, allow_nan=False).encode()


@pytest.mark.parametrize("name", CASES)
def test_odd_and_hostile_captions(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    root = make(tmp_path / "x", case)
    if case.error:
        with pytest.raises(DataFileError, match=f"(?s){re.escape(str(root))}: .*{case.error}"):
            read_raw(root)
        return
    found = read_raw(root)
    consistent(found, root)
    told = [f"{one.name} {one.reason}" for one in found.skipped]
    assert len(found) == case.documents, told
    assert case.texts is None or found.texts == case.texts
    assert any(re.search(case.skipped, one) for one in told) if case.skipped else told == []


def test_the_corpus_is_large_enough() -> None:
    assert len(CASES) >= 80


# Layouts


def test_table_with_every_kind_of_column(tmp_path: Path) -> None:
    table = (
        "Photo,caption_0,caption_1,caption_2,year,weight,good,place,zip\n"
        "a.jpg,a dog,one dog,,2001,1.5,true,Köln,01067\n"
        "b.jpg,a cat,,a feline,2002,2,false,,02000\n"
    )
    root = make(tmp_path / "x", Case({**AB, "list.csv": table}))
    found = read_raw(root)
    assert found.form == "csv" and found.ids == ["a.jpg", "b.jpg"] and found.skipped == []
    assert found.texts == [("a dog", "one dog"), ("a cat", "a feline")] and found.groups == [None, None]
    assert found.payloads == [
        {"year": 2001, "weight": 1.5, "good": True, "place": "Köln", "zip": "01067",
         "captions": ["a dog", "one dog"], "file": "a.jpg"},
        {"year": 2002, "weight": 2.0, "good": False, "zip": "02000", "captions": ["a cat", "a feline"],
         "file": "b.jpg"},
    ]  # fmt: skip
    assert found.pictures == [root / "a.jpg", root / "b.jpg"]


@pytest.mark.parametrize(
    "column", ["image", "file", "filename", "file_name", "Path", "img", "photo", "PICTURE", "x"]
)
def test_columns_are_found_by_name_or_value(tmp_path: Path, column: str) -> None:
    for text in ("caption", "text", "title", "description", "alt", "Alt Text", "sentence"):
        root = make(
            tmp_path / text, Case({**AB, "captions.csv": f"n,{text},{column}\n1,one,a.jpg\n2,two,b.jpg\n"})
        )
        found = read_raw(root)
        assert found.texts == [("one",), ("two",)] and found.ids == ["a.jpg", "b.jpg"], text
        assert [payload["n"] for payload in found.payloads] == [1, 2], text


def test_columns_that_are_given(tmp_path: Path) -> None:
    table = (
        "key,image,other,caption,title\nk1,a.jpg,b.jpg,one,eins\nk2,b.jpg,a.jpg,two,zwei\n,a.jpg,b.jpg,x,y\n"
    )
    root = make(tmp_path / "x", Case({**AB, "captions.csv": table}))
    found = read_raw(root, image_column="other", text_columns=["title", "caption"], id_column="key")
    assert found.ids == ["k1", "k2"] and found.texts == [("eins", "one"), ("zwei", "two")]
    assert found.payloads[0]["file"] == "b.jpg" and found.payloads[0]["image"] == "a.jpg"
    assert found.skipped == [Skipped("captions.csv, line 4", "nothing in the id column 'key'")]
    assert read_raw(root, text_columns="title").texts[0] == ("eins", "y")
    for option in ({"image_column": "no"}, {"text_columns": ["no"]}, {"id_column": "no"}):
        with pytest.raises(
            DataFileError, match="expected a column called 'no', got the columns 'key', 'image'"
        ):
            read_raw(root, **option)  # type: ignore[arg-type]


def test_a_file_beside_its_pictures(tmp_path: Path) -> None:
    make(
        tmp_path / "x",
        Case({**AB, "l.csv": "image,caption\na.jpg,one\n", "l.jsonl": '{"image":"b.jpg","caption":"two"}'}),
    )
    only = read_raw(tmp_path / "x" / "l.csv")
    assert only.ids == ["a.jpg"]
    assert only.skipped == [Skipped("b.jpg", "l.csv does not name it; give the folder instead")]
    found = read_raw(tmp_path / "x" / "l.jsonl")
    assert found.ids == ["b.jpg"] and found.form == "jsonl"
    with pytest.raises(FileNotFoundError):
        read_raw(tmp_path / "nowhere")
    (tmp_path / "x" / "y.npy").write_bytes(b"")
    with pytest.raises(
        DataFileError, match=r"expected a folder of pictures, or a file that ends in .csv.*'.npy'"
    ):
        read_raw(tmp_path / "x" / "y.npy")
    (tmp_path / "x" / "y.tar").write_bytes(b"")
    with pytest.raises(DataFileError, match="unpack it into a folder"):
        read_raw(tmp_path / "x" / "y.tar")


def test_pictures_in_folders_of_their_own(tmp_path: Path) -> None:
    files = {"Images/a.jpg": b"", "Images/b.JPG": b"", "other/c.png": b"", "one/d.gif": b"", "two/d.gif": b""}
    rows = ["a.jpg", "b.jpg", "c", "other\\c.png", "./one//d.gif", "d.gif", "IMAGES/A.JPG"]
    table = "image,caption\n" + "".join(f"{row},text {n}\n" for n, row in enumerate(rows))
    found = read_raw(make(tmp_path / "x", Case({**files, "captions.csv": table})))
    assert found.ids == ["Images/a.jpg", "Images/b.JPG", "other/c.png", "one/d.gif", "two/d.gif"]
    assert found.texts[-1] == ()
    assert found.texts[0] == ("text 0", "text 6") and found.texts[2] == ("text 2", "text 3")
    assert [one.reason for one in found.skipped] == [
        "'d.gif': meant may be 'one/d.gif' or 'two/d.gif'; write the name with its folder"
    ]


def test_a_table_inside_names_what_lies_beside_it(tmp_path: Path) -> None:
    files = {"train/a.jpg": b"", "a.jpg": b"", "train/metadata.csv": "file_name,text\na.jpg,one\n"}
    found = read_raw(make(tmp_path / "x", Case({**files})))
    assert found.ids == ["train/a.jpg", "a.jpg"] and found.texts == [("one",), ()]


def test_coco_in_annotations(tmp_path: Path) -> None:
    content = {
        "images": [{"id": 7, "file_name": "a.jpg", "width": 4}, {"id": 8, "file_name": "b.jpg"}],
        "annotations": [
            {"image_id": 7, "caption": "one"}, {"image_id": 7, "caption": "uno", "category_id": 3},
            {"image_id": 8, "caption": "two"},
        ],
        "categories": [{"id": 3, "name": "dog"}],
    }  # fmt: skip
    files = {"val2017/a.jpg": b"", "val2017/b.jpg": b"",
             "annotations/captions_val2017.json": json.dumps(content),
             "annotations/instances_val2017.json": "{ never read"}  # fmt: skip
    found = read_raw(make(tmp_path / "x", Case({**files})))
    assert found.form == "coco" and found.ids == ["val2017/a.jpg", "val2017/b.jpg"]
    assert found.texts == [("one", "uno"), ("two",)] and found.skipped == []
    assert found.payloads[0] == {
        "width": 4, "categories": ["dog"], "captions": ["one", "uno"], "file": "val2017/a.jpg"
    }  # fmt: skip
    direct = read_raw(tmp_path / "x" / "annotations" / "captions_val2017.json")
    assert direct.ids == found.ids and direct.texts == found.texts


def test_karpathy_splits(tmp_path: Path) -> None:
    content = {
        "images": [
            {"filename": "a.jpg", "imgid": 0, "split": "val", "sentences": [{"raw": "one"}, {"raw": "uno"}]}
        ]
    }
    found = read_raw(make(tmp_path / "x", Case({"a.jpg": b"", "dataset.json": json.dumps(content)})))
    assert found.texts == [("one", "uno")] and found.payloads[0]["split"] == "val"


def test_img2dataset(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"00000.parquet": b"PAR1", "00000_stats.json": '{"count": 2}'}
    for number in range(2):
        stem = f"00000/{number:09d}"
        described = {"caption": f"text {number}", "url": "https://example.org/x", "width": 4,
                     "status": "success", "error_message": None}  # fmt: skip
        files |= {f"{stem}.jpg": b"", f"{stem}.txt": f"text {number}", f"{stem}.json": json.dumps(described)}
    found = read_raw(make(tmp_path / "x", Case(files)))
    assert found.form == "img2dataset" and found.ids == ["00000/000000000.jpg", "00000/000000001.jpg"]
    assert found.texts == [("text 0",), ("text 1",)] and found.skipped == []
    assert found.payloads[0]["width"] == 4 and "error_message" not in found.payloads[0]


def test_pictures_alone(tmp_path: Path) -> None:
    found = read_raw(make(tmp_path / "x", Case({**AB, "deep/er/c.WebP": b"", "README.md": "hello"})))
    assert found.form == "images" and found.ids == ["a.jpg", "b.jpg", "deep/er/c.WebP"]
    assert found.texts == [(), (), ()] and found.payloads[0] == {"file": "a.jpg"} and found.skipped == []


# Pictures without captions

HALF_TABLE = "image,caption,year\na.jpg,one,2001\nb.jpg,,2002\n"
HALF_COCO = json.dumps(
    {"images": [{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "b.jpg"}],
     "annotations": [{"image_id": 1, "caption": "one"}, {"image_id": 2, "caption": ""}]}
)  # fmt: skip


@pytest.mark.parametrize(
    ("files", "form"),
    [
        ({"captions.csv": HALF_TABLE}, "csv"),
        ({"captions.tsv": HALF_TABLE.replace(",", "\t")}, "csv"),
        ({"list.csv": HALF_TABLE}, "csv"),
        ({"captions.txt": "image,caption\na.jpg,one\n"}, "csv"),
        ({"captions.jsonl": '{"image": "a.jpg", "caption": "one"}\n{"image": "b.jpg"}\n'}, "jsonl"),
        ({"captions.json": '{"a.jpg": "one", "b.jpg": []}'}, "jsonl"),
        ({"captions.json": '[{"image": "a.jpg", "caption": "one"}]'}, "jsonl"),
        ({"annotations/captions.json": HALF_COCO}, "coco"),
        ({"a.txt": "one"}, "sidecar"),
        ({"a.txt": "one", "b.txt": ""}, "sidecar"),
        ({"a.json": '{"caption": "one"}', "b.json": '{"caption": null, "width": 3}'}, "img2dataset"),
    ],
)
def test_pictures_without_a_caption_are_documents_in_every_layout(
    tmp_path: Path, files: dict[str, str], form: str
) -> None:
    pictures = {**AB, "deep/c.png": b"", "z.webp": b""}
    root = make(tmp_path / "x", Case({**pictures, **files}))
    found = read_raw(root)
    consistent(found, root)
    assert found.form == form and found.ids == list(pictures) and found.skipped == []
    assert found.texts == [("one",), (), (), ()] and found.groups == [None] * 4
    assert found.pictures == [root / name for name in pictures]
    assert found.payloads[2:] == [{"file": "deep/c.png"}, {"file": "z.webp"}]
    assert (found.n_pairs, found.n_without_text, found.n_without_picture) == (1, 3, 0)


def test_half_of_a_thousand_have_a_row(tmp_path: Path) -> None:
    names = [f"{number:04d}.jpg" for number in range(1000)]
    rows = "".join(f"{name},text of {name}\n" for name in names[::2])
    table = f"image,caption\n{rows}gone.jpg,lost\n,a text alone\n"
    found = read_raw(make(tmp_path / "x", Case({**dict.fromkeys(names, b""), "captions.csv": table})))
    assert sorted(found.ids) == [*names, "captions.csv, line 503"]
    assert found.skipped == [Skipped("captions.csv, line 502", "'gone.jpg': no such picture in the folder")]
    assert (len(found), found.n_pairs, found.n_without_text, found.n_without_picture) == (1001, 500, 500, 1)


def test_pictures_that_no_row_names_have_the_captions_beside_them(tmp_path: Path) -> None:
    files = {**AB, "c.jpg": b"", "captions.jpg": b"", "a.txt": "no", "b.txt": "two\nzwei", "notes.txt": "x"}
    root = make(tmp_path / "x", Case({**files, "captions.txt": "image,caption\na.jpg,one\n"}))
    found = read_raw(root)
    assert dict(zip(found.ids, found.texts, strict=True)) == {
        "a.jpg": ("one",), "b.jpg": ("two", "zwei"), "c.jpg": (), "captions.jpg": ()
    }  # fmt: skip
    assert found.skipped == []


def test_an_id_that_is_the_name_of_another_picture(tmp_path: Path) -> None:
    """b.jpg has no row, and its name is the id of a.jpg: it is listed, not mixed up."""
    root = make(tmp_path / "x", Case({**AB, "captions.csv": "image,caption,id\na.jpg,one,b.jpg\n"}))
    found = read_raw(root, id_column="id")
    assert found.ids == ["b.jpg"] and found.texts == [("one",)] and found.pictures == [root / "a.jpg"]
    assert found.skipped == [Skipped("b.jpg", "its id 'b.jpg' belongs to a.jpg already")]


def test_several_json_files_of_captions_are_all_read(tmp_path: Path) -> None:
    coco = {"images": [{"id": 1, "file_name": "c.jpg"}], "annotations": [{"image_id": 1, "caption": "three"}]}
    files = {**AB, "c.jpg": b"", "captions_1.json": '{"a.jpg": "one"}', "captions_2.json": json.dumps(coco),
             "captions_3.json": '[{"image": "b.jpg", "caption": "two"}]'}  # fmt: skip
    found = read_raw(make(tmp_path / "x", Case(files)))
    assert dict(zip(found.ids, found.texts, strict=True)) == {
        "a.jpg": ("one",), "b.jpg": ("two",), "c.jpg": ("three",)
    }  # fmt: skip
    assert found.skipped == [] and found.form == "coco"


def test_generated_scenes(tmp_path: Path) -> None:
    write_scenes(tmp_path / "x", 12, 0)
    found = read_raw(tmp_path / "x")
    consistent(found, tmp_path)
    assert len(found) == 12 and found.skipped == [] and all(found.texts)
    assert {"colour", "shape"} <= found.payloads[0].keys()


# Both relations


def test_rows_of_one_picture_are_one_document(tmp_path: Path) -> None:
    table = (
        "image,caption,n,who,same\na.jpg,one,0,me,x\na.jpg,uno,1,me,x\nb.jpg,two,0,you,x\na.jpg,ein,0,,x\n"
    )
    found = read_raw(make(tmp_path / "x", Case({**AB, "captions.csv": table})))
    assert found.texts == [("one", "uno", "ein"), ("two",)] and found.groups == [None, None]
    assert found.payloads[0] == {
        "n": [0, 1], "who": "me", "same": "x", "captions": ["one", "uno", "ein"], "file": "a.jpg"
    }  # fmt: skip


def test_documents_that_share_a_text_are_one_group(tmp_path: Path) -> None:
    files = {f"{name}.jpg": b"" for name in "abcde"}
    table = "image,caption\na.jpg,x\nb.jpg,y\nc.jpg, x \nb.jpg,z\nd.jpg,z\ne.jpg,own\nc.jpg,q\nd.jpg,x\n"
    found = read_raw(make(tmp_path / "x", Case({**files, "captions.csv": table})))
    assert found.groups == ["a.jpg"] * 4 + [None] and found.ids[-1] == "e.jpg"


def test_texts_without_a_picture_and_ids_that_share_one(tmp_path: Path) -> None:
    table = "image,caption,id\na.jpg,one,1\na.jpg,uno,2\n,three,3\nb.jpg,two,1\n,trois,3\n"
    root = make(tmp_path / "x", Case({**AB, "captions.csv": table}))
    found = read_raw(root, id_column="id")
    assert found.ids == ["1", "2", "3", "b.jpg"] and found.groups == ["1", "1", None, None]
    assert found.pictures == [root / "a.jpg", root / "a.jpg", None, root / "b.jpg"]
    assert found.texts[2] == ("three", "trois") and "file" not in found.payloads[2]
    assert Skipped("captions.csv, line 5", "its id '1' belongs to a.jpg already") in found.skipped
    plain = read_raw(root)
    assert plain.ids == ["a.jpg", "captions.csv, line 4", "b.jpg", "captions.csv, line 6"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=10))
def test_groups_are_connected_components(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[int, int]]
) -> None:
    root = tmp_path_factory.mktemp("groups")
    for picture, _ in pairs:
        (root / f"{picture}.jpg").touch()
    rows = "".join(f"{picture}.jpg,text {text}\n" for picture, text in pairs)
    (root / "captions.csv").write_text("image,caption\n" + rows)
    found = read_raw(root)
    component = {f"{picture}.jpg": {f"{picture}.jpg"} for picture, _ in pairs}
    for _ in pairs:  # let what touches flow together until nothing moves
        for one, text in pairs:
            for other, same in pairs:
                if text == same:
                    joined = component[f"{one}.jpg"] | component[f"{other}.jpg"]
                    for name in joined:
                        component[name] = joined
    for id, group in zip(found.ids, found.groups, strict=True):
        assert group == (
            None if len(component[id]) == 1 else next(i for i in found.ids if i in component[id])
        )


# Names


def test_names_in_any_script_and_composition(tmp_path: Path) -> None:
    names = ["café.jpg", "Köln/Ä.png", "東京.webp", "кот.gif", "🐈.bmp", "a b#c,d.jpg"]
    root = tmp_path / "x"
    for name in names:
        path = root / normalize("NFD", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    rows = "".join(f'"{normalize("NFC", name)}",text {n}\n' for n, name in enumerate(names))
    (root / "captions.csv").write_text("image,caption\n" + rows, encoding="utf-8")
    found = read_raw(root)
    assert found.ids == [normalize("NFC", name) for name in names] and found.skipped == []
    assert all(picture is not None and picture.is_file() for picture in found.pictures)


def test_two_compositions_of_one_name_are_two_pictures(tmp_path: Path) -> None:
    for form in ("NFC", "NFD"):
        (tmp_path / normalize(form, "é.jpg")).touch()
    assert len(read_raw(tmp_path)) == len(os.listdir(tmp_path))


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=30))
def test_whatever_a_row_names_stays_inside(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    root = tmp_path_factory.mktemp("any") / "x"
    (root / "sub").mkdir(parents=True)
    for inside in (root / "a.jpg", root / "sub" / "b.jpg", root.parent / "secret.jpg"):
        inside.touch()
    rows = [
        {"image": "a.jpg", "caption": "x"},
        *({"image": one, "caption": "y"} for one in (name, f"../{name}", "../secret.jpg")),
    ]
    (root / "captions.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    consistent(read_raw(root), root)


# Size, limits, and what is for this reader


def test_a_hundred_thousand_rows(tmp_path: Path) -> None:
    root = tmp_path / "x"
    root.mkdir()
    for number in range(100):
        (root / f"{number}.jpg").touch()
    with open(root / "captions.csv", "w") as file:
        file.write("image,caption,n\n")
        file.writelines(f"{row % 100}.jpg,text {row},{row // 1000}\n" for row in range(100_000))
    found = read_raw(root)
    assert len(found) == 100 and len(found.texts[0]) == 1000 and found.skipped == []
    assert found.payloads[0]["n"] == list(range(100))


def test_limits(tmp_path: Path) -> None:
    root = make(
        tmp_path / "x", Case({**AB, "captions.csv": "image,caption\na.jpg,one\nb.jpg,two\na.jpg,x\n"})
    )
    with pytest.raises(DataFileError, match="expected at most 3 rows"):
        read_raw(root, limits=Limits(rows=3))
    with pytest.raises(DataFileError, match="expected at most 2 files"):
        read_raw(root, limits=Limits(rows=2))
    with pytest.raises(DataFileError, match="expected at most 10 bytes of text"):
        read_raw(root, limits=Limits(text_bytes=10))


def test_what_is_raw(tmp_path: Path) -> None:
    root = make(
        tmp_path / "x",
        Case({**AB, "good.csv": "image,caption\na.jpg,one\n", "good.jsonl": '{"x": "a.jpg"}',
              "good.tsv": "p\tc\nb.png\tx\n",
              "numbers.csv": "1,2\n3,4\n", "payloads.jsonl": '{"year": 3}', "bad.csv": b"\xff\xfe",
              "a.npy": b"", "coco.json": "{}", "img/img_emb/img_emb_0.npy": b""}),
    )  # fmt: skip
    raw = [".", "good.csv", "good.jsonl", "good.tsv", "coco.json"]
    others = ["numbers.csv", "payloads.jsonl", "bad.csv", "a.npy", "img", "nowhere", "nowhere.csv", "a.jpg"]
    assert [name for name in raw + others if is_raw(root / name)] == raw


def test_a_table_of_something_else_is_no_hindrance(tmp_path: Path) -> None:
    root = make(
        tmp_path / "x", Case({**AB, "a.txt": "one", "b.txt": "two", "costs.csv": "what,price\nfilm,3\n"})
    )
    found = read_raw(root)
    assert found.form == "sidecar" and found.texts == [("one",), ("two",)]
    assert found.skipped == [Skipped("costs.csv", "a table without a column that names pictures")]
