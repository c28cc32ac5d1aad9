"""Small ONNX files without the onnx package: just enough of protocol buffers to write a graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FLOAT, UINT8, INT64 = 1, 2, 7
Shape = Sequence[int | str]


def varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    head = b""
    while value > 127:
        head, value = head + bytes([value & 127 | 128]), value >> 7
    return head + bytes([value])


def field(number: int, value: int | str | bytes) -> bytes:
    """One field of a message: an integer, or bytes (a text, a message) with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def node(kind: str, inputs: Sequence[str], output: str, attributes: bytes = b"") -> bytes:
    """A NodeProto as a field of the graph."""
    names = b"".join(field(1, name) for name in inputs) + field(2, output)
    return field(1, names + field(4, kind) + attributes)


def integer(name: str, value: int) -> bytes:
    """An attribute that is an integer."""
    return field(5, field(1, name) + field(3, value) + field(20, 2))


def integers(name: str, values: Sequence[int]) -> bytes:
    """An attribute that is a list of integers."""
    return field(5, field(1, name) + b"".join(field(8, value) for value in values) + field(20, 7))


def port(number: int, name: str, shape: Shape, kind: int = FLOAT) -> bytes:
    """An input (11) or an output (12) of the graph; axes named by texts are free."""
    axes = b"".join(field(1, field(1 if isinstance(size, int) else 2, size)) for size in shape)
    tensor = field(1, kind) + field(2, axes)
    return field(number, field(1, name) + field(2, field(1, tensor)))


def weights(name: str, values: NDArray[np.float32], file: str | None = None) -> bytes:
    """An initializer; its numbers are in another file where one is named."""
    shape = b"".join(field(1, size) for size in values.shape)
    if file is None:
        return field(5, shape + field(2, FLOAT) + field(8, name) + field(9, values.tobytes()))
    place = field(13, field(1, "location") + field(2, file)) + field(14, 1)
    return field(5, shape + field(2, FLOAT) + field(8, name) + place)


def write_graph(path: Path, *parts: bytes) -> Path:
    """Write a ModelProto of these nodes, weights, inputs and outputs; operators as of set 13."""
    graph = field(7, b"".join(parts) + field(2, "graph"))
    path.write_bytes(field(1, 8) + graph + field(8, field(1, "") + field(2, 13)))
    return path


def write_identity(path: Path, shape: Shape, kind: int = FLOAT, output: str = "features") -> Path:
    """A network whose features are its input, number by number: what it saw can be read off."""
    cast = node("Cast", ["pixels"], "numbers", integer("to", FLOAT))
    flat = node("Flatten", ["numbers"], output)
    return write_graph(path, cast, flat, port(11, "pixels", shape, kind), port(12, output, [shape[0], "d"]))


def write_projection(path: Path, seed: int = 0, width: int = 5, file: str | None = None) -> Path:
    """Mean colours times random numbers; also gives the mean colours, with two axes too many."""
    matrix = np.random.default_rng(seed).normal(size=(3, width)).astype(np.float32)
    if file is not None:
        (path.parent / file).write_bytes(matrix.tobytes())
    return write_graph(
        path,
        node("GlobalAveragePool", ["pixels"], "colours"),
        node("Flatten", ["colours"], "flat"),
        node("MatMul", ["flat", "matrix"], "features"),
        weights("matrix", matrix, file),
        port(11, "pixels", ["n", 3, 8, 8]),
        port(12, "features", ["n", width]),
        port(12, "colours", ["n", 3, 1, 1]),
    )
