"""``crossbyte compact``: make an index file small."""

from __future__ import annotations

from contextlib import closing

from crossbyte._format import readable_bytes
from crossbyte.cli import options
from crossbyte.cli.output import emit

__all__ = ["compact"]


def compact(path: options.IndexPath, as_json: options.AsJson = False) -> None:
    """Make an index file small.

    Deleted documents and old payloads leave it. Readers that are open see the new file after their
    next refresh. Needs as much free space as the file has.

    Example:
      crossbyte compact photos.cb
    """
    from crossbyte.gallery.opening import open_index

    with closing(open_index(path, "rw")) as index:
        before = index.stats()["disk"]["bytes"]["file"]
        index.compact()
        after = index.stats()["disk"]["bytes"]["file"]
    document = {"index": path, "bytes_before": before, "bytes_after": after}
    text = f"{path}: {readable_bytes(before)} before, {readable_bytes(after)} now"
    emit(document, [text], as_json=as_json)
