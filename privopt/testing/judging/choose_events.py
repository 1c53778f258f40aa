"""Choose, from draws of two inputs, the events whose frequencies on fresh draws would best refute a claim.

- histogram, and hockey-stick (a classifier's score): events where the odds are greatest, by Neyman and Pearson;
- Renyi: cells in order of their odds, for claims on a divergence.

In the manner of DP-Auditorium (Kong, Munoz Medina, Ribero, Syed 2023), whose testers choose a function on some samples
and evaluate it on others.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt.testing.judging.bounds import divergence_lower
from privopt.testing.judging.outputs import ODD_CELLS, Table, View, views_of

ROUGH_DEVIATIONS: Final = 2.0
"""Standard deviations by which events are compared with one another; nothing is claimed by them.

Fewer let chance choose: of pairs at many distances the closest promise most per unit, by the noise of the search alone.
More hide what is rare and sure, as the last bits of doubles are.
"""
ROUGH_ERROR: Final = 0.1
"""The same for divergences, as an error."""
MAX_DIVERGENCE_CELLS: Final = 6
"""Cells of a divergence, at most."""
MAX_SHOWN_CELLS: Final = 4


@frozen(kw_only=True, eq=False)
class Test:
    """What is to be tested on fresh draws.

    Attributes:
        view: how outputs are looked at.
        group: (cells,) which part each cell belongs to; part 0 is the event.
        forward: whether the event is likelier under the first input.
        score: what it may show, per unit of the claim; for choosing alone.
        width: numbers in an output, as the view was made for.
        parts: how many.
    """

    __test__ = False  # no test case for pytest

    view: View
    group: Ints
    forward: bool
    score: float
    width: int
    parts: int = 2

    def counts(self, table: Table) -> Ints:
        """Count the outputs in each part: (parts,)."""
        return np.bincount(self.group[self.view.cells(table)], minlength=self.parts)

    @property
    def words(self) -> str:
        """The event."""
        said = self.view.said(np.flatnonzero(self.group == 0).tolist())
        more = f" and {len(said) - MAX_SHOWN_CELLS} more" if len(said) > MAX_SHOWN_CELLS else ""
        return f"{self.view.words}: {', '.join(said[:MAX_SHOWN_CELLS])}{more}"


def propose(one: Table, two: Table, odds: float, delta: float, order: float | None) -> list[Test]:
    """Return the most promising test of each view, the best first.

    Views and the order of their cells come from the first halves, where to cut from the others.

    Args:
        one, two: draws from each input.
        odds: that the claim allows per unit.
        delta: of the claim.
        order: of the Renyi divergence claimed; None for claims on odds.
    """
    (learn_one, held_one), (learn_two, held_two) = _halves(one), _halves(two)
    found, width = [], one.numbers.shape[1]
    for view in views_of(learn_one, learn_two):
        learnt = [np.bincount(view.cells(t), minlength=view.count) for t in (learn_one, learn_two)]
        held = [np.bincount(view.cells(t), minlength=view.count) for t in (held_one, held_two)]
        for forward in (True, False):
            a, b = (0, 1) if forward else (1, 0)
            rank = np.argsort(-(learnt[a] + 0.5) / (learnt[b] + 0.5), kind="stable")
            straight = np.arange(view.count)
            for cells in (rank, straight, straight[::-1]) if view.ordered else (rank,):
                if view.ordered:  # odd outputs that never came are not part of an event
                    cells = cells[(cells < view.count - ODD_CELLS) | (learnt[0] + learnt[1] > 0)[cells]]
                if order is None:
                    group, value = _event(cells, held[a], held[b], delta)
                    parts = 2
                else:
                    group, value, parts = _cells(cells, held[a], held[b], order)
                found.append(
                    Test(view=view, group=group, forward=forward, score=value / odds, width=width, parts=parts)
                )
    return sorted(found, key=lambda test: -test.score)


def _halves(table: Table) -> tuple[Table, Table]:
    middle = len(table.names) // 2
    return table.part(slice(middle)), table.part(slice(middle, None))


def _event(rank: Ints, hits: Ints, against: Ints, delta: float) -> tuple[Ints, float]:
    """Return the first cells of an order, as many as promise most."""
    draws = float(hits.sum())
    low, _ = _roughly(hits[rank].cumsum() / draws, draws)
    _, high = _roughly(against[rank].cumsum() / draws, draws)
    values = np.log(np.maximum(low - delta, 1e-300)) - np.log(high)
    best = int(np.argmax(values))
    group = np.ones(len(hits), dtype=np.int64)
    group[rank[: best + 1]] = 0
    return group, float(values[best])


def _roughly(share: Floats, draws: float) -> tuple[Floats, Floats]:
    """Bounds of probabilities by Wilson's score: quick, for choosing alone."""
    z2 = ROUGH_DEVIATIONS * ROUGH_DEVIATIONS / draws
    middle, width = share + z2 / 2, ROUGH_DEVIATIONS * np.sqrt(share * (1.0 - share) / draws + z2 / (4.0 * draws))
    return np.maximum(middle - width, 0.0) / (1.0 + z2), (middle + width) / (1.0 + z2)


def _cells(rank: Ints, hits: Ints, against: Ints, order: float) -> tuple[Ints, float, int]:
    """Return the order of cells cut into parts of about equal share, as many as promise most."""
    share = np.cumsum((hits + against)[rank]) / max(1, int((hits + against).sum()))
    best: tuple[Ints, float, int] = (np.zeros(len(hits), dtype=np.int64), -math.inf, 1)
    for parts in range(2, MAX_DIVERGENCE_CELLS + 1):
        for cuts in (np.linspace(0, 1, parts + 1)[1:-1], 0.5 ** np.arange(parts - 1, 0, -1) / 2):
            group = np.zeros(len(hits), dtype=np.int64)
            group[rank] = np.searchsorted(cuts, share, side="left")
            one, two = (np.bincount(group, side, parts).astype(np.int64) for side in (hits, against))
            value = divergence_lower(one, two, int(hits.sum()), ROUGH_ERROR, order)
            if value > best[1]:
                best = group, value, parts
    return best
