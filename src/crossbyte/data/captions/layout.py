"""Read a folder of pictures and captions, in whatever layout it has: docs/files.md."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from crossbyte._format import plural
from crossbyte.data.captions.coco import find_rows, gather_coco, is_coco, looks_like_coco, read_captions_json
from crossbyte.data.captions.raw_documents import DocumentBuilder, RawDocuments
from crossbyte.data.captions.scan import FolderScan, PictureFinder, picture_kinds, scan_folder
from crossbyte.data.captions.sidecar import gather_sidecars, name_form, skip_unused
from crossbyte.data.captions.tables import (
    JSON_LINES,
    TABLES,
    Table,
    find_image_column,
    find_roles,
    gather_rows,
    names_pictures,
    read_table,
)
from crossbyte.data.embedding_folder import is_embedding_folder
from crossbyte.data.ondisk import is_pair_folder
from crossbyte.data.safe_open import Limits, PathLike, file_errors, file_extension
from crossbyte.errors import DataFileError

_DEFAULT = Limits()
_SURE = ("captions", "metadata")  # names of tables that need no check for a column of pictures
_SAMPLED_ROWS = 100
_TEXT_FILES = (".txt", ".md", ".rst", ".pdf", ".doc", ".docx", ".odt", ".rtf", ".html")


class _Options(NamedTuple):
    image_column: str | None
    text_columns: Sequence[str] | None
    id_column: str | None
    limits: Limits


def read_raw(
    path: PathLike,
    *,
    image_column: str | None = None,
    text_columns: Sequence[str] | None = None,
    id_column: str | None = None,
    limits: Limits = _DEFAULT,
) -> RawDocuments:
    """Read pictures and captions; no picture is opened.

    Parameters
    ----------
    path : path of a folder, or of a ``.csv``, ``.tsv``, ``.jsonl`` or ``.json`` file beside its pictures
        A folder has a table of captions, a JSON file in COCO's form, a text file beside each picture
        (img2dataset's too), or pictures alone. All its pictures are documents, those without a caption,
        too; of a file, only those that it names.
    image_column : str, optional
        The column of a table that names pictures; else recognised by its name or values.
    text_columns : sequence of str, optional
        The columns of captions; else recognised by their names. All others are payload.
    id_column : str, optional
        The column of ids; else documents are named by their pictures' relative names.
    limits : Limits, optional

    Returns
    -------
    RawDocuments

    Raises
    ------
    DataFileError
        There is nothing to read: no picture, or no table that can be understood. Bad rows and files are
        listed in ``skipped`` instead.
    FileNotFoundError, PermissionError
    """
    options = _Options(image_column, _as_names(text_columns), id_column, limits)
    where = Path(path)
    with file_errors(path):
        if where.is_dir():
            return _read_folder(where, options)
        where.stat()  # FileNotFoundError
        return _read_file(where, options)


def is_raw(path: PathLike) -> bool:
    """Tell whether `read_raw` is the reader for a path: a folder, or a table whose rows name pictures.

    Parameters
    ----------
    path : path

    Returns
    -------
    bool
        False for files of features, folders of embeddings or of two stored sides, and what is not there.
    """
    where = Path(path)
    if where.is_dir():
        return not is_pair_folder(where)
    if file_extension(where) not in TABLES:
        return where.is_file() and file_extension(where) in (".json", ".tar")
    try:
        return names_pictures(read_table(where, where.name, _DEFAULT, at_most=_SAMPLED_ROWS))
    except (DataFileError, OSError):
        return False


def _as_names(columns: Sequence[str] | None) -> Sequence[str] | None:
    return (columns,) if isinstance(columns, str) else columns


def _read_file(path: Path, options: _Options) -> RawDocuments:
    form = file_extension(path)
    if form == ".tar":
        raise DataFileError(_describe_archive(path.name))
    if form not in (*TABLES, ".json"):
        raise DataFileError(
            f"expected a folder of pictures, or a file that ends in {', '.join(TABLES)} or .json, got "
            f"{form[:20] or 'no ending'!r}"
        )
    folder = path.parent.parent if form == ".json" and path.parent.name == "annotations" else path.parent
    scan = scan_folder(folder, options.limits)
    if form == ".json":
        builder, form = _gather_json_files(scan, {path.name: path}, options)
    else:
        builder, form = _gather_table_file(scan, path, path.name, "", options)
    _skip_unnamed(builder, scan, path.name)
    return builder.documents(form)


def _skip_unnamed(builder: DocumentBuilder, scan: FolderScan, title: str) -> None:
    """List the pictures beside a table that was given itself: it says which of them are meant."""
    named = builder.used_pictures
    left = [name for name in scan.pictures if name not in named]
    if left:
        more = f" and {len(left) - 1} more pictures" if len(left) > 1 else ""
        builder.skip(
            f"{left[0]}{more}", f"{title} does not name {'them' if more else 'it'}; give the folder instead"
        )


def _read_folder(root: Path, options: _Options) -> RawDocuments:
    if is_embedding_folder(root):
        raise DataFileError(
            "expected pictures, got embeddings (img_emb, text_emb); read them with read_dataset, or give the "
            "folder of the pictures themselves"
        )
    scan = scan_folder(root, options.limits)
    if not scan.pictures:
        raise DataFileError(_describe_missing_pictures(scan))
    tables = _find_tables(scan)
    sure = [name for name in tables if name.lower().endswith(TABLES) and Path(name).stem.lower() in _SURE]
    jsons = _find_json_files(scan)
    if sure:
        return _read_named_table(scan, _only_name(sure), options)
    if jsons:
        return _add_unnamed(scan, *_gather_json_files(scan, jsons, options), jsons, options)
    return _read_others(scan, tables, options)


def _describe_missing_pictures(scan: FolderScan) -> str:
    packed = [name for name in scan.others if name.lower().endswith(".tar")]
    if packed:
        return _describe_archive(packed[0])
    texts = [name for name in scan.others if name.lower().endswith(_TEXT_FILES)]
    tables = _find_tables(scan)
    others, kind = (texts, "text") if texts else (list(scan.others), "other")
    got = f"{plural(len(others), f'{kind} file')} (such as {others[0]})" if others else "an empty folder"
    if scan.skipped:
        advice = f"{scan.skipped[0].name}: {scan.skipped[0].reason}"
    elif tables:
        advice = f"put the pictures that {tables[0]} names beside it, or give the folder that has both"
    elif texts:
        stem = texts[0].rpartition(".")[0]
        advice = (
            f"texts are found together with the pictures that they describe: put {stem}.jpg beside "
            f"{texts[0]}, and so on, or give the folder that has both"
        )
    else:
        advice = "give the folder that has the pictures"
    kinds = picture_kinds()
    return f"expected pictures ({kinds}) in the folder or in those inside it, got {got}; {advice}"


def _describe_archive(name: str) -> str:
    return (
        f"{name} is an archive (webdataset), which is not read; unpack it into a folder first: tar -xf {name}"
    )


# Tables


def _find_tables(scan: FolderScan) -> list[str]:
    """Find the tables that lie highest in the folder; that of Flickr8k is called captions.txt."""
    found = [name for name in scan.others if name.lower().endswith(TABLES)]
    found += [name for name in scan.others if name.lower() in ("captions.txt", "flickr8k.token.txt")]
    highest = min((name.count("/") for name in found), default=0)
    return [name for name in found if name.count("/") == highest]


def _only_name(names: list[str]) -> str:
    if len(names) > 1:
        raise DataFileError(
            f"expected one table of captions, got {', '.join(names[:10])}; give the path of the one you mean"
        )
    return names[0]


def _read_named_table(scan: FolderScan, name: str, options: _Options) -> RawDocuments:
    with file_errors(name):
        gathered = _gather_table_file(scan, scan.others[name], name, name.rpartition("/")[0], options)
    return _add_unnamed(scan, *gathered, [name], options)


def _add_unnamed(
    scan: FolderScan, builder: DocumentBuilder, form: str, tables: Collection[str], options: _Options
) -> RawDocuments:
    """Add the pictures that no table names, with the captions in a file beside them, or without a text."""
    gather_sidecars(builder, scan, options.limits, tables)
    return builder.documents(form)


def _gather_table_file(
    scan: FolderScan, path: Path, title: str, folder: str, options: _Options
) -> tuple[DocumentBuilder, str]:
    builder, table = DocumentBuilder(scan), read_table(path, title, options.limits)
    _gather_table(builder, PictureFinder(scan), table, title, folder, options)
    _check_has_pictures(builder)
    return builder, "jsonl" if file_extension(path) in JSON_LINES else "csv"


def _gather_table(
    builder: DocumentBuilder, finder: PictureFinder, table: Table, title: str, folder: str, options: _Options
) -> None:
    roles = find_roles(table, options.image_column, options.text_columns, options.id_column)
    gather_rows(builder, finder, table, roles, title, folder)


def _check_has_pictures(builder: DocumentBuilder) -> None:
    """Refuse captions without any picture: there is nothing to show, and nothing to learn from."""
    if not builder.n_pictures:
        first = builder.first_skipped
        raise DataFileError(
            "expected the pictures that the captions are about, got none of them "
            f"({first.name}: {first.reason}); put them beside the captions, or say which column names them "
            "with image_column="
        )


def _read_others(scan: FolderScan, tables: list[str], options: _Options) -> RawDocuments:
    """Read the one other table that names pictures, or else the files beside each picture."""
    useful, why = [], {}
    for name in tables:
        try:
            table = read_table(scan.others[name], name, options.limits, at_most=_SAMPLED_ROWS)
            if options.image_column in table.names or find_image_column(table) is not None:
                useful.append(name)
        except DataFileError as error:
            why[name] = str(error)
    if useful:
        return _read_named_table(scan, _only_name(useful), options)
    builder = DocumentBuilder(scan)
    used = gather_sidecars(builder, scan, options.limits)
    form = name_form(used)
    if tables and form == "images":
        return _read_named_table(scan, tables[0], options)  # raises, and says which columns there are
    skip_unused(builder, scan, used)
    for name in tables:
        builder.skip(name, why.get(name, "a table without a column that names pictures"))
    return builder.documents(form)


# JSON


def _find_json_files(scan: FolderScan) -> dict[str, Path]:
    """Find the files of captions in COCO's form: by their names, or else by their first bytes."""
    found = {name: path for name, path in scan.others.items() if _may_be_coco(name)}
    by_name = {name: path for name, path in found.items() if "caption" in name.lower()}
    return by_name or {name: path for name, path in found.items() if looks_like_coco(path)}


def _may_be_coco(name: str) -> bool:
    folder, _, last = name.lower().rpartition("/")
    return last.endswith(".json") and folder in ("", "annotations")


def _gather_json_files(
    scan: FolderScan, files: dict[str, Path], options: _Options
) -> tuple[DocumentBuilder, str]:
    form = "jsonl"
    builder, finder = DocumentBuilder(scan), PictureFinder(scan)
    for name, path in files.items():
        with file_errors(name):
            content = read_captions_json(path, options.limits)
            if is_coco(content):
                form = "coco"
                gather_coco(builder, finder, content, name)
                continue
            table = find_rows(content, name)
            if table is None:
                there = ", ".join(map(repr, list(content)[:10])) or "nothing in it"
                raise DataFileError(
                    "expected COCO's form (images and annotations), a list of objects, or captions by "
                    f"picture, got an object with {there}"
                )
            _gather_table(builder, finder, table, name, "", options)
    _check_has_pictures(builder)
    return builder, form
