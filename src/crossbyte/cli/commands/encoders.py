"""Run ``crossbyte encoders``: list the networks that have names, and download them."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crossbyte._format import plural, readable_bytes
from crossbyte.cli import options
from crossbyte.cli.output import Table, emit, show_progress
from crossbyte.errors import DataFileError, InvalidInput, NoEncoder

if TYPE_CHECKING:
    from crossbyte.encoders.catalogue import KnownNetwork
    from crossbyte.encoders.download import Downloaded

_SIDES = {("image",): "pictures", ("text",): "texts", ("image", "text"): "both"}


class Action(StrEnum):
    """What to do with known networks."""

    LIST = "list"
    DOWNLOAD = "download"


def encoders(
    action: Annotated[Action, typer.Argument(help="List what there is, or download one network.")],
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The network to download.")] = None,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """List the networks that have names, or download one.

    A downloaded network is verified, kept in a cache, and used by its name without the internet:
    crossbyte fit photos --encoder NAME. Nothing is ever downloaded unless this command says so.

    Example:
      crossbyte encoders download clip-vit-b32
    """
    if action is Action.LIST:
        if name is not None:
            raise InvalidInput(f"expected no name after list, got {name!r}; leave it out")
        _list_networks(as_json)
        return
    if name is None:
        raise InvalidInput(
            "expected the name of a network; `crossbyte encoders list` shows them, as in: "
            "crossbyte encoders download clip-vit-b32"
        )
    _download(name, quiet, as_json)


def _list_networks(as_json: bool) -> None:
    from crossbyte.encoders import catalogue
    from crossbyte.encoders.registry import default_image_encoder

    spec, reason = default_image_encoder()
    networks = [_describe(network) for network in catalogue.NETWORKS]
    document = {
        "cache": catalogue.cache_folder(),
        "networks": networks,
        "default_image_encoder": {"spec": spec, "reason": reason},
    }
    emit(document, _format_list(document), as_json=as_json)


def _describe(network: KnownNetwork) -> dict[str, Any]:
    state = _find_state(network)
    return {
        "name": network.name,
        "sides": list(network.sides),
        "licence": network.licence,
        "bytes": network.size,
        "downloaded": state == "yes",
        "changed": state == "changed",
        "brings": network.brings,
        "repository": network.repository,
        "revision": network.revision,
        "files": [file._asdict() for file in network.files],
    }


def _find_state(network: KnownNetwork) -> str:
    """Say whether a network is here: yes, no, or changed since it was downloaded; its files are read."""
    from crossbyte.encoders import catalogue

    try:
        catalogue.verify_network(network)
    except NoEncoder:
        return "changed" if catalogue.network_folder(network).is_dir() else "no"
    except (DataFileError, OSError):
        return "changed"
    return "yes"


def _format_list(document: dict[str, Any]) -> Iterator[str | Table]:
    rows = [
        (
            network["name"],
            _SIDES[tuple(network["sides"])],
            network["licence"],
            readable_bytes(network["bytes"]),
            "yes" if network["downloaded"] else "changed" if network["changed"] else "no",
            network["brings"],
        )
        for network in document["networks"]
    ]
    yield Table(("name", "encodes", "licence", "size>", "here", "what it brings"), rows)
    for network in document["networks"]:
        if network["changed"]:
            name = network["name"]
            yield f"{name} was changed or cut; fetch it again: crossbyte encoders download {name}"
    yield f"Cache: {document['cache']}"
    yield f"Pictures without --encoder: {document['default_image_encoder']['reason']}"


def _download(name: str, quiet: bool, as_json: bool) -> None:
    from crossbyte.encoders.catalogue import require_network
    from crossbyte.encoders.download import download_network

    network = require_network(name)
    with show_progress("encoders", quiet=quiet) as progress:
        done = download_network(name, progress=progress)
    document = {
        "name": name,
        "folder": done.folder,
        "bytes_downloaded": done.n_bytes,
        "recorded": list(done.recorded),
    }
    emit(document, _format_download(network, done), as_json=as_json)


def _format_download(network: KnownNetwork, done: Downloaded) -> Iterator[str]:
    if not done.n_bytes:
        yield f"{network.name}: here already, and whole; nothing was downloaded"
    else:
        n_verified = len(network.files) - len(done.recorded)
        yield f"{network.name}: {readable_bytes(done.n_bytes)} downloaded to {done.folder}"
        if n_verified:
            yield f"{plural(n_verified, 'file')} verified by the digest that crossbyte knows"
        for path in done.recorded:
            yield f"{path}: its digest is not known; recorded now, and every later download must have it"
    yield f"Use it: crossbyte fit photos --encoder {network.name}"
