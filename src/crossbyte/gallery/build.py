"""Build an index from pictures and texts (encode, fit, measure, write), or add such documents to one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from crossbyte._fs import check_free, flush_folder
from crossbyte.data.captions.raw_documents import RawDocuments, Skipped, loosen_groups
from crossbyte.encoders.base import Encoder
from crossbyte.encoders.catalogue import find_network
from crossbyte.errors import DuplicateId, FitInterrupted, InvalidInput
from crossbyte.gallery import encode
from crossbyte.gallery.companion import CompanionFiles
from crossbyte.gallery.gallery import Gallery
from crossbyte.gallery.trial import LENGTHS, TrialResult, TrialRunner, hold_out, remove_index
from crossbyte.index.docids import Id, check_ids
from crossbyte.index.index import Index
from crossbyte.index.lexical import WordSettings, count_mean_words
from crossbyte.index.mutations import check_payloads, check_wanted_codes
from crossbyte.index.storage.database import FORMATS, has_word_search, real_path
from crossbyte.index.storage.lock import WriterLock
from crossbyte.model.estimator import CMCQ
from crossbyte.model.pair_audit import audit_pairs
from crossbyte.model.params import IMAGE_COMPONENTS, LIKELIHOOD_DIMS
from crossbyte.model.selection import MIN_GROUPS
from crossbyte.progress import ProgressCallback, Watch, ignore_progress

MIN_PAIRS = 2
USUAL_MAPPING = "cca"
USUAL_BITS = 32
"""Bits per item, where nothing else is chosen."""
SHARED_SPACE_BITS = 128
"""The same of encoders that share a space, which have many dimensions that count."""
USUAL_CURVE = (2, 4, 8, 16)
"""Bytes per item at which quality is measured, where nothing else is chosen."""
WORD_FIELDS = ("captions",)
"""Payload fields whose words are searched."""
_TEXT_COMPONENTS = 512  # of wide texts: words by the thousand would only be learned by heart
_MANY_GROUPS = 4_000  # that tell of more dimensions than the first; of fewer pairs, long codes learn chance
_MOST_ROWS = 200
_MOST_FITTED = 20_000  # documents, with all their captions; more teach the codes nothing, and take memory
_MOST_AUDITED = 20_000
_ROWS_AT_ONCE = 20_000
_LONGEST_QUOTE = 60


@dataclass
class BuildResult:
    """What :func:`build_gallery` made.

    Attributes
    ----------
    path : Path
        Of the index.
    model : CMCQ
    n_documents, n_pairs : int
        In the index; pairs are documents with a picture and a text.
    skipped : list of Skipped
        What was left out, and why.
    reasons : dict of side to str
        Why the encoders were chosen that nobody named.
    seconds : dict of str to float
        By stage.
    n_groups : int
        Of the pairs; quality is measured from 20 on.
    grouping : str or None
        Why pictures that share captions were not held out together; None where they were.
    """

    path: Path
    model: CMCQ
    n_documents: int
    n_pairs: int
    skipped: list[Skipped]
    reasons: dict[str, str]
    seconds: dict[str, float] = field(default_factory=dict)
    n_groups: int = 0
    grouping: str | None = None


def build_gallery(
    documents: RawDocuments,
    path: str | os.PathLike[str],
    *,
    n_bits: int | None = None,
    image_encoder: str | None = None,
    text_encoder: str | None = None,
    mapping: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    seed: int = 0,
    n_jobs: int | None = None,
    curve: Sequence[int] | None = USUAL_CURVE,
    codes: str | None = None,
    thumbnails: bool = True,
    callback: ProgressCallback | None = None,
) -> BuildResult:
    """Make an index of pictures and texts, with its model, encoders, report and thumbnails.

    Nothing is at ``path`` before the end. Features are kept beside it (``path`` with ``.files``) as they are
    made, so a call that was interrupted or failed goes on where it was when it is made again.

    Parameters
    ----------
    documents : RawDocuments
        As :func:`crossbyte.data.captions.layout.read_raw` gives them. Those with a picture and a text are
        learned from; all go into the index.
    path : path-like
        Of the index; nothing may be there yet.
    n_bits : int or None
        Bits per item; 8 make a byte. None for as many as help held-out pairs, 4 to 64 bytes; 4 bytes where
        there are too few to measure.
    image_encoder, text_encoder : str, optional
        "builtin", "static", the name of a downloaded network, the path of an ``.onnx`` file or of a CLIP
        folder, "sentence-transformers:NAME", "open-clip:NAME" or "module:function". Without one, the best
        that is on this machine: ``BuildResult.reasons`` says which, and why.
    mapping : str or None
        The common space. None: "joint" where one encoder of both sides is named whose pictures and texts are
        in one space (CLIP), which needs no captions at all, else "cca". "auto" tries preparations on
        held-out pairs; with fewer than 20 groups it is "cca".
    parameters : mapping, optional
        Other parameters of :class:`crossbyte.CMCQ`.
    seed : int
    n_jobs : int or None
        Threads, and processes that decode; None for all cores.
    curve : sequence of int or None
        Bytes per item at which the report measures quality, too; None to measure nothing. The usual ones are
        left out where a trial on held-out captions has measured some (``Index.word_settings.measured``). With
        fewer than 20 groups nothing is measured, either.
    codes : {"document", "sides"}, optional
        What documents with a picture and a text get, as in :meth:`crossbyte.Index.add`.
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
    _check_name_free(target)
    check_free(target, overwrite=False)
    options = FitOptions(n_bits, mapping, dict(parameters or {}), seed, n_jobs, curve, codes=codes)
    named = {"image": image_encoder, "text": text_encoder}
    specs = {side: spec for side, spec in named.items() if spec is not None}
    return build_at_free_path(documents, target, options, specs, thumbnails=thumbnails, callback=callback)


