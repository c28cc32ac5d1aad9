"""Serve an index, and ask it over HTTP: what a program in any language would do.

Give an index (``crossbyte demo`` makes one); without one, a small one is made of generated scenes.
"""

import json
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import Request, urlopen


def main(index: str) -> None:
    with served(index) as url:
        info = ask(f"{url}/v1/info")
        print(f"{info['documents']} documents of {info['bytes_per_item']} bytes a side, at {url}")

        found = ask(f"{url}/v1/search?{urlencode({'text': 'a yellow star', 'k': 3})}")
        for hit in found["hits"]:
            print(f"words → {hit['id']} ({found['took_ms']:.1f} ms)")

        body = {"like": found["hits"][0]["id"], "target": "image", "k": 3, "payloads": False}
        alike = ask(f"{url}/v1/search", body)
        print("more like the first:", *(hit["id"] for hit in alike["hits"]))

        facets = ask(f"{url}/v1/facets")["facets"]
        print("filters:", *(facet["field"] for facet in facets))


def ask(url: str, body: dict | None = None) -> dict:
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, data, {"Content-Type": "application/json"}), timeout=30) as response:
        return json.load(response)


@contextmanager
def served(index: str):
    """Give the address of a server of this index, on a free port, as long as the block runs."""
    command = [sys.executable, "-m", "crossbyte", "serve", index, "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            lines = iter(server.stdout.readline, "}\n")  # one JSON document, printed when it answers
            yield json.loads("".join(lines) + "}")["url"].rstrip("/")
        finally:
            server.terminate()


def small_index(folder: Path) -> str:
    from crossbyte import build_gallery
    from crossbyte.data import read_raw, write_scenes

    write_scenes(folder / "scenes", 100)
    parameters = {"n_components": 16, "max_iter": 2}
    path = folder / "scenes.cb"
    build_gallery(
        read_raw(folder / "scenes"), path, n_bits=16, mapping="cca", parameters=parameters, curve=None
    )
    return str(path)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(*sys.argv[1:] or [small_index(Path(temporary))])
