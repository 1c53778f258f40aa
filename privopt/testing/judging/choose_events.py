"""Functions that choose, from draws for two inputs, the events most likely to refute a claim on fresh draws.

An event consists of the histogram cells with the greatest likelihood ratios, as in the Neyman-Pearson lemma. The
histogram may also be of a classifier's scores. DP-Auditorium's testers likewise choose a function on some samples and
evaluate it on others (Kong, Munoz Medina, Ribero, Syed 2023).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints
from privopt.testing.judging.outputs import ODD_CELLS, Table, View, views_of

ROUGH_DEVIATIONS: Final = 2.0
"""The half-width, in standard deviations, of the intervals used to compare events. No conclusion relies on them.

With fewer deviations, chance would decide: among pairs at many distances, noise in the search alone would give the
closest pair the best score per unit of distance. With more deviations, rare but conclusive events would be missed, such
as those in the last bits of doubles.
"""
MAX_SHOWN_CELLS: Final = 4
"""The maximum number of an event's cells to list in a message."""


@frozen(kw_only=True, eq=False)
class Test:
    """A statistical test: an event whose frequency is to be counted in fresh draws.

    Attributes:
        view: The partition of all possible outputs into cells, as in a histogram.
        event: (cells,) Whether each cell belongs to the event.
        forward: Whether the event is more likely under the first input.
        score: The estimated log odds of the event divided by the log odds allowed by the claim per unit of epsilon. It
            is only used to choose events.
        width: The number of numeric columns in the tables for which the view was made.
    """

    __test__ = False  # else pytest would collect the class as a test case

    view: View
    event: NDArray[np.bool_]
    forward: bool
    score: float
    width: int

    def hits(self, table: Table) -> int:
        """Return the number of outputs in a table that belong to the event."""
        return int(self.event[self.view.cells(table)].sum())

    @property
    def words(self) -> str:
        """A description of the event: the property examined by the view, followed by the event's first cells."""
        cell_texts = self.view.describe(np.flatnonzero(self.event).tolist())
        rest_text = f" and {len(cell_texts) - MAX_SHOWN_CELLS} more" if len(cell_texts) > MAX_SHOWN_CELLS else ""
        return f"{self.view.words}: {', '.join(cell_texts[:MAX_SHOWN_CELLS])}{rest_text}"


def propose_tests(first: Table, second: Table, odds: float, delta: float, *, symmetric: bool = True) -> list[Test]:
    """Return tests that are likely to distinguish two inputs, best first.

    A view is a partition of the outputs into cells, and an event is a set of cells. There are tests for every view and
    for every direction that the claim bounds. The first half of the draws determines the views and the order of their
    cells. The second half determines the number of cells in each event. Using separate halves avoids overfitting.

    Args:
        first: Draws for the first input.
        second: Draws for the second input.
        odds: The positive log odds allowed by the claim between the two inputs, per unit of epsilon. In metric DP, this
            is their distance.
        delta: The claimed delta.
        symmetric: Whether the claim also bounds events that are more likely under the second input.
    """
    (learn_one, cut_one), (learn_two, cut_two) = _split_in_halves(first), _split_in_halves(second)
    tests, width = [], first.kind_numbers.shape[1]
    for view in views_of(learn_one, learn_two):
        learning_counts = [np.bincount(view.cells(t), minlength=view.count) for t in (learn_one, learn_two)]
        cutting_counts = [np.bincount(view.cells(t), minlength=view.count) for t in (cut_one, cut_two)]
        for forward in (True, False) if symmetric else (True,):
            a, b = (0, 1) if forward else (1, 0)
            # Rank the cells by likelihood ratio (Neyman and Pearson). Half an observation is added to each count to
            # keep the ratio finite for cells that are empty for one input.
            rank = np.argsort(-(learning_counts[a] + 0.5) / (learning_counts[b] + 0.5), kind="stable")
            # If the cells have a natural order, try events that consist of the smallest or largest values as well.
            ascending = np.arange(view.count)
            for cells in (rank, ascending, ascending[::-1]) if view.ordered else (rank,):
                if view.ordered:
                    # The last ODD_CELLS cells contain outputs that have no place on the axis, such as NaN. The
                    # descending order would begin with these cells, so they are included only if such outputs were
                    # drawn.
                    cells = cells[
                        (cells < view.count - ODD_CELLS) | (learning_counts[0] + learning_counts[1] > 0)[cells]
                    ]
                event, promise = _best_event(cells, cutting_counts[a], cutting_counts[b], delta)
                tests.append(Test(view=view, event=event, forward=forward, score=promise / odds, width=width))
    return sorted(tests, key=lambda test: -test.score)


def _split_in_halves(table: Table) -> tuple[Table, Table]:
    """Return the first and second halves of a table's rows."""
    middle = len(table) // 2
    return table.part(slice(middle)), table.part(slice(middle, None))


def _best_event(rank: Ints, hits: Ints, against: Ints, delta: float) -> tuple[NDArray[np.bool_], float]:
    """Return the event with the greatest rough lower bound on its log odds.

    The events compared consist of the first n cells in ``rank``, for every n.

    Args:
        rank: The indices of the cells, starting with the most promising.
        hits: (cells,) The number of draws in each cell for the input under which the event should be more likely.
        against: (cells,) The number of draws in each cell for the other input.
        delta: The claimed delta.

    Returns:
        A Boolean array of shape (cells,) that is True for the event's cells, and a rough lower bound on its log odds.
    """
    draws = float(hits.sum())
    hit_lower, _ = _wilson_bounds(hits[rank].cumsum() / draws, draws)
    _, against_upper = _wilson_bounds(against[rank].cumsum() / draws, draws)
    # The floor keeps the logarithm finite, but so low that such an event is not chosen.
    values = np.log(np.maximum(hit_lower - delta, 1e-300)) - np.log(against_upper)
    best = int(np.argmax(values))
    event = np.zeros(len(hits), dtype=bool)
    event[rank[: best + 1]] = True
    return event, float(values[best])


def _wilson_bounds(frequency: Floats, draws: float) -> tuple[Floats, Floats]:
    """Return the lower and upper ends of Wilson score intervals, which are fast to compute but not rigorous.

    Args:
        frequency: The observed frequencies.
        draws: The number of draws.
    """
    z2 = ROUGH_DEVIATIONS * ROUGH_DEVIATIONS / draws
    centre, width = (
        frequency + z2 / 2,
        ROUGH_DEVIATIONS * np.sqrt(frequency * (1.0 - frequency) / draws + z2 / (4.0 * draws)),
    )
    return np.maximum(centre - width, 0.0) / (1.0 + z2), (centre + width) / (1.0 + z2)