def build_at_free_path(
    documents: RawDocuments,
    target: Path,
    options: FitOptions,
    specs: Mapping[str, str],
    *,
    thumbnails: bool = True,
    callback: ProgressCallback | None = None,
) -> BuildResult:
    """Do the work of :func:`build_gallery`, whose caller has seen that nothing is at the path.

    Parameters
    ----------
    documents : RawDocuments
    target : Path
        The real path of the index.
    options : FitOptions
    specs : mapping of side to str
        The encoders that were named, as of :func:`build_gallery`.
    thumbnails : bool
    callback : callable, optional
    """
    watch = Watch(callback or ignore_progress)
    options = options.choose_mapping(specs)
    documents, grouping = loosen_groups(documents)
    _check_documents(documents, options)
    lock = WriterLock.acquire(str(target))  # before the folder is touched: two runs would mix
    try:
        built = _build(documents, target, options, specs, watch, thumbnails)
        return replace(built, grouping=grouping)
    except KeyboardInterrupt:
        raise FitInterrupted(
            f"interrupted {watch}: there is no {target.name} yet, but what was encoded is kept; run the same "
            "command again to go on from there"
        ) from None
    finally:
        lock.release()


def _check_documents(documents: RawDocuments, options: FitOptions) -> None:
    """Check all that can be checked before any long work."""
    options.check_codes(make_model(options, 0))
    check_ids(documents.ids)
    check_payloads(documents.payloads, len(documents))
    parts = encode.DocumentParts(documents)
    check_enough_items(parts.n_pairs, len(parts.paths), len(parts.captions), options)
    with_picture = set(parts.picture_rows)
    named = zip(parts.text_rows, parts.captions, strict=True)
    _check_captions_differ([captions for row, captions in named if row in with_picture])


def _check_captions_differ(captions: Sequence[Sequence[str]]) -> None:
    """Refuse pictures that all have the same captions: nothing tells one from the other."""
    if len(captions) >= MIN_PAIRS and len(set(map(frozenset, captions))) == 1:
        first = captions[0][0]
        said = first if len(first) <= _LONGEST_QUOTE else f"{first[:_LONGEST_QUOTE]}…"
        raise InvalidInput(
            f"expected captions that differ, but all {len(captions)} pictures have the same ({said!r}), "
            "which tells none from another; say what each picture shows, or leave the captions out and take "
            "a network whose pictures and texts share a space (CLIP): `crossbyte fit FOLDER --encoder NAME`"
        )


