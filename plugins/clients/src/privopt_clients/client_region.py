"""The part of the reference client that draws reports for any point in a region.

It uses only the standard library, so that it is easy to port to other languages. A position is expressed as a mixture
of the corners of its triangle, or of the ends of its street, with integer shares. The row for the position is the sum
of the corners' rows weighted by their shares, also computed in integers. No corner is drawn as an intermediate step, so
none can be observed. docs/reference/client.md documents the format.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final, Protocol

__all__ = ["DamagedArtefactError", "Everywhere", "Mixture", "OutsideRegionError", "index_below", "nearest_side"]

TOTAL: Final = 1 << 63
HALF: Final = 1 << 23
"""Half a millimetre in units of 2^-24 mm. Adding it before shifting right by 24 bits rounds to the nearest mm."""
FULL_TURN: Final = 3_600_000_000
"""A full turn in units of 1e-7 degrees."""
ROOM: Final = 2.0**-40
"""The relative tolerance for rounding errors in doubles. Sides that tie within this tolerance are compared exactly."""

Mixture = tuple[tuple[int, int], ...]
"""A weighted combination of rows, given as pairs of a row index and the row's integer share."""


class DamagedArtefactError(ValueError):
    """Raised when bytes are not a valid artefact, or have changed since the artefact was exported."""


class OutsideRegionError(ValueError):
    """Raised when a position is too far from a release's region or records for a report to be useful."""

    def __init__(self) -> None:
        # The message must not quote the position, because it may be logged.
        super().__init__("the secret must lie in the region of this release, got a position outside")


class Reader(Protocol):
    """Interface of a sequential reader of an artefact's numbers, implemented in :mod:`privopt_clients.client`."""

    def numbers(self, form: str, count: int) -> tuple[int, ...]:
        """Read ``count`` little-endian numbers of the type denoted by the :mod:`struct` format character ``form``."""
        ...

    def large(self) -> int:
        """Read a non-negative integer of any size."""
        ...


