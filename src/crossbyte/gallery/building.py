"""From pictures and texts to an index that can be searched: read, encode, fit, measure, write."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crossbyte._fs import check_free, flush_folder
from crossbyte.data.folders.documents import RawDocuments, Skipped
from crossbyte.encoders.protocol import Encoder
from crossbyte.errors import FitInterrupted, InvalidInput
from crossbyte.gallery import learning
from crossbyte.gallery.beside import Beside
from crossbyte.gallery.encoded import EncodedDocuments, Pieces, encode_documents
from crossbyte.gallery.encoding import BUILTIN, learned_pictures, learned_texts
from crossbyte.gallery.learning import FitOptions
from crossbyte.gallery.workshop import Workshop
from crossbyte.progress import ProgressCallback, Watch, silent
from crossbyte.search.batch import check_payloads
from crossbyte.search.ids import check_ids
from crossbyte.search.index import Index
from crossbyte.search.storage.connection import JOURNAL, real_path
from crossbyte.search.storage.lock import WriterLock

if TYPE_CHECKING:
    from crossbyte.model.cmcq import CMCQ

__all__ = ["Built", "build_at_free_path", "build_gallery"]

_MOST_FITTED = 20_000  # documents, with all their captions; more teach the codes nothing, and take memory
_MOST_AUDITED = 20_000
_ROWS_AT_ONCE = 20_000


@dataclass
class Built:
    """What was made.

    Attributes
    ----------
    path : Path
        Of the index.
    model : CMCQ
    n_documents, n_pairs : int
        In the index; pairs are documents with a picture and a text.
    skipped : list of Skipped
        What was left out, and why.
    seconds : dict of str to float
        By stage.
    """

    path: Path
    model: CMCQ
    n_documents: int
    n_pairs: int
    skipped: list[Skipped]
    seconds: dict[str, float] = field(default_factory=dict)


def build_gallery(
    documents: RawDocuments,
    path: str | os.PathLike[str],
    *,
    n_bits: int = 32,
    image_encoder: str = "builtin",
    text_encoder: str = "builtin",
    mapping: str = "auto",
    parameters: Mapping[str, Any] | None = None,
    seed: int = 0,
    n_jobs: int | None = None,
    curve: Sequence[int] | None = (2, 4, 8, 16),
    thumbnails: bool = True,
    callback: ProgressCallback | None = None,
) -> Built:
    """Make an index of pictures and texts, with its model, encoders, report and thumbnails.

    Nothing is at ``path`` before the end. Features are kept beside it (``path`` with ``.files``) as they are
    made, so a call that was interrupted or failed goes on where it was when it is made again.

    Parameters
    ----------
    documents : RawDocuments
        As :func:`crossbyte.data.folders.reading.read_raw` gives them. Those with a picture and a text are
        learned from; all go into the index.
    path : path-like
        Of the index; nothing may be there yet.
    n_bits : int
        Bits per item; 8 make a byte.
    image_encoder, text_encoder : str
        "builtin", the path of an ``.onnx`` file, "sentence-transformers:NAME", "open-clip:NAME" or
        "module:function".
    mapping : str
        The common space; "auto" tries them on held-out pairs (``mapping="auto-space"`` of CMCQ). With fewer
        than 20 groups it is "cca".
    parameters : mapping, optional
        Other parameters of :class:`crossbyte.CMCQ`.
    seed : int
    n_jobs : int or None
        Threads, and processes that decode; None for all cores.
    curve : sequence of int or None
        Bytes per item at which quality is measured, too; None to measure nothing. With fewer than 20 groups
        nothing is measured, either.
    thumbnails : bool
    callback : callable, optional
        Called with a :class:`crossbyte.progress.Progress` as the work goes on.

    Raises
    ------
    InvalidInput, NoEncoder, MissingExtra
        Before any long work, where that can be told.
    FitInterrupted
        On Ctrl-C; what was encoded is kept.
    """
    target = Path(real_path(path))
    _check_untaken(target)
    check_free(target, overwrite=False)
    options = FitOptions(n_bits, mapping, dict(parameters or {}), seed, n_jobs, curve)
    specs = {"image": image_encoder, "text": text_encoder}
    return build_at_free_path(documents, target, options, specs, thumbnails=thumbnails, callback=callback)


def build_at_free_path(
    documents: RawDocuments,
    target: Path,
    options: FitOptions,
    specs: Mapping[str, str],
    *,
    thumbnails: bool = True,
    callback: ProgressCallback | None = None,
) -> Built:
    """Do the work of :func:`build_gallery`, whose caller has seen that nothing is at the path.

    Parameters
    ----------
    documents : RawDocuments
    target : Path
        The real path of the index.
    options : FitOptions
    specs : mapping of side to str
        The encoders, as of :func:`build_gallery`.
    thumbnails : bool
    callback : callable, optional
    """
    watch = Watch(callback or silent)
    _judge(documents, options)
    lock = WriterLock.acquire(str(target))  # before the folder is touched: two runs would mix
    try:
        return _build(documents, target, options, specs, watch, thumbnails)
    except KeyboardInterrupt:
        raise FitInterrupted(
            f"interrupted {watch}: there is no {target.name} yet, but what was encoded is kept; run the same "
            "command again to go on from there"
        ) from None
    finally:
        lock.release()


def _judge(documents: RawDocuments, options: FitOptions) -> None:
    """Refuse before any long work what would be refused after it."""
    from crossbyte.model.parameters import check_parameters

    check_parameters(learning.model_for(options, 0))
    check_ids(documents.ids)
    check_payloads(documents.payloads, len(documents))
    pieces = Pieces(documents)
    learning.check_enough(pieces.n_pairs, len(pieces.paths), len(pieces.texts))


def _check_untaken(target: Path) -> None:
    if os.path.lexists(target):
        raise InvalidInput(
            f"{target}: expected a free name for the index, which is never overwritten, but something is "
            "there; give another name, or remove it first"
        )


def _build(
    documents: RawDocuments,
    target: Path,
    options: FitOptions,
    specs: Mapping[str, str],
    callback: ProgressCallback,
    thumbnails: bool,
) -> Built:
    ready, beside, clock = _ready_encoders(specs), Beside.of(target), _Clock()
    opened = Workshop.open(beside, thumbnails=thumbnails, n_jobs=options.n_jobs, callback=callback)
    with opened as session:
        with clock.timed("encode"):
            encoded = encode_documents(session, documents, _chooser(session, ready, options.seed), apart=True)
        rows = _paired_rows(encoded)
        with clock.timed("fit"):
            learned = _some(rows, _MOST_FITTED, options.seed)
            model = learning.fitted(encoded.pairs_apart(session.cache, learned), options, callback)
        model.attach_encoders(**encoded.encoders)
        with clock.timed("audit"):
            some = _some(rows, _MOST_AUDITED, options.seed)
            pairs, names = encoded.pairs(session.cache, some), encoded.picked("ids", some)
            audit = learning.audit(model, pairs, names, callback)
        with clock.timed("index"):
            n_documents = _write_index(session, beside, target, model, encoded)
    beside.keep_audit(audit)
    beside.keep_training(encoded.picked("ids", encoded.repeated(learned)))
    beside.keep_local_encoders(specs)
    skipped = [*documents.skipped, *encoded.skipped]
    return Built(target, model, n_documents, len(rows), skipped, clock.seconds)


class _Clock:
    """Seconds by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[stage] = time.perf_counter() - began


