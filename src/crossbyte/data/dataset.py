"""Find a whole dataset in one file: both sides, ids, groups and payloads, row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

from crossbyte.data.contents import CSR_PARTS, Contents, columns_to_rows, plain_values, read_sparse
from crossbyte.errors import DataFileError

if TYPE_CHECKING:
    from crossbyte.arrays import Raw

_EXPECTED = (
    "expected image_SPLIT and/or text_SPLIT (rows × features, or a sparse matrix as text_SPLIT_data, "
    "_indices, _indptr and _shape), or the same called images and texts"
)


@dataclass
class Dataset:
    """Items of one file, row by row; what the file does not have is None.

    Attributes
    ----------
    images, texts : (n, d) ndarray or csr_matrix, or None
    ids : list of str or int, or None
    payloads : list of dict, or None
        One JSON object for each row.
    groups : list of str or int, or None
    vocabulary : list of str, or None
        The names of the text side's dimensions.

    Raises
    ------
    DataFileError
        The parts differ in their number of rows.
    """

    images: Raw | None = None
    texts: Raw | None = None
    ids: list[Any] | None = None
    payloads: list[dict[str, Any]] | None = None
    groups: list[Any] | None = None
    vocabulary: list[str] | None = None

    def __post_init__(self) -> None:
        counts = self._counts()
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{count} {name}" for name, count in counts.items())
            raise DataFileError(f"expected as many of everything, row by row, got {listed}")

    def __len__(self) -> int:
        return next(iter(self._counts().values()), 0)

    def _counts(self) -> dict[str, int]:
        sides = {"images": self.images, "texts": self.texts}
        counts = {name: int(side.shape[0]) for name, side in sides.items() if side is not None}
        lists = {"ids": self.ids, "payloads": self.payloads, "groups": self.groups}
        return counts | {name: len(values) for name, values in lists.items() if values is not None}


class _Layout(NamedTuple):
    """Names of the parts of a dataset in a file."""

    images: tuple[str, ...]
    texts: tuple[str, ...]
    ids: tuple[str, ...]
    names: tuple[str, ...]
    groups: tuple[str, ...]
    suffix: str

    def payload_name(self, name: str) -> str | None:
        """Return what a payload column is called, or None if it belongs to another split."""
        return name.removesuffix(self.suffix) if name.endswith(self.suffix) else None


_PLAIN = _Layout(("images", "image"), ("texts", "text"), ("ids", "id"), ("name",), ("groups", "group"), "")


def find_dataset(contents: Contents, split: str | None) -> Dataset:
    """Find the parts of a dataset among the arrays of a file.

    Parameters
    ----------
    contents : Contents
    split : str or None
        The ending of the names; None: ``train`` if there, else names without an ending.

    Returns
    -------
    Dataset

    Raises
    ------
    DataFileError
        Neither side is there, rows do not agree, or ids or groups cannot be used.
    """
    layout = _find_layout(contents, split)
    image_name, text_name = _find_side(contents, layout.images), _find_side(contents, layout.texts)
    if image_name is None and text_name is None:
        raise DataFileError(f"{_describe_missing(layout, split)}; there are: {contents.listing()}")
    images, texts = _read_side(contents, image_name), _read_side(contents, text_name)
    found = Dataset(images, texts)
    used = {"vocabulary"} | _side_names(image_name) | _side_names(text_name)
    found.groups, group_name = _read_groups(contents, layout, len(found))
    found.ids, id_name = _read_ids(contents, layout, len(found))
    used |= {group_name, id_name}
    found.payloads = _read_payloads(contents, layout, used, len(found))
    found.vocabulary = _read_vocabulary(contents, texts)
    return found


def _describe_missing(layout: _Layout, split: str | None) -> str:
    looked = ", ".join((*layout.images, *layout.texts))
    return f"{_EXPECTED}; looked for {looked}" + ("" if split else " (give split= for another ending)")


def _find_layout(contents: Contents, split: str | None) -> _Layout:
    train_sides = [_find_side(contents, (f"{side}_train",)) for side in ("image", "text")]
    if split is None and not any(train_sides):
        return _PLAIN
    ending = f"_{'train' if split is None else split}"
    return _Layout(
        (f"image{ending}",),
        (f"text{ending}",),
        (f"id{ending}",),
        (f"name{ending}",),
        (f"group{ending}",),
        ending,
    )


def _find_side(contents: Contents, names: tuple[str, ...]) -> str | None:
    for name in names:
        entry = contents.entries.get(name)
        if contents.has_sparse(name) or (entry is not None and (entry.is_matrix or entry.problem)):
            return name
    return None


def _read_side(contents: Contents, name: str | None) -> Raw | None:
    if name is None:
        return None
    return read_sparse(contents, name) if contents.has_sparse(name) else contents.array(name)


def _side_names(side: str | None) -> set[str | None]:
    return set() if side is None else {side, *(f"{side}_{part}" for part in CSR_PARTS)}


def _read_groups(contents: Contents, layout: _Layout, n_rows: int) -> tuple[list[Any] | None, str | None]:
    name = _first_present(contents, layout.groups)
    return (None if name is None else _read_labels(contents, name, n_rows)), name


def _read_ids(contents: Contents, layout: _Layout, n_rows: int) -> tuple[list[Any] | None, str | None]:
    """Return ids and the name of their column; names are ids where they are all different, else payloads."""
    name = _first_present(contents, layout.ids)
    if name is not None:
        labels = _read_labels(contents, name, n_rows)
        _check_different(labels, name)
        return labels, name
    name = _first_present(contents, layout.names)
    values = None if name is None else _read_column(contents, name, n_rows)
    found = [_parse_label(value) for value in values or []]
    are_ids = bool(found) and None not in found and len(set(found)) == n_rows
    return (found, name) if are_ids else (None, None)


def _first_present(contents: Contents, names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name in contents.entries), None)


def _read_labels(contents: Contents, name: str, n_rows: int) -> list[Any]:
    """Return a column of strings or whole numbers; refuse others, as leaving one out would go unnoticed.

    Without its groups, held-out rows have repeats among the others; without its ids, documents are named by
    their row numbers.
    """
    values = _read_column(contents, name, n_rows)
    if values is None:
        raise DataFileError(
            f"{name}: expected a string or whole number for each of the {n_rows} rows, got "
            f"{contents.entries[name]}; mend the column, or give it another name"
        )
    labels = [_parse_label(value) for value in values]
    if None in labels:
        row = labels.index(None)
        raise DataFileError(
            f"{name}: expected a string or whole number in every row, got {_shorten(values[row])} in row "
            f"{row}; fill it in, or give the column another name"
        )
    return labels


def _check_different(labels: list[Any], name: str) -> None:
    first: dict[Any, int] = {}
    for row, label in enumerate(labels):
        if first.setdefault(label, row) != row:
            raise DataFileError(
                f"{name}: expected different ids, got {label!r} in rows {first[label]} and {row}; make them "
                "different, or give the column another name"
            )


def _shorten(value: Any) -> str:
    return "nothing" if value is None or value == "" else repr(value)[:60]


def _parse_label(value: Any) -> str | int | None:
    """Return a value as the label of a document or a group, or None; MATLAB's whole numbers are floats."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if type(value) in (str, int) and value != "" else None


