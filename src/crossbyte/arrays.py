"""Name the array types that everything here passes around."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Codes = NDArray[np.uint8]
"""(n, M): one byte per codebook"""
Raw = NDArray[Any] | sparse.csr_matrix
"""(n, d) features as the user gave them, after validation"""
