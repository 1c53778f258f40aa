"""A region of streets, all of whose points the guarantee covers (docs/guide/everywhere.md).

``low`` rounds a rational down to 2**-256ths, the unit of costs, shares and positions (``ONE`` is 1 in this unit).
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
"""A piece of street: the indices of its two ends, its length in km, and the factor 1 + a by which their rows may
differ."""

STEPS_PER_HALF = 8
"""The number of linear steps in the snapping probability in each half of a piece."""

INTERVALS_PER_PIECE = 16
"""The number of intervals in a piece. Two Gauss points per interval represent the people there."""


class Streets:
    """A region of streets, each of which is divided into equal pieces.

    Attributes:
        arrays: The arrays in mechanism.npz in addition to the weights, in the form that
            :func:`privopt.checker.arrays.read_npz` takes.
        pieces: The pieces of all streets, in the order of the streets.
    """

    arrays = "lengths:f8:1"

    def __init__(self, metric: Metric) -> None:
        """Store the metric, whose streets :meth:`build` divides."""
        self.metric = metric
        self.pieces: list[Piece] = []

    def build(self, epsilon: Fraction, split: float, stored: Sequence[Array]) -> list[Any]:
        """Divide the streets as the problem requires, and return the arrays that mechanism.npz must contain.

        The arrays are the pieces' ends, the number of snapping steps, and the pieces' lengths in km.

        Args:
            epsilon: Epsilon per km.
            split: The largest length of a piece in km; 0 for half of 1 / epsilon.
            stored: The simplices, steps and lengths in mechanism.npz.

        Raises:
            RefusedError: Too few pieces are stored.
        """
        metric = self.metric
        tails, heads = (
            [tail for tail, _, _ in metric.streets],
            [head for _, head, _ in metric.streets],
        )
        # The dictionary serves as an ordered set: records first, then the roads' nodes, then the added vertices.
        points: dict[str, None] = dict.fromkeys([*metric.points, *tails, *heads])
        pieces: list[tuple[str, str, Fraction, Fraction]] = []
        for tail, head, stated_km in metric.streets:
            # Rounded down to a double, as in `solve`, because the stored lengths are doubles, and shorter ones are
            # stricter.
            km = Fraction(down(stated_km))
            parts = max(1, math.ceil(km / (Fraction(split) or 1 / (2 * epsilon))))
            # This is refused before pieces are created, because a small `split` could request any number of them.
            need(
                len(pieces) + parts <= len(stored[0].rows),
                "mechanism.npz: fewer pieces of streets than the problem has",
            )
            names = (f"{tail}~{head}~{step}" for step in itertools.count(1))
            free = (name for name in names if name not in points)
            between = list(itertools.islice(free, parts - 1))
            points |= dict.fromkeys(between)
            km = Fraction(down(km / parts))
            # 1 + a with a = 2 ((1 + t)^n - 1), t = epsilon l / 2n (docs/guide/everywhere.md, "Streets").
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
        """Return each piece's two ends, its length in km, and the largest allowed ratio between the ends' rows."""
        return [(a, b, float(km), low(factor)) for a, b, km, factor in self.pieces]

    def rate(self, excess: float) -> float:
        """Return epsilon times a piece's length, given the ratio 1 + ``excess`` between the rows at its ends.

        The result solves a = 2 ((1 + t)^n - 1) for epsilon l = 2 n t, with a = ``excess`` (docs/guide/everywhere.md).
        """
        return 2 * STEPS_PER_HALF * math.expm1(math.log1p(excess / 2) / STEPS_PER_HALF)

    def check_inside(self, rows: Sequence[Sequence[int]], epsilon: Fraction) -> tuple[int, float]:
        """Return 0 triangles and rate 0, since nothing more is checked: pieces are checked as pairs of rows."""
        return 0, 0.0

    def losses(self, losses: Losses, epsilon: Fraction) -> Losses:
        """Return the losses for people anywhere on the streets.

        For a person at the fraction u of a piece, the piece's two ends are drawn with probabilities 1 - lambda(u) and
        lambda(u) (:func:`_far_share`).

        Args:
            losses: The losses at the vertices.
            epsilon: Epsilon per km, on which lambda depends.
        """
        vertices, count = losses.column, len(self.metric.points)
        people = [_Person.at(*position, epsilon) for position in self._place_people()]

        def column(k: int) -> list[int]:
            """Return output k's costs at all vertices: weighted sums over the people for whom a vertex is drawn."""
            d, costs = vertices(k), [0] * count
            for person in people:
                if losses.measured:
                    # A path from a person leads over one of the piece's two ends. All terms are in 2**-512ths.
                    person_cost = min(
                        d[person.a] * ONE + person.part * person.km, d[person.b] * ONE + person.rest * person.km
                    )
                else:
                    person_cost = d[person.a] * person.rest + d[person.b] * person.part
                costs[person.a] += person_cost * (ONE - person.share) * person.mass
                costs[person.b] += person_cost * person.share * person.mass
            return [cost >> 2 * BITS for cost in costs]

        # The sums above will be divided by this when the loss is computed.
        total_mass = sum(person.mass for person in people)
        return replace(losses, prior=[1] * count, whole=total_mass, column=column)

    def _place_people(self) -> list[tuple[Piece, int, int]]:
        """Return people at Gauss points: the piece, the position on it as a fraction in 2**-256ths, and the weight."""
        root = math.isqrt(ONE * ONE // 3)
        # The middle of interval j // 2 is at j / 32 of the piece, and its two Gauss points are 1 / sqrt(3) of half its
        # width away from the middle.
        middles = [(j, sign) for j in range(1, 2 * INTERVALS_PER_PIECE, 2) for sign in (-1, 1)]
        parts = [(j * ONE + sign * root) // (2 * INTERVALS_PER_PIECE) for j, sign in middles]
        return [(piece, part, low(piece[2])) for piece in self.pieces for part in parts]


@dataclass(frozen=True, slots=True)
class _Person:
    """A person on a piece of street between rows a and b.

    Attributes:
        a, b: The indices of the rows at the piece's ends.
        km: The piece's length in km. This and all numbers below are in 2**-256ths.
        part, rest: The distances from a and from b as fractions of the piece, which sum to 1.
        share: The probability that b is drawn.
        mass: The person's weight, in proportion to the piece's length.
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
        """Return the person at a position on a piece of street.

        Args:
            piece: The piece.
            part: The distance from the first end as a fraction of the piece, in 2**-256ths.
            mass: The person's weight.
            epsilon: Epsilon per km.
        """
        a, b, km, factor = piece
        share = _far_share(part, epsilon * km / (2 * STEPS_PER_HALF), factor)
        return cls(a, b, low(km), part, ONE - part, share, mass)


def _far_share(part: int, step: Fraction, factor: Fraction) -> int:
    """Return lambda(u), the probability that a piece's far end is drawn for a person at the fraction u of the piece.

    lambda is S-shaped, so that rows change by at most the factor 1 + step in each of 16 steps. In the first half, it is
    ((1 + step)^n (1 + r step) - 1) / (factor - 1) for 16 u = n + r; in the second half, it is 1 - lambda(1 - u).

    Args:
        part: u in 2**-256ths, as is the result.
        step: Epsilon times the length of a step.
        factor: The largest allowed ratio 1 + a between the rows at the two ends.
    """
    mirrored = min(part, ONE - part)
    if step:
        full_steps, remainder = divmod(2 * STEPS_PER_HALF * mirrored, ONE)
        grown = (1 + step) ** full_steps * (1 + remainder * step / ONE)
        mirrored = low((grown - 1) / (factor - 1))
    return mirrored if 2 * part < ONE else ONE - mirrored