class Everywhere:
    """A mechanism for any point in a region, which stores a row for each vertex of the region's triangles or streets.

    At other points, the rows of the surrounding vertices are mixed. The weight of a vertex's row in this mixture is
    called its share. Along a street, shares are either linear or S-shaped functions of the position.

    Attributes:
        block: The number of bytes in a block of entropy. Each block is one attempt at rejection sampling.
        entropy: The number of bytes of entropy per draw, which is one block.
        reach: The distance from the region, in mm, beyond which a position is rejected.
        _rows: The weights of the outputs, one row per vertex. Each row sums to 2^63.
        _vertices: The coordinates x and y of each vertex, in mm.
        _triangles: The indices of each triangle's three vertices. Empty if the region consists of streets.
        _sides: The indices of the two vertices at the ends of each street, or of each boundary edge of the triangles.
        _origin: The latitude and longitude of the plane's origin, in 1e-7 degrees.
        _scales: The lengths, in units of 2^-24 mm, of 1e-7 degrees to the east and to the north, or None if positions
            are planar.
        _pieces: The number of linear pieces that make up each half of an S-shaped share, or 0 if shares are linear.
        _numerators, _denominator: Epsilon times the length of each street, as integers over a common denominator. If
            shares are linear, they are an empty list and 1.
    """

    def __init__(self, reader: Reader, rows: Sequence[Sequence[int]], degrees: bool, reach: int) -> None:
        """Read the region, which follows the rows in an artefact.

        Args:
            reader: A reader positioned after the artefact's rows.
            rows: The weights of the outputs, one row per vertex.
            degrees: Whether positions are in degrees rather than in km in a plane.
            reach: The distance from the region, in mm, beyond which a position is rejected.

        Raises:
            DamagedArtefactError: The region has neither triangles nor streets, or a vertex has no row.
        """
        self._rows, self.reach = rows, reach
        (corners, self._pieces), (self.block,) = reader.numbers("B", 2), reader.numbers("H", 1)
        self.entropy = self.block
        self._origin = reader.numbers("i", 2) if degrees else (0, 0)
        self._scales = reader.numbers("Q", 2) if degrees else None
        coordinates = reader.numbers("i", 2 * len(rows))
        self._vertices = list(zip(coordinates[::2], coordinates[1::2], strict=True))
        (count,) = reader.numbers("I", 1)
        simplices = _split_into_groups(reader.numbers("I", corners * count), corners)
        (sides,) = reader.numbers("I", 1)
        rim = _split_into_groups(reader.numbers("I", 2 * sides), 2)
        # A position outside all triangles is moved to the nearest of their boundary edges. With streets, every position
        # is moved to the nearest street.
        self._sides = simplices if corners == 2 else rim
        self._triangles = simplices if corners == 3 else []
        if corners not in (2, 3) or not self._sides or max(map(max, simplices + self._sides)) >= len(rows):
            raise DamagedArtefactError("mechanism.bin must have streets or triangles, got others: export again")
        # Epsilon times the length of each street is needed only for S-shaped shares (_s_shaped_share).
        self._denominator = reader.large() if self._pieces else 1
        self._numerators = [reader.large() for _ in simplices] if self._pieces else []

    def at(self, first: int, second: int) -> Mixture:
        """Return the mixture of rows at a position, as pairs of a row index and an integer share.

        Inside a triangle, the rows are those of its three corners. A position outside all triangles is moved to the
        nearest side (a street or a boundary edge of the region), and the rows are those of the side's two ends.

        Args:
            first: The latitude in 1e-7 degrees, or x in mm.
            second: The longitude in 1e-7 degrees, or y in mm.

        Raises:
            OutsideRegionError: The position is farther than :attr:`reach` from the region.
        """
        x, y = self._millimetres(first, second)
        # A region of streets has no triangles, so this loop finds nothing and the nearest street is used.
        for triangle in self._triangles:
            shares = self._corner_shares(triangle, x, y)
            if shares is not None:
                return tuple(zip(triangle, shares, strict=True))
        sides = [(self._vertices[a], self._vertices[b]) for a, b in self._sides]
        side_number, numerator, denominator, square = nearest_side(sides, x, y)
        # `square` is the squared distance times the denominator.
        if square > self.reach**2 * denominator:
            raise OutsideRegionError
        a, b = self._sides[side_number]
        # For linear shares, numerator / denominator (the position along the side) is already the share of the far end.
        if self._pieces:
            scaled_length = self._numerators[side_number]
            numerator, denominator = self._s_shaped_share(numerator, denominator, scaled_length)
        return (a, denominator - numerator), (b, numerator)

    def draw(self, mixture: Mixture, entropy: bytes) -> int | None:
        """Draw the index of an output by rejection sampling, or return None if every block of entropy is rejected.

        A block is accepted if the number that it encodes is below the largest multiple of the row's sum that a block
        can hold.

        Args:
            mixture: The indices and shares of the rows to mix at the position.
            entropy: Uniformly random bytes, which are consumed block by block.

        Raises:
            DamagedArtefactError: The mixed row's weights sum to more than a block can hold.
        """
        weights = [0] * len(self._rows[0])
        for row, corner_share in mixture:
            weights = [sum_ + corner_share * weight for sum_, weight in zip(weights, self._rows[row], strict=True)]
        # Each vertex's row sums to 2^63.
        total = TOTAL * sum(corner_share for _, corner_share in mixture)
        # The total depends on the position and need not be a power of two, so a block cannot simply be cut to fewer
        # bits. Dividing it by this quotient instead makes every number below the total equally likely.
        multiple = (1 << 8 * self.block) // total
        if not multiple:
            raise DamagedArtefactError(
                "mechanism.bin must have rows that a block of entropy covers, got others: export again"
            )
        for start in range(0, len(entropy) - self.block + 1, self.block):
            number = int.from_bytes(entropy[start : start + self.block], "little") // multiple
            if number < total:
                return index_below(number, weights)
        return None

    def _millimetres(self, first: int, second: int) -> tuple[int, int]:
        """Convert a position in the artefact's units to planar coordinates x and y in mm.

        Positions in 1e-7 degrees are projected onto a plane around the region's origin. Positions in mm are returned
        unchanged.
        """
        if self._scales is None:
            return first, second
        # Differences in longitude are reduced to -180 to 180 degrees, so that a region can lie across the date line.
        east = (second - self._origin[1] + FULL_TURN // 2) % FULL_TURN - FULL_TURN // 2
        return (east * self._scales[0] + HALF) >> 24, ((first - self._origin[0]) * self._scales[1] + HALF) >> 24

    def _corner_shares(self, triangle: Sequence[int], x: int, y: int) -> tuple[int, int, int] | None:
        """Return the integer shares of a triangle's corners at the point (x, y), or None if the point is outside.

        Shares are barycentric coordinates multiplied by twice the triangle's area, which makes them integers.
        """
        (ax, ay), (bx, by), (cx, cy) = (self._vertices[corner] for corner in triangle)
        if not (min(ax, bx, cx) <= x <= max(ax, bx, cx) and min(ay, by, cy) <= y <= max(ay, by, cy)):
            return None
        # A share of 0 counts as inside, so a position on an edge between two triangles belongs to the first of them.
        u = (bx - x) * (cy - y) - (by - y) * (cx - x)
        v = (cx - x) * (ay - y) - (cy - y) * (ax - x)
        w = (ax - x) * (by - y) - (ay - y) * (bx - x)
        return (u, v, w) if u >= 0 and v >= 0 and w >= 0 else None

    def _s_shaped_share(self, distance: int, length: int, scaled_length: int) -> tuple[int, int]:
        """Return the share of a street's far end at a point on the street, as a numerator and a denominator.

        This computes ``far_share`` of privopt_metric_dp.region.snap_to_region in integer arithmetic. The share is an
        S-shaped function of the position. Unlike a linear share, it makes the privacy loss grow evenly along the
        street.

        Each half of the street is divided into n = ``_pieces`` pieces. Let R / Q be epsilon times the length of the
        street, with Q = ``_denominator``, and let d = 2 n Q and t = R / d. On piece j of the near half, counted from 0,
        the share is ((1 + t)^j (1 + r t) - 1) / (2 ((1 + t)^n - 1)), where r is the fraction of the piece before the
        point. The numerator and denominator of this quotient are both multiplied by d^n times ``length`` to make them
        integers. The far half mirrors the near half.

        Args:
            distance: The distance from the near end to the point, in any unit.
            length: The length of the street in the same unit.
            scaled_length: The numerator R of epsilon times the length of the street.
        """
        if 2 * distance > length:
            mirrored, denominator = self._s_shaped_share(length - distance, length, scaled_length)
            return denominator - mirrored, denominator
        # For t = 0 the quotient would be 0 / 0. Its limit is the linear share.
        if not scaled_length:
            return distance, length
        n, d = self._pieces, 2 * self._pieces * self._denominator
        # Exactly in the middle, 2 n distance / length is n. The point then belongs to the near half's last piece.
        piece = min(2 * n * distance // length, n - 1)
        remainder = 2 * n * distance - piece * length  # r times the length
        growth = (d + scaled_length) ** piece * (length * d + remainder * scaled_length) - length * d ** (piece + 1)
        return growth * d ** (n - 1 - piece), 2 * length * ((d + scaled_length) ** n - d**n)


def nearest_side(sides: Sequence[tuple[tuple[int, int], tuple[int, int]]], x: int, y: int) -> tuple[int, int, int, int]:
    """Return the side nearest to a position, and the nearest point on it. Ties go to the first side.

    Args:
        sides: The tail and head of each side, in mm. A side is a street or a boundary edge of the region.
        x, y: The position, in mm.

    Returns:
        The index of the side and three integers. The first two are the numerator and denominator of the nearest point's
        position along the side, from 0 at the tail to 1 at the head. They are 0 and 1 if the side is a single point.
        The third is the squared distance in mm^2, multiplied by the denominator.
    """
    squares, max_squared_length = [], 0.0
    for (ax, ay), (bx, by) in sides:
        # (tx, ty) points from the position to the side's tail, and (wx, wy) from its tail to its head.
        tx, ty, wx, wy = float(ax - x), float(ay - y), float(bx - ax), float(by - ay)
        squared_length = wx * wx + wy * wy
        part = min(max(-(tx * wx + ty * wy) / squared_length, 0.0), 1.0) if squared_length else 0.0
        squares.append((tx + part * wx) ** 2 + (ty + part * wy) ** 2)  # `part` is the relative position along the side
        max_squared_length = max(max_squared_length, squared_length)
    # Doubles select the candidates, which are then compared exactly, so that every client finds the same side.
    min_square = min(squares)
    best, best_foot = -1, (0, 1, 0)
    for number, square in enumerate(squares):
        if square <= min_square + (min_square + max_squared_length) * ROOM:
            exact = _project_onto_side(sides[number], x, y)
            # Squared distances are fractions with different denominators, so they are compared by cross-multiplication.
            if best < 0 or exact[2] * best_foot[1] < best_foot[2] * exact[1]:
                best, best_foot = number, exact
    return best, *best_foot


def _project_onto_side(endpoints: tuple[tuple[int, int], tuple[int, int]], x: int, y: int) -> tuple[int, int, int]:
    """Project a position onto a side, exactly in integers.

    Args:
        endpoints: The tail and head of the side, in mm.
        x, y: The position, in mm.

    Returns:
        Three integers. The first two are the numerator and denominator of the nearest point's position along the side,
        from 0 at the tail to 1 at the head. They are 0 and 1 if the side is a single point. The third is the squared
        distance in mm^2, multiplied by the denominator.
    """
    (ax, ay), (bx, by) = endpoints
    # (tx, ty) points from the position to the tail, and (wx, wy) from the tail to the head.
    tx, ty, wx, wy = ax - x, ay - y, bx - ax, by - ay
    squared_length, along = wx * wx + wy * wy, -(tx * wx + ty * wy)
    if not squared_length:
        return 0, 1, tx * tx + ty * ty
    # The projection onto the line through the side, clamped to the side's ends.
    numerator = min(max(along, 0), squared_length)
    square = (tx * tx + ty * ty) * squared_length - 2 * numerator * along + numerator * numerator
    return numerator, squared_length, square


def index_below(number: int, weights: Sequence[int]) -> int:
    """Map a number below the sum of the weights to the index of a weight.

    If the number is uniformly random, each index is selected with probability proportional to its weight. The index is
    the number of cumulative weights that are at most ``number``. All weights are always visited, so that the running
    time does not depend on the report.
    """
    return sum(cumulated <= number for cumulated in accumulate(weights))


def _split_into_groups(numbers: Sequence[int], size: int) -> list[tuple[int, ...]]:
    """Split a flat sequence into consecutive tuples of ``size`` numbers, such as the corners of triangles."""
    # A damaged artefact may state a size of 0, which range() would reject. The caller reports the damage later.
    return [tuple(numbers[start : start + size]) for start in range(0, len(numbers), size or 1)]