def _ready_encoders(specs: Mapping[str, str]) -> dict[str, Encoder]:
    """Those that need not learn, before any picture is read: what is missing is said at once."""
    from crossbyte.encoders.choosing import make_encoder

    return {side: make_encoder(spec, side, ()) for side, spec in specs.items() if spec != BUILTIN}


def _chooser(session: Workshop, ready: Mapping[str, Encoder], seed: int) -> Any:
    def encoder_of(side: str, pieces: Pieces) -> Encoder:
        if side in ready:
            return ready[side]
        if side == "image":
            return learned_pictures(session, pieces.picture_ids, pieces.paths, seed)
        return learned_texts(session, [each for some in pieces.captions for each in some], seed)

    return encoder_of


def _paired_rows(encoded: EncodedDocuments) -> list[int]:
    """Rows of documents that can be learned from."""
    rows = encoded.rows(("image", "text"))
    learning.check_enough(len(rows), *(len(encoded.digests[side]) for side in ("image", "text")))
    return rows


def _some(rows: list[int], most: int, seed: int) -> list[int]:
    """These rows, or a sample of them."""
    if len(rows) <= most:
        return rows
    chosen = np.sort(np.random.default_rng(seed).permutation(len(rows))[:most])
    return [rows[at] for at in chosen.tolist()]


def _write_index(
    session: Workshop, beside: Beside, target: Path, model: CMCQ, encoded: EncodedDocuments
) -> int:
    """Write the index under another name, then give it its own: it is there whole, or not at all."""
    made = beside.folder / "building.cb"
    _remove(made)
    try:
        with Index.create(made, model, n_jobs=model.n_jobs) as index:
            for block in encoded.blocks(session.cache, _ROWS_AT_ONCE):
                index.add(**block, callback=session.callback)
            n_documents = len(index)
            if session.thumbnails is not None:
                session.thumbnails.keep_only(index.ids())
        _check_untaken(target)  # a name that was taken meanwhile would be replaced
        os.rename(made, target)
    except BaseException:
        _remove(made)
        raise
    flush_folder(str(target.parent))
    return n_documents


def _remove(path: Path) -> None:
    for name in (path, Path(f"{path}{JOURNAL}")):
        with suppress(FileNotFoundError):
            name.unlink()
