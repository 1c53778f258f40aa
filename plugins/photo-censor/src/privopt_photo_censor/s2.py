"""S2 cells: the globe on a cube, each face a Hilbert curve, a cell a 64-bit id (s2geometry.io's definition).

What is needed here and no more: the id of a point at a level, tokens, containment and centres.
"""

from __future__ import annotations

import math
from typing import Final

__all__ = ["LEAF", "cell", "centre", "contains", "from_token", "level", "parent", "token"]

LEAF: Final = 30
SWAP, INVERT = 1, 2
POSITION_TO_IJ: Final = ((0, 1, 3, 2), (0, 2, 3, 1), (3, 2, 0, 1), (3, 1, 0, 2))
ORIENTATION: Final = (SWAP, 0, 0, INVERT | SWAP)
IJ_TO_POSITION: Final = tuple(tuple(row.index(ij) for ij in range(4)) for row in POSITION_TO_IJ)


def _to_st(u: float) -> float:
    return 0.5 * math.sqrt(1 + 3 * u) if u >= 0 else 1 - 0.5 * math.sqrt(1 - 3 * u)


def _to_uv(s: float) -> float:
    return (4 * s * s - 1) / 3 if s >= 0.5 else (1 - 4 * (1 - s) * (1 - s)) / 3


def _face_uv(x: float, y: float, z: float) -> tuple[int, float, float]:
    axis = max(range(3), key=lambda a: abs((x, y, z)[a]))
    face = axis if (x, y, z)[axis] > 0 else axis + 3
    u, v = (
        (y / x, z / x) if face == 0 else
        (-x / y, z / y) if face == 1 else
        (-x / z, -y / z) if face == 2 else
        (z / x, y / x) if face == 3 else
        (z / y, -x / y) if face == 4 else
        (-y / z, -x / z)
    )  # fmt: skip
    return face, u, v


def _xyz(face: int, u: float, v: float) -> tuple[float, float, float]:
    return ((1, u, v), (-u, 1, v), (-u, -v, 1), (-1, -v, -u), (v, -1, -u), (v, u, -1))[face]


def cell(latitude: float, longitude: float, at: int = LEAF) -> int:
    """Id of the cell of level `at` that holds a point (degrees).

    >>> token(cell(55.685376759, 12.588490937))
    '46525318b63be0f9'
    """
    phi, theta = math.radians(latitude), math.radians(longitude)
    face, u, v = _face_uv(math.cos(phi) * math.cos(theta), math.cos(phi) * math.sin(theta), math.sin(phi))
    size = 1 << LEAF
    i, j = (min(size - 1, max(0, math.floor(size * _to_st(w)))) for w in (u, v))
    orientation = face & SWAP
    found = face
    for bit in range(LEAF - 1, -1, -1):
        position = IJ_TO_POSITION[orientation][(((i >> bit) & 1) << 1) | ((j >> bit) & 1)]
        found = (found << 2) | position
        orientation ^= ORIENTATION[position]
    return parent((found << 1) | 1, at)


def level(identifier: int) -> int:
    """Level of a cell, 0 for a face to 30."""
    return LEAF - ((identifier & -identifier).bit_length() - 1) // 2


def parent(identifier: int, at: int) -> int:
    """The cell of level `at` that holds a cell."""
    low = 1 << 2 * (LEAF - at)
    return (identifier & -low) | low


def contains(outer: int, inner: int) -> bool:
    """Whether one cell holds another, or is it."""
    reach = (outer & -outer) - 1
    return outer - reach <= inner <= outer + reach


def centre(identifier: int) -> tuple[float, float]:
    """Latitude and longitude of a cell's centre, degrees."""
    at = level(identifier)
    face = identifier >> 61
    orientation, i, j = face & SWAP, 0, 0
    for step in range(at):
        position = (identifier >> (61 - 2 * (step + 1))) & 3
        ij = POSITION_TO_IJ[orientation][position]
        i, j = (i << 1) | (ij >> 1), (j << 1) | (ij & 1)
        orientation ^= ORIENTATION[position]
    x, y, z = _xyz(face, *(_to_uv((2 * w + 1) / (2 << at)) for w in (i, j)))
    return math.degrees(math.atan2(z, math.hypot(x, y))), math.degrees(math.atan2(y, x))


def token(identifier: int) -> str:
    """Hexadecimal form without trailing zeros."""
    return f"{identifier:016x}".rstrip("0") or "X"


def from_token(text: str) -> int:
    """Id of a token.

    Raises:
        ValueError: no token of a cell.
    """
    if not 1 <= len(text) <= 16:
        raise ValueError(f"{text!r} is no S2 token")
    identifier = int(text.ljust(16, "0"), 16)
    low = identifier & -identifier
    if identifier == 0 or identifier >> 61 > 5 or low.bit_length() % 2 == 0 or low > 1 << 60:
        raise ValueError(f"{text!r} is no S2 token")
    return identifier
