"""Move parameters along gradients: Adam in NumPy, for the two fits that descend in small batches."""

from __future__ import annotations

import numpy as np

from crossbyte.arrays import Float32

_SMALL = 1e-8


class Adam:
    """Adam (Kingma and Ba, ICLR 2015): a step is the running mean of gradients over their running scale.

    The complements of the decay rates are arguments, because 1 - 0.9 is not the float 0.1, and what was
    learned with either must come out again to the last bit.

    Parameters
    ----------
    parameter : (…) float32
        What is moved; only its shape and type are looked at.
    beta1, beta2 : float
        Decay rates of the running mean and of the running mean square.
    gain1, gain2 : float
        How much of a new gradient enters each: 1 - beta1 and 1 - beta2.
    """

    def __init__(self, parameter: Float32, *, beta1: float, beta2: float, gain1: float, gain2: float) -> None:
        self._mean, self._square, self._count = np.zeros_like(parameter), np.zeros_like(parameter), 0
        self._betas, self._gains = (beta1, beta2), (gain1, gain2)

    def step(self, gradient: Float32, rate: float | np.float32) -> Float32:
        """Take a gradient in, and return what is to be subtracted from the parameter.

        Parameters
        ----------
        gradient : (…) float32
        rate : float
            Length of the step.

        Returns
        -------
        (…) float32
        """
        self._count += 1
        self._mean += self._gains[0] * (gradient - self._mean)
        self._square += self._gains[1] * (gradient * gradient - self._square)
        mean, square = (
            moment / (1 - beta**self._count)
            for moment, beta in zip((self._mean, self._square), self._betas, strict=True)
        )
        return np.asarray(rate * mean / (np.sqrt(square) + _SMALL), dtype=np.float32)
