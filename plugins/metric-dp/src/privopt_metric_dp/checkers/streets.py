"""A region of streets with every point covered (docs/guide/everywhere.md)."""

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
"""Numbers of the end points, km, and the factor 1 + a by which the rows of the end points may differ."""

STEPS_PER_HALF = 8
"""Number of linear steps of the snapping probability in each half of a piece."""

INTERVALS_PER_PIECE = 16
"""Number of intervals of a piece. Two Gauss points per interval represent the people there."""


class Streets:
    """Streets cut into even pieces.

    Attributes:
        arrays: what mechanism.npz has next to the weights, as an argument of
            :func:`privopt.checker.arrays.read_npz`.
        pieces: of all streets, in their order.
    """

    arrays = "lengths:f8:1"

    def __init__(self, metric: Metric) -> None:
        """Take the streets of a metric."""
        self.metric = metric
        self.pieces: list[Piece] = []

    def build(self, epsilon: Fraction, split: float, stored: Sequence[Array]) -> list[Any]:
        """Divide the streets as the problem requires; return the arrays that mechanism.npz must contain.

        Args:
            epsilon: Epsilon per km.
            split: Largest length of a piece in km; 0 for half of 1 / epsilon.
            stored: Simplices, steps and lengths of mechanism.npz.

        Raises:
            RefusedError: Fewer pieces are stored.
        """
        metric = self.metric
        tails, heads = (
            [tail for tail, _, _ in metric.streets],
            [head for _, head, _ in metric.streets],
        )
        points: dict[str, None] = dict.fromkeys([*metric.points, *tails, *heads])
        pieces: list[tuple[str, str, Fraction, Fraction]] = []
        for tail, head, written in metric.streets:
            km = Fraction(down(written))
            parts = max(1, math.ceil(km / (Fraction(split) or 1 / (2 * epsilon))))
            need(len(pieces) + parts <= len(stored[0].rows), "mechanism.npz: fewer pieces of streets")
            names = (f"{tail}~{head}~{step}" for step in itertools.count(1))
            free = (name for name in names if name not in points)
            between = list(itertools.islice(free, parts - 1))
            points |= dict.fromkeys(between)
            km = Fraction(down(km / parts))
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

    def held(self) -> list[tuple[int, int, float, int]]:
        """Return pairs of rows, their km, and the factor by which they may differ."""
        return [(a, b, float(km), low(factor)) for a, b, km, factor in self.pieces]

    def rate(self, excess: float) -> float:
        """Return epsilon times km of a piece along which rows differ by 1 + ``more``."""
        return 2 * STEPS_PER_HALF * math.expm1(math.log1p(excess / 2) / STEPS_PER_HALF)

    def check_inside(self, rows: Sequence[Sequence[int]], epsilon: Fraction) -> tuple[int, float]:
        """Return that nothing more must be checked than the rows along the pieces."""
        return 0, 0.0

    def losses(self, losses: Losses, epsilon: Fraction) -> Losses:
        """Return the losses of people anywhere on the streets.

        For a person at part u of a piece, its end points are drawn with probabilities 1 - lambda(u) and lambda(u)
        (:func:`_far_share`).
        """
        vertices, count = losses.column, len(self.metric.points)
        people = [_Person.at(*position, epsilon) for position in self._place_people()]

        def column(k: int) -> list[int]:
            d, costs = vertices(k), [0] * count
            for person in people:
                if losses.measured:
                    person_cost = min(
                        d[person.a] * ONE + person.part * person.km, d[person.b] * ONE + person.rest * person.km
                    )
                else:
                    person_cost = d[person.a] * person.rest + d[person.b] * person.part
                costs[person.a] += person_cost * (ONE - person.share) * person.mass
                costs[person.b] += person_cost * person.share * person.mass
            return [cost >> 2 * BITS for cost in costs]

        total_mass = sum(person.mass for person in people)
        return replace(losses, prior=[1] * count, whole=total_mass, column=column)

    def _place_people(self) -> list[tuple[Piece, int, int]]:
        """Return the positions of people at Gauss points: piece, part of it, and mass."""
        root = math.isqrt(ONE * ONE // 3)
        middles = [(j, sign) for j in range(1, 2 * INTERVALS_PER_PIECE, 2) for sign in (-1, 1)]
        parts = [(j * ONE + sign * root) // (2 * INTERVALS_PER_PIECE) for j, sign in middles]
        return [(piece, part, low(piece[2])) for piece in self.pieces for part in parts]


@dataclass(frozen=True, slots=True)
class _Person:
    """A person on a piece between rows a and b, ``part`` of ``km`` from a and ``rest`` from b."""

    a: int
    b: int
    km: int
    part: int
    rest: int
    share: int
    mass: int

    @classmethod
    def at(cls, piece: Piece, part: int, mass: int, epsilon: Fraction) -> Self:
        """Put a person at a part of a piece."""
        a, b, km, factor = piece
        share = _far_share(part, epsilon * km / (2 * STEPS_PER_HALF), factor)
        return cls(a, b, low(km), part, ONE - part, share, mass)


def _far_share(part: int, step: Fraction, factor: Fraction) -> int:
    """Return lambda(u), u = part: S-shaped, rows change by 1 + step at most in each of 16 steps.

    Up to the middle ((1 + step)^n (1 + r step) - 1) / (factor - 1) for 16 u = n + r; beyond it 1 -
    lambda(1 - u).
    """
    mirrored = min(part, ONE - part)
    if step:
        full_steps, remainder = divmod(2 * STEPS_PER_HALF * mirrored, ONE)
        grown = (1 + step) ** full_steps * (1 + remainder * step / ONE)
        mirrored = low((grown - 1) / (factor - 1))
    return mirrored if 2 * part < ONE else ONE - mirrored
