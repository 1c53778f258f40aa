"""The part of the reference client that draws reports for any point in a region.

It uses only the standard library and is written to be ported to other languages. A position is expressed as a mixture
of its triangle's corners, or of its street's ends, with integer shares. The row for the position is the sum of the
corners' rows times their shares, also in integers. No corner is drawn as an intermediate step, so none can be observed.
The format is documented in docs/reference/client.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final, Protocol

__all__ = ["DamagedArtefactError", "Everywhere", "Mixture", "OutsideRegionError", "index_below", "nearest_side"]

TOTAL: Final = 1 << 63
HALF: Final = 1 << 23
"""Half a millimetre in units of 2^-24 mm. Adding it before a right shift by 24 bits rounds to the nearest mm."""
FULL_TURN: Final = 3_600_000_000
"""A full turn in units of 1e-7 degrees."""
ROOM: Final = 2.0**-40
"""The relative tolerance for rounding errors in doubles. Sides that tie within it are compared exactly."""

Mixture = tuple[tuple[int, int], ...]
"""A weighted combination of rows: pairs of a row index and the row's integer share."""


class DamagedArtefactError(ValueError):
    """Raised if the bytes are not an artefact, or were changed after the export."""


class OutsideRegionError(ValueError):
    """Raised if a position is too far from a release's region or records for a useful report."""

    def __init__(self) -> None:
        # The message must not repeat the position, because it may be logged.
        super().__init__("the secret must lie in the region of this release, got a position outside")


class Reader(Protocol):
    """A sequential reader for the numbers in an artefact. :mod:`privopt_clients.client` implements it."""

    def numbers(self, form: str, count: int) -> tuple[int, ...]:
        """Read ``count`` little-endian numbers whose type is the :mod:`struct` format character ``form``."""
        ...

    def large(self) -> int:
        """Read an integer of arbitrary size."""
        ...


