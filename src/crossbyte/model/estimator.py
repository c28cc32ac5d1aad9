"""Define CMCQ, the estimator: fit, calibrate, transform, encode, score, save and load."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from crossbyte import validation
from crossbyte._not_fitted import NotFitted
from crossbyte.arrays import Codes, Float32
from crossbyte.calibration import measure
from crossbyte.calibration.calibration import (
    Calibration,
    calibration_document,
    restore_calibration,
    restore_report,
)
from crossbyte.compute.executor import Executor, Workers, default_memory, keep_connected, make_executor
from crossbyte.data.ondisk import coerce_rows
from crossbyte.encoders.base import EncoderState
from crossbyte.errors import DamagedModelFile, FitInterrupted, InvalidInput, NotCalibrated
from crossbyte.model import fit as fitting
from crossbyte.model import persistence, selection
from crossbyte.model.file_format import (
    ModelContents,
    model_bytes,
    parse_model_bytes,
    read_model_file,
    write_model_file,
)
from crossbyte.model.fit import FittedModel, SharedFits
from crossbyte.model.objective import ObjectiveRecord
from crossbyte.model.params import (
    MAX_BITS,
    QUERY_MAPS,
    Settings,
    Trial,
    check_parameters,
    default_dims,
    make_generator,
)
from crossbyte.model.partner_ranks import PartnerRanks
from crossbyte.model.quantization.quantizer import Quantizer
from crossbyte.model.space.sparse import SparseSpace
from crossbyte.progress import ProgressCallback, Watch, ignore_progress
from crossbyte.report.model_report import Report

_NOT_IN_FILE = ("n_jobs", "callback")
# Parameters that came later, with their defaults: without them, older versions can read the file, too.
_ONLY_IF_CHANGED = {
    "ridge": None,
    "text_ridge": None,
    "memory": None,
    "image_power": None,
    "text_power": None,
    "scoring": None,
}


class CMCQ(BaseEstimator):
    """Collaborative quantization for cross-modal search.

    From pairs of image and text features (of any two encoders) it learns a common space and additive
    quantizers, so that an item (an image, a text, or a document with both) is ``n_bits / 8`` bytes; the
    distance from a query of either kind to an item is a sum of as many table entries. The defaults are what
    finds most without labels; :meth:`paper` makes the estimator of the paper.

    Parameters
    ----------
    n_bits : int, default=32
        Bits per item and side; a multiple of 8. One codebook of 256 words per byte.
    mapping : {"cca", "sparse", "contrastive", "joint", "auto"}, default="cca"
        The common space: regularised canonical correlation, the paper's sparse coding, the contrastive
        refinement of canonical correlation, or the space that two encoders share already (CLIP and its kind),
        which needs no pairs and is refined by pairs where held-out ones rank better so. "auto" is "cca" with
        powers, components and dimensions chosen on held-out pairs, at the cost of a few fits.
    scoring : {"likelihood", "unit"} or None, default=None
        How a canonical space is scored: by the likelihood of a Gaussian model of the pair, with a
        dictionary of images and texts and one of whole documents; or by points of unit length, with a
        dictionary for each side. None: by likelihood with "cca" and "auto" (unless ``shared_codebooks``) and
        with "joint", else unit length.
    n_components : int or None, default=None
        Dimensions of the common space; None for 128 (256 from 64 bits on) where scored by likelihood,
        512 with "joint", else ``n_bits``. At most the rank of a canonical space, or the width of a joint one.
    n_atoms : int, default=512
        Atoms of the image dictionary (sparse mapping).
    image_components, text_components : int or None, default=None
        PCA before the mapping. None: images 64 with "sparse", 512 from 64 bits on where scored by likelihood,
        and 256 otherwise; texts off.
    image_power, text_power : float or None, default=None
        Values are taken to this power first, signs apart; 0.5 (Hellinger) suits histograms, counts and
        activations. None: 0.5 for dense features that are nowhere negative, where scored by likelihood, and
        1 otherwise.
    ridge : float or None, default=None
        Added to every variance of a canonical space, in units of the side's mean variance. None: chosen on
        held-out pairs where scored by likelihood (for both sides), else 1.
    text_ridge : float or None, default=None
        The same for the texts, where it differs; the more, the nearer the space is to that of the texts.
    memory : int or None, default=None
        Training pairs that the model keeps, at most, to tell of items known from one half what their other
        half may look like; only where partners of held-out pairs then rank better. None: 12,000 where scored
        by likelihood; 0: none. Each takes 8 D bytes of the model.
    sparsity : float, default=0.3
        ρ, weight of the sparse codes' l1 norm.
    text_weight : float, default=0.7
        η, weight of the text reconstruction.
    alignment : float, default=0.7
        λ, weight of the distance between the two points of a pair.
    correlation : float, default=0.3
        γ, weight of the distance between the two codes of a pair, where it has two.
    cross_penalty : float, default=0.1
        μ, weight of the penalty that keeps cross terms constant, with two dictionaries.
    sparsity_mode : {"absolute", "ratio"}, default="absolute"
        ρ as it stands in the objective, or as a share of each sample's largest useful value.
    query_map : {"paper", "ridge"}, default="paper"
        How items without their other half are placed (sparse mapping): lasso and minimum-norm solution,
        or regressions learned from the training points. May be changed after fitting.
    shared_codebooks : bool, default=False
        One set of codebooks for both sides (the paper's ablation C = D).
    cross_term : {"stored", "constant"}, default="stored"
        At search, add the item's own cross term, rounded to a byte, or take it for its mean (the paper).
    max_iter : int, default=10
        Largest number of rounds, for the mapping alone and for the alternation.
    tol : float, default=1e-4
        A round that lowers the objective by a smaller share of it is the last.
    random_state : int, Generator, RandomState or None, default=None
        Seed. The same integer gives the same model, byte for byte, with any number of threads.
    n_jobs : int or None, default=None
        Threads; None for all cores. The result does not depend on it.
    callback : callable or None, default=None
        Called with a :class:`crossbyte.progress.Progress` after every step of a fit.

    Attributes
    ----------
    image_codebooks_, text_codebooks_ : (M, 256, D) float32
        C and D.
    image_codes_, text_codes_ : (N, M) uint8
        P and Q: codes of the training pairs; with one code per document (``document_codes_``), both are codes
        of what that stands for. Fitted without pairs, codes of the training images and of the training texts.
    image_cross_, text_cross_ : float
        ε₁ and ε₂: mean cross terms.
    image_dictionary_, text_basis_, image_map_ : ndarray
        B (A, d_I), U (D, d_T) and R (A, D); only with the sparse mapping.
    mapping_, n_components_, correlation_, cross_penalty_, cross_term_, ridge_, memory_
        What was used; with ``mapping="auto"``, what was chosen. ``memory_`` is the number of pairs kept.
    selection_ : list of Trial
        Everything that was tried on held-out pairs: ridges, how much a memory of pairs counts, and with
        ``mapping="auto"`` preparations. The score is minus the mean log rank of partners.
    objective_history_ : list of ObjectiveRecord
        The objective, term by term, after every block update; ``.total`` is its value.
    calibration_ : Calibration or None
        What searches need for offsets and probabilities; None before :meth:`calibrate`.
    report_ : Report
        What :meth:`calibrate` measured: ``print(model.report_)``, ``.to_dict()``, ``.to_html()``.
    encoder_states_ : dict of str to EncoderState
        What made the features, by side, as :meth:`attach_encoders` was told.
    n_features_in_, n_text_features_ : int
        Width of image and text features.
    fitted_ : FittedModel
        All of this as one immutable value, for code that searches, plans or explains with the model.

    References
    ----------
    T. Zhang, J. Wang: Collaborative Quantization for Cross-Modal Similarity Search. CVPR 2016.
    """

    _learned: FittedModel
    _trials: list[Trial]
    _calibration: Calibration | None
    _report: Report | None = None
    _encoders: Mapping[str, EncoderState] = MappingProxyType({})

    def __init__(
        self,
        n_bits: int = 32,
        *,
        mapping: str = "cca",
        scoring: str | None = None,
        n_components: int | None = None,
        n_atoms: int = 512,
        image_components: int | None = None,
        text_components: int | None = None,
        image_power: float | None = None,
        text_power: float | None = None,
        ridge: float | None = None,
        text_ridge: float | None = None,
        memory: int | None = None,
        sparsity: float = 0.3,
        text_weight: float = 0.7,
        alignment: float = 0.7,
        correlation: float = 0.3,
        cross_penalty: float = 0.1,
        sparsity_mode: str = "absolute",
        query_map: str = "paper",
        shared_codebooks: bool = False,
        cross_term: str = "stored",
        max_iter: int = 10,
        tol: float = 1e-4,
        random_state: Any = None,
        n_jobs: int | None = None,
        callback: ProgressCallback | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.mapping = mapping
        self.scoring = scoring
        self.n_components = n_components
        self.n_atoms = n_atoms
        self.image_components = image_components
        self.text_components = text_components
        self.image_power = image_power
        self.text_power = text_power
        self.ridge = ridge
        self.text_ridge = text_ridge
        self.memory = memory
        self.sparsity = sparsity
        self.text_weight = text_weight
        self.alignment = alignment
        self.correlation = correlation
        self.cross_penalty = cross_penalty
        self.sparsity_mode = sparsity_mode
        self.query_map = query_map
        self.shared_codebooks = shared_codebooks
        self.cross_term = cross_term
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.callback = callback

    @classmethod
    def paper(cls, n_bits: int = 32, **parameters: Any) -> Self:
        """Make the estimator of the paper, to the letter: its mapping, two dictionaries, mean cross terms.

        Parameters
        ----------
        n_bits : int
        parameters
            Others of CMCQ.
        """
        return cls(n_bits, **({"mapping": "sparse", "cross_term": "constant"} | parameters))

    # Fitting

    def fit(
        self,
        images: Any,
        texts: Any,
        groups: Any = None,
        *,
        paired: bool | int = True,
        cluster: str | None = None,
        max_memory: str | int | None = None,
        shared: SharedFits | None = None,
    ) -> Self:
        """Learn from pairs: row i of ``images`` belongs to row i of ``texts``, or what ``paired`` says.

        The same rows give the same model, byte for byte, wherever they are stored and processed.

        Parameters
        ----------
        images : (N, d_I) array or sparse matrix, or rows on disk
            Rows on disk are what :func:`crossbyte.open_rows` gives, or the path that it takes; a memory map,
            which is read through its file; or an iterable of blocks (arrays or sparse matrices of one width),
            which is written to scratch files once. An iterator will do, and is used up.
        texts : (N, d_T) array or sparse matrix, or rows on disk
            Never made dense as a whole. With ``paired=False``, any number of texts, or None: both sides are
            then compared as they are, not centred, and texts are coded by what was learned from images.
        groups : (N,) labels, optional
            Rows of one group (captions of one picture) are held out together in selection. Where only the
            first rows are pairs, one label for each of these.
        paired : bool or int
            False where nobody knows which text belongs to which image, or how many of the first rows of both
            sides are pairs; only with ``mapping="joint"``. Codes are learned from all rows, and the pairs say
            how the space is refined.
        cluster : str, optional
            ``"local"`` to start Ray on this machine, or the address of a Ray cluster; by default, threads.
        max_memory : int or str, optional
            Bytes, or text like ``"1.5GB"``, for what is kept of every row during the fit; larger arrays of
            rows are in scratch files, in the folder that ``TMPDIR`` names. By default a quarter of the
            machine's memory if a side is on disk, and no bound otherwise. Libraries (some 200 MB), and about
            100 MB for each thread, come on top; the codes, 2 ``n_bits`` / 8 bytes a pair, are in memory.
        shared : SharedFits, optional
            Of fits with other ``n_bits`` on the same arrays: what no length changes is learned once.

        Raises
        ------
        InvalidInput
            Before any long work starts.
        StorageFull
            The disk of the scratch files is full; the model is as it was before.
        ClusterError, MissingExtra
            There is no such cluster, it was lost, or Ray is not installed; the model is as it was before.
        FitInterrupted
            On Ctrl-C; the model is as it was before.
        """
        if texts is None and paired:
            raise InvalidInput(
                "fit requires y to be passed, but the target y is None: expected the texts, row by row; of "
                "encoders that share a space, images alone will do: mapping='joint', paired=False"
            )
        is_paired, n_pairs = _check_paired(paired, groups, self.mapping)
        settings = check_parameters(self)._replace(paired=is_paired, n_pairs=n_pairs)
        executor = make_executor(self.n_jobs, cluster=cluster, max_memory=max_memory)
        watch = Watch(self.callback or ignore_progress)
        rng = make_generator(self.random_state)
        try:
            with keep_connected(cluster, self.n_jobs):  # a missing cluster is refused before rows are read
                raw = _check_rows(images, texts, settings)
                labels = validation.check_groups(groups, n_pairs or raw[0].shape[0])
                if cluster is None and max_memory is None and any(map(validation.is_stored, raw)):
                    executor = make_executor(self.n_jobs, max_memory=default_memory())
                with executor as workers:
                    settings, trials = self._choose_settings(settings, raw, labels, rng, watch, workers.local)
                    learned = fitting.fit_pairs(settings, *raw, labels, rng, watch, workers, trials, shared)
        except KeyboardInterrupt:
            raise FitInterrupted(f"fit was interrupted {watch}; the model is as it was before") from None
        validate_data(self, raw[0] if validation.is_stored(raw[0]) else images, skip_check_array=True)
        self._learned, self._trials = learned, trials
        self._calibration = self._report = None
        self._encoders = {}
        return self

    def _choose_settings(
        self,
        settings: Settings,
        raw: tuple[Any, Any],
        labels: NDArray[np.intp],
        rng: np.random.Generator,
        watch: Watch,
        workers: Executor,
    ) -> tuple[Settings, list[Trial]]:
        """Choose settings on held-out pairs where the mapping is left open; also returns every trial made."""
        if self.mapping != "auto":
            return settings, []
        return selection.choose_space(settings, *raw, labels, rng, watch, workers)

    def calibrate(
        self, images: Any, texts: Any, groups: Any = None, *, curve: Sequence[int] | None = measure.CURVE
    ) -> Self:
        """Measure on held-out pairs how well this model finds partners: ``calibration_`` and ``report_``.

        The model is fitted again on 90 % of the groups (a refit) and measured on the others; the model itself
        stays as it is. For the curve, there are refits of other code lengths too (on a sample, beyond
        20,000 pairs). A later ``fit`` forgets everything.

        Of pairs that are on disk, only a sample of whole groups with at most 20,000 pairs is read, and
        everything is measured on these; ``report_.n_pairs`` says how many they were.

        Parameters
        ----------
        images, texts, groups
            As for :meth:`fit`, usually the same rows; at least 20 groups. Held-out items are coded from one
            side alone.
        curve : sequence of int or None
            Bytes per item at which quality is measured; empty for no curve, which is quicker. None for the
            same ``calibration_`` without a report, which is the quickest: nothing is compared with others.

        Raises
        ------
        InvalidInput
            Before any long work starts; also if there are too few groups to hold out any.
        FitInterrupted
            On Ctrl-C; the model is as it was before.
        """
        pairs = self.fitted_.check_pairs(coerce_rows(images, "images"), coerce_rows(texts, "texts"), groups)
        widths = curve
        if curve is not None:
            widths = [validation.check_integer(width, "curve", 1, MAX_BITS // 8) for width in curve]
        watch, rng = Watch(self.callback or ignore_progress), make_generator(self.random_state)
        try:
            with Workers(self.n_jobs) as workers:
                pairs = measure.load_pairs(pairs, rng)
                calibration, report = measure.measure_model(
                    self._settings_at, self._n_codebooks, pairs, widths, rng, watch, workers
                )
        except KeyboardInterrupt:
            raise FitInterrupted(
                f"calibrate was interrupted {watch}; the model is as it was before"
            ) from None
        self._calibration, self._report = calibration, report
        return self

    def attach_encoders(self, *, image: EncoderState | None = None, text: EncoderState | None = None) -> Self:
        """Record what made the features, so that queries are encoded the same way; ``fit`` forgets it.

        Parameters
        ----------
        image, text : EncoderState, optional
            The ``state`` of an encoder; None for features that came from elsewhere.

        Raises
        ------
        InvalidInput
            Its features have another width than the model's.
        """
        learned = self.fitted_
        widths = {"image": learned.image_preparation.n_features, "text": learned.text_preparation.n_features}
        given = {side: state for side, state in (("image", image), ("text", text)) if state is not None}
        self._encoders = {
            side: persistence.check_encoder(side, state, widths[side]) for side, state in given.items()
        }
        return self

    def _settings_at(self, n_bytes: int) -> Settings:
        """Return the settings of this model with another code length."""
        settings = self.fitted_.settings
        # whoever measures has pairs alone; a model that has used none is measured as such
        settings = settings._replace(paired=settings.paired or settings.n_pairs > 0, n_pairs=0)
        if n_bytes == settings.n_codebooks:
            return settings
        is_set = self.n_components is not None or (self.mapping == "auto" and settings.one_code)
        is_set = is_set or settings.mapping == "joint"
        n_components = settings.n_components if is_set else default_dims(n_bytes, settings.one_code)
        return settings._replace(n_codebooks=n_bytes, n_components=n_components)

    # What was learned

    @property
    def fitted_(self) -> FittedModel:
        """Everything that was learned, as one immutable value, with the query map that is set now.

        Raises
        ------
        NotFitted
            Before ``fit``.
        """
        self._check_fitted()
        learned = self._learned
        if self.query_map == learned.settings.query_map or not isinstance(learned.space, SparseSpace):
            return learned
        query_map = validation.check_choice(self.query_map, "query_map", QUERY_MAPS)
        settings = learned.settings._replace(query_map=query_map)
        return replace(learned, settings=settings, space=replace(learned.space, query_map=query_map))

    @property
    def image_codebooks_(self) -> Float32:
        """(M, 256, D) codebooks C of the images."""
        return self.fitted_.image_quantizer.codewords

    @property
    def text_codebooks_(self) -> Float32:
        """(M, 256, D) codebooks D of the texts."""
        return self.fitted_.text_quantizer.codewords

    @property
    def image_codes_(self) -> Codes:
        """(N, M) codes P of the training images; with one code per document, what that stands for, in C."""
        return self.fitted_.codes_by_side["image"]

    @property
    def text_codes_(self) -> Codes:
        """(N, M) codes Q of the training texts; with one code per document, what that stands for, in D."""
        return self.fitted_.codes_by_side["text"]

    @property
    def document_codes_(self) -> Codes | None:
        """(N, M) codes of the training documents, one each; None where each half has its own."""
        return self.fitted_.document_codes

    @property
    def image_cross_(self) -> float:
        """Mean cross term ε₁ of the images."""
        return self.fitted_.image_quantizer.epsilon

    @property
    def text_cross_(self) -> float:
        """Mean cross term ε₂ of the texts."""
        return self.fitted_.text_quantizer.epsilon

    @property
    def image_dictionary_(self) -> NDArray[np.float64]:
        """(A, d_I) image dictionary B."""
        return self._sparse_space("image_dictionary_").image_dictionary

    @property
    def text_basis_(self) -> NDArray[np.float64]:
        """(D, d_T) text basis U."""
        return self._sparse_space("text_basis_").text_basis

    @property
    def image_map_(self) -> NDArray[np.float64]:
        """(A, D) image map R."""
        return self._sparse_space("image_map_").image_map

    @property
    def mapping_(self) -> str:
        """The mapping in use."""
        return self.fitted_.settings.mapping

    @property
    def n_components_(self) -> int:
        """Dimensions of the common space."""
        return self.fitted_.settings.n_components

    @property
    def ridge_(self) -> float:
        """Regularisation of the canonical correlation, in units of the mean variance."""
        return self.fitted_.settings.ridge

    @property
    def memory_(self) -> int:
        """Pairs that the model remembers; 0 where that did not help held-out pairs."""
        return self.fitted_.settings.memory

    @property
    def correlation_(self) -> float:
        """γ in use."""
        return self.fitted_.settings.quantization_weights.correlation

    @property
    def cross_penalty_(self) -> float:
        """μ in use."""
        return self.fitted_.settings.quantization_weights.cross_penalty

    @property
    def cross_term_(self) -> str:
        """How the cross term is treated at search."""
        return self.fitted_.settings.cross_term

    @property
    def selection_(self) -> list[Trial]:
        """Everything that was tried on held-out pairs."""
        self._check_fitted()
        return list(self._trials)

    @property
    def objective_history_(self) -> list[ObjectiveRecord]:
        """The objective after every block update."""
        return list(self.fitted_.history)

    @property
    def calibration_(self) -> Calibration | None:
        """What searches need for offsets and probabilities; None where ``calibrate`` has not run."""
        self._check_fitted()
        return self._calibration

    @property
    def report_(self) -> Report:
        """The quality report that ``calibrate`` made.

        Raises
        ------
        NotCalibrated
            Where it has not run.
        """
        self._check_fitted()
        if self._report is None:
            raise NotCalibrated("this model has no quality report: call calibrate(images, texts) first")
        return self._report

    @property
    def encoder_states_(self) -> dict[str, EncoderState]:
        """What made the features, by side ("image", "text"); empty for a model of plain features."""
        self._check_fitted()
        return dict(self._encoders)

    @property
    def n_text_features_(self) -> int:
        """Width of the text features."""
        return self.fitted_.text_preparation.n_features

    def _check_fitted(self) -> None:
        if not hasattr(self, "_learned"):
            raise NotFitted(
                f"This {type(self).__name__} instance is not fitted yet: "
                "call fit(images, texts), or load a model"
            )

    def _sparse_space(self, name: str) -> SparseSpace:
        space = self.fitted_.space
        if not isinstance(space, SparseSpace):
            raise AttributeError(
                f"{name} belongs to mapping='sparse'; this model has mapping={self.mapping_!r}"
            )
        return space

    @property
    def _n_codebooks(self) -> int:
        return self.fitted_.settings.n_codebooks

    # New items

    def transform_images(self, images: Any) -> Float32:
        """Place (n, d_I) image features in the common space: (n, D) float32."""
        learned = self.fitted_
        images = learned.check_images(images)
        with Workers(self.n_jobs) as workers:
            return learned.transform_images(images, workers)

    def transform_texts(self, texts: Any) -> Float32:
        """Place (n, d_T) text features in the common space: (n, D) float32."""
        learned = self.fitted_
        texts = learned.check_texts(texts)
        with Workers(self.n_jobs) as workers:
            return learned.transform_texts(texts, workers)

    def encode_images(self, images: Any) -> Codes:
        """Code (n, d_I) image features that come without their texts: (n, M) uint8."""
        learned = self.fitted_
        images = learned.check_images(images)
        with Workers(self.n_jobs) as workers:
            return learned.encode_images(images, workers)

    def encode_texts(self, texts: Any) -> Codes:
        """Code (n, d_T) text features that come without their images: (n, M) uint8."""
        learned = self.fitted_
        texts = learned.check_texts(texts)
        with Workers(self.n_jobs) as workers:
            return learned.encode_texts(texts, workers)

    def encode_documents(self, images: Any, texts: Any) -> Codes:
        """Code documents with both halves, one code each: (n, M) uint8; needs ``scoring="likelihood"``."""
        learned = self.fitted_
        images, texts = learned.check_images(images), learned.check_texts(texts)
        validation.check_rows_agree(images, texts)
        with Workers(self.n_jobs) as workers:
            return learned.encode_documents(images, texts, workers)

    def encode_pairs(self, images: Any, texts: Any) -> tuple[Codes, Codes]:
        """Fold in new pairs: code both halves, each knowing the other; nothing learned changes."""
        learned = self.fitted_
        images, texts = learned.check_images(images), learned.check_texts(texts)
        validation.check_rows_agree(images, texts)
        with Workers(self.n_jobs) as workers:
            return learned.encode_pairs(images, texts, workers)

    def decode_images(self, codes: Any) -> Float32:
        """Give the points (n, D) that image codes (n, M) stand for."""
        return self._decode("image", codes)

    def decode_documents(self, codes: Any) -> Float32:
        """Give the points (n, D) that codes (n, M) of whole documents stand for."""
        return self._decode("document", codes)

    def decode_texts(self, codes: Any) -> Float32:
        """Give the points (n, D) that text codes (n, M) stand for."""
        return self._decode("text", codes)

    def _decode(self, side: str, codes: Any) -> Float32:
        codes = validation.check_codes(codes, self._n_codebooks)
        with Workers(self.n_jobs) as workers:
            return self._quantizer(side).decode(codes, workers)

    def _quantizer(self, side: str) -> Quantizer:
        found = self.fitted_.quantizers.get(side)
        if found is None:
            raise InvalidInput(
                "this model has a code for each half of a document, not one for both; fit one with "
                "mapping='cca' and scoring='likelihood' (the defaults of CMCQ)"
            )
        return found

    # Distances and scores
    def distances(
        self,
        *,
        images: Any = None,
        texts: Any = None,
        image_codes: Any = None,
        text_codes: Any = None,
        document_codes: Any = None,
    ) -> Float32:
        """Compute distances (n, N) float32 from queries of one kind to coded items of one kind.

        Give one of ``images`` and ``texts`` (query features) and one of ``image_codes``, ``text_codes`` and
        ``document_codes`` (items, (N, M) uint8). A distance estimates the squared Euclidean one in the
        common space.
        """
        given = {"image": image_codes, "text": text_codes, "document": document_codes}
        items = {side: codes for side, codes in given.items() if codes is not None}
        if (images is None) == (texts is None) or len(items) != 1:
            raise InvalidInput(
                "expected one kind of query (images= or texts=) "
                "and one kind of item (image_codes=, text_codes= or document_codes=)"
            )
        points = self.transform_texts(texts) if images is None else self.transform_images(images)
        ((side, codes),) = items.items()
        codes = validation.check_codes(codes, self._n_codebooks)
        quantizer = self._quantizer(side)
        with Workers(self.n_jobs) as workers:
            scan_codes = quantizer.scan_codes(codes, workers)
        return quantizer.table(points).distances(scan_codes)

    def training_distances(self, *, images: Any = None, texts: Any = None) -> Float32:
        """Compute distances (n, N) from image queries to the training texts, or from texts to the images.

        The paper's search: the database is the training set with its learned codes.
        """
        if self.fitted_.has_document_codes:
            return self.distances(images=images, texts=texts, document_codes=self.document_codes_)
        if images is not None:
            return self.distances(images=images, texts=texts, text_codes=self.text_codes_)
        return self.distances(texts=texts, image_codes=self.image_codes_)

    def partner_ranks(self, images: Any, texts: Any, groups: Any = None) -> PartnerRanks:
        """Rank each item's true partner among these pairs, every item coded from its own side alone."""
        pairs = self.fitted_.check_pairs(images, texts, groups)
        with Workers(self.n_jobs) as workers:
            return selection.held_out_ranks(self.fitted_, *pairs, workers)

    def score(self, images: Any, texts: Any, groups: Any = None) -> float:
        """Return the mean recall@10 of true partners over both directions (see :meth:`partner_ranks`)."""
        if texts is None:
            raise InvalidInput("score requires y to be passed, but the target y is None: expected the texts")
        return self.partner_ranks(images, texts, groups).recall(10)

    # Files

    def save(self, path: str | os.PathLike[str]) -> str:
        """Write the model to one safetensors file, all or nothing; returns its identity digest."""
        return write_model_file(path, *self._file_contents(), format=self._file_format)

    def to_bytes(self) -> bytes:
        """Give the bytes that :meth:`save` would write."""
        return model_bytes(*self._file_contents(), format=self._file_format)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model written by :meth:`save`; every byte is verified."""
        return cls._from_file_contents(read_model_file(path), os.fspath(path))

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "model") -> Self:
        """Read a model from the bytes of :meth:`to_bytes`."""
        return cls._from_file_contents(parse_model_bytes(data, name), name)

    @property
    def _file_format(self) -> int:
        if self.mapping_ == "joint":
            return 3
        return 2 if self.fitted_.has_document_codes else 1

    def _file_contents(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return the arrays and the JSON document of the model's file."""
        arrays, document = persistence.model_contents(self.fitted_)
        params = {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in self.get_params().items()
            if name not in _NOT_IN_FILE and not (name in _ONLY_IF_CHANGED and value == _ONLY_IF_CHANGED[name])
        }
        if not isinstance(params["random_state"], int):
            params["random_state"] = None  # a generator has moved on since; its state would say nothing
        encoder_arrays, encoders = persistence.encoder_contents(self._encoders)
        document |= {"parameters": params, "selection": [list(trial) for trial in self._trials]}
        document |= encoders | calibration_document(self._calibration, self._report)
        return arrays | encoder_arrays, document

    @classmethod
    def _from_file_contents(cls, contents: ModelContents, name: str) -> Self:
        arrays, document = contents.arrays, contents.document
        learned = persistence.restore_model(arrays, document, name)
        try:
            model = cls(**document["parameters"])
            trials = [Trial(*trial) for trial in document["selection"]]
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedModelFile(f"{name}: the parameters of the model do not fit ({error})") from error
        model._learned, model._trials = learned, trials
        model._calibration = restore_calibration(document, name)
        model._report = restore_report(document, name)
        model._encoders = persistence.restore_encoders(arrays, document, name)
        model.n_features_in_ = learned.image_preparation.n_features
        return model

    # scikit-learn

    def __sklearn_is_fitted__(self) -> bool:
        """Tell scikit-learn whether ``fit`` has run."""
        return hasattr(self, "_learned")

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what ``fit`` takes."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.two_d_labels = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        tags.input_tags.sparse = True
        return tags


def _check_paired(paired: Any, groups: Any, mapping: str) -> tuple[bool, int]:
    """Check whether rows are pairs, all or the first of them: mappings but "joint" learn from pairs alone."""
    is_flag = isinstance(paired, (bool, np.bool_))
    n_pairs = 0 if is_flag else validation.check_integer(paired, "paired", 1)
    is_paired = bool(paired) and is_flag
    if not is_paired and mapping != "joint":
        raise InvalidInput(
            f"paired: expected True with mapping={mapping!r}, which learns the common space from pairs; "
            "encoders that share a space need none: mapping='joint'"
        )
    if not is_paired and not n_pairs and groups is not None:
        raise InvalidInput("groups: expected None with paired=False, as they group pairs")
    return is_paired, n_pairs


def _check_rows(images: Any, texts: Any, settings: Settings) -> tuple[Any, Any]:
    """Check the training rows; those of a joint space are dense and of one width."""
    images = coerce_rows(images, "images")
    if settings.paired:
        raw: tuple[Any, Any] = validation.check_pairs(images, coerce_rows(texts, "texts"))
    else:
        some = None if texts is None else coerce_rows(texts, "texts")
        raw = (
            validation.check_features(images, "images", min_rows=2),
            None if some is None else validation.check_features(some, "texts", min_rows=2),
        )
    if settings.mapping != "joint":
        return raw
    n_rows = min(rows.shape[0] if rows is not None else 0 for rows in raw)
    if settings.n_pairs > n_rows:
        raise InvalidInput(
            f"paired: expected at most as many pairs as images and texts have rows, got {settings.n_pairs} "
            f"for {n_rows}; give the rows of pairs first, on both sides"
        )
    for rows, name in zip(raw, ("images", "texts"), strict=True):
        if rows is not None and validation.is_sparse(rows):
            raise InvalidInput(
                f"{name}: expected dense rows with mapping='joint', got sparse ones; features of two kinds "
                "need mapping='cca', and pairs"
            )
    if raw[1] is not None and raw[0].shape[1] != raw[1].shape[1]:
        raise InvalidInput(
            f"mapping='joint': expected images and texts of one width, as encoders that share a space give "
            f"them, got {raw[0].shape[1]} and {raw[1].shape[1]}; use mapping='cca', which learns from pairs"
        )
    return raw
