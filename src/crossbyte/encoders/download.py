"""Download a known network: only when the user says so, verified, all of it or nothing."""

from __future__ import annotations

import errno
import hashlib
import http.client
import ipaddress
import json
import os
import secrets
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from crossbyte._format import readable_bytes
from crossbyte._fs import flush_folder, replace_file
from crossbyte.encoders import catalogue
from crossbyte.encoders.catalogue import KnownNetwork, NetworkFile
from crossbyte.errors import DataFileError, InvalidInput, NoEncoder, StorageFailed, StorageFull
from crossbyte.progress import Progress, ProgressCallback, ignore_progress

_SECONDS = 30.0
"""Seconds in which the hub must answer, and send something again."""
_CHUNK = 2**18
_MB = 10**6
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Downloaded(NamedTuple):
    """A network that is on this machine now.

    Attributes
    ----------
    folder : Path
    n_bytes : int
        Bytes that were fetched; 0 if it was here already.
    recorded : tuple of str
        Files whose digest nobody has published: theirs was recorded, and holds from now on.
    """

    folder: Path
    n_bytes: int
    recorded: tuple[str, ...]


def download_network(
    name: str,
    *,
    hub: str | None = None,
    cache: Path | None = None,
    progress: ProgressCallback = ignore_progress,
) -> Downloaded:
    """Fetch a network by its name, unless it is here and whole.

    Parameters
    ----------
    name : str
        Of `catalogue.NETWORKS`.
    hub : str, optional
        Base address of the hub; else that of the variable CROSSBYTE_HUB, else Hugging Face's.
    cache : Path, optional
        Folder of networks; else that of `catalogue.cache_folder`.
    progress : callable
        Gets steps of the stage "download", in megabytes.

    Returns
    -------
    Downloaded

    Raises
    ------
    InvalidInput
        No such network, or an address that is neither https nor this machine.
    NoEncoder
        The hub does not answer, or has no such file.
    DataFileError
        What came is not what was expected: another size or another digest.
    StorageFull, StorageFailed
        The disk is full, or the cache cannot be written to.
    """
    network = catalogue.require_network(name)
    cache = cache or catalogue.cache_folder()
    base = (hub or os.environ.get(catalogue.HUB_VARIABLE) or catalogue.HUB).rstrip("/")
    _check_address(base)
    with suppress(NoEncoder, DataFileError):
        return Downloaded(catalogue.verify_network(network, cache), 0, ())
    with _translate_errors(cache):
        cache.mkdir(parents=True, exist_ok=True)
        _check_room(network, cache)
    recorded = catalogue.read_recorded(cache)
    with _stage_folder(cache) as staged:
        found = _fetch_files(network, base, staged, recorded, progress)
        new = {key: digest for key, digest in found.items() if key not in recorded}
        with _translate_errors(cache):
            if new:
                record = json.dumps({**recorded, **new}, indent=1, sort_keys=True)
                replace_file(str(cache / catalogue.RECORDED), record.encode())
            _take_place(staged, catalogue.network_folder(network, cache))
    paths = [file.path for file in network.files if catalogue.recorded_key(network, file) in new]
    return Downloaded(catalogue.network_folder(network, cache), network.size, tuple(paths))


def _check_room(network: KnownNetwork, cache: Path) -> None:
    free = shutil.disk_usage(cache).free
    if free < network.size:
        raise StorageFull(
            f"{cache}: expected room for {readable_bytes(network.size)}, got {readable_bytes(free)}; make "
            "room, "
            f"or name another folder by {catalogue.CACHE_VARIABLE}"
        )


