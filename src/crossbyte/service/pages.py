"""The page: files of one folder, by their exact names."""

from __future__ import annotations

from hashlib import blake2b
from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from crossbyte.service.documenting import documented
from crossbyte.service.errors import Refused
from crossbyte.service.state import service_of

__all__ = ["router"]

router = APIRouter(tags=["page"])
_FOLDER = Path(str(files("crossbyte.service"))) / "page"
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
}


@router.get("/", summary="The page", **documented("HTML.", media="text/html"))
async def page(request: Request) -> Response:
    return await _file(request, "index.html")


@router.get(
    "/static/{name}",
    summary="What the page is made of",
    **documented("A file.", media="text/plain", more=(304,)),
)
async def static(request: Request, name: str) -> Response:
    return await _file(request, name)


async def _file(request: Request, name: str) -> Response:
    path = await service_of(request).lanes.reading.run(_find, name)
    data = await service_of(request).lanes.reading.run(path.read_bytes)
    mark = f'"{blake2b(data, digest_size=16).hexdigest()}"'
    headers = {"ETag": mark, "Cache-Control": "no-cache", "Content-Type": _KINDS[path.suffix]}
    if request.headers.get("if-none-match") == mark:
        return Response(status_code=304, headers=headers)
    return Response(data, headers=headers)


def _find(name: str) -> Path:
    """Compare with the names that there are; what a caller sends never becomes part of a path."""
    for path in _FOLDER.iterdir() if _FOLDER.is_dir() else ():
        if path.name == name and path.suffix in _KINDS and path.is_file():
            return path
    raise Refused("not_found", "there is no such file")
