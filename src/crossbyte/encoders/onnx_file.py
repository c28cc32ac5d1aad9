"""An ONNX file on disk: where its description is, what it says by itself, and its digest."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from crossbyte.encoders.digests import file_digest
from crossbyte.encoders.onnx_description import COMPLETE, Description, describe, example_of
from crossbyte.errors import DataFileError, InvalidInput
from crossbyte.extras import require
from crossbyte.strict_json import parse_json

__all__ = ["OnnxFile", "Port", "check_ports", "describe_file", "find_model", "open_file", "read_description"]

_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(uint8)": np.uint8}
_LARGEST_JSON = 2**16
_WEIGHTS_ELSEWHERE = re.compile(rb"\x0a\x08location\x12")  # StringStringEntryProto of a TensorProto


class Port(NamedTuple):
    """An input or output of a network: its name, its shape (None where it is free), its type."""

    name: str
    shape: tuple[int | None, ...]
    dtype: Any


class OnnxFile(NamedTuple):
    """An opened file: a session of ONNX Runtime, and what it knows."""

    path: Path
    session: Any
    inputs: list[Port]
    outputs: list[Port]
    digest: str


def find_model(spec: str) -> tuple[Path, dict[str, Any]]:
    """Find the ONNX file and its description.

    Parameters
    ----------
    spec : str
        Path of the ``.onnx`` file, with ``NAME.json`` or ``NAME.onnx.json`` beside it or nothing; or path of
        the description itself, whose ``model`` names the ONNX file relative to it.

    Returns
    -------
    path : Path
    fields : dict
        Of the description; empty where there is none.
    """
    path = Path(spec).expanduser()
    if path.suffix.lower() == ".json":
        fields = read_description(path)
        model = fields.get("model")
        if not isinstance(model, str):
            raise InvalidInput(f'{path}: expected "model": the path of the .onnx file, relative to this one')
        return _existing(path.parent / model), fields
    beside = [path.with_suffix(".json"), path.with_name(f"{path.name}.json")]
    descriptions = [candidate for candidate in beside if candidate.is_file()]
    return _existing(path), read_description(descriptions[0]) if descriptions else {}


def read_description(path: Path) -> dict[str, Any]:
    """Read a description's fields; what they mean is checked by `describe`."""
    if _existing(path).stat().st_size > _LARGEST_JSON:
        raise DataFileError(f"{path}: expected a small JSON file (at most {_LARGEST_JSON} bytes)")
    try:
        fields = parse_json(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataFileError(f"{path}: expected JSON; {error}") from error
    if not isinstance(fields, dict):
        raise DataFileError(f"{path}: expected a JSON object with the fields of an ONNX description")
    return fields


def open_file(path: Path) -> OnnxFile:
    """Open a file with one thread on the CPU.

    Raises
    ------
    DataFileError
        It is no ONNX file, or ONNX Runtime cannot run it.
    MissingExtra
        ONNX Runtime is not installed.
    """
    runtime = require("onnxruntime", f"the encoder {path.name} needs")
    options = runtime.SessionOptions()
    # Threads of ours run several pictures at a time instead: sums within one are always in the same order.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors have no common base but Exception
        raise DataFileError(f"{path}: ONNX Runtime cannot open it: {_first_line(error)}") from error
    inputs, outputs = (
        [_port(node) for node in nodes] for nodes in (session.get_inputs(), session.get_outputs())
    )
    return OnnxFile(path, session, inputs, outputs, file_digest(path, *_weights_elsewhere(path)))


def describe_file(file: OnnxFile, fields: dict[str, Any]) -> Description:
    """Put together what the file says and what its description says.

    Raises
    ------
    InvalidInput
        Something can be known from neither (the message shows a description to write), or they disagree.
    """
    found = _found(file, fields)
    missing = [name for name in sorted(COMPLETE) if name not in found]
    if missing:
        raise InvalidInput(
            f"{file.path}: the file does not say {' and '.join(missing)} (inputs: {_listed(file.inputs)}; "
            f"outputs: {_listed(file.outputs)}); write {file.path.stem}.json beside it, or elsewhere with "
            f'"model": the path of the .onnx file. For example, to be corrected by what its makers say:\n'
            f"{example_of({key: value for key, value in found.items() if key not in ('model', 'name')})}"
        )
    return describe(found, str(file.path))


def check_ports(file: OnnxFile, description: Description) -> Port:
    """Return the input as the description makes it (a batch of None is free), or say where they disagree."""
    port = _chosen(file.inputs, {"input": description.input}, "input", file.path)
    _chosen(file.outputs, {"output": description.output}, "output", file.path)
    assert port is not None  # it was asked for by name
    _check_pictures(port, file.path)
    made = (description.height, description.width)
    wanted = (description.batch, *((3, *made) if description.layout == "NCHW" else (*made, 3)))
    if any(size not in (None, ours) for size, ours in zip(port.shape, wanted, strict=True)):
        raise InvalidInput(
            f"{file.path}: its input is {_listed([port])}, and batch, size and layout of the description "
            f"make {wanted}; correct the description"
        )
    return Port(port.name, (port.shape[0], *wanted[1:]), port.dtype)


def _found(file: OnnxFile, fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of the description, and for those it has not what the file says."""
    found = dict(fields)
    port = _chosen(file.inputs, found, "input", file.path)
    output = _chosen(file.outputs, found, "output", file.path)
    if port is not None:
        _check_pictures(port, file.path)
        found = _shape_fields(port) | found | {"input": port.name}
    if output is not None:
        found["output"] = output.name
    return found


def _chosen(ports: list[Port], fields: dict[str, Any], key: str, path: Path) -> Port | None:
    """The input or output that is named, or the only one."""
    if key not in fields:
        return ports[0] if len(ports) == 1 else None
    for port in ports:
        if port.name == fields[key]:
            return port
    raise InvalidInput(f"{path}: it has no {key} {fields[key]!r}; it has {_listed(ports)}")


def _check_pictures(port: Port, path: Path) -> None:
    if len(port.shape) == 4 and port.dtype is not None:
        return
    raise InvalidInput(
        f"{path}: expected an input for pictures (four axes; float, float16 or uint8), got {_listed([port])}."
        " Networks for texts need their tokenizer: use sentence-transformers:PATH, or a function of your own "
        "(module:function)"
    )


def _shape_fields(port: Port) -> dict[str, Any]:
    """Layout, size, batch and scaling, as far as shape and type say."""
    fields: dict[str, Any] = {"scaling": "x"} if port.dtype == np.uint8 else {}
    batch, *rest = port.shape
    channels = [axis for axis, size in zip(("NCHW", "", "NHWC"), rest, strict=True) if size == 3 and axis]
    if len(channels) == 1:
        fields["layout"] = channels[0]
        height, width = rest[1:] if channels[0] == "NCHW" else rest[:2]
        if height and width:
            fields["size"] = [height, width]
    if batch:
        fields["batch"] = batch
    return fields


def _port(node: Any) -> Port:
    shape = tuple(size if isinstance(size, int) and size > 0 else None for size in node.shape)
    return Port(node.name, shape, _TYPES.get(node.type))


def _listed(ports: list[Port]) -> str:
    return ", ".join(
        f'"{port.name}" {np.dtype(port.dtype).name if port.dtype else "of another type"} '
        f"({', '.join('n' if size is None else str(size) for size in port.shape)})"
        for port in ports
    )


def _weights_elsewhere(path: Path) -> list[Path]:
    """Files that hold a large network's weights; they decide its features as much as the file itself."""
    content = path.read_bytes()
    names = set()
    for match in _WEIGHTS_ELSEWHERE.finditer(content):
        low, high = content[match.end() : match.end() + 2]  # the length, seven bits a byte
        length, start = (low, match.end() + 1) if low < 128 else (low - 128 + 128 * high, match.end() + 2)
        names.add(content[start : start + length].decode(errors="replace"))
    return [path.parent / name for name in sorted(names) if (path.parent / name).is_file()]


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file")
    return path


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
