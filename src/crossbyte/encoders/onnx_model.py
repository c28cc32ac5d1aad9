"""Open an ONNX file, and check the JSON that describes the input it expects."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from crossbyte._json import parse_json
from crossbyte.encoders.base import digest_files
from crossbyte.errors import DataFileError, InvalidInput
from crossbyte.extras import import_extra
from crossbyte.validation import check_choice, check_integer, check_number

FITS = ("crop", "letterbox", "squash")
LAYOUTS = ("NCHW", "NHWC")
COLOURS = ("RGB", "BGR")
RESAMPLINGS = ("nearest", "bilinear", "bicubic", "lanczos")
POOLS = ("none", "mean", "first")
COMPLETE = {"input", "output", "size", "layout", "scaling"}
"""Fields without a usual value."""
_LARGEST_SIDE = 4096
_LARGEST_BATCH = 256
_NUMBER = r"(\d+(?:\.\d+)?)"
_FORMULA = re.compile(rf"\(?x(?:([-+]){_NUMBER})?\)?(?:/{_NUMBER})?(?:([-+]){_NUMBER})?")


@dataclass(frozen=True)
class Description:
    """Preparation of a picture for the input of a network.

    Attributes
    ----------
    input, output : str
        Names in the file.
    height, width : int
        Size of the input.
    layout : {"NCHW", "NHWC"}
    colour : {"RGB", "BGR"}
    fit : {"crop", "letterbox", "squash"}
        Resize the short side and cut out the centre; add borders; or resize each side by itself.
    short_side : int
        Length of the short side before the crop; not used otherwise.
    border : int
        Grey level of the borders of a letterbox.
    resampling : {"nearest", "bilinear", "bicubic", "lanczos"}
    mean, std : tuple of 3 float
        In grey levels 0 to 255, in the order RGB: each value becomes (value - mean) / std.
    pool : {"none", "mean", "first"}
        How an output with a vector for each place or token becomes one vector: their mean, or the first.
    batch : int
        How many pictures the network gets at a time.
    """

    input: str
    output: str
    height: int
    width: int
    layout: str
    colour: str
    fit: str
    short_side: int
    border: int
    resampling: str
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    pool: str
    batch: int

    def to_json(self) -> dict[str, Any]:
        """Convert to plain JSON, complete; `check_description` reads it."""
        fields = {
            key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()
        }
        fields["size"] = [fields.pop("height"), fields.pop("width")]
        fields["scaling"] = {"mean": fields.pop("mean"), "std": fields.pop("std"), "range": 255}
        return fields


_FIELDS = {
    "model", "name", "input", "output", "size", "layout", "colour", "fit", "short_side", "border",
    "resampling", "scaling", "pool", "batch",
}  # fmt: skip


def check_description(fields: Mapping[str, Any], where: str) -> Description:
    """Check the fields of a description, and fill in those that have a usual value.

    Parameters
    ----------
    fields : mapping
        ``input``, ``output``, ``size``, ``layout`` and ``scaling`` have no usual value.
    where : str
        The file, for messages.

    Returns
    -------
    Description

    Raises
    ------
    InvalidInput
        An unknown field, or a value that is not allowed.
    """
    unknown = sorted(set(fields) - _FIELDS)
    if unknown:
        raise InvalidInput(f"{where}: unknown field {unknown[0]!r}; known are {', '.join(sorted(_FIELDS))}")
    height, width = _check_size(fields["size"], f"{where}: size")
    mean, std = _check_scaling(fields["scaling"], f"{where}: scaling")
    return Description(
        input=_check_text(fields["input"], f"{where}: input"),
        output=_check_text(fields["output"], f"{where}: output"),
        height=height,
        width=width,
        layout=check_choice(fields["layout"], f"{where}: layout", LAYOUTS),
        colour=check_choice(fields.get("colour", "RGB"), f"{where}: colour", COLOURS),
        fit=check_choice(fields.get("fit", "crop"), f"{where}: fit", FITS),
        short_side=_check_short_side(fields, height, width, where),
        border=check_integer(fields.get("border", 127), f"{where}: border", 0, 255),
        resampling=check_choice(fields.get("resampling", "bicubic"), f"{where}: resampling", RESAMPLINGS),
        mean=mean,
        std=std,
        pool=check_choice(fields.get("pool", "none"), f"{where}: pool", POOLS),
        batch=check_integer(fields.get("batch", 1), f"{where}: batch", 1, _LARGEST_BATCH),
    )


def example_fields(found: Mapping[str, Any]) -> str:
    """Write a complete example description, with what is known of the file filled in."""
    usual = {
        "input": "NAME OF THE INPUT",
        "output": "NAME OF THE OUTPUT",
        "size": [224, 224],
        "layout": "NCHW",
        "colour": "RGB",
        "fit": "crop",
        "short_side": 256,
        "resampling": "bicubic",
        "scaling": {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]},
    }
    lines = (f'  "{key}": {json.dumps(value)}' for key, value in {**usual, **found}.items())
    return "{\n" + ",\n".join(lines) + "\n}"


def _check_short_side(fields: Mapping[str, Any], height: int, width: int, where: str) -> int:
    smallest = max(height, width)  # of a picture that the crop is cut from
    value = fields.get("short_side", smallest)
    low = smallest if fields.get("fit", "crop") == "crop" else 1
    return check_integer(value, f"{where}: short_side", low, _LARGEST_SIDE)


def _check_text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidInput(f"{name}: expected a name as in the ONNX file, got {value!r}")
    return value


def _check_size(value: Any, name: str) -> tuple[int, int]:
    sides = value if isinstance(value, list) else [value, value]
    if len(sides) != 2:
        raise InvalidInput(f"{name}: expected a number, or [height, width], got {value!r}")
    height, width = (check_integer(side, name, 1, _LARGEST_SIDE) for side in sides)
    return height, width


Levels = tuple[float, float, float]


def _check_scaling(value: Any, name: str) -> tuple[Levels, Levels]:
    """Return mean and standard deviation in grey levels, from a formula or from means and deviations."""
    if isinstance(value, str):
        mean, std = _parse_formula(value, name)
        return (mean, mean, mean), (std, std, std)
    if not isinstance(value, Mapping) or not {"mean", "std"} <= set(value) <= {"mean", "std", "range"}:
        raise InvalidInput(
            f'{name}: expected a formula such as "(x-127)/128", "x/255" or "x" for grey levels x from 0 to '
            f'255, or {{"mean": [r, g, b], "std": [r, g, b]}} for levels from 0 to 1, got {value!r}'
        )
    level = 255 / check_number(value.get("range", 1), f"{name}: range", 0, 255, open_low=True)
    means = _check_channels(value["mean"], f"{name}: mean", -1e6)
    stds = _check_channels(value["std"], f"{name}: std", 0, open_low=True)
    return _scale_levels(means, level), _scale_levels(stds, level)


def _scale_levels(levels: Levels, factor: float) -> Levels:
    red, green, blue = levels
    return red * factor, green * factor, blue * factor


def _check_channels(value: Any, name: str, low: float, *, open_low: bool = False) -> Levels:
    values = value if isinstance(value, list) else [value, value, value]
    if len(values) != 3:
        raise InvalidInput(f"{name}: expected a number, or three (red, green, blue), got {value!r}")
    red, green, blue = (check_number(item, name, low, 1e6, open_low=open_low) for item in values)
    return red, green, blue


def _parse_formula(text: str, name: str) -> tuple[float, float]:
    """Parse (x - a) / b - c into one mean a + b c and one deviation b."""
    match = _FORMULA.fullmatch(text.replace(" ", ""))
    balanced = text.count("(") == text.count(")")
    # Without brackets, x-127/128 subtracts about one: surely not what was meant.
    clear = match is not None and balanced and (match[2] is None or match[3] is None or "(" in text)
    if match is None or not clear:
        raise InvalidInput(f'{name}: expected "x", "x/255", "(x-127)/128" or "x/127.5-1", got {text!r}')
    sign, shift, divisor, last_sign, last = match.groups()
    std = float(divisor or 1)
    if std == 0:
        raise InvalidInput(f"{name}: {text!r} divides by zero")
    before = float(shift or 0) * (-1 if sign == "+" else 1)
    after = float(last or 0) * (-1 if last_sign == "+" else 1)
    return before + std * after, std


_TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(uint8)": np.uint8,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
}
_PICTURE_TYPES = (np.float32, np.float16, np.uint8)
_LARGEST_JSON = 2**16
_SEE_DESCRIPTION = "; docs/encoders.md says what stands in it"
_WEIGHTS_ELSEWHERE = re.compile(rb"\x0a\x08location\x12")  # StringStringEntryProto of a TensorProto


class Port(NamedTuple):
    """An input or output of a network: its name, its shape (None where it is free), its type."""

    name: str
    shape: tuple[int | None, ...]
    dtype: Any


class OnnxFile(NamedTuple):
    """An open file: a session of ONNX Runtime, its inputs and outputs, and the digest of the file."""

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
        Fields of the description; empty where there is none.
    """
    path = Path(spec).expanduser()
    if path.suffix.lower() == ".json":
        fields = read_description(path)
        model = fields.get("model")
        if not isinstance(model, str):
            raise InvalidInput(f'{path}: expected "model": the path of the .onnx file, relative to this one')
        return check_exists(path.parent / model), fields
    beside = [path.with_suffix(".json"), path.with_name(f"{path.name}.json")]
    descriptions = [candidate for candidate in beside if candidate.is_file()]
    return check_exists(path), read_description(descriptions[0]) if descriptions else {}


