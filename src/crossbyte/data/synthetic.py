"""Generate pairs whose right answer is known.

A pair is drawn as a photograph with its tags comes about: a class prefers some topics; the pair has its own
mixture of topics (Dirichlet around the class's preference); the image and the text are both drawn from that
one mixture. Pairs of one class are therefore alike, and the two halves of one pair more so: labels and
partners can both be found, neither for certain.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from crossbyte.errors import InvalidInput

Floats = NDArray[np.floating[Any]]
Integers = NDArray[np.int64]

BLOCK_ROWS = 4096  # rows drawn at a time; part of what a seed means, so never derived from the machine
MIXTURE_WEIGHT = 4.0  # total Dirichlet weight: smaller gives pairs of one class less in common


class Pairs(NamedTuple):
    """Pairs of features; row i of each array belongs to pair i.

    Attributes
    ----------
    images : (n_pairs, image_dim) float32
        Dense image features.
    texts : (n_pairs, text_dim) float32
        Text features: ``scipy.sparse.csr_array`` of zeros and ones, or a dense array.
    labels : (n_pairs,) int64
        Class of each pair.
    """

    images: NDArray[np.float32]
    texts: Any  # csr_array or ndarray; the stubs of scipy cannot say so for all versions
    labels: Integers


class LabelledPairs(NamedTuple):
    """Pairs with several labels and two texts; row i of each array belongs to pair i.

    Attributes
    ----------
    images : (n_pairs, image_dim) float32
    texts, other_texts : (n_pairs, text_dim) float32
        Two texts about the same pair, drawn apart from the same mixture; ``csr_array`` of zeros and ones, or
        dense.
    labels : (n_pairs, n_labels) uint8
        Zeros and ones, at least one 1 in a row.
    """

    images: NDArray[np.float32]
    texts: Any
    other_texts: Any
    labels: NDArray[np.uint8]


def make_pairs(
    n_pairs: int,
    image_dim: int,
    text_dim: int,
    *,
    n_classes: int = 10,
    n_topics: int = 24,
    noise: float = 0.5,
    sparse_text: bool = True,
    words_per_text: float = 12.0,
    random_state: int | None = None,
) -> Pairs:
    """Draw pairs with classes and a shared latent mixture of topics.

    Parameters
    ----------
    n_pairs, image_dim, text_dim : int
        Number of pairs, image features, and text features.
    n_classes : int, default 10
        Number of classes, about equally frequent.
    n_topics : int, default 24
        Size of the latent mixture, which bounds the rank of what the two sides share.
    noise : float, default 0.5
        Standard deviation of the Gaussian noise on dense features, relative to that of the signal.
    sparse_text : bool, default True
        Texts as binary bags of words; otherwise dense features of the same mixture, with noise.
    words_per_text : float, default 12
        Mean number of words drawn for a text; repeated words count once in the bag. Unused for dense texts.
    random_state : int, optional
        Seed of the generator. The same seed gives the same pairs.

    Returns
    -------
    Pairs
        ``images``, ``texts``, ``labels``.
    """
    _check_sizes(n_pairs=n_pairs, image_dim=image_dim, text_dim=text_dim)
    _check_sizes(n_classes=n_classes, n_topics=n_topics)
    if noise < 0 or words_per_text < 1:
        raise InvalidInput(
            f"noise must be at least 0 and words_per_text at least 1; got {noise=}, {words_per_text=}."
        )
    rng = np.random.default_rng(random_state)
    labels, mixtures = _draw_mixtures(n_pairs, n_classes, n_topics, rng)
    images = _draw_dense(mixtures, image_dim, noise, rng)
    if not sparse_text:
        return Pairs(images, _draw_dense(mixtures, text_dim, noise, rng), labels)
    return Pairs(images, _draw_bags(mixtures, text_dim, words_per_text, rng), labels)


def nus_wide_like(n_pairs: int = 182_577, random_state: int | None = 0) -> Pairs:
    """Pairs of the size and shape of NUS-WIDE's ten largest concepts: 500 visual words, 1000 tags.

    Stands in for the real features where only size, sparsity and value ranges matter (speed, memory). Scores
    on it say nothing about scores on NUS-WIDE.

    Parameters
    ----------
    n_pairs : int, default 182577
        The paper's training set; 186,577 would be training set and queries.
    random_state : int, optional
        Seed of the generator.

    Returns
    -------
    Pairs
        Images: counts of 500 visual words, about 250 to an image. Texts: about 6 of 1000 tags, with Zipf-like
        frequencies. Labels: 10 classes.
    """
    _check_sizes(n_pairs=n_pairs)
    rng = np.random.default_rng(random_state)
    labels, mixtures = _draw_mixtures(n_pairs, 10, 40, rng)
    images = _draw_histograms(mixtures, 500, 250.0, rng)
    return Pairs(images, _draw_bags(mixtures, 1000, 7.5, rng), labels)


def make_labelled_pairs(
    n_pairs: int,
    image_dim: int,
    text_dim: int,
    *,
    n_labels: int,
    labels_per_pair: float = 1.0,
    image_words: float | None = None,
    text_words: float | None = None,
    n_topics: int = 40,
    noise: float = 0.5,
    random_state: int | None = None,
) -> LabelledPairs:
    """Draw pairs whose labels follow from their mixture of topics, with a second text for each.

    A label stands for a share of the topics. The pairs in which that share is largest have the label, as many
    as the label is frequent; frequencies fall like those of real concepts, one over the rank. A pair that
    would have none has the one that it came nearest to. Classes are equally frequent.

    Parameters
    ----------
    n_pairs, image_dim, text_dim : int
        Number of pairs, image features, and text features.
    n_labels : int
        Number of labels.
    labels_per_pair : float, default 1
        About how many labels a pair has; 1 makes classes: each pair has exactly the nearest one.
    image_words : float, optional
        About how many visual words an image has: counts. None: dense features.
    text_words : float, optional
        Mean number of words drawn for a text; a binary bag. None: the dense shares of ``text_dim`` topics, as
        a topic model gives them, with a sum of 1.
    n_topics : int, default 40
        Size of the latent mixture; ``text_dim`` where texts are shares of topics.
    noise : float, default 0.5
        Of dense images, relative to their signal.
    random_state : int, optional
        The same seed gives the same pairs.

    Returns
    -------
    LabelledPairs
    """
    _check_sizes(
        n_pairs=n_pairs, image_dim=image_dim, text_dim=text_dim, n_labels=n_labels, n_topics=n_topics
    )
    rng = np.random.default_rng(random_state)
    _, mixtures = _draw_mixtures(n_pairs, n_labels, text_dim if text_words is None else n_topics, rng)
    labels = _topic_labels(mixtures, n_labels, labels_per_pair, rng)
    if image_words is None:
        images = _draw_dense(mixtures, image_dim, noise, rng)
    else:
        images = _draw_histograms(mixtures, image_dim, image_words, rng)
    texts, other_texts = _draw_two_texts(mixtures, text_dim, text_words, rng)
    return LabelledPairs(images, texts, other_texts, labels)


def _draw_two_texts(
    mixtures: Floats, text_dim: int, text_words: float | None, rng: np.random.Generator
) -> tuple[Any, Any]:
    if text_words is None:
        return _topic_shares(mixtures, rng), _topic_shares(mixtures, rng)
    topics = _word_topics(mixtures.shape[1], text_dim, rng)
    return _draw_words(mixtures, topics, text_words, rng), _draw_words(mixtures, topics, text_words, rng)


def _topic_shares(mixtures: Floats, rng: np.random.Generator) -> NDArray[np.float32]:
    """Estimate shares (n, n_topics) as a topic model would: the mixture, seen through about 100 words."""
    found = rng.standard_gamma(100.0 * mixtures + 0.1)
    return (found / found.sum(axis=1, keepdims=True)).astype(np.float32)


def _topic_labels(
    mixtures: Floats, n_labels: int, labels_per_pair: float, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """Assign labels (n, n_labels) to mixtures, as `make_labelled_pairs` says."""
    n_pairs, n_topics = mixtures.shape
    meaning = rng.dirichlet(np.full(n_topics, 0.1), size=n_labels)
    shares = mixtures @ meaning.T
    frequencies = 1.0 / (np.arange(n_labels) + 2.0) if labels_per_pair > 1 else np.ones(n_labels)
    frequencies *= labels_per_pair / frequencies.sum()
    wanted = np.clip(np.rint(n_pairs * frequencies), 1, n_pairs).astype(np.int64)
    ranked = np.sort(shares, axis=0)
    nearness = shares / (ranked[n_pairs - wanted, np.arange(n_labels)] + 1e-12)
    labels = (nearness >= 1.0).astype(np.uint8) if labels_per_pair > 1 else np.zeros(shares.shape, np.uint8)
    alone = ~labels.any(axis=1)
    labels[alone, nearness[alone].argmax(axis=1)] = 1
    return labels


def _draw_mixtures(
    n_pairs: int, n_classes: int, n_topics: int, rng: np.random.Generator
) -> tuple[Integers, Floats]:
    """Draw classes (n,), and each pair's topic shares (n, n_topics) around its class's preference."""
    preference = rng.dirichlet(np.full(n_topics, 0.3), size=n_classes)
    weights = MIXTURE_WEIGHT * (0.7 * preference + 0.3 / n_topics)
    labels = rng.integers(n_classes, size=n_pairs)
    drawn = rng.standard_gamma(weights[labels]) + 1e-12  # a normalised gamma is Dirichlet; never all zero
    return labels, drawn / drawn.sum(axis=1, keepdims=True)


def _draw_dense(mixtures: Floats, dim: int, noise: float, rng: np.random.Generator) -> NDArray[np.float32]:
    """Take a random linear view (n, dim) of the mixtures, scaled to unit variance, plus noise."""
    # square roots: large shares should not drown the small ones that tell pairs of one class apart
    roots = np.sqrt(mixtures)
    centre, spread = roots.mean(axis=0), np.sqrt(roots.var(axis=0).sum()) or 1.0
    view = rng.standard_normal((mixtures.shape[1], dim)) / spread
    features = np.empty((len(mixtures), dim), dtype=np.float32)
    for start in range(0, len(mixtures), BLOCK_ROWS):
        rows = slice(start, start + BLOCK_ROWS)
        signal = (roots[rows] - centre) @ view
        features[rows] = signal + noise * rng.standard_normal(signal.shape, dtype=np.float32)
    return features


def _draw_histograms(
    mixtures: Floats, dim: int, total: float, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Draw counts (n, dim) of visual words, about ``total`` in a row.

    A count with mean m is geometric: bursty, as visual words are (texture repeats itself), and cheaper
    to draw than a Poisson count, because it is an exponential variable over log(1 + 1/m), rounded down.
    """
    topics = total * (rng.dirichlet(np.full(dim, 0.2), size=mixtures.shape[1]) + 1e-9).astype(np.float32)
    shares = mixtures.astype(np.float32)
    counts = np.empty((len(mixtures), dim), dtype=np.float32)
    for start in range(0, len(mixtures), BLOCK_ROWS):
        rows = slice(start, start + BLOCK_ROWS)
        rates = np.log1p(1.0 / (shares[rows] @ topics))
        counts[rows] = np.floor(rng.standard_exponential(rates.shape, dtype=np.float32) / rates)
    return counts


