"""Choose, from draws of two inputs, the events whose frequencies on fresh draws would best refute a claim.

An event is the cells of a histogram, of a classifier's score too, at which the odds are greatest (Neyman and Pearson).
So DP-Auditorium's testers choose a function on some samples and evaluate it on others (Kong, Munoz Medina, Ribero, Syed
2023).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints
from privopt.testing.judging.outputs import ODD_CELLS, Table, View, views_of

ROUGH_DEVIATIONS: Final = 2.0
"""Standard deviations by which events are compared with one another; nothing is claimed by them.

Fewer let chance choose: of pairs at many distances the closest promise most per unit, by the noise of the search alone.
More hide what is rare and sure, as the last bits of doubles are.
"""
MAX_SHOWN_CELLS: Final = 4


@frozen(kw_only=True, eq=False)
class Test:
    """What is to be tested on fresh draws.

    Attributes:
        view: how outputs are looked at.
        event: (cells,) which cells are the event.
        forward: whether the event is likelier under the first input.
        score: what it may show, per unit of the claim; for choosing alone.
        width: numbers in an output, as the view was made for.
    """

    __test__ = False  # no test case for pytest

    view: View
    event: NDArray[np.bool_]
    forward: bool
    score: float
    width: int

    def hits(self, table: Table) -> int:
        """Count the outputs in the event."""
        return int(self.event[self.view.cells(table)].sum())

    @property
    def words(self) -> str:
        """The event."""
        said = self.view.said(np.flatnonzero(self.event).tolist())
        more = f" and {len(said) - MAX_SHOWN_CELLS} more" if len(said) > MAX_SHOWN_CELLS else ""
        return f"{self.view.words}: {', '.join(said[:MAX_SHOWN_CELLS])}{more}"


def propose(one: Table, two: Table, odds: float, delta: float) -> list[Test]:
    """Return the most promising test of each view, the best first.

    Views and the order of their cells come from the first halves, where to cut from the others.

    Args:
        one, two: draws from each input.
        odds: that the claim allows per unit.
        delta: of the claim.
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
                event, value = _event(cells, held[a], held[b], delta)
                found.append(Test(view=view, event=event, forward=forward, score=value / odds, width=width))
    return sorted(found, key=lambda test: -test.score)


def _halves(table: Table) -> tuple[Table, Table]:
    middle = len(table.names) // 2
    return table.part(slice(middle)), table.part(slice(middle, None))


def _event(rank: Ints, hits: Ints, against: Ints, delta: float) -> tuple[NDArray[np.bool_], float]:
    """Return the first cells of an order, as many as promise most."""
    draws = float(hits.sum())
    low, _ = _roughly(hits[rank].cumsum() / draws, draws)
    _, high = _roughly(against[rank].cumsum() / draws, draws)
    values = np.log(np.maximum(low - delta, 1e-300)) - np.log(high)
    best = int(np.argmax(values))
    event = np.zeros(len(hits), dtype=bool)
    event[rank[: best + 1]] = True
    return event, float(values[best])


def _roughly(share: Floats, draws: float) -> tuple[Floats, Floats]:
    """Bounds of probabilities by Wilson's score: quick, for choosing alone."""
    z2 = ROUGH_DEVIATIONS * ROUGH_DEVIATIONS / draws
    middle, width = share + z2 / 2, ROUGH_DEVIATIONS * np.sqrt(share * (1.0 - share) / draws + z2 / (4.0 * draws))
    return np.maximum(middle - width, 0.0) / (1.0 + z2), (middle + width) / (1.0 + z2)