def read_description(path: Path) -> dict[str, Any]:
    """Read a description's fields; `check_description` checks what they mean."""
    if check_exists(path).stat().st_size > _LARGEST_JSON:
        raise DataFileError(
            f"{path}: expected a small JSON file (at most {_LARGEST_JSON} bytes){_SEE_DESCRIPTION}"
        )
    try:
        fields = parse_json(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataFileError(f"{path}: expected JSON ({error}){_SEE_DESCRIPTION}") from error
    if not isinstance(fields, dict):
        raise DataFileError(
            f"{path}: expected a JSON object with the fields of an ONNX description{_SEE_DESCRIPTION}"
        )
    return fields


def open_onnx(path: Path) -> OnnxFile:
    """Open a file with one thread on the CPU.

    Raises
    ------
    DataFileError
        It is no ONNX file, or ONNX Runtime cannot run it.
    MissingExtra
        ONNX Runtime is not installed.
    """
    runtime = import_extra("onnxruntime", f"the encoder {path.name} needs")
    options = runtime.SessionOptions()
    # Our own threads run several pictures at a time instead: sums within one are always in the same order.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors have no common base but Exception
        raise DataFileError(
            f"{path}: ONNX Runtime cannot open it ({first_line(error)}): it is damaged, or no "
            "network; fetch or export it again"
        ) from error
    inputs, outputs = (
        [_read_port(node) for node in nodes] for nodes in (session.get_inputs(), session.get_outputs())
    )
    return OnnxFile(path, session, inputs, outputs, digest_files(path, *_find_weight_files(path)))


def describe_file(file: OnnxFile, fields: dict[str, Any]) -> Description:
    """Combine what the file and its description say.

    Raises
    ------
    InvalidInput
        Something can be known from neither (the message shows a description to write), or they disagree.
    """
    found = _merge_fields(file, fields)
    missing = [name for name in sorted(COMPLETE) if name not in found]
    if missing:
        inputs, outputs = describe_ports(file.inputs), describe_ports(file.outputs)
        raise InvalidInput(
            f"{file.path}: the file does not say {' and '.join(missing)} (inputs: {inputs}; outputs: "
            f"{outputs}); write {file.path.stem}.json beside it, or elsewhere with "
            f'"model": the path of the .onnx file. For example, to be corrected by what its makers say:\n'
            f"{example_fields({key: value for key, value in found.items() if key not in ('model', 'name')})}"
        )
    return check_description(found, str(file.path))


def check_ports(file: OnnxFile, description: Description) -> Port:
    """Return the input as the description makes it (a batch of None is free); refuse where they disagree."""
    port = _choose_port(file.inputs, {"input": description.input}, "input", file.path)
    _choose_port(file.outputs, {"output": description.output}, "output", file.path)
    assert port is not None  # it was asked for by name
    _check_picture_input(port, file.path)
    made = (description.height, description.width)
    wanted = (description.batch, *((3, *made) if description.layout == "NCHW" else (*made, 3)))
    if any(size not in (None, ours) for size, ours in zip(port.shape, wanted, strict=True)):
        raise InvalidInput(
            f"{file.path}: its input is {describe_ports([port])}, and batch, size and layout of the "
            f"description make {wanted}; correct the description"
        )
    return Port(port.name, (port.shape[0], *wanted[1:]), port.dtype)


def _merge_fields(file: OnnxFile, fields: dict[str, Any]) -> dict[str, Any]:
    """Fill in missing fields of the description from the file."""
    found = dict(fields)
    port = _choose_port(file.inputs, found, "input", file.path)
    output = _choose_port(file.outputs, found, "output", file.path)
    if port is None and not any(len(each.shape) == 4 for each in file.inputs):
        _check_picture_input(file.inputs[0], file.path)  # refuses it
    if port is not None:
        _check_picture_input(port, file.path)
        found = _infer_fields(port) | found | {"input": port.name}
    if output is not None:
        found["output"] = output.name
    return found


def _choose_port(ports: list[Port], fields: dict[str, Any], key: str, path: Path) -> Port | None:
    """Choose the input or output that is named, or the only one."""
    if key not in fields:
        return ports[0] if len(ports) == 1 else None
    for port in ports:
        if port.name == fields[key]:
            return port
    raise InvalidInput(f"{path}: it has no {key} {fields[key]!r}; it has {describe_ports(ports)}")


def _check_picture_input(port: Port, path: Path) -> None:
    if len(port.shape) == 4 and port.dtype in _PICTURE_TYPES:
        return
    raise InvalidInput(
        f"{path}: expected an input for pictures (four axes; float, float16 or uint8), got "
        f"{describe_ports([port])}; a network for texts is given as the encoder of texts (--text-encoder), "
        "with its tokenizer.json beside it"
    )


def _infer_fields(port: Port) -> dict[str, Any]:
    """Infer layout, size, batch and scaling from shape and type, as far as these tell."""
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


def _read_port(node: Any) -> Port:
    shape = tuple(size if isinstance(size, int) and size > 0 else None for size in node.shape)
    return Port(node.name, shape, _TYPES.get(node.type))


def describe_ports(ports: list[Port]) -> str:
    """List inputs or outputs with their types and shapes, for a message."""
    return ", ".join(
        f'"{port.name}" {np.dtype(port.dtype).name if port.dtype else "of another type"} '
        f"({', '.join('n' if size is None else str(size) for size in port.shape)})"
        for port in ports
    )


def _find_weight_files(path: Path) -> list[Path]:
    """Find the files of a large network's weights, which decide its features like the file itself."""
    content = path.read_bytes()
    names = set()
    for match in _WEIGHTS_ELSEWHERE.finditer(content):
        low, high = content[match.end() : match.end() + 2]  # the length, seven bits a byte
        length, start = (low, match.end() + 1) if low < 128 else (low - 128 + 128 * high, match.end() + 2)
        names.add(content[start : start + length].decode(errors="replace"))
    return [path.parent / name for name in sorted(names) if (path.parent / name).is_file()]


def check_exists(path: Path) -> Path:
    """Return the path of a file; refuse one that is not there."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file")
    return path


def first_line(error: Exception) -> str:
    """Return the first line of a library's error."""
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