def _draw_bags(mixtures: Floats, vocabulary: int, words_per_text: float, rng: np.random.Generator) -> Any:
    """Draw binary bags of words, csr_array (n, vocabulary) float32; every text has at least one word."""
    topics = _word_topics(mixtures.shape[1], vocabulary, rng)
    return _draw_words(mixtures, topics, words_per_text, rng)


def _word_topics(n_topics: int, vocabulary: int, rng: np.random.Generator) -> Floats:
    """Draw the weight of each word in each topic, (n_topics, vocabulary)."""
    # Zipf, with a flattened head: no word is in nearly every text
    frequencies = 1.0 / (np.arange(vocabulary) + 5.0)
    return frequencies * (rng.standard_gamma(0.1, size=(n_topics, vocabulary)) + 1e-6)


def _draw_words(mixtures: Floats, topics: Floats, words_per_text: float, rng: np.random.Generator) -> Any:
    """Draw each word's topic from the mixture, and the word from the topic."""
    n_pairs, vocabulary = len(mixtures), topics.shape[1]
    lengths = 1 + rng.poisson(words_per_text - 1.0, size=n_pairs)
    texts = np.repeat(np.arange(n_pairs), lengths)
    words = _draw_columns(topics, _draw_columns(mixtures, texts, rng), rng)
    cells = np.unique(texts * vocabulary + words)  # sorted by row, then column: CSR order
    return _binary_csr(cells // vocabulary, cells % vocabulary, (n_pairs, vocabulary))


def _draw_columns(weights: Floats, rows: Integers, rng: np.random.Generator) -> Integers:
    """Draw one column for each entry of ``rows``, with chances in proportion to that row of ``weights``."""
    n_rows, n_columns = weights.shape
    cumulative = np.cumsum(weights, axis=1)
    cumulative /= cumulative[:, -1:]
    # row r's steps moved to (r, r + 1] make one sorted line, so that a single search serves all rows
    line = (cumulative + np.arange(n_rows)[:, None]).ravel()
    found = np.searchsorted(line, rows + rng.random(rows.shape), side="right") - rows * n_columns
    return np.asarray(np.clip(found, 0, n_columns - 1), dtype=np.int64)


def _binary_csr(rows: Integers, columns: Integers, shape: tuple[int, int]) -> Any:
    """Make a matrix of ones at the given cells, which are sorted and without repeats."""
    indptr = np.zeros(shape[0] + 1, dtype=np.int32)
    np.cumsum(np.bincount(rows, minlength=shape[0]), out=indptr[1:])
    ones = np.ones(len(columns), dtype=np.float32)
    return sp.csr_array((ones, columns.astype(np.int32), indptr), shape=shape)


def _check_sizes(**sizes: int) -> None:
    """Refuse sizes below 1."""
    for name, size in sizes.items():
        if size < 1:
            raise InvalidInput(f"{name} must be at least 1; got {size}.")