def _check_name_free(target: Path) -> None:
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
) -> BuildResult:
    reasons, specs = _choose_encoders(specs, documents)
    ready, files, clock = _make_given_encoders(specs), CompanionFiles.of(target), _StageClock()
    opened = encode.EncodingSession.open(
        files, thumbnails=thumbnails, n_jobs=options.n_jobs, callback=callback
    )
    with opened as session:
        with clock.timed("encode"):
            chooser = _make_encoder_chooser(session, ready, options.seed)
            encoded = encode.encode_documents(session, documents, chooser)
            encoded = _add_text_encoder(encoded, documents, chooser, options)
        rows = _list_paired_rows(encoded, options)
        with clock.timed("trial"):
            tried = _try_gallery(session, documents, encoded, rows, options, chooser, files.folder, callback)
            options = options._replace(n_bits=8 * tried.n_bytes)
            if len(tried.settings.measured.get("curve", ())) > 1 and options.has_usual_curve:
                options = options._replace(curve=())  # the trial has measured it
        with clock.timed("fit"):
            learned = _sample_rows(rows, _MOST_FITTED, options.seed)
            if options.mapping == "joint":
                model = _fit_shared_space(session, encoded, learned, options, callback)
            else:
                model = fit_model(encoded.pair_captions(session.cache, learned), options, callback)
        model.attach_encoders(**encoded.encoders)
        with clock.timed("audit"):
            some = _sample_rows(rows, _MOST_AUDITED, options.seed)
            audit = None
            if some:
                pairs, names = encoded.pairs(session.cache, some), encoded.values("ids", some)
                audit = audit_model(model, pairs, names, callback)
        with clock.timed("index"):
            n_documents = _write_index(session, files, target, model, encoded, tried.settings, options.codes)
    files.keep_audit(audit)
    files.keep_training(encoded.values("ids", encoded.repeat_by_captions(learned)))
    files.keep_local_encoders({side: spec for side, spec in specs.items() if find_network(spec) is None})
    skipped = [*documents.skipped, *encoded.skipped]
    n_groups = len(set(encoded.group_numbers(rows).tolist()))
    return BuildResult(target, model, n_documents, len(rows), skipped, reasons, clock.seconds, n_groups)


