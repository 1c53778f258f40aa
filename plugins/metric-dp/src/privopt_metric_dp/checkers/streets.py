"""Check releases that protect every point on a network of streets (docs/guide/everywhere.md).

Costs, probabilities and positions are integers scaled by 2**256. ``low`` converts a rational to this scale and rounds
it down, and ``ONE`` represents 1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Self

from privopt.checker.arrays import Array
from privopt.checker.exact import BITS, ONE, down, low, need
from privopt_metric_dp.checkers.losses import Losses
from privopt_metric_dp.checkers.metric import Metric

__all__ = ["Piece", "Streets"]

Piece = tuple[int, int, Fraction, Fraction]
"""The row indices of a piece's ends, its length in km, and the factor 1 + a by which weights at the ends may differ."""

STEPS_PER_HALF = 8
"""The number of linear segments of the snapping probability in each half of a piece."""

INTERVALS_PER_PIECE = 16
"""The number of integration intervals per piece, each with two Gauss points that represent people."""


class Streets:
    """A region of streets, each of which is divided into pieces of equal length.

    Attributes:
        arrays: The additional array that mechanism.npz contains for a region of streets, in the format of
            :func:`privopt.checker.arrays.read_npz`.
        pieces: The pieces of all streets, in the order of the streets (set by :meth:`build`).
    """

    arrays = "lengths:f8:1"

    def __init__(self, metric: Metric) -> None:
        """Store the metric. Its streets are divided into pieces later, by :meth:`build`."""
        self.metric = metric
        self.pieces: list[Piece] = []

    def build(self, epsilon: Fraction, split: float, stored: Sequence[Array]) -> list[Any]:
        """Divide the streets into pieces, and return the arrays that mechanism.npz must contain.

        The arrays contain the row indices of each piece's two ends, the number of snapping steps, and the length of
        each piece in km.

        Args:
            epsilon: Epsilon per km.
            split: The maximum length of a piece in km, or 0 for the default of 1 / (2 epsilon).
            stored: The arrays of simplices, snapping steps and lengths in mechanism.npz.

        Raises:
            RefusedError: Too few pieces are stored.
        """
        metric = self.metric
        tails, heads = (
            [tail for tail, _, _ in metric.streets],
            [head for _, head, _ in metric.streets],
        )
        # The dictionary serves as an ordered set of the records, the roads' nodes and the added vertices, in this
        # order.
        points: dict[str, None] = dict.fromkeys([*metric.points, *tails, *heads])
        pieces: list[tuple[str, str, Fraction, Fraction]] = []
        for tail, head, stated_km in metric.streets:
            # As in `solve`, lengths are rounded down to doubles, in which they are stored. Shorter lengths are
            # stricter.
            km = Fraction(down(stated_km))
            parts = max(1, math.ceil(km / (Fraction(split) or 1 / (2 * epsilon))))
            # Too many pieces are rejected before they are created, because a small `split` can request any number of
            # them.
            need(
                len(pieces) + parts <= len(stored[0].rows),
                "mechanism.npz: fewer pieces of streets than the problem has",
            )
            names = (f"{tail}~{head}~{step}" for step in itertools.count(1))
            free = (name for name in names if name not in points)
            between = list(itertools.islice(free, parts - 1))
            points |= dict.fromkeys(between)
            km = Fraction(down(km / parts))
            # This is 1 + a with a = 2 ((1 + t)^n - 1) and t = epsilon l / 2n (docs/guide/everywhere.md, "Streets").
            factor = 2 * (1 + epsilon * km / (2 * STEPS_PER_HALF)) ** STEPS_PER_HALF - 1
            chain = itertools.pairwise([tail, *between, head])
            pieces += [(start, end, km, factor) for start, end in chain]
        ids = list(points)
        metric.cut_roads(ids, [(a, b, km) for a, b, km, _ in pieces])
        metric.hold_along([(a, b, factor) for a, b, _, factor in pieces], epsilon)
        index_by_id = {name: i for i, name in enumerate(ids)}
        self.pieces = [(index_by_id[a], index_by_id[b], km, factor) for a, b, km, factor in pieces]
        lengths = [float(km) for _, _, km, _ in self.pieces]
        return [[piece[:2] for piece in self.pieces], [STEPS_PER_HALF], lengths]

    def checked_pairs(self) -> list[tuple[int, int, float, int]]:
        """Return the pieces as pairs of rows to check.

        Returns:
            For each piece, the row indices of its two ends, its length in km, and the largest allowed ratio between
            weights in the two rows, scaled by 2**256.
        """
        return [(a, b, float(km), low(factor)) for a, b, km, factor in self.pieces]

    def rate(self, excess: float) -> float:
        """Return the smallest product of epsilon and length at which a piece allows the ratio 1 + ``excess``.

        This is the ratio between an output's weights in the rows of the piece's two ends. The result is 2 n t, where n
        is :data:`STEPS_PER_HALF` and t solves ``excess`` = 2 ((1 + t)^n - 1) (docs/guide/everywhere.md).
        """
        return 2 * STEPS_PER_HALF * math.expm1(math.log1p(excess / 2) / STEPS_PER_HALF)

    def check_inside(self, rows: Sequence[Sequence[int]], epsilon: Fraction) -> tuple[int, float]:
        """Return (0, 0.0), because streets are checked as pairs of rows instead (:meth:`checked_pairs`)."""
        return 0, 0.0

    def losses(self, losses: Losses, epsilon: Fraction) -> Losses:
        """Average the losses over people who are spread evenly over the streets.

        To report, a person at fraction u of a piece is snapped to its second end with probability lambda(u)
        (:func:`_far_share`), and otherwise to its first end. The row of that end is then used.

        Args:
            losses: The losses at the vertices.
            epsilon: Epsilon per km, on which lambda depends.
        """
        vertices, count = losses.column, len(self.metric.points)
        people = [_Person.at(*position, epsilon) for position in self._place_people()]

        def column(k: int) -> list[int]:
            """Return the cost of output k at every vertex as a sum over people, scaled by 2**256.

            Each person's cost is multiplied by the person's mass and by the probability of being snapped to the vertex.
            """
            d, costs = vertices(k), [0] * count
            for person in people:
                if losses.measured:
                    # A path from a person leads through one of the piece's two ends. All terms are scaled by 2**512.
                    person_cost = min(
                        d[person.a] * ONE + person.part * person.km, d[person.b] * ONE + person.rest * person.km
                    )
                else:
                    person_cost = d[person.a] * person.rest + d[person.b] * person.part
                costs[person.a] += person_cost * (ONE - person.share) * person.mass
                costs[person.b] += person_cost * person.share * person.mass
            return [cost >> 2 * BITS for cost in costs]

        # The sums over people are divided by this mass later, when the loss is computed.
        total_mass = sum(person.mass for person in people)
        return replace(losses, prior=[1] * count, whole=total_mass, column=column)

    def _place_people(self) -> list[tuple[Piece, int, int]]:
        """Return weighted Gauss points that represent people spread evenly over the streets.

        Returns:
            The piece of each point, the point's position as a fraction of the piece, and its weight, which is the
            piece's length in km. Positions and weights are scaled by 2**256.
        """
        root = math.isqrt(ONE * ONE // 3)
        # The middle of interval j // 2 is at j / 32 of the piece. Its two Gauss points are 1 / sqrt(3) of half its
        # width away from the middle.
        middles = [(j, sign) for j in range(1, 2 * INTERVALS_PER_PIECE, 2) for sign in (-1, 1)]
        parts = [(j * ONE + sign * root) // (2 * INTERVALS_PER_PIECE) for j, sign in middles]
        return [(piece, part, low(piece[2])) for piece in self.pieces for part in parts]


@dataclass(frozen=True, slots=True)
class _Person:
    """A person on a piece of street. All numbers except the indices are scaled by 2**256.

    Attributes:
        a, b: The row indices of the piece's two ends.
        km: The length of the piece in km.
        part, rest: The distances from a and b as fractions of the piece, which sum to 1.
        share: The probability that the person is snapped to b.
        mass: The weight of the person, which is proportional to the length of the piece.
    """

    a: int
    b: int
    km: int
    part: int
    rest: int
    share: int
    mass: int

    @classmethod
    def at(cls, piece: Piece, part: int, mass: int, epsilon: Fraction) -> Self:
        """Create a person at a position on a piece of street.

        Args:
            piece: The piece of street.
            part: The distance from the first end as a fraction of the piece, scaled by 2**256.
            mass: The weight of the person.
            epsilon: Epsilon per km.
        """
        a, b, km, factor = piece
        share = _far_share(part, epsilon * km / (2 * STEPS_PER_HALF), factor)
        return cls(a, b, low(km), part, ONE - part, share, mass)


def _far_share(part: int, step: Fraction, factor: Fraction) -> int:
    """Return lambda(u), the probability that a person at fraction u of a piece is snapped to its second end.

    The function is S-shaped, so that output probabilities change by at most a factor of 1 + ``step`` in each of 16
    steps. Let 16 u = n + r, where n is an integer and 0 <= r < 1. In the first half of the piece, lambda(u) is
    ((1 + step)^n (1 + r step) - 1) / (factor - 1). In the second half, it is 1 - lambda(1 - u).

    Args:
        part: The fraction u, scaled by 2**256.
        step: The product of epsilon and the length of a step, which is 1/16 of the piece.
        factor: The largest allowed ratio between weights in the rows of the two ends.

    Returns:
        lambda(u), scaled by 2**256.
    """
    mirrored = min(part, ONE - part)
    if step:
        full_steps, remainder = divmod(2 * STEPS_PER_HALF * mirrored, ONE)
        grown = (1 + step) ** full_steps * (1 + remainder * step / ONE)
        mirrored = low((grown - 1) / (factor - 1))
    return mirrored if 2 * part < ONE else ONE - mirrored