class Everywhere:
    """A mechanism for any point in a region, with a row for each vertex of the region's triangles or streets.

    At a position, the rows of the surrounding vertices are mixed. A share is the weight of a vertex's row in this
    mixture. Along a street, shares are either linear or S-shaped functions of the position.

    Attributes:
        block: The number of bytes in a block of entropy, which serves one attempt at rejection sampling.
        entropy: The number of bytes of entropy per draw: one block.
        reach: The distance from the region, in mm, beyond which a position is rejected.
        _rows: The weight of each output, for each vertex. Each row sums to 2^63.
        _vertices: The coordinates x and y of each vertex, in mm.
        _triangles: The indices of each triangle's three vertices; empty if the region consists of streets.
        _sides: The indices of the two vertices at the ends of each street, or of each boundary edge of the triangles.
        _origin: The latitude and longitude, in 1e-7 degrees, of the plane's origin.
        _scales: The lengths, in 2^-24 mm, of 1e-7 degrees to the east and to the north; None if positions are planar.
        _pieces: The number of pieces into which each half of a street is divided. S-shaped shares are linear on each
            piece. 0 if shares are linear on the whole street.
        _numerators, _denominator: Epsilon times the length of each street, as integers over a common denominator; empty
            and 1 if shares are linear.
    """

    def __init__(self, reader: Reader, rows: Sequence[Sequence[int]], degrees: bool, reach: int) -> None:
        """Read the region, which follows the rows in an artefact.

        Args:
            reader: A reader that has already read the artefact's rows.
            rows: The weight of each output, for each vertex.
            degrees: Whether positions are in degrees rather than planar km.
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
        # A position outside all triangles is moved to the rim, their boundary edges. Streets have no inside.
        self._sides = simplices if corners == 2 else rim
        self._triangles = simplices if corners == 3 else []
        if corners not in (2, 3) or not self._sides or max(map(max, simplices + self._sides)) >= len(rows):
            raise DamagedArtefactError("mechanism.bin must have streets or triangles, got others: export again")
        # Only S-shaped shares (_s_shaped_share) depend on epsilon times the length of a street.
        self._denominator = reader.large() if self._pieces else 1
        self._numerators = [reader.large() for _ in simplices] if self._pieces else []

    def at(self, first: int, second: int) -> Mixture:
        """Return the mixture of rows at a position, as row indices with integer shares.

        In a triangle, the rows are those of its three corners. A position outside all triangles is moved to the nearest
        side (a street or a boundary edge of the region). The rows are then those of the side's two ends.

        Args:
            first: The latitude in 1e-7 degrees, or x in mm.
            second: The longitude in 1e-7 degrees, or y in mm.

        Raises:
            OutsideRegionError: The position is farther than :attr:`reach` from the region.
        """
        x, y = self._millimetres(first, second)
        # A region of streets has no triangles, so each position is moved to the nearest side below.
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
        # If shares are linear, the far end's share is the position along the side, numerator / denominator.
        if self._pieces:
            scaled_length = self._numerators[side_number]
            numerator, denominator = self._s_shaped_share(numerator, denominator, scaled_length)
        return (a, denominator - numerator), (b, numerator)

    def draw(self, mixture: Mixture, entropy: bytes) -> int | None:
        """Draw the index of an output by rejection sampling; return None if every block of entropy is rejected.

        A block is accepted if its number is below the largest multiple of the row's sum that a block can hold.

        Args:
            mixture: The indices and shares of the rows that make up the position's row.
            entropy: Uniform random bytes, which are read block by block.

        Raises:
            DamagedArtefactError: The sum of the row's weights exceeds the range of a block.
        """
        weights = [0] * len(self._rows[0])
        for row, corner_share in mixture:
            weights = [sum_ + corner_share * weight for sum_, weight in zip(weights, self._rows[row], strict=True)]
        # Each vertex's row sums to 2^63.
        total = TOTAL * sum(corner_share for _, corner_share in mixture)
        # The total differs from point to point and need not be a power of two, so a block cannot simply be cut to fewer
        # bits. Instead it is divided by this quotient, so that each number below the total comes from equally many
        # blocks.
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

        Positions in 1e-7 degrees are projected onto a plane at the region's origin. Positions in mm are returned
        unchanged.
        """
        if self._scales is None:
            return first, second
        # The difference in longitude is reduced to -180 to 180 degrees, so that a region can lie on the date line.
        east = (second - self._origin[1] + FULL_TURN // 2) % FULL_TURN - FULL_TURN // 2
        return (east * self._scales[0] + HALF) >> 24, ((first - self._origin[0]) * self._scales[1] + HALF) >> 24

    def _corner_shares(self, triangle: Sequence[int], x: int, y: int) -> tuple[int, int, int] | None:
        """Return the integer shares of a triangle's three corners at the point (x, y), or None for a point outside it.

        Shares are barycentric coordinates multiplied by twice the triangle's area, which makes them integers.
        """
        (ax, ay), (bx, by), (cx, cy) = (self._vertices[corner] for corner in triangle)
        if not (min(ax, bx, cx) <= x <= max(ax, bx, cx) and min(ay, by, cy) <= y <= max(ay, by, cy)):
            return None
        # Shares of 0 count as inside, so that a position on an edge between two triangles belongs to the first of them.
        u = (bx - x) * (cy - y) - (by - y) * (cx - x)
        v = (cx - x) * (ay - y) - (cy - y) * (ax - x)
        w = (ax - x) * (by - y) - (ay - y) * (bx - x)
        return (u, v, w) if u >= 0 and v >= 0 and w >= 0 else None

    def _s_shaped_share(self, distance: int, length: int, scaled_length: int) -> tuple[int, int]:
        """Return the share of a street's far end at a point on the street, as numerator and denominator.

        This is ``far_share`` in privopt_metric_dp.region.snap_to_region, computed in integers. The share is an S-shaped
        function of the position, so that the privacy loss grows evenly along the street, unlike with linear shares.

        Each half of the street is divided into n = ``_pieces`` pieces. Let R / Q be epsilon times the length of the
        street, with Q = ``_denominator``, and let d = 2 n Q and t = R / d. On piece j of the near half, counted from 0,
        the share is ((1 + t)^j (1 + r t) - 1) / (2 ((1 + t)^n - 1)), where r is the fraction of the piece before the
        point. The result is this quotient, with numerator and denominator multiplied by d^n length. The far half
        mirrors the near half.

        Args:
            distance: The distance from the near end to the point, in any unit.
            length: The length of the street, in the unit of ``distance``.
            scaled_length: The numerator R of epsilon times the length of the street.
        """
        if 2 * distance > length:
            mirrored, denominator = self._s_shaped_share(length - distance, length, scaled_length)
            return denominator - mirrored, denominator
        # For t = 0 the quotient would be 0 / 0. Its limit is the linear share.
        if not scaled_length:
            return distance, length
        n, d = self._pieces, 2 * self._pieces * self._denominator
        # In the middle, 2 n distance / length is n itself, and the point is the end of the near half's last piece.
        piece = min(2 * n * distance // length, n - 1)
        remainder = 2 * n * distance - piece * length  # r times the length
        growth = (d + scaled_length) ** piece * (length * d + remainder * scaled_length) - length * d ** (piece + 1)
        return growth * d ** (n - 1 - piece), 2 * length * ((d + scaled_length) ** n - d**n)


def nearest_side(sides: Sequence[tuple[tuple[int, int], tuple[int, int]]], x: int, y: int) -> tuple[int, int, int, int]:
    """Return the side nearest to a position, and the nearest point on it. If several sides tie, the first is returned.

    Args:
        sides: The tail and head of each side, in mm. A side is a street or a boundary edge of the region.
        x, y: The position, in mm.

    Returns:
        The index of the side and three integers. The first two are the numerator and denominator of the nearest point's
        position along the side, from 0 at the tail to 1 at the head; they are 0 and 1 if the side is a single point.
        The third is the squared distance in mm^2 times the denominator.
    """
    squares, max_squared_length = [], 0.0
    for (ax, ay), (bx, by) in sides:
        # (tx, ty) leads from the position to the tail of the side, and (wx, wy) from its tail to its head.
        tx, ty, wx, wy = float(ax - x), float(ay - y), float(bx - ax), float(by - ay)
        squared_length = wx * wx + wy * wy
        part = min(max(-(tx * wx + ty * wy) / squared_length, 0.0), 1.0) if squared_length else 0.0
        squares.append((tx + part * wx) ** 2 + (ty + part * wy) ** 2)  # `part` is the position along the side
        max_squared_length = max(max_squared_length, squared_length)
    # Doubles select the candidates, and an exact comparison decides among them, so that every client finds the same
    # side.
    min_square = min(squares)
    best, best_foot = -1, (0, 1, 0)
    for number, square in enumerate(squares):
        if square <= min_square + (min_square + max_squared_length) * ROOM:
            exact = _project_onto_side(sides[number], x, y)
            # Squared distances are fractions with different denominators, so they are compared crosswise.
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
        from 0 at the tail to 1 at the head; they are 0 and 1 if the side is a single point. The third is the squared
        distance in mm^2 times the denominator.
    """
    (ax, ay), (bx, by) = endpoints
    # (tx, ty) leads from the position to the tail, and (wx, wy) from the tail to the head.
    tx, ty, wx, wy = ax - x, ay - y, bx - ax, by - ay
    squared_length, along = wx * wx + wy * wy, -(tx * wx + ty * wy)
    if not squared_length:
        return 0, 1, tx * tx + ty * ty
    # The nearest point on the line through the side, moved to an end of the side if it lies beyond that end.
    numerator = min(max(along, 0), squared_length)
    square = (tx * tx + ty * ty) * squared_length - 2 * numerator * along + numerator * numerator
    return numerator, squared_length, square


def index_below(number: int, weights: Sequence[int]) -> int:
    """Map a number below the sum of the weights to the index of a weight.

    If the number is uniform, each index is selected with a probability proportional to its weight. The index is the
    count of cumulative weights that are at most ``number``. All weights are always visited, so that the running time
    does not depend on the report.
    """
    return sum(cumulated <= number for cumulated in accumulate(weights))


def _split_into_groups(numbers: Sequence[int], size: int) -> list[tuple[int, ...]]:
    """Split a flat sequence into consecutive tuples of ``size`` numbers, such as the corners of triangles."""
    # A damaged artefact may state a size of 0. range() would refuse it; 1 keeps the loop valid, and the caller reports
    # the damage.
    return [tuple(numbers[start : start + size]) for start in range(0, len(numbers), size or 1)]
