"""Draw for any point of a region: part of the reference client, from the standard library, written to be ported.

A position is a mixture of the corners of its triangle, or of the ends of its street, with shares that are whole
numbers. The row of a position is the sum of the corners' rows times their shares, in whole numbers too: no corner is
drawn first, so none could be seen. Documented in docs/reference/client.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final, Protocol

__all__ = ["DamagedArtefactError", "Everywhere", "Mixture", "index_below", "nearest_side"]

TOTAL: Final = 1 << 63
HALF: Final = 1 << 23
"""Half of a millimetre, where these are counted in 2^-24."""
FULL_TURN: Final = 3_600_000_000
"""A whole turn in 1e-7 degrees."""
ROOM: Final = 2.0**-40
"""Relative tolerance for the rounding of doubles: sides within it of the nearest one are compared exactly."""

Mixture = tuple[tuple[int, int], ...]
"""Pairs of a row and its share, a whole number."""


class DamagedArtefactError(ValueError):
    """The bytes are no artefact, or were changed after they were written."""


class Reader(Protocol):
    """Read numbers, and whole numbers of any size."""

    def numbers(self, form: str, count: int) -> tuple[int, ...]:
        """Read numbers of one form of :mod:`struct`."""
        ...

    def large(self) -> int:
        """Read a number of any size."""
        ...


class Everywhere:
    """Whole rows of a region's vertices, and the region: triangles, or streets."""

    def __init__(self, reader: Reader, rows: Sequence[Sequence[int]], degrees: bool) -> None:
        self._rows = rows
        (corners, self._steps), (self.block,) = reader.numbers("B", 2), reader.numbers("H", 1)
        self.entropy = self.block
        self._origin = reader.numbers("i", 2) if degrees else (0, 0)
        self._scales = reader.numbers("Q", 2) if degrees else None
        flat = reader.numbers("i", 2 * len(rows))
        self._vertices = list(zip(flat[::2], flat[1::2], strict=True))
        (count,) = reader.numbers("I", 1)
        self._simplices = _split_into_groups(reader.numbers("I", corners * count), corners)
        (sides,) = reader.numbers("I", 1)
        rim = _split_into_groups(reader.numbers("I", 2 * sides), 2)
        self._sides = self._simplices if corners == 2 else rim
        self._triangles = self._simplices if corners == 3 else []
        if corners not in (2, 3) or not self._sides or max(map(max, self._simplices + self._sides)) >= len(rows):
            raise DamagedArtefactError("mechanism.bin must have streets or triangles, got others: export again")
        self._whole = reader.large() if self._steps else 1
        self._reaches = [reader.large() for _ in self._simplices] if self._steps else []

    def at(self, first: int, second: int) -> Mixture:
        """Return the mixture of a position, in the artefact's units."""
        x, y = self._millimetres(first, second)
        for triangle in self._triangles:
            shares = self._corner_shares(triangle, x, y)
            if shares is not None:
                return tuple(zip(triangle, shares, strict=True))
        side_number, gone, length = nearest_side([(self._vertices[a], self._vertices[b]) for a, b in self._sides], x, y)
        a, b = self._sides[side_number]
        if self._steps:
            gone, length = self._bend_share(gone, length, self._reaches[side_number])
        return (a, length - gone), (b, gone)

    def draw(self, mixture: Mixture, entropy: bytes) -> int | None:
        """Return the output that the first block below the greatest multiple of the row's sum answers to."""
        weights = [0] * len(self._rows[0])
        for row, corner_share in mixture:
            weights = [sum_ + corner_share * weight for sum_, weight in zip(weights, self._rows[row], strict=True)]
        total = TOTAL * sum(corner_share for _, corner_share in mixture)
        multiple = (1 << 8 * self.block) // total
        if not multiple:
            raise DamagedArtefactError("mechanism.bin must have rows that a block covers, got others: export again")
        # Only numbers below the greatest multiple of the sum are used, so that each output has exactly its share.
        for start in range(0, len(entropy) - self.block + 1, self.block):
            number = int.from_bytes(entropy[start : start + self.block], "little") // multiple
            if number < total:
                return index_below(number, weights)
        return None

    def _millimetres(self, first: int, second: int) -> tuple[int, int]:
        """Bring units onto the plane: x and y in mm, as they are where these are the units."""
        if self._scales is None:
            return first, second
        east = (second - self._origin[1] + FULL_TURN // 2) % FULL_TURN - FULL_TURN // 2
        return (east * self._scales[0] + HALF) >> 24, ((first - self._origin[0]) * self._scales[1] + HALF) >> 24

    def _corner_shares(self, triangle: Sequence[int], x: int, y: int) -> tuple[int, int, int] | None:
        """Return barycentric coordinates times twice the triangle's area; None outside it."""
        (ax, ay), (bx, by), (cx, cy) = (self._vertices[corner] for corner in triangle)
        if not (min(ax, bx, cx) <= x <= max(ax, bx, cx) and min(ay, by, cy) <= y <= max(ay, by, cy)):
            return None
        u = (bx - x) * (cy - y) - (by - y) * (cx - x)
        v = (cx - x) * (ay - y) - (cy - y) * (ax - x)
        w = (ax - x) * (by - y) - (ay - y) * (bx - x)
        return (u, v, w) if u >= 0 and v >= 0 and w >= 0 else None

    def _bend_share(self, gone: int, length: int, reach: int) -> tuple[int, int]:
        """Turn the part of a street that is gone, ``gone / length``, into the far end's share: whole numbers too.

        With d = 2 n Q and R / Q = epsilon l, t = R / d. On piece j of the near half the share is
        ((1 + t)^j (1 + r t) - 1) / (2 ((1 + t)^n - 1)), r of the piece gone; the other half is its mirror.
        """
        if 2 * gone > length:
            mirrored, denominator = self._bend_share(length - gone, length, reach)
            return denominator - mirrored, denominator
        if not reach:
            return gone, length
        n, d = self._steps, 2 * self._steps * self._whole
        piece = min(2 * n * gone // length, n - 1)
        remainder = 2 * n * gone - piece * length
        risen = (d + reach) ** piece * (length * d + remainder * reach) - length * d ** (piece + 1)
        return risen * d ** (n - 1 - piece), 2 * length * ((d + reach) ** n - d**n)


def nearest_side(sides: Sequence[tuple[tuple[int, int], tuple[int, int]]], x: int, y: int) -> tuple[int, int, int]:
    """Return the side with the point nearest to a position, the first of several, and the part of it up to there.

    Args:
        sides: tail and head of each, mm.
        x, y: the position, mm.

    Returns:
        Number of the side, and two whole numbers: how far the point is along it, and all of it; 0 and 1 of a side that
        is a point.
    """
    squares, reach = [], 0.0
    for (ax, ay), (bx, by) in sides:
        tx, ty, wx, wy = float(ax - x), float(ay - y), float(bx - ax), float(by - ay)
        length = wx * wx + wy * wy
        gone = min(max(-(tx * wx + ty * wy) / length, 0.0), 1.0) if length else 0.0
        squares.append((tx + gone * wx) ** 2 + (ty + gone * wy) ** 2)
        reach = max(reach, length)
    # Doubles select the candidates; the exact comparison of these decides, so that every client finds the same side.
    min_square = min(squares)
    best, best_foot = -1, (0, 1, 0)
    for number, square in enumerate(squares):
        if square <= min_square + (min_square + reach) * ROOM:
            exact = _project_onto_side(sides[number], x, y)
            if best < 0 or exact[2] * best_foot[1] < best_foot[2] * exact[1]:
                best, best_foot = number, exact
    return best, best_foot[0], best_foot[1]


def _project_onto_side(endpoints: tuple[tuple[int, int], tuple[int, int]], x: int, y: int) -> tuple[int, int, int]:
    """Return how far along a side its nearest point is, all of the side, and the square of the distance times that."""
    (ax, ay), (bx, by) = endpoints
    tx, ty, wx, wy = ax - x, ay - y, bx - ax, by - ay
    length, along = wx * wx + wy * wy, -(tx * wx + ty * wy)
    if not length:
        return 0, 1, tx * tx + ty * ty
    gone = min(max(along, 0), length)
    return gone, length, (tx * tx + ty * ty) * length - 2 * gone * along + gone * gone


def index_below(number: int, weights: Sequence[int]) -> int:
    """Return how many cumulated weights are at most a number below their sum. All weights are always visited."""
    return sum(cumulated <= number for cumulated in accumulate(weights))


def _split_into_groups(numbers: Sequence[int], size: int) -> list[tuple[int, ...]]:
    """Split numbers into groups of one size."""
    return [tuple(numbers[start : start + size]) for start in range(0, len(numbers), size or 1)]
