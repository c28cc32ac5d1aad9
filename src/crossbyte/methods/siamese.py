"""Two small networks taught together with signed pairs, with back-propagation of their own.

A network has one hidden layer, and both of its layers end in a hyperbolic tangent. Each end of a pair, be it
within one side or across the two, passes through the network of its side: pairs that are alike are drawn
together, the others are pushed apart up to a margin.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float64
from crossbyte.methods.similarity import SignedPairs

__all__ = ["Descent", "Lesson", "Network", "Relation", "forward", "gradients", "loss", "start", "train"]

_MOMENTUM = 0.9


class Network(NamedTuple):
    """tanh(tanh(x W + a) V + b); a gradient by all of these has the same form."""

    W: Float64  # (d, h)
    a: Float64  # (h,)
    V: Float64  # (h, c)
    b: Float64  # (c,)


Networks = tuple[Network, Network]


class Passed(NamedTuple):
    """Rows, and what a network made of them."""

    rows: Float64  # (n, d)
    hidden: Float64  # (n, h)
    outputs: Float64  # (n, c)


class Contrast(NamedTuple):
    """Mean loss of some pairs, and its gradients by the outputs (P, c) at their left and right ends."""

    value: float
    slopes: tuple[Float64, Float64]


class Relation(NamedTuple):
    """Signed pairs, of which sides (0 or 1) their ends are, and how much they count."""

    ends: tuple[int, int]
    pairs: SignedPairs
    weight: float


class Lesson(NamedTuple):
    """What the networks are to learn: rows (N, d) of each side, and equally many pairs of each relation."""

    sides: tuple[Float64, Float64]
    relations: tuple[Relation, ...]
    margin: float  # distance of outputs at which pairs that are not alike are far enough apart
    decay: float  # of the weights, not of the offsets


class Descent(NamedTuple):
    """How they learn it: gradient steps with momentum on a few pairs of each relation at a time."""

    rate: float  # of the first epoch; it falls along half a wave to nothing
    n_epochs: int
    n_pairs_at_once: int


def start(n_inputs: int, n_hidden: int, n_outputs: int, rng: np.random.Generator) -> Network:
    """Random weights (d, h) and (h, c) under which values neither shrink nor swell; offsets of 0."""
    W = rng.standard_normal((n_inputs, n_hidden)) / np.sqrt(n_inputs)
    V = rng.standard_normal((n_hidden, n_outputs)) / np.sqrt(n_hidden)
    return Network(W, np.zeros(n_hidden), V, np.zeros(n_outputs))


def forward(network: Network, rows: Float64) -> Passed:
    """Pass rows (n, d) through a network."""
    hidden = np.tanh(rows @ network.W + network.a)
    return Passed(rows, hidden, np.tanh(hidden @ network.V + network.b))


def back(network: Network, passed: Passed, slopes: Float64) -> Network:
    """Gradient by the network of a loss, of which ``slopes`` (n, c) is the gradient by the outputs."""
    by_output = slopes * (1.0 - np.square(passed.outputs))
    by_hidden = by_output @ network.V.T * (1.0 - np.square(passed.hidden))
    return Network(
        passed.rows.T @ by_hidden,
        by_hidden.sum(axis=0),
        passed.hidden.T @ by_output,
        by_output.sum(axis=0),
    )


def contrast(u: Float64, v: Float64, signs: Float64, margin: float) -> Contrast:
    """Mean of |u - v|² over the pairs that are alike and of max(0, m - |u - v|)² over the others, together.

    Parameters
    ----------
    u, v : (P, c) float64
        Outputs at the ends of the pairs.
    signs : (P,) float64
        1 for a pair that is alike, -1 for one that is not.
    margin : float
        m. An unlike pair with u = v could go any way; it stays.
    """
    difference = u - v
    distances = np.sqrt(np.einsum("pc,pc->p", difference, difference))
    missing = np.maximum(margin - distances, 0.0)
    push = np.divide(missing, distances, out=np.zeros_like(missing), where=distances > 0)
    slopes = (2.0 / len(signs) * np.where(signs > 0, 1.0, -push))[:, None] * difference
    return Contrast(float(np.mean(np.where(signs > 0, distances, missing) ** 2)), (slopes, -slopes))


def loss(networks: Networks, lesson: Lesson) -> float:
    """Σ weight · mean loss of a relation's pairs + ½ decay · Σ weights²."""
    squares = sum(float(np.sum(np.square(part))) for net in networks for part in (net.W, net.V))
    outputs = [forward(net, rows).outputs for net, rows in zip(networks, lesson.sides, strict=True)]
    total = 0.5 * lesson.decay * squares
    for (left, right), pairs, weight in lesson.relations:
        u, v = outputs[left][pairs.left], outputs[right][pairs.right]
        total += weight * contrast(u, v, pairs.signs, lesson.margin).value
    return total


