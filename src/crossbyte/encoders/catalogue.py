"""Know networks by name: where they come from, what they bring, and which of them are on this machine.

Nothing here uses the internet; `download` fetches a network when the user says so. Sizes and digests are
those of the revision named; they were not fetched for this table, but taken from what several independent
projects have pinned.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from crossbyte._json import parse_json
from crossbyte.errors import DataFileError, InvalidInput, NoEncoder

CACHE_VARIABLE = "CROSSBYTE_CACHE"
HUB_VARIABLE = "CROSSBYTE_HUB"
HUB = "https://huggingface.co"
"""Base of addresses: files are at BASE/REPOSITORY/resolve/REVISION/FILE. `HUB_VARIABLE` names another."""
RECORDED = "digests.json"
"""The file in the cache with the digests of files whose digest the catalogue does not know."""
_CHUNK = 2**20


class NetworkFile(NamedTuple):
    """A file of a network.

    Attributes
    ----------
    path : str
        In its repository, and below the network's folder in the cache.
    size : int
        Bytes.
    sha256 : str or None
        Its digest in hexadecimal; None where nobody has published it: then the first download's is recorded,
        and holds from then on.
    """

    path: str
    size: int
    sha256: str | None


class KnownNetwork(NamedTuple):
    """A network that can be fetched by name.

    Attributes
    ----------
    name : str
    sides : tuple of str
        What it encodes: "image", "text", or both; both share a space.
    licence : str
    repository, revision : str
        Where it is on the hub; a revision is a commit, so that nothing changes behind it.
    files : tuple of NetworkFile
    network : str
        The path of the ONNX file; "" for a CLIP folder.
    description : mapping
        What the files do not say of the preparation, as in docs/encoders.md.
    brings : str
        What it is good for, in a sentence.
    """

    name: str
    sides: tuple[str, ...]
    licence: str
    repository: str
    revision: str
    files: tuple[NetworkFile, ...]
    network: str
    description: Mapping[str, Any]
    brings: str

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


_CLIP = "Xenova/clip-vit-base-patch32", "d15189d7028b43f1d3e65039190477f6af591c2a"
_CLIP_SMALL_FILES = (
    NetworkFile(
        "tokenizer.json", 2_224_119, "f7f3b7af117d467b58374797691a6438d3e6b9e9cef800dfd5dced7f697a90cd"
    ),
    NetworkFile(
        "preprocessor_config.json", 520, "6f638fb9401a6d6296feff533ee7efe657b787c49f954f82f5906b36ef2a1b1f"
    ),
)
_IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}

NETWORKS: tuple[KnownNetwork, ...] = (
    KnownNetwork(
        "clip-vit-b32",
        ("image", "text"),
        "MIT",
        *_CLIP,
        (
            NetworkFile(
                "onnx/vision_model_quantized.onnx",
                89_117_001,
                "583fd1110a514667812fee7d684952aaf82a99b959760c8d7dca7e0ab9839299",
            ),
            NetworkFile(
                "onnx/text_model_quantized.onnx",
                64_504_507,
                "73baab855d406190da9faa498cfedf65f15cf309f4cc7385b7b032e6d08e5c3a",
            ),
            *_CLIP_SMALL_FILES,
        ),
        "",
        {},
        "finds pictures by words without any captions, and better with them; 8-bit weights",
    ),
    KnownNetwork(
        "clip-vit-b32-float",
        ("image", "text"),
        "MIT",
        *_CLIP,
        (
            NetworkFile(
                "onnx/vision_model.onnx",
                351_685_709,
                "fd6e1402a588279d1723c7534d4bcba5bc0b14b47dfab0e46f8c47b8270d7d40",
            ),
            NetworkFile(
                "onnx/text_model.onnx",
                254_058_553,
                "3f6571f5bad13a97c469c1622e1cfc4d9aef78b79fdbfcff804ca357bfada8cc",
            ),
            *_CLIP_SMALL_FILES,
        ),
        "",
        {},
        "does what clip-vit-b32 does, with its full weights: four times as large",
    ),
    KnownNetwork(
        "dinov2-small",
        ("image",),
        "Apache-2.0",
        "Xenova/dinov2-small",
        "c2bb04a51fab207c420665f1946016107bffc701",
        (
            NetworkFile(
                "onnx/model_quantized.onnx",
                24_451_943,
                "3afdc8bc63b50558d6e5770f5b799bb82455c2311183a2de43803f343a29d917",
            ),
        ),
        "onnx/model_quantized.onnx",
        {
            "output": "last_hidden_state",
            "size": [224, 224],
            "layout": "NCHW",
            "short_side": 256,
            "resampling": "bicubic",
            "scaling": _IMAGENET,
            "pool": "first",
        },
        "recognises what is in pictures; needs captions to find them by words",
    ),
    KnownNetwork(
        "minilm-l6",
        ("text",),
        "Apache-2.0",
        "Xenova/all-MiniLM-L6-v2",
        "751bff37182d3f1213fa05d7196b954e230abad9",
        (
            NetworkFile(
                "onnx/model_quantized.onnx",
                22_972_370,
                "afdb6f1a0e45b715d0bb9b11772f032c399babd23bfc31fed1c170afc848bdb1",
            ),
            NetworkFile(
                "tokenizer.json", 711_661, "da0e79933b9ed51798a3ae27893d3c5fa4a201126cef75586296df9b4d2c62a0"
            ),
        ),
        "onnx/model_quantized.onnx",
        {"output": "last_hidden_state", "pool": "mean", "max_tokens": 256},
        "understands English captions better than static vectors do",
    ),
    KnownNetwork(
        "minilm-l12-multilingual",
        ("text",),
        "Apache-2.0",
        "Xenova/paraphrase-multilingual-MiniLM-L12-v2",
        "2c4055b12046f11709e9df2c122e59ffbdc2f900",
        (
            NetworkFile(
                "onnx/model_quantized.onnx",
                118_308_126,
                "66fc00f5f29afcaff34092e1bdd20008ca3918265a82fb9695a551e510cc4ebc",
            ),
            NetworkFile(
                "tokenizer.json",
                17_082_913,
                "b60b6b43406a48bf3638526314f3d232d97058bc93472ff2de930d43686fa441",
            ),
        ),
        "onnx/model_quantized.onnx",
        {"output": "last_hidden_state", "pool": "mean", "max_tokens": 128},
        "understands captions and questions in fifty languages, also across them",
    ),
)
"""The networks that have names, the better ones of a side first."""


def find_network(name: str) -> KnownNetwork | None:
    """Find a network by its name; None if there is none."""
    return next((network for network in NETWORKS if network.name == name), None)


def require_network(name: str) -> KnownNetwork:
    """Find a network by its name.

    Raises
    ------
    InvalidInput
        There is none; the message lists those there are.
    """
    network = find_network(name)
    if network is None:
        known = ", ".join(network.name for network in NETWORKS)
        raise InvalidInput(f"there is no network called {name!r}; known are: {known}")
    return network


def cache_folder() -> Path:
    """Name the folder of downloaded networks.

    Returns
    -------
    Path
        ``encoders`` in the folder that `CACHE_VARIABLE` names, or in the system's cache of ``crossbyte``.
    """
    given = os.environ.get(CACHE_VARIABLE)
    return (Path(given).expanduser() if given else _system_cache() / "crossbyte") / "encoders"


def _system_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def network_folder(network: KnownNetwork, cache: Path | None = None) -> Path:
    """Name the folder of one network, whether it is there or not."""
    return (cache or cache_folder()) / network.name


def is_downloaded(network: KnownNetwork, cache: Path | None = None) -> bool:
    """Tell whether all files of a network are here, of the right sizes; `verify_network` reads them."""
    folder = network_folder(network, cache)
    return all(_has_size(folder / file.path, file.size) for file in network.files)


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.is_file() and path.stat().st_size == size
    except OSError:
        return False


def check_downloaded(network: KnownNetwork, cache: Path | None = None) -> Path:
    """Return the folder of a network that is here.

    Raises
    ------
    NoEncoder
        It is not; the message has the command.
    """
    if not is_downloaded(network, cache):
        raise NoEncoder(
            f"the encoder {network.name!r} is not on this machine, and nothing is downloaded unasked; "
            "fetch it "
            f"once with: crossbyte encoders download {network.name}"
        )
    return network_folder(network, cache)


def verify_network(network: KnownNetwork, cache: Path | None = None) -> Path:
    """Compare all files of a network with their digests, and return its folder.

    Raises
    ------
    NoEncoder
        It is not on this machine.
    DataFileError
        A file is not what was downloaded.
    """
    folder = check_downloaded(network, cache)
    recorded = read_recorded(cache or cache_folder())
    for file in network.files:
        expected = file.sha256 or recorded.get(recorded_key(network, file))
        found = sha256_of(folder / file.path)
        if expected is not None and found != expected:
            raise DataFileError(
                f"{folder / file.path}: expected the digest {expected}, got {found}: the file was changed; "
                "fetch "
                f"it again with: crossbyte encoders download {network.name}"
            )
    return folder


def recorded_key(network: KnownNetwork, file: NetworkFile) -> str:
    """Name a file of a network in the record of digests."""
    return f"{network.repository}@{network.revision}/{file.path}"


def read_recorded(cache: Path) -> dict[str, str]:
    """Read the digests that earlier downloads recorded; nothing where there is no such file.

    Raises
    ------
    DataFileError
        The file is damaged: what it says cannot be trusted.
    """
    path = cache / RECORDED
    try:
        found = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise DataFileError(f"{path}: expected digests as JSON ({error}); remove the file") from error
    if not isinstance(found, dict) or not all(isinstance(digest, str) for digest in found.values()):
        raise DataFileError(f"{path}: expected digests by file as a JSON object; remove the file")
    return found


def sha256_of(path: Path) -> str:
    """Digest a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