class _StageClock:
    """Seconds by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[stage] = time.perf_counter() - began


def _choose_encoders(
    named: Mapping[str, str], documents: RawDocuments
) -> tuple[dict[str, str], dict[str, str]]:
    """Choose the encoders that nobody named; return why, by side, and the specifications of both sides."""
    from crossbyte.encoders.registry import default_image_encoder, default_text_encoder

    chosen: dict[str, tuple[str, str]] = {}
    if "image" not in named:
        chosen["image"] = default_image_encoder()
    if "text" not in named:
        chosen["text"] = default_text_encoder([each for some in documents.texts for each in some])
    reasons = {side: reason for side, (_, reason) in chosen.items()}
    return reasons, {**named, **{side: spec for side, (spec, _) in chosen.items()}}


def _make_given_encoders(specs: Mapping[str, str]) -> dict[str, Encoder]:
    """Make the encoders that need no training before any picture is read, so that errors come first."""
    from crossbyte.encoders.registry import make_encoder

    return {side: make_encoder(spec, side, ()) for side, spec in specs.items() if spec != encode.BUILTIN}


def _make_encoder_chooser(session: encode.EncodingSession, ready: Mapping[str, Encoder], seed: int) -> Any:
    def encoder_of(side: str, parts: encode.DocumentParts) -> Encoder:
        if side in ready:
            return ready[side]
        if side == "image":
            return encode.learn_picture_encoder(session, parts.picture_ids, parts.paths, seed)
        return encode.learn_text_encoder(session, [each for some in parts.captions for each in some], seed)

    return encoder_of


def _try_gallery(
    session: encode.EncodingSession,
    documents: RawDocuments,
    encoded: encode.EncodedDocuments,
    rows: list[int],
    options: FitOptions,
    chooser: Any,
    folder: Path,
    callback: ProgressCallback,
) -> TrialResult:
    """Choose bytes and fusion on held-out documents; the usual ones where there are too few."""
    bits = options.n_bits or (SHARED_SPACE_BITS if options.mapping == "joint" else USUAL_BITS)
    words = WordSettings(WORD_FIELDS, mean_words=count_mean_words(documents.payloads, WORD_FIELDS))
    usual = TrialResult(bits // 8, words)
    held_out = hold_out(encoded, rows, options.seed) if options.curve is not None else None
    if held_out is None or not has_word_search():
        return usual
    n_groups = max(MIN_GROUPS, len(set(encoded.group_numbers(rows).tolist())))
    width = encoded.features(session.cache, "text", held_out.learned[:1]).shape[1]

    # One round of codes and codewords tells what a length is worth, in half the time.
    once = {} if options.mapping in ("sparse", "contrastive") else {"max_iter": 1}
    parameters = once | dict(options.parameters)

    def make(n_bytes: int) -> CMCQ:
        return make_model(options._replace(n_bits=8 * n_bytes, parameters=parameters), n_groups, width)

    encoder = chooser("text", encode.DocumentParts(documents))
    runner = TrialRunner(session, encoded, held_out, encoder, make, folder, words)
    return runner.run(LENGTHS if options.n_bits is None else (bits // 8,), callback)


def _list_paired_rows(encoded: encode.EncodedDocuments, options: FitOptions) -> list[int]:
    """List the rows of documents that pairs can be learned from."""
    rows = encoded.rows(("image", "text"))
    n_pictures, n_texts = (len(encoded.digests[side]) for side in ("image", "text"))
    check_enough_items(len(rows), n_pictures, n_texts, options)
    _check_captions_differ([encode.drop_empty_captions(texts) for texts in encoded.values("texts", rows)])
    if len(rows) >= MIN_PAIRS and len({encoded.digests["image"][row][0] for row in rows}) == 1:
        raise InvalidInput(
            f"expected pictures that differ, but the {len(rows)} with captions are all the same picture; "
            "give others"
        )
    return rows


def _add_text_encoder(
    encoded: encode.EncodedDocuments, documents: RawDocuments, chooser: Any, options: FitOptions
) -> encode.EncodedDocuments:
    """Keep the encoder of texts where there are none: questions will come."""
    if options.mapping != "joint" or "text" in encoded.encoders:
        return encoded
    state = chooser("text", encode.DocumentParts(documents)).state
    return replace(encoded, encoders={**encoded.encoders, "text": state})


def _fit_shared_space(
    session: encode.EncodingSession,
    encoded: encode.EncodedDocuments,
    paired: list[int],
    options: FitOptions,
    callback: ProgressCallback,
) -> CMCQ:
    """Fit on everything, pairs first: codes are learned from all, and pairs refine the space."""
    alone = {
        side: _sample_rows(encoded.rows((side,)), _MOST_FITTED, options.seed) for side in ("image", "text")
    }
    if len(paired) >= MIN_PAIRS and not alone["image"] and not alone["text"]:
        return fit_model(encoded.pair_captions(session.cache, paired), options, callback)
    if len(paired) < MIN_PAIRS:  # as if nobody knew which text belongs to which picture
        images = encoded.features(session.cache, "image", [*paired, *alone["image"]])
        with_text = [*paired, *alone["text"]]
        texts = encoded.features(session.cache, "text", with_text) if len(with_text) > 1 else None
        return make_model(options, 0, 1, callback).fit(images, texts, paired=False)
    pairs = encoded.pair_captions(session.cache, paired)
    images, texts = (
        np.vstack([np.asarray(own), np.asarray(encoded.features(session.cache, side, alone[side]))])
        if alone[side]
        else own
        for side, own in (("image", pairs.images), ("text", pairs.texts))
    )
    model = make_model(options, pairs.n_groups, 1, callback)
    model.fit(images, texts, groups=pairs.groups, paired=len(pairs.groups))
    if options.curve is not None and pairs.n_groups >= MIN_GROUPS:
        model.calibrate(*pairs, curve=options.curve)
    return model


def _sample_rows(rows: list[int], most: int, seed: int) -> list[int]:
    """Give all rows, or a sample of ``most`` of them."""
    if len(rows) <= most:
        return rows
    chosen = np.sort(np.random.default_rng(seed).permutation(len(rows))[:most])
    return [rows[at] for at in chosen.tolist()]


def _write_index(
    session: encode.EncodingSession,
    files: CompanionFiles,
    target: Path,
    model: CMCQ,
    encoded: encode.EncodedDocuments,
    words: WordSettings,
    codes: str | None,
) -> int:
    """Write the index under another name, then give it its own: it is there whole, or not at all."""
    made = files.folder / "building.cb"
    remove_index(made)
    try:
        kept = words if has_word_search() else None
        with Index.create(made, model, words=kept, n_jobs=model.n_jobs) as index:
            for block in encoded.blocks(session.cache, _ROWS_AT_ONCE):
                index.add(**block, codes=codes, callback=session.callback)
            n_documents = len(index)
            if session.thumbnails is not None:
                session.thumbnails.keep_only(index.ids())
        _check_name_free(target)  # a name that was taken meanwhile would be replaced
        os.rename(made, target)
    except BaseException:
        remove_index(made)
        raise
    flush_folder(str(target.parent))
    return n_documents


class AddResult(NamedTuple):
    """How many documents were added, and which were left out and why."""

    n_added: int
    skipped: list[Skipped]


def add_documents(
    gallery: Gallery,
    documents: RawDocuments,
    *,
    upsert: bool = False,
    codes: str | None = None,
    batch: int = 20_000,
    thumbnails: bool = True,
    n_jobs: int | None = None,
    callback: ProgressCallback | None = None,
) -> AddResult:
    """Add documents with the encoders that the index was made with.

    What is encoded is kept beside the index, so that a call that was interrupted goes on where it was.

    Parameters
    ----------
    gallery : Gallery
        Open for writing.
    documents : RawDocuments
    upsert : bool
        Replace documents of the same ids.
    codes : {"document", "sides"}, optional
        As in :meth:`crossbyte.Index.add`.
    batch : int
        Documents per commit.
    thumbnails : bool
    n_jobs : int or None
        Processes that decode; None for all cores.
    callback : callable, optional

    Raises
    ------
    DuplicateId, InvalidInput, NoEncoder, WrongEncoder, MissingExtra
        Before any long work.
    """
    _check_new_documents(gallery, documents, upsert, codes)
    opened = encode.EncodingSession.open(
        gallery.files, thumbnails=thumbnails, n_jobs=n_jobs, callback=callback or ignore_progress
    )
    with opened as session:
        encoded = encode.encode_documents(session, documents, lambda side, _: gallery.encoder(side))
        write = gallery.index.upsert if upsert else gallery.index.add
        n_added = sum(
            write(**block, codes=codes, callback=session.callback)
            for block in encoded.blocks(session.cache, batch)
        )
    return AddResult(n_added, [*documents.skipped, *encoded.skipped])


def _check_new_documents(gallery: Gallery, documents: RawDocuments, upsert: bool, codes: str | None) -> None:
    index = gallery.index
    check_wanted_codes(codes, index.model.fitted_.has_document_codes, index.format)
    for id in check_ids(documents.ids):
        if not upsert and id in gallery.index:
            raise DuplicateId(
                f"ids: {id!r} is in the index already; use upsert=True in add_documents(…) to replace it"
            )
    parts = encode.DocumentParts(documents)
    for side, items in (("image", parts.paths), ("text", parts.captions)):
        if items:
            gallery.encoder(side)


def take_documents(documents: RawDocuments, rows: Sequence[int]) -> RawDocuments:
    """Give some of the documents; the list of those that were skipped stays."""
    return replace(
        documents,
        ids=[documents.ids[row] for row in rows],
        pictures=[documents.pictures[row] for row in rows],
        texts=[documents.texts[row] for row in rows],
        payloads=[documents.payloads[row] for row in rows],
        groups=[documents.groups[row] for row in rows],
    )


# The model


class FitOptions(NamedTuple):
    """Parameters of a model, and of its fit.

    Attributes
    ----------
    n_bits : int or None
        None where it is still to be chosen.
    mapping : str or None
        None for the one that suits the encoders.
    parameters : dict
        Others of CMCQ.
    seed : int
    n_jobs : int or None
    curve : sequence of int or None
        Bytes at which quality is measured; None to measure nothing.
    max_memory : int or None
        Bytes; what the fit needs beyond these is on disk.
    cluster : str or None
        Where Ray is that the fit works on.
    codes : {"document", "sides"} or None
        What documents with both halves get in the index; None for the model's own choice.
    """

    n_bits: int | None
    mapping: str | None
    parameters: dict[str, Any]
    seed: int
    n_jobs: int | None
    curve: Sequence[int] | None
    max_memory: int | None = None
    cluster: str | None = None
    codes: str | None = None

    @property
    def has_usual_curve(self) -> bool:
        """Whether nobody has chosen the bytes at which quality is measured."""
        return self.curve is not None and tuple(self.curve) == USUAL_CURVE

    def model(self, callback: ProgressCallback | None = None, **usual: Any) -> CMCQ:
        """Make the estimator; ``usual`` parameters are taken where others are not given."""
        given = {
            "n_bits": USUAL_BITS if self.n_bits is None else self.n_bits,
            "mapping": self.mapping or USUAL_MAPPING,
            "random_state": self.seed,
            "n_jobs": self.n_jobs,
        }
        return CMCQ(**(usual | self.parameters | given), callback=callback)

    def choose_mapping(self, specs: Mapping[str, str]) -> FitOptions:
        """Take the space that both encoders share, where no mapping was named and they do."""
        from crossbyte.encoders.registry import name_one_space

        if self.mapping is not None:
            return self
        are_shared = {"image", "text"} <= set(specs) and name_one_space(specs["image"], specs["text"])
        return self._replace(mapping="joint" if are_shared else USUAL_MAPPING)

    def fit_arguments(self) -> dict[str, Any]:
        """Give the arguments of ``CMCQ.fit`` that are no parameters of a model."""
        given = {"max_memory": self.max_memory, "cluster": self.cluster}
        return {name: value for name, value in given.items() if value is not None}

    def check_codes(self, model: CMCQ) -> None:
        """Check the parameters of an estimator before its fit, and that it will have the wanted codes."""
        from crossbyte.model.params import check_parameters

        check_wanted_codes(self.codes, check_parameters(model).one_code, FORMATS[-1])


def make_model(
    options: FitOptions, n_groups: int, text_width: int = 1, callback: ProgressCallback | None = None
) -> CMCQ:
    """Make the estimator for raw documents; with too few groups to try spaces on, with the simplest space."""
    if options.mapping == "auto" and n_groups < MIN_GROUPS:
        options = options._replace(mapping="cca")
    usual: dict[str, Any] = {} if options.mapping != "sparse" else {"cross_term": "constant"}
    if options.mapping in ("cca", "auto") and n_groups < _MANY_GROUPS:
        usual |= {"n_components": LIKELIHOOD_DIMS, "image_components": IMAGE_COMPONENTS}
    if text_width > _TEXT_COMPONENTS and options.mapping != "joint":
        usual["text_components"] = _TEXT_COMPONENTS
    return options.model(callback, **usual)


def check_enough_items(n_pairs: int, n_pictures: int, n_texts: int, options: FitOptions) -> None:
    """Refuse what no model can be learned from; encoders that share a space need no pairs, but pictures."""
    if options.mapping != "joint":
        check_enough_pairs(n_pairs, n_pictures, n_texts)
    elif n_pictures < MIN_PAIRS:
        raise InvalidInput(
            f"expected at least {MIN_PAIRS} pictures to learn from, got {n_pictures} that can be read; give "
            "more, about 1,000 for good codes; captions are not needed"
        )


def check_enough_pairs(n_pairs: int, n_pictures: int, n_texts: int) -> None:
    """Refuse what no model can be learned from, and say what can be done with such pictures."""
    if n_pairs >= MIN_PAIRS:
        return
    expected = f"expected at least {MIN_PAIRS} pictures with a text to learn from, got"
    enough = (
        f"({MIN_PAIRS} at least, {MIN_GROUPS} and more to measure the quality, about 1,000 for good answers)"
    )
    if not n_pictures:
        raise InvalidInput(
            f"{expected} no picture that can be read, and {n_texts} texts; give pictures with captions "
            f"{enough}"
        )
    # All that can be done is behind one semicolon: the program prints it as a line of its own.
    raise InvalidInput(
        f"{expected} {n_pairs} of {n_pictures} pictures and {n_texts} texts; give captions to some of them "
        f"{enough}, or take a network whose pictures and texts share a space (CLIP), which needs "
        "no captions: `crossbyte fit FOLDER --encoder NAME` (`crossbyte encoders list` has names), or add "
        "the pictures to an index that was fitted elsewhere: `crossbyte add OTHER.cb FOLDER`"
    )


def fit_model(pairs: encode.Pairs, options: FitOptions, callback: ProgressCallback) -> CMCQ:
    """Fit, and measure where there are groups enough."""
    model = make_model(options, pairs.n_groups, pairs.texts.shape[1], callback).fit(*pairs)
    if options.curve is not None and pairs.n_groups >= MIN_GROUPS:
        model.calibrate(*pairs, curve=options.curve)
    return model


def audit_model(
    model: CMCQ, pairs: encode.Pairs, ids: Sequence[Id], callback: ProgressCallback
) -> dict[str, Any] | None:
    """List the pairs that look wrong, as they are kept; None where there are too few to compare."""
    if pairs.n_groups < MIN_GROUPS:
        return None
    document = audit_pairs(model, *pairs, callback=callback).to_dict()
    kept = {name: document[name] for name in ("n_pairs", "n_suspects", "agreement")}
    return kept | {"rows": [_add_ids(entry, ids) for entry in document["rows"][:_MOST_ROWS]]}


def _add_ids(entry: dict[str, Any], ids: Sequence[Id]) -> dict[str, Any]:
    better = entry["best_text"]
    figures = {name: value for name, value in entry.items() if name not in ("row", "best_text")}
    return {"id": ids[entry["row"]], **figures, "best_text_id": None if better is None else ids[better]}
