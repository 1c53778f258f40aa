"""Names of array types: what annotations of arrays say in one word.

>>> half: Floats = np.array([0.5, 0.5])
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bools", "Floats", "Indices", "Ints", "Singles", "Unsigned"]

Floats: TypeAlias = NDArray[np.float64]
"""Doubles."""

Singles: TypeAlias = NDArray[np.float32]
"""Floats in single precision."""

Ints: TypeAlias = NDArray[np.int64]
"""Whole numbers of 64 bits: counts, and numbers of records."""

Indices: TypeAlias = NDArray[np.int32]
"""Whole numbers of 32 bits: positions in sparse matrices."""

Unsigned: TypeAlias = NDArray[np.uint64]
"""Whole numbers of 64 bits without a sign: the weights of a released matrix."""

Bools: TypeAlias = NDArray[np.bool_]
"""Yes or no for each entry."""
