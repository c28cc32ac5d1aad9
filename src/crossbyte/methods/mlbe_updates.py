"""Coordinate ascent on the posterior of MLBE: the ten blocks, and the loop that keeps them honest.

Each block is replaced by its maximum given the others, or, for codes, by better ones; whatever rounding does,
a block is taken over only if the posterior does not fall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from scipy import linalg, optimize

from crossbyte.arrays import Float64
from crossbyte.methods.mlbe_bits import improve_codes
from crossbyte.methods.mlbe_posterior import (
    Half,
    State,
    half_log_posterior,
    likeliest_link_spread,
    likeliest_noise,
    likeliest_spread,
    link_log_posterior,
    log_posterior,
)

__all__ = ["BLOCKS", "ascend", "update_link", "update_weights"]

_LEAST_LINK = 1e-3  # w must stay positive: without a link the halves would never hear of each other again
_LARGEST_LINK = 1e3
_ENOUGH = 1e-2  # gain of a whole sweep below which nothing is expected any more

Update = Callable[[State], State]


def ascend(state: State, n_sweeps: int) -> Iterator[tuple[State, float]]:
    """Yield the state and its log posterior, at the start and after every sweep over the ten blocks."""
    value = log_posterior(state)
    yield state, value
    for _ in range(n_sweeps):
        before = value
        for update in BLOCKS:
            proposed = update(state)
            gain = _gain(state, proposed)
            if gain >= 0:
                state, value = proposed, value + gain
        yield state, value
        if value - before < _ENOUGH:
            return


def _gain(state: State, proposed: State) -> float:
    """How much the log posterior rises; only what changed is computed."""
    gain = 0.0
    for left, right in ((state.image, proposed.image), (state.text, proposed.text)):
        if left is not right:
            gain += half_log_posterior(right) - half_log_posterior(left)
    weights_alone = state.link == proposed.link and state.link_spread == proposed.link_spread
    if not (weights_alone and _same_codes(state, proposed)):
        gain += link_log_posterior(proposed) - link_log_posterior(state)
    return gain


def _same_codes(state: State, proposed: State) -> bool:
    return state.image.codes is proposed.image.codes and state.text.codes is proposed.text.codes


def update_weights(half: Half, max_iter: int = 30) -> Half:
    """Ridge regression of the similarities' upper triangle on products of bits.

    A sum over i <= j is half the sum over all i and j plus half the one over i = j, so with A = U'U and D(·)
    the diagonal of a matrix alone, symmetric W solve::

        (A W A + U' D(U W U') U) / θ + (W + D(W)) / φ  =  (U' S U + U' D(S) U) / θ

    Nothing larger than (c, c) is formed: conjugate gradients from the present W, preconditioned by the part
    without diagonals, which the eigenvectors of A solve exactly.
    """
    U, S, theta, phi = half.codes, half.similarities, half.noise, half.spread
    A = U.T @ U
    values, Q = linalg.eigh(A)
    curvature = np.outer(values, values) / theta + 1.0 / phi

    def apply(W: Float64) -> Float64:
        own = np.einsum("nc,nc->n", U @ W, U)  # the diagonal of U W U'
        ridge = (W + np.diag(np.diag(W))) / phi
        return (A @ W @ A + (U * own[:, None]).T @ U) / theta + ridge

    def precondition(residual: Float64) -> Float64:
        return Q @ ((Q.T @ residual @ Q) / curvature) @ Q.T

    wanted = (U.T @ S @ U + (U * np.diag(S)[:, None]).T @ U) / theta
    W = _conjugate_gradients(apply, precondition, wanted, half.weights, max_iter)
    return replace(half, weights=(W + W.T) / 2)


def _conjugate_gradients(
    apply: Callable[[Float64], Float64],
    precondition: Callable[[Float64], Float64],
    wanted: Float64,
    start: Float64,
    max_iter: int,
) -> Float64:
    """Solve ``apply(X) = wanted`` for a symmetric positive definite operator on matrices."""
    solution, residual = start, wanted - apply(start)
    direction = turned = precondition(residual)
    product = np.vdot(residual, turned)
    enough = 1e-12 * np.vdot(wanted, precondition(wanted))
    for _ in range(max_iter):
        if product <= enough:
            break
        applied = apply(direction)
        step = product / np.vdot(direction, applied)
        solution, residual = solution + step * direction, residual - step * applied
        turned = precondition(residual)
        product, before = np.vdot(residual, turned), product
        direction = turned + (product / before) * direction
    return solution


def update_spread(half: Half) -> Half:
    """Variance φ of the weights."""
    return replace(half, spread=likeliest_spread(half))


def update_noise(half: Half) -> Half:
    """Variance θ of the similarities."""
    return replace(half, noise=likeliest_noise(half))


def update_link(state: State) -> State:
    """Link w, where the (falling) derivative of its log posterior is 0.

    Inner products are whole numbers, so related and unrelated pairs are counted by them first.
    """
    products, related, unrelated = _counts(state)

    def slope(w: float) -> float:
        with np.errstate(over="ignore"):  # 1 / inf is the right limit
            towards = related / (1 + np.exp(w * products)) - unrelated / (1 + np.exp(-w * products))
        return float((products * towards).sum() - w / state.link_spread)

    if slope(_LEAST_LINK) <= 0:
        return replace(state, link=_LEAST_LINK)
    return replace(state, link=float(optimize.brentq(slope, _LEAST_LINK, _LARGEST_LINK)))


def _counts(state: State) -> tuple[Float64, Float64, Float64]:
    """Inner products -c … c, and how many observed pairs have each: related, and unrelated."""
    c = state.image.codes.shape[1]
    columns = np.rint(state.image.codes @ state.text.codes.T).astype(np.intp).ravel() + c
    related = (state.relations.related * state.relations.observed).ravel()
    unrelated = state.relations.observed.ravel() - related
    counts = [
        np.bincount(columns, weights, minlength=2 * c + 1).astype(np.float64)
        for weights in (related, unrelated)
    ]
    return np.arange(-c, c + 1.0), counts[0], counts[1]


def update_link_spread(state: State) -> State:
    """Variance ω of the link."""
    return replace(state, link_spread=likeliest_link_spread(state.link))


def update_image_codes(state: State) -> State:
    """Bits of the images."""
    codes = improve_codes(state.image, state.text.codes, state.relations, state.link)
    return replace(state, image=replace(state.image, codes=codes))


def update_text_codes(state: State) -> State:
    """Bits of the texts."""
    codes = improve_codes(state.text, state.image.codes, state.relations.turned(), state.link)
    return replace(state, text=replace(state.text, codes=codes))


def _of_image(update: Callable[[Half], Half]) -> Update:
    return lambda state: replace(state, image=update(state.image))


def _of_text(update: Callable[[Half], Half]) -> Update:
    return lambda state: replace(state, text=update(state.text))


BLOCKS: tuple[Update, ...] = (
    _of_image(update_weights),
    _of_text(update_weights),
    _of_image(update_spread),
    _of_text(update_spread),
    _of_image(update_noise),
    _of_text(update_noise),
    update_image_codes,
    update_text_codes,
    update_link,
    update_link_spread,
)
"""The ten blocks, in the order of a sweep."""
