"""Small model files, whole and spoilt, for the tests of the model file."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from hypothesis import strategies as st

from crossbyte.model.file_format import model_bytes

ARRAYS = {
    "codes": np.arange(6, dtype=np.uint8).reshape(3, 2),
    "map": np.array([[0.5, -0.0, np.pi]], dtype=np.float32),
    "none": np.zeros((0, 3)),
}
DOCUMENT = {"parameters": {"sparsity": 0.3, "tol": 1e-22}, "words": ["café", "\n"], "report": None, "n": 3}


def damaged_copy(**changes: Any) -> bytes:
    """A file with our arrays whose envelope is changed without sealing it again."""
    text = json.dumps(
        {**envelope_of(model_bytes(ARRAYS, DOCUMENT)), **changes}, sort_keys=True, separators=(",", ":")
    )
    return safetensors.numpy.save(ARRAYS, {"crossbyte": text})


def header_of(data: bytes) -> dict[str, Any]:
    return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])


def envelope_of(data: bytes) -> dict[str, Any]:
    return json.loads(header_of(data)["__metadata__"]["crossbyte"])


def with_header(header: dict[str, Any] | str, data: bytes) -> bytes:
    """The tensors of `data` under another header."""
    text = header if isinstance(header, str) else json.dumps(header, separators=(",", ":"))
    tensors = data[8 + int.from_bytes(data[:8], "little") :]
    return len(text.encode()).to_bytes(8, "little") + text.encode() + tensors


def with_text(text: str) -> bytes:
    data = model_bytes(ARRAYS, DOCUMENT)
    return with_header({**header_of(data), "__metadata__": {"crossbyte": text}}, data)


def same(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> bool:
    first, second = (
        [(name, a.dtype, a.shape, a.tobytes()) for name, a in sorted(each.items())] for each in (left, right)
    )
    return first == second


text = st.text(st.characters(exclude_categories=["Cs"]))
finite = st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner),
    max_leaves=12,
)