def gradients(networks: Networks, lesson: Lesson) -> Networks:
    """Gradients of :func:`loss` by both networks."""
    found = [Network(lesson.decay * n.W, 0.0 * n.a, lesson.decay * n.V, 0.0 * n.b) for n in networks]
    for ends, pairs, weight in lesson.relations:
        rows = [lesson.sides[side][at] for side, at in zip(ends, (pairs.left, pairs.right), strict=True)]
        u, v = (forward(networks[side], of) for side, of in zip(ends, rows, strict=True))
        slopes = contrast(u.outputs, v.outputs, pairs.signs, lesson.margin).slopes
        for side, passed, slope in zip(ends, (u, v), slopes, strict=True):
            found[side] = _sum(1.0, found[side], weight, back(networks[side], passed, slope))
    return found[0], found[1]


def train(
    networks: Networks, lesson: Lesson, descent: Descent, rng: np.random.Generator
) -> tuple[Networks, list[float]]:
    """Descend, epoch by epoch, each over all pairs in an order of chance.

    Returns
    -------
    (networks, losses)
        The networks as they were at the end of the epoch with the least loss over all pairs, or at the start;
        and that loss at the start and after each epoch.
    """
    losses = [loss(networks, lesson)]
    best, velocities = networks, _sums(0.0, networks, 0.0, networks)
    for epoch in range(descent.n_epochs):
        rate = 0.5 * descent.rate * (1.0 + np.cos(np.pi * epoch / descent.n_epochs))
        for part in _parts(lesson, descent.n_pairs_at_once, rng):
            velocities = _sums(_MOMENTUM, velocities, -rate, gradients(networks, part))
            networks = _sums(1.0, networks, 1.0, velocities)
        losses.append(loss(networks, lesson))
        best = networks if losses[-1] == min(losses) else best
    return best, losses


def _parts(lesson: Lesson, size: int, rng: np.random.Generator) -> Iterator[Lesson]:
    """All pairs, a few of each relation at a time, in an order of chance."""
    orders = [rng.permutation(len(relation.pairs.signs)) for relation in lesson.relations]
    for first in range(0, len(orders[0]), size):
        yield lesson._replace(
            relations=tuple(
                relation._replace(pairs=_taken(relation.pairs, order[first : first + size]))
                for relation, order in zip(lesson.relations, orders, strict=True)
            )
        )


def _taken(pairs: SignedPairs, which: NDArray[np.intp]) -> SignedPairs:
    return SignedPairs(pairs.left[which], pairs.right[which], pairs.signs[which])


def _sum(s: float, left: Network, t: float, right: Network) -> Network:
    """Part by part, s · left + t · right."""
    return Network(*(s * a + t * b for a, b in zip(left, right, strict=True)))


def _sums(s: float, left: Networks, t: float, right: Networks) -> Networks:
    return _sum(s, left[0], t, right[0]), _sum(s, left[1], t, right[1])
