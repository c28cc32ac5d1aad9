"""What an ONNX file expects of a picture: the small JSON beside it, checked field by field."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from crossbyte.errors import InvalidInput
from crossbyte.validation import check_choice, check_integer, check_number

__all__ = ["COMPLETE", "Description", "describe", "example_of"]

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
        Of the input.
    layout : {"NCHW", "NHWC"}
    colour : {"RGB", "BGR"}
    fit : {"crop", "letterbox", "squash"}
        Resize the short side and cut the centre out; the whole picture with borders; each side by itself.
    short_side : int
        Before the crop; of no meaning otherwise.
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
        """The same as plain JSON, complete; `describe` reads it."""
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


def describe(fields: Mapping[str, Any], where: str) -> Description:
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
    height, width = _size(fields["size"], f"{where}: size")
    mean, std = _scaling(fields["scaling"], f"{where}: scaling")
    return Description(
        input=_text(fields["input"], f"{where}: input"),
        output=_text(fields["output"], f"{where}: output"),
        height=height,
        width=width,
        layout=check_choice(fields["layout"], f"{where}: layout", LAYOUTS),
        colour=check_choice(fields.get("colour", "RGB"), f"{where}: colour", COLOURS),
        fit=check_choice(fields.get("fit", "crop"), f"{where}: fit", FITS),
        short_side=_short_side(fields, height, width, where),
        border=check_integer(fields.get("border", 127), f"{where}: border", 0, 255),
        resampling=check_choice(fields.get("resampling", "bicubic"), f"{where}: resampling", RESAMPLINGS),
        mean=mean,
        std=std,
        pool=check_choice(fields.get("pool", "none"), f"{where}: pool", POOLS),
        batch=check_integer(fields.get("batch", 1), f"{where}: batch", 1, _LARGEST_BATCH),
    )


def example_of(found: Mapping[str, Any]) -> str:
    """A complete description to write, with what is known of the file filled in."""
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


def _short_side(fields: Mapping[str, Any], height: int, width: int, where: str) -> int:
    smallest = max(height, width)  # of a picture that the crop is cut from
    value = fields.get("short_side", smallest)
    low = smallest if fields.get("fit", "crop") == "crop" else 1
    return check_integer(value, f"{where}: short_side", low, _LARGEST_SIDE)


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidInput(f"{name}: expected a name as in the ONNX file, got {value!r}")
    return value


def _size(value: Any, name: str) -> tuple[int, int]:
    sides = value if isinstance(value, list) else [value, value]
    if len(sides) != 2:
        raise InvalidInput(f"{name}: expected a number, or [height, width], got {value!r}")
    height, width = (check_integer(side, name, 1, _LARGEST_SIDE) for side in sides)
    return height, width


Levels = tuple[float, float, float]


def _scaling(value: Any, name: str) -> tuple[Levels, Levels]:
    """Mean and standard deviation, in grey levels, of a formula or of means and deviations."""
    if isinstance(value, str):
        mean, std = _formula(value, name)
        return (mean, mean, mean), (std, std, std)
    if not isinstance(value, Mapping) or not {"mean", "std"} <= set(value) <= {"mean", "std", "range"}:
        raise InvalidInput(
            f'{name}: expected a formula such as "(x-127)/128", "x/255" or "x" for grey levels x from 0 to '
            f'255, or {{"mean": [r, g, b], "std": [r, g, b]}} for levels from 0 to 1, got {value!r}'
        )
    level = 255 / check_number(value.get("range", 1), f"{name}: range", 0, 255, open_low=True)
    means = _channels(value["mean"], f"{name}: mean", -1e6)
    stds = _channels(value["std"], f"{name}: std", 0, open_low=True)
    return _times(means, level), _times(stds, level)


def _times(levels: Levels, factor: float) -> Levels:
    red, green, blue = levels
    return red * factor, green * factor, blue * factor


def _channels(value: Any, name: str, low: float, *, open_low: bool = False) -> Levels:
    values = value if isinstance(value, list) else [value, value, value]
    if len(values) != 3:
        raise InvalidInput(f"{name}: expected a number, or three (red, green, blue), got {value!r}")
    red, green, blue = (check_number(item, name, low, 1e6, open_low=open_low) for item in values)
    return red, green, blue


def _formula(text: str, name: str) -> tuple[float, float]:
    """(x - a) / b - c as one mean a + b c and one deviation b."""
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
