"""Choose, from draws of two inputs, the events whose frequencies on fresh draws are most likely to refute a claim.

An event is the set of the histogram cells with the greatest likelihood ratio, as in the lemma of Neyman and Pearson.
The histogram may be that of a classifier's score. The testers of DP-Auditorium also choose a function on some samples
and evaluate it on others (Kong, Munoz Medina, Ribero, Syed 2023).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints
from privopt.testing.judging.outputs import ODD_CELLS, Table, View, views_of

ROUGH_DEVIATIONS: Final = 2.0
"""Half-width of the intervals by which events are compared, in standard deviations. No claim rests on them.

With fewer deviations, chance would decide: among pairs at many distances, the noise of the search alone would make the
closest pair seem to promise most per unit of distance. With more deviations, rare but certain events would be missed,
such as those of the last bits of doubles.
"""
MAX_SHOWN_CELLS: Final = 4
"""The number of cells of an event that a message lists."""


@frozen(kw_only=True, eq=False)
class Test:
    """An event to be tested on fresh draws.

    Attributes:
        view: Partition of all possible outputs into cells, as in a histogram.
        event: (cells,) Mask of the cells that belong to the event.
        forward: Whether the event is more likely under the first input.
        score: Estimated log odds that the event may show, per unit of the claim; used only to choose events.
        width: Number of numbers per output for which the view was made.
    """

    __test__ = False  # else pytest would collect the class as a test case

    view: View
    event: NDArray[np.bool_]
    forward: bool
    score: float
    width: int

    def hits(self, table: Table) -> int:
        """Count the outputs in a table that belong to the event."""
        return int(self.event[self.view.cells(table)].sum())

    @property
    def words(self) -> str:
        """A description of the event: the view's words, and those of its first cells."""
        cell_texts = self.view.describe(np.flatnonzero(self.event).tolist())
        rest_text = f" and {len(cell_texts) - MAX_SHOWN_CELLS} more" if len(cell_texts) > MAX_SHOWN_CELLS else ""
        return f"{self.view.words}: {', '.join(cell_texts[:MAX_SHOWN_CELLS])}{rest_text}"


def propose_tests(first: Table, second: Table, odds: float, delta: float, *, symmetric: bool = True) -> list[Test]:
    """Return tests of events that probably distinguish two inputs, for all views and directions, the best first.

    A view is a partition of the outputs into cells, and an event is a set of cells. The first half of the draws
    determines the views and the order of their cells, and the second half determines how many cells each event has.
    Separate halves avoid overfitting.

    Args:
        first: Draws from the first input.
        second: Draws from the second input.
        odds: Log odds that the claim allows between the inputs per unit of epsilon, which is their distance; above 0.
        delta: Delta of the claim.
        symmetric: Whether the claim also bounds events that are more likely under the second input.
    """
    (learn_one, cut_one), (learn_two, cut_two) = _split_in_halves(first), _split_in_halves(second)
    tests, width = [], first.numbers.shape[1]
    for view in views_of(learn_one, learn_two):
        learning_counts = [np.bincount(view.cells(t), minlength=view.count) for t in (learn_one, learn_two)]
        cutting_counts = [np.bincount(view.cells(t), minlength=view.count) for t in (cut_one, cut_two)]
        for forward in (True, False) if symmetric else (True,):
            a, b = (0, 1) if forward else (1, 0)
            # In order of the likelihood ratio (Neyman and Pearson). Half an observation is added to each count, to keep
            # the ratio finite for cells that one side lacks.
            rank = np.argsort(-(learning_counts[a] + 0.5) / (learning_counts[b] + 0.5), kind="stable")
            # If cells have an order, events of the smallest and of the largest values are tried too.
            ascending = np.arange(view.count)
            for cells in (rank, ascending, ascending[::-1]) if view.ordered else (rank,):
                if view.ordered:  # cells of odd outputs join an event only if such outputs occurred
                    cells = cells[
                        (cells < view.count - ODD_CELLS) | (learning_counts[0] + learning_counts[1] > 0)[cells]
                    ]
                event, promise = _best_event(cells, cutting_counts[a], cutting_counts[b], delta)
                tests.append(Test(view=view, event=event, forward=forward, score=promise / odds, width=width))
    return sorted(tests, key=lambda test: -test.score)


def _split_in_halves(table: Table) -> tuple[Table, Table]:
    """Return the first and the second half of a sample."""
    middle = len(table.names) // 2
    return table.part(slice(middle)), table.part(slice(middle, None))


def _best_event(rank: Ints, hits: Ints, against: Ints, delta: float) -> tuple[NDArray[np.bool_], float]:
    """Return the event with the greatest expected log odds, among those that consist of the first cells of an order.

    Args:
        rank: The numbers of the cells, the most promising first.
        hits: (cells,) Counts of draws from the input under which the event should be more likely.
        against: (cells,) Counts of draws from the other input.
        delta: Delta of the claim.

    Returns:
        (cells,) A mask of the event's cells, and the event's expected log odds, by rough bounds.
    """
    draws = float(hits.sum())
    hit_lower, _ = _wilson_bounds(hits[rank].cumsum() / draws, draws)
    _, against_upper = _wilson_bounds(against[rank].cumsum() / draws, draws)
    # The floor keeps the logarithm defined, and gives an event so low a value that it is not chosen.
    values = np.log(np.maximum(hit_lower - delta, 1e-300)) - np.log(against_upper)
    best = int(np.argmax(values))
    event = np.zeros(len(hits), dtype=bool)
    event[rank[: best + 1]] = True
    return event, float(values[best])


def _wilson_bounds(frequency: Floats, draws: float) -> tuple[Floats, Floats]:
    """Return lower and upper bounds of probabilities by Wilson's score interval, which is fast but not rigorous.

    Args:
        frequency: Observed frequencies.
        draws: The number of draws.
    """
    z2 = ROUGH_DEVIATIONS * ROUGH_DEVIATIONS / draws
    centre, width = (
        frequency + z2 / 2,
        ROUGH_DEVIATIONS * np.sqrt(frequency * (1.0 - frequency) / draws + z2 / (4.0 * draws)),
    )
    return np.maximum(centre - width, 0.0) / (1.0 + z2), (centre + width) / (1.0 + z2)
