"""CMCQ: the estimator. Validates, fits, keeps; everything else is done by the modules beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from crossbyte.data.stored.accepting import accept
from crossbyte.errors import FitInterrupted, InvalidInput
from crossbyte.executors.choosing import make_executor, usual_memory
from crossbyte.executors.protocol import Executor
from crossbyte.executors.ray_cluster import kept_open
from crossbyte.executors.threads import Workers
from crossbyte.model import auto, fitting
from crossbyte.model.coding import Coding
from crossbyte.model.learned import Settings
from crossbyte.model.parameters import AUTOMATIC, MAX_BITS, check_parameters, generator
from crossbyte.model.quality import measuring
from crossbyte.model.selection import Trial
from crossbyte.progress import ProgressCallback, Watch, silent
from crossbyte.validation import (
    check_groups,
    check_integer,
    check_pairs,
    is_stored,
)

__all__ = ["CMCQ"]


class CMCQ(Coding):
    """Collaborative quantization for cross-modal search.

    From pairs of image and text features (of any two encoders) it learns a common space and two additive
    quantizers together, so that the codes of the two halves of a pair agree. An item is then
    ``n_bits / 8`` bytes; the distance from a query of either kind to an item is a sum of as many table
    entries.

    Parameters
    ----------
    n_bits : int, default=32
        Bits per item and side; a multiple of 8. One codebook of 256 words per byte.
    mapping : {"sparse", "cca", "contrastive", "auto", "auto-space"}, default="sparse"
        The common space: the paper's sparse coding, regularised canonical correlation, its contrastive
        refinement, or whatever finds more partners among held-out pairs; "auto" chooses γ, μ and the cross
        term, too, "auto-space" takes them as given, which is quicker, and wiser with few pairs.
    n_components : int or None, default=None
        Dimensions of the common space; None for ``n_bits``. At most the rank with ``"cca"``.
    n_atoms : int, default=512
        Atoms of the image dictionary (sparse mapping).
    image_components, text_components : int or None, default=None
        PCA before the mapping. None: images 64 with "sparse" and 256 otherwise; texts off.
    image_power, text_power : float, default=1.0
        Values are taken to this power first, signs apart; 0.5 (Hellinger) suits histograms and counts.
    ridge : float or None, default=None
        Added to every variance of a canonical space, in units of the side's mean variance. None: 1, or chosen
        with ``"auto"``.
    text_ridge : float or None, default=None
        The same for the texts, where it differs; the more, the nearer the space is to that of the texts.
    sparsity : float, default=0.3
        ρ, weight of the sparse codes' l1 norm.
    text_weight : float, default=0.7
        η, weight of the text reconstruction.
    alignment : float, default=0.7
        λ, weight of the distance between the two points of a pair.
    correlation : float, default=0.3
        γ, weight of the distance between the two codes of a pair.
    cross_penalty : float, default=0.1
        μ, weight of the penalty that keeps cross terms constant.
    sparsity_mode : {"absolute", "ratio"}, default="absolute"
        ρ as it stands in the objective, or as a share of each sample's largest useful value.
    query_map : {"paper", "ridge"}, default="paper"
        How items without their other half are placed (sparse mapping): lasso and minimum-norm solution,
        or regressions learned from the training points. May be changed after fitting.
    shared_codebooks : bool, default=False
        One set of codebooks for both sides (the paper's ablation C = D).
    cross_term : {"constant", "stored"}, default="constant"
        At search, take the cross term for its mean (the paper), or add the item's own, rounded to a byte.
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
        P and Q: codes of the training pairs.
    image_cross_, text_cross_ : float
        ε₁ and ε₂: mean cross terms.
    image_dictionary_, text_basis_, image_map_ : ndarray
        B (A, d_I), U (D, d_T) and R (A, D); only with the sparse mapping.
    mapping_, n_components_, correlation_, cross_penalty_, cross_term_, ridge_
        What was used; with ``mapping="auto"``, what was chosen.
    selection_ : list of Trial
        Everything ``mapping="auto"`` tried; empty otherwise.
    objective_history_ : list of ObjectiveRecord
        The objective, term by term, after every block update; ``.total`` is its value.
    calibration_ : Calibration or None
        What searches need of that: offsets and probabilities; None before :meth:`calibrate`.
    report_ : Report
        What :meth:`calibrate` measured: ``print(model.report_)``, ``.to_dict()``, ``.to_html()``.
    n_features_in_, n_text_features_ : int
        Width of image and text features.

    References
    ----------
    T. Zhang, J. Wang: Collaborative Quantization for Cross-Modal Similarity Search. CVPR 2016.
    """

    def __init__(
        self,
        n_bits: int = 32,
        *,
        mapping: str = "sparse",
        n_components: int | None = None,
        n_atoms: int = 512,
        image_components: int | None = None,
        text_components: int | None = None,
        image_power: float = 1.0,
        text_power: float = 1.0,
        ridge: float | None = None,
        text_ridge: float | None = None,
        sparsity: float = 0.3,
        text_weight: float = 0.7,
        alignment: float = 0.7,
        correlation: float = 0.3,
        cross_penalty: float = 0.1,
        sparsity_mode: str = "absolute",
        query_map: str = "paper",
        shared_codebooks: bool = False,
        cross_term: str = "constant",
        max_iter: int = 10,
        tol: float = 1e-4,
        random_state: Any = None,
        n_jobs: int | None = None,
        callback: ProgressCallback | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.mapping = mapping
        self.n_components = n_components
        self.n_atoms = n_atoms
        self.image_components = image_components
        self.text_components = text_components
        self.image_power = image_power
        self.text_power = text_power
        self.ridge = ridge
        self.text_ridge = text_ridge
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

    # Fitting

    def fit(
        self,
        images: Any,
        texts: Any,
        groups: Any = None,
        *,
        cluster: str | None = None,
        max_memory: str | int | None = None,
    ) -> Self:
        """Learn from pairs: row i of ``images`` belongs to row i of ``texts``.

        The model's bytes are those of the rows, wherever these are and whoever goes through them.

        Parameters
        ----------
        images : (N, d_I) array or sparse matrix, or rows on disk
            Rows on disk are what :func:`crossbyte.open_rows` gives, or the path that it takes; a memory map,
            which is read through its file; or an iterable of blocks (arrays or sparse matrices of one width),
            which is written to scratch files once. An iterator will do, and is used up.
        texts : (N, d_T) array or sparse matrix, or rows on disk
            Never made dense as a whole.
        groups : (N,) labels, optional
            Rows of one group (captions of one picture) are never told apart in selection.
        cluster : str, optional
            ``"local"`` to start Ray on this machine, or the address of a Ray cluster; by default, threads.
        max_memory : int or str, optional
            Bytes, or text like ``"1.5GB"``, for what is kept of every row during the fit; larger arrays of
            rows are in scratch files, in the folder that ``TMPDIR`` names. By default a quarter of the
            machine's memory if a side is on disk, and no bound otherwise. Libraries (some 200 MB), and about
            100 MB for each thread, come on top; the codes, 2 ``n_bits`` / 8 bytes a pair, are in memory.

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
        if texts is None:
            raise InvalidInput(
                "fit requires y to be passed, but the target y is None: expected the texts, row by row"
            )
        settings = check_parameters(self)
        executor = make_executor(self.n_jobs, cluster=cluster, max_memory=max_memory)
        watch = Watch(self.callback or silent)
        rng = generator(self.random_state)
        try:
            with kept_open(cluster, self.n_jobs):  # that there is none is said before all rows were read
                raw = check_pairs(accept(images, "images"), accept(texts, "texts"))
                labels = check_groups(groups, raw[0].shape[0])
                if cluster is None and max_memory is None and any(map(is_stored, raw)):
                    executor = make_executor(self.n_jobs, max_memory=usual_memory())
                with executor as workers:
                    settings, trials = self._chosen(settings, raw, labels, rng, watch, workers.local)
                    learned = fitting.fit_pairs(settings, *raw, labels, rng, watch, workers)
        except KeyboardInterrupt:
            raise FitInterrupted(f"fit was interrupted {watch}; the model is as it was before") from None
        validate_data(self, raw[0] if is_stored(raw[0]) else images, skip_check_array=True)
        self._learned, self._trials = learned, trials
        self._calibration = self._report = None
        self._encoders = {}
        return self

    def _chosen(
        self,
        settings: Settings,
        raw: tuple[Any, Any],
        labels: NDArray[np.intp],
        rng: np.random.Generator,
        watch: Watch,
        workers: Executor,
    ) -> tuple[Settings, list[Trial]]:
        """What a sample of the pairs chooses where the mapping is left open, and every trial made."""
        if self.mapping not in AUTOMATIC:
            return settings, []
        free = auto.Free(self.n_components is None, self.ridge is None)
        choose = auto.choose if self.mapping == "auto" else auto.choose_space
        return choose(settings, *raw, labels, rng, watch, workers, free)

    def calibrate(
        self, images: Any, texts: Any, groups: Any = None, *, curve: Sequence[int] = measuring.CURVE
    ) -> Self:
        """Measure on held-out pairs what this model is worth: ``calibration_`` and ``report_``.

        A sibling of this model is fitted on 90 % of the groups and measured on the others; the model itself
        stays as it is. For the curve, siblings of other code lengths are fitted too (on a sample, beyond
        20,000 pairs). A later ``fit`` forgets everything.

        Of pairs that are on disk, only a sample of whole groups with at most 20,000 pairs is read, and
        everything is measured on these; ``report_.n_pairs`` says how many they were.

        Parameters
        ----------
        images, texts, groups
            As for :meth:`fit`, usually the same rows; at least 20 groups. Held-out items are coded from one
            side alone.
        curve : sequence of int
            Bytes per item at which quality is measured; empty for no curve, which is the quickest.

        Raises
        ------
        InvalidInput
            Before any long work starts; also if there are too few groups to hold out any.
        FitInterrupted
            On Ctrl-C; the model is as it was before.
        """
        pairs = self._check_new_pairs(accept(images, "images"), accept(texts, "texts"), groups)
        widths = [check_integer(width, "curve", 1, MAX_BITS // 8) for width in curve]
        watch, rng = Watch(self.callback or silent), generator(self.random_state)
        try:
            with Workers(self.n_jobs) as workers:
                pairs = measuring.in_memory(pairs, rng)
                found = measuring.measure(
                    self._settings_at, self._n_codebooks, pairs, widths, rng, watch, workers
                )
        except KeyboardInterrupt:
            raise FitInterrupted(
                f"calibrate was interrupted {watch}; the model is as it was before"
            ) from None
        self._calibration, self._report = found
        return self

    def _settings_at(self, n_bytes: int) -> Settings:
        """Settings of this model with another code length."""
        settings = self._current().settings
        if n_bytes == settings.n_codebooks:
            return settings
        follows = self.n_components is None and self.mapping not in AUTOMATIC
        n_components = 8 * n_bytes if follows else settings.n_components
        return settings._replace(n_codebooks=n_bytes, n_components=n_components)

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
