"""Networks by name: listed, downloaded from a hub on this machine, verified, and all of it or nothing."""

from __future__ import annotations

import errno
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from crossbyte.cli import app
from crossbyte.cli.exit_codes import describe_error
from crossbyte.encoders import (
    catalogue,
    default_image_encoder,
    download_network,
    make_encoder,
    restore_encoder,
)
from crossbyte.encoders.registry import find_encoder_sides
from crossbyte.errors import DataFileError, InvalidInput, NoEncoder, StorageFailed, StorageFull
from support.hub import Hub, publish_networks, serve_hub
from support.token_networks import WORDS, write_clip_folder, write_tokenizer

PICTURE = np.full((8, 8, 3), 100, dtype=np.uint8)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with three small networks, which are all that the catalogue knows."""
    with serve_hub() as hub:
        monkeypatch.setattr(catalogue, "NETWORKS", publish_networks(hub, tmp_path))
        monkeypatch.setenv(catalogue.HUB_VARIABLE, hub.address)
        monkeypatch.setenv(catalogue.CACHE_VARIABLE, str(tmp_path / "cache"))
        yield hub


def list_cache(tmp_path: Path) -> list[str]:
    """All that is in the cache."""
    return sorted(str(path.relative_to(tmp_path / "cache")) for path in (tmp_path / "cache").rglob("*"))


def test_the_catalogue_pins_every_file() -> None:
    names = [network.name for network in catalogue.NETWORKS]
    assert len(set(names)) == len(names)
    for network in catalogue.NETWORKS:
        assert len(network.revision) == 40 and int(network.revision, 16) and network.licence
        assert network.network in ("", *(file.path for file in network.files))
        assert set(network.sides) <= {"image", "text"} and network.brings
        for file in network.files:
            assert file.size > 0 and file.sha256 is not None and len(file.sha256) == 64
            assert not Path(file.path).is_absolute() and ".." not in Path(file.path).parts


def test_a_download_is_whole_and_needs_the_hub_once(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(
        NoEncoder, match="nothing is downloaded unasked.*crossbyte encoders download tiny-ears"
    ):
        make_encoder("tiny-ears", "text", [])
    assert hub.asked == [] and default_image_encoder()[0] == "builtin"
    steps: list[Any] = []
    done = download_network("tiny-ears", progress=steps.append)
    assert done.n_bytes == sum(path.stat().st_size for path in done.folder.rglob("*") if path.is_file())
    assert steps and {step.stage for step in steps} == {"download"}
    assert list_cache(tmp_path) == ["encoders"] + [
        f"encoders/tiny-ears{rest}" for rest in ("", "/model.onnx", "/tokenizer.json")
    ]
    n_asked = len(hub.asked)
    assert download_network("tiny-ears").n_bytes == 0 and len(hub.asked) == n_asked
    ears = make_encoder("tiny-ears", "text", [])
    again = restore_encoder(ears.state, "text")  # by the name in the model alone
    assert again.state == ears.state and len(hub.asked) == n_asked
    assert np.array_equal(ears.encode(["a red dog"]), again.encode(["a red dog"]))


def test_a_changed_file_is_noticed_and_fetched_again(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    folder = download_network("tiny-eyes").folder
    whole = make_encoder("tiny-eyes", "image", []).state
    data = bytearray((folder / "model.onnx").read_bytes())
    data[-1] ^= 1
    (folder / "model.onnx").write_bytes(data)
    with pytest.raises(DataFileError, match="the file was changed.*crossbyte encoders download tiny-eyes"):
        make_encoder("tiny-eyes", "image", [])
    assert app.run(["encoders", "list"]) == 0
    listed = capsys.readouterr().out
    assert "tiny-eyes was changed or cut; fetch it again: crossbyte encoders download tiny-eyes" in listed
    with pytest.raises(
        NoEncoder, match="files were changed, or cut; .*crossbyte encoders download tiny-eyes"
    ):
        restore_encoder(whole, "image")
    (folder / "model.onnx").write_bytes(data[:-1])
    with pytest.raises(
        NoEncoder, match="files were changed, or cut; .*crossbyte encoders download tiny-eyes"
    ):
        restore_encoder(whole, "image")
    assert download_network("tiny-eyes").n_bytes > 0
    assert make_encoder("tiny-eyes", "image", []).encode([PICTURE]).shape == (1, 5)


def _falsify(hub: Hub) -> None:
    for path, data in hub.files.items():
        hub.files[path] = data[:-1] + bytes([data[-1] ^ 1])


def _lengthen(hub: Hub) -> None:
    hub.files = {path: data + b"!" for path, data in hub.files.items()}


def _cut(hub: Hub) -> None:
    hub.cut = 20


def _empty(hub: Hub) -> None:
    hub.files.clear()


def _redirect(hub: Hub) -> None:
    hub.redirect = "http://example.com/model.onnx"


class Failure(NamedTuple):
    """What the hub does, and the error that comes of it."""

    misbehave: Any
    error: type[Exception]
    said: str


FAILURES = {
    "digest": Failure(_falsify, DataFileError, "expected a file of digest .* nothing was kept"),
    "size": Failure(_lengthen, DataFileError, "expected [0-9,]+ bytes, got .* nothing was kept"),
    "cut": Failure(_cut, (DataFileError, NoEncoder), "nothing was kept"),  # type: ignore[arg-type]
    "absent": Failure(_empty, NoEncoder, "got 404"),
    "redirect": Failure(_redirect, NoEncoder, "which is not https"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_hub_that_misbehaves_leaves_nothing(hub: Hub, tmp_path: Path, name: str) -> None:
    failure = FAILURES[name]
    failure.misbehave(hub)
    with pytest.raises(failure.error, match=failure.said) as raised:
        download_network("tiny-clip")
    assert re.search(r"try again|look whether", describe_error(raised.value)[1])
    assert (name == "redirect") == ("got a redirect" in str(raised.value))
    assert "redirect" not in name or "connection failed" not in str(raised.value)
    assert list_cache(tmp_path) == ["encoders"]


def test_a_failed_download_keeps_what_was_there(hub: Hub, tmp_path: Path) -> None:
    folder = download_network("tiny-eyes").folder
    (folder / "model.onnx").write_bytes(b"damaged")
    before = list_cache(tmp_path)
    _falsify(hub)
    with pytest.raises(DataFileError, match="digest"):
        download_network("tiny-eyes")
    assert list_cache(tmp_path) == before and (folder / "model.onnx").read_bytes() == b"damaged"


def test_nobody_answers(hub: Hub, tmp_path: Path) -> None:
    with serve_hub() as gone:
        pass
    with pytest.raises(NoEncoder, match="the connection failed .* nothing was kept") as raised:
        download_network("tiny-eyes", hub=gone.address)
    assert describe_error(raised.value)[1] == "connect to the internet and try again"
    assert list_cache(tmp_path) == ["encoders"]


@pytest.mark.parametrize(
    "address", ["http://example.com", "ftp://127.0.0.1", "file:///etc", "hub", "https://"]
)
def test_only_https_and_this_machine(hub: Hub, address: str) -> None:
    with pytest.raises(InvalidInput, match="begins with https://"):
        download_network("tiny-eyes", hub=address)


def test_a_full_disk_is_told_before_and_while(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=10)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: usage)
        with pytest.raises(StorageFull, match="expected room for .* CROSSBYTE_CACHE"):
            download_network("tiny-eyes")
    assert hub.asked == []

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("crossbyte.encoders.download.os.fsync", fail)
        with pytest.raises(StorageFull, match="the disk is full .* nothing was kept"):
            download_network("tiny-eyes")
    assert list_cache(tmp_path) == ["encoders"]


def test_an_interrupted_download_leaves_nothing_and_can_be_made_again(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("crossbyte.encoders.download.os.fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            download_network("tiny-eyes")
    assert list_cache(tmp_path) == ["encoders"]
    assert download_network("tiny-eyes").n_bytes > 0


def test_a_cache_that_is_no_folder(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(StorageFailed, match="expected a folder that can be written to"):
        download_network("tiny-eyes")


def test_a_tokenizer_of_another_network_is_refused(hub: Hub, tmp_path: Path) -> None:
    folder = download_network("tiny-ears").folder
    write_tokenizer(folder / "tokenizer.json", [*WORDS, "more", "words"])
    with pytest.raises(InvalidInput, match="they do not belong together"):
        make_encoder(str(folder / "model.onnx"), "text", [])


def test_sides_are_found_by_name_or_file(hub: Hub, tmp_path: Path) -> None:
    both = ("image", "text")
    folder = write_clip_folder(tmp_path / "other")
    assert find_encoder_sides(str(folder)) == find_encoder_sides("builtin") == both
    assert find_encoder_sides("static") == find_encoder_sides("sentence-transformers:x") == ("text",)
    assert find_encoder_sides(str(tmp_path / "ears" / "model.onnx")) == ("text",)
    assert find_encoder_sides(str(tmp_path / "eyes" / "model.onnx")) == ("image",)
    download_network("tiny-eyes")
    assert find_encoder_sides("tiny-eyes") == ("image",)
    with pytest.raises(InvalidInput, match="got a function; name it with --image-encoder or --text-encoder"):
        find_encoder_sides("module:function")


# The command


def test_list_and_download_in_words(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["encoders", "list"]) == 0
    said = capsys.readouterr().out
    assert "tiny-clip" in said and "both" in said and "crossbyte encoders download tiny-clip" in said
    assert hub.asked == []
    assert app.run(["encoders", "download", "tiny-clip", "--quiet"]) == 0
    said = capsys.readouterr().out
    assert "4 files verified" in said and "crossbyte fit photos --encoder tiny-clip" in said
    assert app.run(["encoders", "download", "tiny-clip"]) == 0
    assert "here already, and whole" in capsys.readouterr().out


def test_list_and_download_as_json(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["encoders", "download", "tiny-eyes", "--json", "--quiet"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["name"] == "tiny-eyes" and done["bytes_downloaded"] > 0 and done["recorded"] == []
    assert app.run(["encoders", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {each["name"]: each["downloaded"] for each in listed["networks"]} == {
        "tiny-clip": False,
        "tiny-eyes": True,
        "tiny-ears": False,
    }
    assert listed["default_image_encoder"]["spec"] == "tiny-eyes"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["download"], "expected the name of a network"),
        (["download", "huge-clip"], "known are: tiny-clip, tiny-eyes, tiny-ears"),
        (["list", "tiny-clip"], "expected no name after list"),
    ],
)
def test_wrong_commands(
    hub: Hub, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert app.run(["encoders", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert hub.asked == []
