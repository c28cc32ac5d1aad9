"""The public names: what each facade exports, where it is defined, and that documents use facades alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import crossbyte
from support.paths import PACKAGE, ROOT

# Pinned: to take a name away from users, or to give them one, is a change of its own.
NAMES = {
    "crossbyte": """
        CMCQ ClusterError CrossbyteError Document Explanation FitInterrupted Gallery Hits Index
        IndexFileError InvalidInput ModelFileError NewDocument NotCalibrated NotFitted
        NumericalError Report ShardedIndex __version__ audit_pairs build_gallery draw_pairs
        open_rows plan read_raw select_by_labels select_by_pairs split_index
    """,
    "crossbyte.data": """
        Dataset Entry Limits Picture PictureLimits PictureReader RawDocuments Skipped describe
        is_raw make_labelled_pairs make_pairs make_scenes nus_wide_like open_rows read_dataset
        read_features read_raw read_rows write_scenes
    """,
    "crossbyte.encoders": """
        Encoder EncoderState default_image_encoder default_text_encoder download_network
        make_encoder restore_encoder share_space
    """,
    "crossbyte.errors": """
        ClosedIndex ClusterError CrossbyteError DamagedIndexFile DamagedModelFile DataFileError
        DuplicateId FilterError FitInterrupted ForeignIndexFile ForeignModelFile IndexBusy
        IndexExists IndexFileError IndexLocked InvalidInput MissingExtra ModelFileError
        NewerIndexFile NewerModelFile NoEncoder NoPlan NotCalibrated NotFinite NotFitted
        NumericalError PayloadTooLarge PictureError ReadOnlyIndex StaleReader StorageFailed
        StorageFull TaskDied TooManyFields TruncatedModelFile UnknownField UnknownId WriteRefused WrongEncoder
        WrongModel
    """,
    "crossbyte.export": """
        export_faiss export_vectors faiss_distances faiss_queries write_trec
    """,
    "crossbyte.lab": """
        Collection Method Part Result Run RunRequest about_method list_keys make_collection
        make_method make_part make_trial plan_runs read_collection read_results run_all write_report
    """,
    "crossbyte.metrics": """
        PartnerPlaces Scorer TiedRanking chance_mean_average_precision chance_recall
        expected_average_precision expected_average_precision_all expected_chance_scores
        expected_partner_recall expected_precision expected_precision_recall_curve
        mean_average_precision nearest_ties_by_column partner_places partner_ranks_ties_by_column
        rank_all_tied rank_with_ties recall_at
    """,
    "crossbyte.service": """
        Settings create_app make_server serve
    """,
}
LAZY = sorted(NAMES.keys() - {"crossbyte.errors", "crossbyte.metrics"})


def facade_tree(facade: str) -> ast.Module:
    file = import_module(facade).__file__
    assert file is not None
    return ast.parse(Path(file).read_text(encoding="utf-8"))


def homes_for_the_type_checker(tree: ast.Module) -> dict[str, str]:
    """Module of every name that is imported under TYPE_CHECKING."""
    blocks = [
        node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def homes_when_used(tree: ast.Module) -> dict[str, str]:
    """Module of every name that ``lazy_names`` imports."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    [call] = [node for node in calls if ast.unparse(node.func) == "lazy_names"]
    homes: dict[str, str] = ast.literal_eval(call.args[1])
    return homes


@pytest.mark.parametrize("facade", NAMES)
def test_names_are_pinned(facade: str) -> None:
    assert sorted(import_module(facade).__all__) == NAMES[facade].split()


@pytest.mark.parametrize("facade", NAMES)
def test_every_name_can_be_imported(facade: str) -> None:
    module = import_module(facade)
    assert [name for name in module.__all__ if getattr(module, name, None) is None] == []
    assert set(module.__all__) <= set(dir(module)) | {
        "NotFitted"
    }  # errors imports that one when asked for it


def test_the_root_shows_nothing_but_its_names() -> None:
    assert set(dir(crossbyte)) == set(crossbyte.__all__)


@pytest.mark.parametrize("facade", LAZY)
def test_a_facade_says_three_times_the_same(facade: str) -> None:
    tree = facade_tree(facade)
    homes = homes_when_used(tree)
    assert homes == homes_for_the_type_checker(tree)
    assert sorted(homes) == sorted(set(import_module(facade).__all__) - {"__version__"})


@pytest.mark.parametrize("facade", LAZY)
def test_names_are_defined_where_the_facade_says(facade: str) -> None:
    module = import_module(facade)
    homes = homes_when_used(facade_tree(facade))
    assert {name: getattr(module, name).__module__ for name in homes} == homes


@pytest.mark.parametrize("facade", LAZY)
def test_an_unknown_name_is_an_attribute_error(facade: str) -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        import_module(facade).nothing  # noqa: B018


def test_only_facades_have_a_list_of_names() -> None:
    files = [
        path
        for path in sorted(PACKAGE.rglob("*.py"))
        if re.search(r"^__all__ =", path.read_text("utf-8"), re.M)
    ]
    assert files == sorted(Path(str(import_module(facade).__file__)) for facade in NAMES)


def imports_of_the_package(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield module and names of every import of crossbyte that begins a line: code, not sentences."""
    for module, bracketed, plain in re.findall(
        r"^[ >]*from (crossbyte[\w.]*) import (?:\(([^)]*)\)|([^#\n]*))", text, flags=re.MULTILINE
    ):
        yield module, [name.split()[0] for name in (bracketed or plain).split(",") if name.strip()]
    for module in re.findall(r"^[ >]*import (crossbyte[\w.]*)", text, flags=re.MULTILINE):
        yield module, []


def test_imports_are_found_in_text() -> None:
    lines = [
        "from crossbyte import A, B  # why",
        ">>> from crossbyte.data import (",
        "    C,",
        ")",
        "import crossbyte.lab",
    ]
    text = "\n".join(lines)
    found = list(imports_of_the_package(text))
    assert found == [("crossbyte", ["A", "B"]), ("crossbyte.data", ["C"]), ("crossbyte.lab", [])]


def test_documents_and_examples_import_from_facades_alone() -> None:
    files = [
        ROOT / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "examples").glob("*.py")),
    ]
    found = [
        (path.name, module, names)
        for path in files
        for module, names in imports_of_the_package(path.read_text(encoding="utf-8"))
    ]
    assert len(found) > 20
    assert [
        f"{file}: {module} {names}"
        for file, module, names in found
        if module not in NAMES or not set(names) <= set(NAMES[module].split())
    ] == []
