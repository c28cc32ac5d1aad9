"""A small gallery of scenes, served in the same process or by a real server."""

from __future__ import annotations

import asyncio
import io
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx
from PIL import Image

from crossbyte import CMCQ, Index
from crossbyte.data.images.formats import Picture
from crossbyte.data.scenes import Scene, make_scenes
from crossbyte.encoders.builtin_image import BuiltinImageEncoder
from crossbyte.encoders.builtin_text import BuiltinTextEncoder
from crossbyte.gallery.gallery import Gallery, NewDocument
from crossbyte.service.app import create_app
from crossbyte.service.server import Server, make_server
from crossbyte.service.settings import Settings

N_FITTED, N_SERVED, N_COLUMNS = 120, 60, 64
TOKEN = "a-token-for-tests-0123456789"
AUTHORISED = {"Authorization": f"Bearer {TOKEN}"}
UNICODE_ID = "Fotos/Übersee & <b>東京</b>.png"
AUDIT = {
    "n_pairs": N_SERVED,
    "n_suspects": 2,
    "agreement": 0.9,
    "rows": [{"id": "scene-3", "surprise": 1.5, "best_text_id": "scene-4"}, {"id": "gone", "surprise": 1.0}],
}


@cache
def scenes() -> list[Scene]:
    return make_scenes(N_FITTED, seed=3)


@cache
def fitted(calibrated: bool = True) -> CMCQ:
    """A model of scenes, with the built-in encoders."""
    model = CMCQ(n_bits=16, mapping="cca", n_components=16, max_iter=2, random_state=0, n_jobs=1)
    model.fit(*features())
    if not calibrated:
        return model
    model.calibrate(*features(), curve=())
    image, text = encoders()
    return model.attach_encoders(image=image.state, text=text.state)


@cache
def encoders() -> tuple[BuiltinImageEncoder, BuiltinTextEncoder]:
    """The built-in encoders, that of texts narrowed, so that a model is fitted in a moment."""
    image = BuiltinImageEncoder.learn([scene.pixels for scene in scenes()[:10]])
    state = BuiltinTextEncoder.learn([scene.captions[0] for scene in scenes()]).state
    narrow = dict.fromkeys(("own_columns", "shared_columns", "piece_columns"), N_COLUMNS)
    arrays = {**state.arrays, "piece_idf": state.arrays["piece_idf"][:N_COLUMNS]}
    settings = {**state.settings, **narrow}
    return image, BuiltinTextEncoder.from_state(state._replace(settings=settings, arrays=arrays))


@cache
def features() -> tuple[Any, Any]:
    """Of all scenes, both sides."""
    image, text = encoders()
    pictures, texts = [scene.pixels for scene in scenes()], [scene.captions[0] for scene in scenes()]
    return image.encode(pictures), text.encode(texts)


def jpeg(pixels: Any, kind: str = "JPEG") -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def picture(scene: Scene) -> Picture:
    data = jpeg(scene.pixels)
    return Picture(scene.pixels, *scene.pixels.shape[1::-1], data, f"{hash(data):032x}"[-32:])


@cache
def _made() -> Path:
    """Built once for all tests of a process."""
    _folders.append(tempfile.TemporaryDirectory())
    path = Path(_folders[0].name) / "scenes.cb"
    Index.create(path, fitted(), words=["captions"], n_jobs=1).close()
    with Gallery.open(path, "rw", n_jobs=1) as gallery:
        gallery.add([_document(number, scene) for number, scene in enumerate(scenes()[:N_SERVED])])
        gallery.add([NewDocument(7, text="a red circle", payload={"colour": "red"})])
        gallery.add([NewDocument(UNICODE_ID, picture=picture(scenes()[61]), payload={"colour": "blue"})])
        gallery.files.keep_audit(AUDIT)
    return path


_folders: list[tempfile.TemporaryDirectory[str]] = []


def _document(number: int, scene: Scene) -> NewDocument:
    payload = {**scene.attributes, "captions": list(scene.captions), "year": 2000 + number % 20}
    group = scene.attributes["shape"]
    return NewDocument(f"scene-{number}", picture(scene), scene.captions[0], payload=payload, group=group)


def sample(folder: Path) -> Path:
    """A copy of the sample gallery of 62 documents: scene-0 to scene-59, 7, and one with a strange name."""
    path = folder / "scenes.cb"
    shutil.copy(_made(), path)
    shutil.copytree(f"{_made()}.files", f"{path}.files")
    return path


def feature_index(folder: Path) -> Path:
    """An index of plain features: no encoders, not calibrated, nothing beside it."""
    path = folder / "features.cb"
    with Index.create(path, fitted(calibrated=False), n_jobs=1) as index:
        index.add(["a", "b"], images=features()[0][:2])
    return path


class Client:
    """Calls an application in this process, one call after the other."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self.app = create_app(path, settings)
        self.service = self.app.state.service

    def __call__(self, method: str, url: str, **options: Any) -> httpx.Response:
        return asyncio.run(self._call(method, url, **options))

    async def _call(self, method: str, url: str, **options: Any) -> httpx.Response:
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8000") as client:
            return await client.request(method, url, **options)

    def get(self, url: str, **options: Any) -> httpx.Response:
        return self("GET", url, **options)

    def post(self, url: str, **options: Any) -> httpx.Response:
        return self("POST", url, **options)


@contextmanager
def client(path: Path, **settings: Any) -> Iterator[Client]:
    found = Client(path, Settings(**settings))
    try:
        yield found
    finally:
        found.service.close()


@contextmanager
def serving(path: Path, **settings: Any) -> Iterator[tuple[str, Server]]:
    """A real server in a thread: its URL, and the server."""
    ready = threading.Event()
    server = make_server(path, Settings(port=0, **settings), lambda url: ready.set())
    url = server.url
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert ready.wait(30)
        yield url, server
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()