@contextmanager
def _stage_folder(cache: Path) -> Iterator[Path]:
    """Make a folder beside the network's own; what is still in it afterwards is removed."""
    staged = cache / f".crossbyte-{secrets.token_hex(8)}.tmp"
    try:
        with _translate_errors(cache):
            staged.mkdir()
        yield staged
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _fetch_files(
    network: KnownNetwork, base: str, staged: Path, recorded: dict[str, str], progress: ProgressCallback
) -> dict[str, str]:
    """Fetch all files; return the digests of those that the catalogue has none of."""
    done, unknown = 0, {}
    for file in network.files:
        url = f"{base}/{network.repository}/resolve/{network.revision}/{urllib.parse.quote(file.path)}"
        key = catalogue.recorded_key(network, file)

        def report(n_bytes: int, before: int = done, name: str = file.path) -> None:
            progress(Progress("download", name, (before + n_bytes) // _MB, max(1, network.size // _MB)))

        digest = _fetch_file(url, staged / file.path, file, file.sha256 or recorded.get(key), report)
        if file.sha256 is None:
            unknown[key] = digest
        done += file.size
    return unknown


def _fetch_file(
    url: str, path: Path, file: NetworkFile, expected: str | None, report: Callable[[int], None]
) -> str:
    """Fetch a file to a free name, flushed to the disk; return its digest."""
    digest, n_bytes = hashlib.sha256(), 0
    with _open_address(url) as answer:
        _check_length(answer.headers.get("Content-Length"), file, url)
        with _translate_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            stream = path.open("xb")
        try:
            while chunk := _read_chunk(answer, url):
                n_bytes += len(chunk)
                if n_bytes > file.size:
                    raise DataFileError(_describe_size(url, file, f"more than {file.size:,}"))
                digest.update(chunk)
                with _translate_errors(path):
                    stream.write(chunk)
                report(n_bytes)
            with _translate_errors(path):
                stream.flush()
                os.fsync(stream.fileno())
        finally:
            with _translate_errors(path):
                stream.close()
    if n_bytes != file.size:
        raise DataFileError(_describe_size(url, file, f"{n_bytes:,}: the connection was cut"))
    if expected is not None and digest.hexdigest() != expected:
        raise DataFileError(
            f"{url}: expected a file of digest {expected}, got {digest.hexdigest()}: it is not "
            "the file that crossbyte knows, and nothing was kept; try again, or another network"
        )
    return digest.hexdigest()


def _check_length(length: str | None, file: NetworkFile, url: str) -> None:
    if length is not None and length.isdecimal() and int(length) != file.size:
        raise DataFileError(_describe_size(url, file, f"{int(length):,}"))


def _describe_size(url: str, file: NetworkFile, found: str) -> str:
    return (
        f"{url}: expected {file.size:,} bytes, got {found}, and nothing was kept; try again, or look whether "
        f"{catalogue.HUB_VARIABLE} names the right hub"
    )


def _take_place(staged: Path, folder: Path) -> None:
    """Give the staged folder its name; what is there, damaged or of another process, goes away."""
    for parent in {path.parent for path in staged.rglob("*")}:
        flush_folder(str(parent))
    old = staged.with_name(f"{staged.name}.old")
    try:
        with suppress(FileNotFoundError):
            os.rename(folder, old)
        os.rename(staged, folder)
        flush_folder(str(folder.parent))
    finally:
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    """Raise errors of the disk as our own."""
    try:
        yield
    except (StorageFull, StorageFailed):
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in _FULL:
            raise StorageFull(
                f"{path}: the disk is full ({reason}), and nothing was kept; make room, or name another "
                "folder by "
                f"{catalogue.CACHE_VARIABLE}"
            ) from error
        raise StorageFailed(
            f"{path}: expected a folder that can be written to ({reason}), and nothing was kept; name "
            "another one "
            f"by {catalogue.CACHE_VARIABLE}"
        ) from error


# Addresses


def _check_address(url: str) -> None:
    """Refuse an address that is neither https nor of this machine.

    Raises
    ------
    InvalidInput
    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return
    if parts.scheme == "http" and _is_loopback(parts.hostname):
        return
    raise InvalidInput(f"{url}: expected an address that begins with https://; networks come no other way")


def _is_loopback(host: str | None) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


class _CheckedRedirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects to https alone; from this machine also to itself."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        parts = urllib.parse.urlsplit(newurl)
        stays = _is_loopback(urllib.parse.urlsplit(req.full_url).hostname) and _is_loopback(parts.hostname)
        if parts.scheme != "https" and not (parts.scheme == "http" and stays):
            fp.close()  # nobody else will: no answer comes of it
            raise NoEncoder(
                f"{req.full_url}: expected a file, got a redirect to {newurl}, which is not https; look "
                "whether "
                f"{catalogue.HUB_VARIABLE} names the right hub"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@contextmanager
def _open_address(url: str) -> Iterator[Any]:
    """Open an address; every failure says what to do."""
    _check_address(url)
    handlers: list[urllib.request.BaseHandler] = [_CheckedRedirects()]
    if _is_loopback(urllib.parse.urlsplit(url).hostname):
        handlers.append(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(
        url, headers={"User-Agent": "crossbyte", "Accept-Encoding": "identity"}, method="GET"
    )
    try:
        answer = urllib.request.build_opener(*handlers).open(request, timeout=_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        raise NoEncoder(
            f"{url}: expected a file, got {error.code} {error.reason}; try again later, or look whether "
            f"{catalogue.HUB_VARIABLE} names the right hub"
        ) from error
    except NoEncoder:  # of a redirect, which says itself what is wrong
        raise
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NoEncoder(_describe_cut(url, error)) from error
    with answer:
        yield answer


def _read_chunk(answer: Any, url: str) -> bytes:
    try:
        return bytes(answer.read(_CHUNK))
    except (OSError, http.client.HTTPException) as error:
        raise NoEncoder(_describe_cut(url, error)) from error


def _describe_cut(url: str, error: Exception) -> str:
    reason = getattr(error, "reason", None) or error
    return (
        f"{url}: expected a file, and the connection failed ({str(reason)[:200] or type(error).__name__}), "
        "and nothing was kept; connect to the internet and try again"
    )