def _read_column(contents: Contents, name: str, n_rows: int) -> list[Any] | None:
    """Return one value for each row, or None: another length, or a table of numbers (labels)."""
    entry = contents.entries.get(name)
    if entry is None or entry.problem or entry.shape is None or not entry.shape:
        return None
    # MATLAB has no one-dimensional arrays
    is_vector = len(entry.shape) == 1 or (len(entry.shape) == 2 and min(entry.shape) == 1)
    if is_vector and max(entry.shape) == n_rows:
        return _flatten(contents.load(name))
    if entry.shape[0] == n_rows and entry.dtype in ("text", "bytes"):
        return contents.values(name)
    return None


def _flatten(values: NDArray[Any] | list[Any]) -> list[Any]:
    return values if isinstance(values, list) else plain_values(values.reshape(-1))


def _read_payloads(
    contents: Contents, layout: _Layout, used: set[str | None], n_rows: int
) -> list[dict[str, Any]] | None:
    columns = {}
    for name in contents.entries:
        title = layout.payload_name(name)
        if title and name not in used and (values := _read_column(contents, name, n_rows)) is not None:
            columns[title] = values
    return columns_to_rows(columns) if columns else None


def _read_vocabulary(contents: Contents, texts: Raw | None) -> list[str] | None:
    words = None if texts is None else _read_column(contents, "vocabulary", int(texts.shape[1]))
    return words if words and all(isinstance(word, str) for word in words) else None
