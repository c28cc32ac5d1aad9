"""Read Parquet files: parsed by pyarrow in the child process, column by column."""

from __future__ import annotations

from importlib import import_module
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from crossbyte.data.contents import Contents, Entry, type_name
from crossbyte.data.safe_open import Limits, OpenFile
from crossbyte.data.sandbox import parse_in_child, send_array, send_json
from crossbyte.errors import DataFileError
from crossbyte.extras import check_installed

_ROWS_AT_ONCE = 100  # few: one row may be large, and the parent can only stop the child between records


def read_parquet(opened: OpenFile, limits: Limits, *, headers_only: bool = False) -> Contents:
    """Read the columns of a file; those of numbers, and of lists of one length, are arrays."""
    check_installed("pyarrow", "Parquet files need")
    if opened.file.read(4) != b"PAR1":
        raise DataFileError("expected a Parquet file, got other bytes at its start; write it anew")
    return parse_in_child(opened, "parquet", limits, headers_only=headers_only)


def parse_parquet(file: BinaryIO, request: dict[str, Any], out: BinaryIO) -> None:
    """Parse a file in the child process: send the list of columns, then their values."""
    source = _open_parquet(file)
    schema = source.schema_arrow
    if source.metadata.num_rows > request["rows"] or len(schema) > request["members"]:
        raise DataFileError(
            f"expected at most {request['rows']} rows and {request['members']} columns, it claims "
            f"{source.metadata.num_rows} and {len(schema)}; split the file"
        )
    if len(set(schema.names)) != len(schema):
        raise DataFileError("expected distinct column names, got one twice")
    if request["headers_only"]:
        rows = [source.metadata.num_rows]
        send_json(out, b"D", [[field.name, str(field.type), rows, ""] for field in schema])
        return
    for field in schema:
        _send_column(out, field.name, _read_column(source, field.name))


def _open_parquet(file: BinaryIO) -> Any:
    pyarrow: Any = import_module("pyarrow")
    pyarrow.set_cpu_count(1)
    pyarrow.set_io_thread_count(1)
    return import_module("pyarrow.parquet").ParquetFile(file, pre_buffer=False)


def _read_column(source: Any, name: str) -> Any:
    table = source.read(columns=[name], use_threads=False)
    table.validate(full=True)  # otherwise Arrow trusts offsets and lengths
    if table.column_names != [name] or len(table) != source.metadata.num_rows:
        raise DataFileError(f"column {name}: expected {source.metadata.num_rows} rows, got {len(table)}")
    return table.column(0)


def _send_column(out: BinaryIO, name: str, column: Any) -> None:
    values = _as_array(column)
    if values is not None:
        send_json(out, b"D", [list(Entry(name, type_name(values.dtype), values.shape))])
        send_array(out, name, values)
        return
    send_json(out, b"D", [list(Entry(name, str(column.type), (len(column),)))])
    for start in range(0, len(column), _ROWS_AT_ONCE):
        rows = [_value_to_json(value, name) for value in column.slice(start, _ROWS_AT_ONCE).to_pylist()]
        send_json(out, b"V", [name, rows])
    if not len(column):
        send_json(out, b"V", [name, []])


def _as_array(column: Any) -> NDArray[Any] | None:
    """Return numbers as (n,) and lists of numbers of one length as (n, d); None for every other column."""
    types: Any = import_module("pyarrow").types
    is_list = types.is_list(column.type) or types.is_large_list(column.type)
    if column.null_count or not len(column):
        return None
    if is_list or types.is_fixed_size_list(column.type):
        return _as_matrix(column)
    if types.is_integer(column.type) or types.is_floating(column.type) or types.is_boolean(column.type):
        return np.asarray(column.to_numpy())
    return None


def _as_matrix(column: Any) -> NDArray[Any] | None:
    pyarrow: Any = import_module("pyarrow")
    lengths = import_module("pyarrow.compute").list_value_length(column).to_numpy()
    cells = pyarrow.chunked_array([chunk.flatten() for chunk in column.chunks], type=column.type.value_type)
    numeric = pyarrow.types.is_integer(cells.type) or pyarrow.types.is_floating(cells.type)
    if not numeric or cells.null_count or lengths.min() != lengths.max() or not lengths[0]:
        return None
    return np.asarray(cells.to_numpy()).reshape(len(column), int(lengths[0]))


def _value_to_json(value: Any, name: str) -> Any:
    """Turn a value into JSON: dates and times in ISO form, a missing number (NaN) as null."""
    if isinstance(value, dict):
        return {str(key): _value_to_json(item, name) for key, item in value.items()}
    if isinstance(value, list):
        return [_value_to_json(item, name) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None if np.isnan(value) else _refuse_column(name, "an infinite number")
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else _refuse_column(name, type(value).__name__)


def _refuse_column(name: str, what: str) -> Any:
    raise DataFileError(
        f"column {name}: expected numbers, texts, booleans or dates, got {what}; drop the column"
    )
