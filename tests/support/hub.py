"""A hub on this machine: small networks with names, and a server that has their files."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from crossbyte.encoders.catalogue import KnownNetwork, NetworkFile
from support.onnx_files import write_projection
from support.token_networks import make_table, write_clip_folder, write_text_network, write_tokenizer

EYES = {"output": "features", "scaling": "x/255", "fit": "squash"}
EARS = {"output": "last_hidden_state", "pool": "mean", "max_tokens": 32}


class Hub:
    """What the server has, how it misbehaves, and what it was asked for.

    Attributes
    ----------
    files : dict of str to bytes
        By the path of their address.
    asked : list of str
    cut : int or None
        Bytes after which every answer ends.
    redirect : str or None
        Where every question is sent instead.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.cut: int | None = None
        self.redirect: str | None = None
        self.address = ""

    def publish(self, folder: Path, name: str, sides: tuple[str, ...], **fields: Any) -> KnownNetwork:
        """Put all files of a folder on the hub, and describe them as the catalogue does."""
        found = {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        self.files |= {f"/people/{name}/resolve/abc/{path}": data for path, data in found.items()}
        files = tuple(
            NetworkFile(path, len(data), hashlib.sha256(data).hexdigest()) for path, data in found.items()
        )
        given = {"network": "", "description": {}} | fields
        return KnownNetwork(
            name, sides, "MIT", f"people/{name}", "abc", files, brings="knows small things", **given
        )


@contextmanager
def serve_hub() -> Iterator[Hub]:
    """Serve a hub at a free port, until the block ends."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            hub.asked.append(self.path)
            if hub.redirect is not None:
                self.send_response(302)
                self.send_header("Location", hub.redirect)
                self.end_headers()
                return
            data = hub.files.get(self.path)
            if data is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: hub.cut])

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hub.address = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()


def publish_networks(hub: Hub, folder: Path) -> tuple[KnownNetwork, ...]:
    """Make three small networks and publish them: ``tiny-clip``, ``tiny-eyes`` and ``tiny-ears``."""
    clip = hub.publish(write_clip_folder(folder / "clip"), "tiny-clip", ("image", "text"))
    (folder / "eyes").mkdir()
    write_projection(folder / "eyes" / "model.onnx")
    eyes = hub.publish(folder / "eyes", "tiny-eyes", ("image",), network="model.onnx", description=EYES)
    (folder / "ears").mkdir()
    write_text_network(folder / "ears" / "model.onnx", make_table())
    write_tokenizer(folder / "ears" / "tokenizer.json")
    ears = hub.publish(folder / "ears", "tiny-ears", ("text",), network="model.onnx", description=EARS)
    return clip, eyes, ears
