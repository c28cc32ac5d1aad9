"""Define the settings of a server: where to listen, who may call, and the limits of one request."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from crossbyte.errors import InvalidInput

_SHORTEST_TOKEN = 16  # characters; a shorter one can be guessed


class Limits(NamedTuple):
    """Limits of one request; each has an error code of its own (docs/service.md).

    Attributes
    ----------
    body_bytes, upload_bytes : int
        Size of a whole body; of one picture.
    chunks : int
        Chunks of a body, besides one for each KiB of it.
    url_bytes, header_bytes, head_lines : int
        Size of the path with its query; of all names and values of headers; lines of a head.
    json_depth, json_values, json_containers : int
        Levels of a JSON body; commas, brackets and quotes in it, which bound what it takes in memory; lists
        and objects, which bound how long the interpreter's collector of garbage stops everything.
    parts : int
        Parts of a multipart body.
    text_chars, filter_chars, filter_terms : int
        Length of a query in words; of a filter, and the number of its conditions.
    features : int
        Numbers in one vector.
    k, batch, results : int
        Hits of one query; queries of a batch; all hits of a batch together.
    documents, payload_bytes : int
        Documents (or ids) in one call; JSON of one payload.
    fields : int
        Payload fields that ``/v1/info`` lists.
    page : int
        Documents listed at once.
    keys, key_chars : int
        Writes that are remembered by their ``Idempotency-Key``; length of one.
    """

    body_bytes: int = 32 * 2**20
    upload_bytes: int = 20 * 2**20
    chunks: int = 1024
    url_bytes: int = 32 * 2**10
    header_bytes: int = 16 * 2**10
    head_lines: int = 256
    json_depth: int = 20
    json_values: int = 2**21
    json_containers: int = 2**17
    parts: int = 16
    text_chars: int = 8 * 2**10
    filter_chars: int = 4 * 2**10
    filter_terms: int = 100
    features: int = 2**16
    k: int = 1000
    batch: int = 256
    results: int = 50_000
    documents: int = 1000
    payload_bytes: int = 64 * 2**10
    fields: int = 1000
    page: int = 500
    keys: int = 4096
    key_chars: int = 255


LIMITS = Limits()


@dataclass(frozen=True)
class Settings:
    """Settings of one server.

    Attributes
    ----------
    host, port : str, int
        Where to listen; port 0 for any free one.
    token : str or None
        Callers that send it may write, and may read from other machines. None: nobody writes, and the server
        listens on this machine only.
    read_only : bool
        Nobody writes, token or not, and another process may be the writer.
    token_for_reading : bool
        Ask for the token on this machine too: for servers behind a proxy, to whom all callers look local.
    allowed_hosts : tuple of str
        Names under which browsers may reach the server, besides the usual ones of this machine.
    image_encoder, text_encoder : str or None
        Where the encoders of the index are, if the index cannot tell.
    cluster : str or None
        Where the shards of an index are held: "local" or the address of a Ray cluster; None for this process.
    connections : int
        Connections at the same time, or as many as the limit of descriptors leaves; one more closes the one
        that has waited longest.
    concurrency : int
        Requests at the same time; one more is told to come back.
    body_budget_bytes : int
        For the bodies of all requests together, with what is parsed of them.
    request_seconds, receive_seconds : float
        Time for the answer; for the request to arrive.
    follow_seconds : float
        How often, at most, a server that does not write looks for what others have written.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    token: str | None = None
    read_only: bool = False
    token_for_reading: bool = False
    allowed_hosts: tuple[str, ...] = ()
    image_encoder: str | None = None
    text_encoder: str | None = None
    cluster: str | None = None
    connections: int = 512
    concurrency: int = 64
    body_budget_bytes: int = 320 * 2**20
    request_seconds: float = 30.0
    receive_seconds: float = 30.0
    follow_seconds: float = 0.2

    def __post_init__(self) -> None:
        if self.token is not None and (
            len(self.token) < _SHORTEST_TOKEN or not _is_printable_ascii(self.token)
        ):
            raise InvalidInput(
                f"token: expected at least {_SHORTEST_TOKEN} ASCII characters without spaces, got "
                f"{len(self.token)} characters; make one with: python -c 'import secrets; "
                "print(secrets.token_urlsafe())'"
            )
        if self.token is None and (self.token_for_reading or not is_loopback(self.host)):
            asked = "token_for_reading" if self.token_for_reading else f"host {self.host!r}"
            raise InvalidInput(
                f"token: expected one with {asked}, because others could read the index; "
                "set a token, or listen on 127.0.0.1"
            )
        if not 0 <= self.port < 2**16:
            raise InvalidInput(f"port: expected 0 to 65535, got {self.port}")

    @property
    def writes(self) -> bool:
        """Tell whether this server is the index's writer."""
        return self.token is not None and not self.read_only

    @cached_property
    def guards_reading(self) -> bool:
        """Tell whether reading needs the token; checked at every request, so the address is parsed once."""
        return self.token_for_reading or not is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address; names other than ``localhost`` are not trusted."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _is_printable_ascii(token: str) -> bool:
    return token.isascii() and token.isprintable() and " " not in token
