"""``crossbyte fit FOLDER``: from pictures and captions to an index, and what is said of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from crossbyte._format import plural, readable_seconds
from crossbyte.cli.inputs import Given, check_free
from crossbyte.cli.progress import shown
from crossbyte.cli.raw import RawGiven, left_out, left_out_lines, read_raw_documents
from crossbyte.errors import InvalidInput

if TYPE_CHECKING:
    from crossbyte.data.folders.documents import RawDocuments
    from crossbyte.gallery.building import Built
    from crossbyte.gallery.learning import FitOptions
    from crossbyte.model.cmcq import CMCQ
    from crossbyte.report.model_report import Report

__all__ = ["Fitted", "described", "fit_files"]

_LONGEST_EXAMPLE = 48


class Fitted(NamedTuple):
    """What ``fit`` made: as JSON, in words, and how good it is (None if that was not measured)."""

    document: dict[str, Any]
    lines: list[str]
    report: Report | None


def described(model: CMCQ, report: Report | None) -> dict[str, Any]:
    """Say of a model what a JSON document of ``fit`` has."""
    return {
        "bits": model.n_bits,
        "mapping": model.mapping_,
        "components": model.n_components_,
        "report": None if report is None else report.to_dict(),
    }


def fit_files(
    given: Given,
    raw: RawGiven,
    options: FitOptions,
    index: Path | None,
    output: Path | None,
    *,
    thumbnails: bool,
    quiet: bool,
) -> Fitted:
    """Make an index of a folder of pictures, or of a table that names them; and save its model, if asked."""
    from crossbyte.gallery.building import build_at_free_path
    from crossbyte.search.storage.connection import real_path

    assert given.data is not None
    path, began = index or _index_of(given.data), time.perf_counter()
    documents = read_raw_documents(given.data, raw)
    specs = {"image": raw.image_encoder or "builtin", "text": raw.text_encoder or "builtin"}
    with shown("fit", quiet=quiet) as callback:
        built = build_at_free_path(
            documents, Path(real_path(path)), options, specs, thumbnails=thumbnails, callback=callback
        )
    identity = None if output is None else built.model.save(output)
    report = built.model.report_ if built.model.calibration_ is not None else None
    document: dict[str, Any] = {"model": output, "identity": identity, "index": path, "pairs": built.n_pairs}
    document |= {"documents": built.n_documents, "form": documents.form, "skipped": left_out(built.skipped)}
    document |= described(built.model, report) | {"seconds": round(time.perf_counter() - began, 3)}
    document["encoders"] = {side: state.name for side, state in built.model.encoder_states_.items()}
    return Fitted(
        document, list(_lines(document, documents, built, report, options.curve is not None)), report
    )


def _index_of(data: Path) -> Path:
    """Give the index that a folder makes if no name is given: in the current directory, called like it."""
    from crossbyte.search.storage.connection import real_path

    folder = data.resolve() if data.is_dir() else data.resolve().parent
    path = Path(f"{folder.name or 'photos'}.cb")
    if path.exists():
        raise InvalidInput(
            f"{path}: there is an index of this name already, and none is ever overwritten; give another "
            "name with --index FILE, add to it with `crossbyte add`, or remove it first"
        )
    check_free(Path(real_path(path)))
    return path


def _lines(
    document: dict[str, Any], documents: RawDocuments, built: Built, report: Report | None, wanted: bool
) -> Iterator[str]:
    n_bytes, took = document["bits"] // 8, readable_seconds(document["seconds"])
    yield (
        f"{document['index']}: {plural(built.n_documents, 'document')}, {built.n_pairs:,} of them with "
        f"picture and text, in {took}; {n_bytes} bytes per item, {document['mapping']} space of "
        f"{document['components']} dimensions"
    )
    if document["model"] is not None:
        yield f"{document['model']}: its model"
    yield from left_out_lines(built.skipped)
    yield ""
    yield str(report) if report is not None else _unmeasured(built, wanted)
    yield ""
    yield "Next:"
    yield f'  crossbyte search {document["index"]} --text "{_example(documents)}"'
    yield f"  crossbyte serve {document['index']}"


def _unmeasured(built: Built, wanted: bool) -> str:
    if not wanted:
        return "Quality was not measured (--no-calibrate)."
    return (
        "Quality was not measured, and answers come without probabilities: that takes 20 pictures with texts "
        f"of their own, and there are {built.n_pairs}. About 1,000 make good answers."
    )


def _example(documents: RawDocuments) -> str:
    """Words to begin with: the first short caption that a shell takes as it is."""
    for captions in documents.texts:
        for caption in captions:
            if 0 < len(caption) <= _LONGEST_EXAMPLE and not set(caption) & set('"\\$`!\n'):
                return caption
    return "a dog"
