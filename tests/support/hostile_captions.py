"""Odd and hostile captions: folders made on demand, each with the outcome that is declared for it.

An outcome is the number of documents and a pattern that some entry of ``skipped`` matches ("" where nothing
is left out), or the pattern of the error's message.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

Files = dict[str, str | bytes]


class Case(NamedTuple):
    """Files of a folder (pictures are any bytes: they are not opened), what else to do there, the outcome."""

    files: Files
    documents: int = 0
    skipped: str = ""
    error: str = ""
    more: Callable[[Path], None] | None = None
    texts: list[tuple[str, ...]] | None = None


def make(root: Path, case: Case) -> Path:
    """Write the files of a case into a folder."""
    root.mkdir(parents=True)
    for name, content in case.files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    if case.more is not None:
        case.more(root)
    return root


AB: Files = {"a.jpg": b"", "b.jpg": b""}


def table(text: str | bytes, name: str = "captions.csv", **rest: str | bytes) -> Files:
    return {**AB, name: text, **rest}


def coco(**content: object) -> str:
    return json.dumps(content)


GOOD = "image,caption\na.jpg,one\nb.jpg,two\n"
BOTH = [("one",), ("two",)]
IMAGES = [{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "b.jpg"}]


def link_out(root: Path) -> None:
    (root.parent / "secret.jpg").write_bytes(b"")
    os.symlink(root.parent / "secret.jpg", root / "out.jpg")


def links_everywhere(root: Path) -> None:
    os.symlink(root, root / "loop")
    os.symlink("self.jpg", root / "self.jpg")
    os.symlink("nowhere.jpg", root / "broken.jpg")
    os.symlink("a.jpg", root / "again.jpg")
    os.symlink(root.parent, root / "up")


def pipe(root: Path) -> None:
    os.mkfifo(root / "pipe.jpg")


def bad_name(root: Path) -> None:
    with open(os.fsencode(root) + b"/caf\xe9.jpg", "wb"):
        pass


def deep_folders(root: Path) -> None:
    (root / "/".join(["d"] * 300)).mkdir(parents=True)
    (root / "/".join(["d"] * 300) / "c.jpg").write_bytes(b"")


CASES: dict[str, Case] = {
    # The text of a table
    "plain": Case(table(GOOD), 2, texts=BOTH),
    "bom": Case(table(b"\xef\xbb\xbf" + GOOD.encode()), 2, texts=BOTH),
    "crlf": Case(table(GOOD.replace("\n", "\r\n")), 2, texts=BOTH),
    "no last line end": Case(table(GOOD.rstrip()), 2, texts=BOTH),
    "empty lines": Case(table(GOOD.replace("\n", "\n\n")), 2, texts=BOTH),
    "semicolons": Case(table(GOOD.replace(",", ";")), 2, texts=BOTH),
    "bars": Case(table(GOOD.replace(",", "| ")), 2, texts=BOTH),
    "tabs": Case(table(GOOD.replace(",", "\t"), "captions.tsv"), 2, texts=BOTH),
    "quoted newline": Case(
        table('image,caption\na.jpg,"one\nmore"\nb.jpg,two\n'), 2, texts=[("one more",), ("two",)]
    ),
    "quoted quotes": Case(
        table('image,caption\na.jpg,"say ""hi"", you"\n'), 2, texts=[('say "hi", you',), ()]
    ),
    "formulas stay text": Case(
        table("image,caption\na.jpg,=cmd|' /C calc'!A0\nb.jpg,@SUM(1)\n"),
        2,
        texts=[("=cmd|' /C calc'!A0",), ("@SUM(1)",)],
    ),
    "markup stays text": Case(
        table("image,caption\na.jpg,<script>alert(1)</script>\n"),
        2,
        texts=[("<script>alert(1)</script>",), ()],
    ),
    "numbers as captions": Case(
        table("image,caption\na.jpg,007\nb.jpg,1.50\n"), 2, texts=[("007",), ("1.50",)]
    ),
    "index of pandas": Case(table(",image,caption\n0,a.jpg,one\n1,b.jpg,two\n"), 2, texts=BOTH),
    "no header": Case(
        table("a.jpg,one thing\nb.jpg,two things\n"), 2, texts=[("one thing",), ("two things",)]
    ),
    "names of flickr8k": Case(
        table("a.jpg#0\tone dog\na.jpg#1\tmy dog\n", "flickr8k.token.txt"),
        2,
        texts=[("one dog", "my dog"), ()],
    ),
    "utf-16": Case(
        table(GOOD.encode("utf-16")), error="captions.csv: line 1: expected .*save the file as UTF-8"
    ),
    "latin-1": Case(
        table("image,caption\na.jpg,café\n".encode("latin-1")), error="line 2: expected UTF-8, got byte 0xe9"
    ),
    "nul": Case(table(GOOD + "a.jpg,\0\n"), error="line 4: expected text, got a NUL"),
    "binary": Case(table(bytes(range(256)) * 8), error="captions.csv: line 1: expected"),
    "empty": Case(table(""), error="captions.csv: expected a row for each caption, got none"),
    "header only": Case(table("image,caption\n"), error="expected a row for each caption, got none"),
    "duplicate header": Case(table("image,caption,caption\na.jpg,1,2\n"), error="'caption' twice; rename"),
    "no image column": Case(
        table("who,caption\nme,one\n"),
        error="expected a column that names pictures.*got the columns 'who', 'caption'; .*image_column=",
    ),
    "giant field": Case(
        table(f"image,caption\na.jpg,{'x' * 200_000}\nb.jpg,two\n"), 2, "line 2.*field larger"
    ),
    "giant quoted field": Case(
        table(f'image,caption\na.jpg,"{"x" * 200_000}"\nb.jpg,two\n'), 2, "line 2.*field larger"
    ),
    "giant line": Case(
        table("image,caption\na.jpg," + "x," * 2**23), error="line 2: expected at most 16777216 bytes"
    ),
    "too many fields": Case(
        table("image,caption\na.jpg,one, two\nb.jpg,two\n"), 2, "line 2 expected 2 fields.*got 3; quote"
    ),
    "too few fields": Case(
        table("image,caption\na.jpg\nb.jpg,two\n"), 2, "line 2 expected 2 fields.*got 1", texts=[("two",), ()]
    ),
    "open quote": Case(
        table('image,caption\na.jpg,one\nb.jpg,"two\nc.jpg,three\n'), 2, "line 3 .*unexpected end of data"
    ),
    "text after quote": Case(
        table('image,caption\na.jpg,"one" more\nb.jpg,two\n'), 2, "line 2 .*expected after"
    ),
    "many columns": Case(
        table(",".join(f"c{i}" for i in range(30_000)) + "\n"), error="expected a row for each caption"
    ),
    # What rows say
    "traversal": Case(table(GOOD + "../../etc/passwd,x\n"), 2, r"line 4 '../../etc/passwd': leads out"),
    "hidden traversal": Case(table(GOOD + "sub/../../b.jpg,x\n"), 2, "leads out of the folder"),
    "windows traversal": Case(table(GOOD + "..\\..\\b.jpg,x\n"), 2, "leads out of the folder"),
    "absolute": Case(table(GOOD + "/etc/passwd.jpg,x\n"), 2, "leads out of the folder"),
    "drive": Case(table(GOOD + "C:\\b.jpg,x\n"), 2, "leads out of the folder"),
    "home": Case(table(GOOD + "~/b.jpg,x\n"), 2, "leads out of the folder"),
    "address": Case(table(GOOD + "https://example.org/b.jpg,x\n"), 2, "nothing is fetched"),
    "missing picture": Case(table(GOOD + "c.jpg,three\n"), 2, "line 4 'c.jpg': no such picture"),
    "no picture": Case(
        table(GOOD.replace("a.jpg", "notes.md"), **{"notes.md": b""}),
        2,
        "expected a picture that ends in .jpg",
        texts=[("two",), ()],
    ),
    "missing caption": Case(
        table("image,caption\na.jpg,\nb.jpg,two\n"),
        2,
        texts=[(), ("two",)],
    ),
    "blank caption": Case(table("image,caption\na.jpg,   \nb.jpg,two\n"), 2, texts=[(), ("two",)]),
    "nothing in a row": Case(
        table("image,caption\n,\nb.jpg,two\n"), 2, "line 2 neither a picture nor a caption"
    ),
    "no pictures there": Case(
        table("image,caption\nc.jpg,one\n"),
        error="expected the pictures.*captions.csv, line 2: 'c.jpg': no such",
    ),
    "same caption twice": Case(table("image,caption\na.jpg,one\na.jpg,one\n"), 2, texts=[("one",), ()]),
    "captions that contradict each other": Case(
        table("image,caption\na.jpg,a dog\nb.jpg,two\na.jpg,a cat\na.jpg,no dog\na.jpg,a dog\n"),
        2,
        texts=[("a dog", "a cat", "no dog"), ("two",)],
    ),
    "two tables": Case(
        {**table(GOOD), "captions.jsonl": "{}"},
        error="expected one table of captions, got captions.csv, captions.jsonl",
    ),
    "two other tables": Case(
        {**table(GOOD, "x.csv"), "y.csv": GOOD}, error="got x.csv, y.csv; give the path"
    ),
    "too large a payload": Case(
        table(
            "image,caption,"
            + ",".join(f"c{i}" for i in range(12))
            + "\na.jpg,one,"
            + ",".join(["x" * 100_000] * 12)
            + "\nb.jpg,two"
            + "," * 12
            + "\n"
        ),
        1,
        "a.jpg expected at most 1048576 bytes",
    ),
    # JSON lines
    "jsonl": Case(
        table('{"image": "a.jpg", "caption": ["one", "uno"]}\n', "captions.jsonl"),
        2,
        texts=[("one", "uno"), ()],
    ),
    "bad line": Case(
        table(
            '{"image": "a.jpg", "caption": "one"}\n{oops\n[]\n{"image": "b.jpg", "caption": "two"}',
            "captions.jsonl",
        ),
        2,
        "line 2 expected a JSON object",
    ),
    "repeated key": Case(
        table('{"image": "a.jpg", "image": "b.jpg"}\n{"image": "b.jpg", "caption": "two"}', "captions.jsonl"),
        2,
        "line 1 .*occurs twice",
    ),
    "nan": Case(
        table('{"image": "a.jpg", "x": NaN}\n{"image": "b.jpg", "caption": "two"}', "captions.jsonl"),
        2,
        "line 1 .*NaN is no JSON",
    ),
    "deep line": Case(
        table("[" * 100_000 + '\n{"image": "b.jpg", "caption": "two"}', "captions.jsonl"),
        2,
        "line 1 .*nested too deeply",
    ),
    "deep object": Case(
        table('{"x":' * 50 + "1" + "}" * 50 + '\n{"image": "b.jpg", "caption": "two"}', "captions.jsonl"),
        2,
        "line 1 .*at most 32 levels",
    ),
    "half a character": Case(
        table(
            '{"image": "a.jpg", "caption": "\\ud800"}\n{"image": "b.jpg", "caption": "two"}', "captions.jsonl"
        ),
        2,
        "line 1 .*surrogate",
    ),
    "nul in a name": Case(
        table(
            '{"image": "a.jpg\\u0000", "caption": "x"}\n{"image": "b.jpg", "caption": "two"}',
            "captions.jsonl",
        ),
        2,
        "no such picture",
    ),
    "objects as names": Case(
        table('{"image": {"a": 1}, "caption": "x"}\n{"image": "b.jpg", "caption": "two"}', "captions.jsonl"),
        2,
        "no such picture",
    ),
    "objects as captions": Case(
        table('{"image": "a.jpg", "caption": {"a": [1]}}\n', "captions.jsonl"),
        2,
        "line 1 expected a text or a list of texts as caption, got an object",
        texts=[(), ()],
    ),
    "only bad lines": Case(
        table("oops\noops\n", "captions.jsonl"),
        error="got none that can be read; captions.jsonl, line 1: expected a JSON object",
    ),
    # COCO
    "coco": Case(
        table(
            coco(
                images=IMAGES,
                annotations=[{"image_id": 1, "caption": "one"}, {"image_id": 2, "caption": "two"}],
            ),
            "captions.json",
        ),
        2,
        texts=BOTH,
    ),
    "dangling ids": Case(
        table(
            coco(
                images=IMAGES,
                annotations=[{"image_id": 1, "caption": "one"}, {"image_id": 9, "caption": "x"}],
            ),
            "captions.json",
        ),
        2,
        "image id 9 1 captions of an image that is not listed",
    ),
    "odd annotations": Case(
        table(
            coco(
                images=[*IMAGES, 3, {"id": 4}, {"file_name": "../x.jpg"}],
                annotations=[None, {}, {"image_id": [1], "caption": "x"}, {"image_id": 1, "caption": " "}],
            ),
            "captions.json",
        ),
        2,
        "annotation 0 expected a JSON object with image_id",
        texts=[(), ()],
    ),
    "annotations of another kind": Case(
        table(coco(images=IMAGES, annotations={"a": 1}), "captions.json"), 2, texts=[(), ()]
    ),
    "no images": Case(
        table(coco(images=[], annotations=[]), "captions.json"),
        error="expected the pictures that the captions are about",
    ),
    "another object": Case(
        table(coco(version=1), "captions.json"), error="captions.json: expected COCO's form.*'version'"
    ),
    "broken json": Case(
        table('{"images": [', "captions.json"), error="captions.json: line 1: expected a JSON object"
    ),
    "deep json": Case(
        table('{"images":' + "[" * 100_000, "captions.json"), error="captions.json: line 1.*nested too deeply"
    ),
    "captions by name": Case(
        table(coco(**{"a.jpg": "one", "b.jpg": ["two"]}), "captions.json"), 2, texts=BOTH
    ),
    "list of rows": Case(
        table(
            json.dumps([{"image": "a.jpg", "caption": "one"}, 3, {"image": "b.jpg", "caption": "two"}]),
            "captions.json",
        ),
        2,
        texts=BOTH,
    ),
    # Files beside pictures
    "sidecar": Case({**AB, "a.txt": "one\nuno\n", "b.TXT": "two"}, 2, texts=[("one", "uno"), ("two",)]),
    "sidecar alone": Case({**AB, "c.txt": "three"}, 2, "c.txt no picture of this name", texts=[(), ()]),
    "sidecar in another encoding": Case(
        {**AB, "a.txt": "one".encode("utf-16"), "b.txt": "two"},
        2,
        "a.txt line 1: expected .*kept without it",
        texts=[(), ("two",)],
    ),
    "empty sidecar": Case({**AB, "a.txt": "\n \n", "b.txt": "two"}, 2, texts=[(), ("two",)]),
    "giant sidecar": Case(
        {**AB, "a.txt": "x" * (2**20 + 1), "b.txt": "two"},
        2,
        "a.txt expected at most 1048576",
        texts=[(), ("two",)],
    ),
    "broken description": Case(
        {**AB, "a.json": "{", "a.txt": "one", "b.json": '{"caption": "two"}'},
        2,
        "a.json line 1: expected a JSON object",
        texts=BOTH,
    ),
    # Folders
    "nothing": Case({}, error="expected pictures .*got an empty folder"),
    "only captions": Case(
        {"captions.csv": GOOD},
        error=r"expected pictures .*got 1 other file \(such as captions.csv\); put the",
    ),
    "only text files": Case(
        {"notes/a.txt": "one", "notes/b.txt": "two", "x.dat": b""},
        error=r"expected pictures .*got 2 text files \(such as notes/a.txt\); .*put notes/a.jpg beside",
    ),
    "only other files": Case(
        {"x.dat": b""}, error=r"got 1 other file \(such as x.dat\); give the folder that has the pictures"
    ),
    "only clutter": Case(
        {".DS_Store": b"", "Thumbs.db": b"", "__MACOSX/a.jpg": b"", ".hidden/a.jpg": b""},
        error="got an empty folder",
    ),
    "only kinds that are not read": Case(
        {"a.tif": b"", "b.heic": b""}, error="a.tif: a kind of picture that is not read; convert"
    ),
    "shards": Case(
        {"00000.tar": b"", "00000_stats.json": "{}"},
        error="00000.tar is an archive .webdataset., which is not read; unpack it",
    ),
    "clutter beside": Case(
        {**AB, "._a.jpg": b"", "@eaDir/a.jpg": b"", "Thumbs.db": b"", "desktop.ini": b""}, 2
    ),
    "link out": Case(AB, 2, "out.jpg a link that leads out of the folder", more=link_out),
    "row names a link out": Case(
        table(GOOD + "out.jpg,x\n"), 2, "line 4 'out.jpg': a link that leads out", more=link_out
    ),
    "loops of links": Case(AB, 3, "self.jpg a link that leads nowhere", more=links_everywhere),
    "pipe": Case(AB, 2, "pipe.jpg no regular file", more=pipe),
    "folder called like a picture": Case({**AB, "c.jpg/d.png": b""}, 3),
    "name without an encoding": Case(AB, 2, "its name is no valid Unicode; rename it", more=bad_name),
    "deep folders": Case(AB, 3, more=deep_folders),
    "embeddings": Case({"img_emb/img_emb_0.npy": b""}, error="expected pictures, got embeddings"),
}
