"""Recognise the weights of other libraries' models, and load them from this machine alone."""

from __future__ import annotations

import hashlib
import importlib
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from crossbyte.errors import NoEncoder

_HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
_HUB_SECONDS = 10.0
"""Seconds in which the hub must answer."""
_patching = threading.Lock()


def is_local(name: str) -> bool:
    """Tell whether a name is a path on this machine rather than a hub's name."""
    return bool(name) and Path(name).expanduser().exists()  # the path "" would be the current folder


def check_hub_name(name: Any, encoder: str, option: str) -> str:
    """Return a hub's name that stands in a model's file; refuse what could be a path of this machine.

    Parameters
    ----------
    name : object
        The value in the file.
    encoder : str
        The name of the encoder, for the message.
    option : str
        The option that gives it instead, for the message.

    Raises
    ------
    NoEncoder
        It has no such form, or a file or folder of that name is there: a model's file may not choose it.
    """
    if not isinstance(name, str) or not _HUB_NAME.fullmatch(name) or is_local(name):
        raise NoEncoder(
            f"the model does not say where its encoder {encoder!r} is; give it yourself with {option}"
        )
    return name


def check_hub_answers(name: str) -> None:
    """Ask the hub once, before a library asks for each of a model's files again and again.

    Raises
    ------
    OSError
        It does not answer at all; an error that it knows no such model is an answer.
    """
    try:
        hub = importlib.import_module("huggingface_hub")
        refused = importlib.import_module("huggingface_hub.errors").HfHubHTTPError
    except ImportError:
        return
    try:
        hub.HfApi().model_info(name, timeout=_HUB_SECONDS)
    except (refused, ValueError):
        return
    except Exception as error:  # of whichever library it uses for HTTP
        raise OSError(
            f"it is not on this machine, and the hub does not answer ({reason(error)}); connect to the "
            "internet, or give the folder of a copy"
        ) from error


def reason(error: BaseException) -> str:
    """Return the first line of another library's error."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:300]


def digest_weights(network: Any) -> str:
    """Digest the names, shapes and values of all weights of a torch module, as 32 hexadecimal digits."""
    digest = hashlib.blake2b(digest_size=16)
    weights = network.state_dict()
    for name in sorted(weights):
        values = np.ascontiguousarray(weights[name].detach().cpu().float().numpy())
        digest.update(f"{name}{values.shape}".encode())
        digest.update(values.data)
    return digest.hexdigest()


@contextmanager
def local_files_only() -> Iterator[None]:
    """Keep the libraries that fetch models from using the network.

    Hugging Face's library reads its environment once, so the constant itself is set, as its makers advise;
    open_clip fetches some weights by urllib.
    """
    hub, clip = sys.modules.get("huggingface_hub.constants"), sys.modules.get("open_clip.pretrained")
    wanted = [(hub, "HF_HUB_OFFLINE", True), (clip, "urllib", _NoNetwork())]
    patches = [(module, name, value) for module, name, value in wanted if hasattr(module, name)]
    with _patching:
        before = [getattr(module, name) for module, name, _ in patches]
        try:
            for module, name, value in patches:
                setattr(module, name, value)
            yield
        finally:
            for (module, name, _), value in zip(patches, before, strict=True):
                setattr(module, name, value)


class _NoNetwork:
    """Replace urllib where nothing may be fetched."""

    @property
    def request(self) -> NoReturn:
        raise NoEncoder("its weights are not on this machine")
