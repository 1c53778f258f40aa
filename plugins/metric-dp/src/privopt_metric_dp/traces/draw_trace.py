"""Draw reports along traces: repeat the last report while a private test accepts it, otherwise draw a fresh one.

A subject's first report is fresh. Segments follow it: a noisy threshold is drawn once per segment, and each further
position is tested against this threshold with fresh noise, until the first failing test ends the segment with a fresh
report (sparse vector technique). All noise consists of integers from exact distributions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from attrs import define, field, frozen

from privopt.arrays import Bools, Floats, Ints, Unsigned
from privopt.execution.compiled import jit
from privopt.numbers.laplace import draw_bernoulli_exp_steps, draw_geometric
from privopt.numbers.sampling import Source

if TYPE_CHECKING:
    from privopt_metric_dp.traces.prediction import Prediction, Terms
else:
    Prediction = Terms = Any

__all__ = ["Charge", "Limit", "State", "TraceReports", "Walker"]

#: ``charge(subjects, epsilon)`` returns whether each subject may spend epsilon. Those who may are charged before any
#: draw.
Charge = Callable[[Sequence[int], Fraction], Sequence[bool]]

MIN_PROBABILITY: Final = 1e-9
"""The smallest probability that attacks assume for a test's outcome."""
_WORDS = 1 << 19
"""The most 64-bit random words that are drawn at once (4 MB)."""
_FEW = 1 << 10
"""New random words are drawn if fewer unused ones are left than this, which is far more than a row takes."""
_NONE = -1
"""The value that stands for no output, or no threshold."""


@define
class State:
    """The state of S subjects' traces, from which the next batch of rows continues.

    Attributes:
        last: (S,) the index of the output that was reported last; -1 before the first report.
        level: (S,) the noisy threshold with which the current segment's tests compare the distance from the position to
            the last report, in the steps of :attr:`Prediction.steps`; -1 if none has been drawn.
        paid: (S,) whether the epsilon has been charged for the first report or, later, for the current segment with the
            fresh report at its end.
        spent: (S,) whether a charge was refused, after which the subject gets no more reports.
    """

    last: Ints = field(factory=lambda: np.zeros(0, dtype=np.int64))
    level: Ints = field(factory=lambda: np.zeros(0, dtype=np.int64))
    paid: Bools = field(factory=lambda: np.zeros(0, dtype=np.bool_))
    spent: Bools = field(factory=lambda: np.zeros(0, dtype=np.bool_))

    def enlarge(self, subjects: int) -> None:
        """Enlarge the arrays to the given number of subjects. New ones have no report, threshold or charge."""
        added = max(0, subjects - len(self.last))
        self.last = np.concatenate([self.last, np.full(added, _NONE)])
        self.level = np.concatenate([self.level, np.full(added, _NONE)])
        self.paid = np.concatenate([self.paid, np.zeros(added, dtype=np.bool_)])
        self.spent = np.concatenate([self.spent, np.zeros(added, dtype=np.bool_)])


@frozen(kw_only=True, eq=False)
class TraceReports:
    """The reports that were drawn for a batch of B rows.

    Attributes:
        outputs: (B,) the index of each row's report; -1 for none.
        kept: (B,) whether the report repeats the last one.
        spent: (B,) whether the row has no report because the subject's budget had been spent before; this does not
            depend on the position.
    """

    outputs: Ints
    kept: Bools
    spent: Bools


class Limit:
    """A :data:`Charge` that adds up each subject's epsilons in memory and refuses those beyond a total.

    Attributes:
        spent: The sum of the epsilons that have been charged to each subject.
    """

    def __init__(self, total: Fraction | None) -> None:
        """Start with nothing spent. ``total`` is the largest sum of epsilons for each subject, or None for no limit."""
        self._total = total
        self.spent: dict[Hashable, Fraction] = {}

    def __call__(self, subjects: Sequence[Hashable], epsilon: Fraction) -> list[bool]:
        """Charge epsilon to each subject whose sum does not then exceed the total, and return who was charged."""
        allowed = []
        for subject in subjects:
            new_total = self.spent.get(subject, Fraction(0)) + epsilon
            allowed.append(self._total is None or new_total <= self._total)
            if allowed[-1]:
                self.spent[subject] = new_total
        return allowed


@frozen(kw_only=True, eq=False)
class Walker:
    """A sampler that draws reports along traces, with exactly the certified probabilities.

    Attributes:
        weights: (N, K) the weights of fresh reports.
        prediction: The public numbers for the private test.
        terms: The epsilons of fresh reports, thresholds and tests.
    """

    weights: Unsigned
    prediction: Prediction
    terms: Terms

    def walk(
        self,
        rows: Ints,
        subjects: Ints,
        state: State,
        *,
        charge: Charge,
        source: Source,
        steps: Ints | None = None,
    ) -> TraceReports:
        """Draw reports for rows, in order of time.

        Charges and their times depend only on which rows exist and on earlier reports, never on a position. A row
        without a position is charged like any other, and its charge is then used for the next row.

        Args:
            rows: (B,) the index of each row's record; -1 if the row has no position, and therefore no report. With a
                region, it is the vertex that was drawn for the position, from whose row a fresh report is drawn.
            subjects: (B,) the index of each row's subject.
            state: The subjects' state, which is updated.
            charge: Called before a first report and before the first test of a segment.
            source: Source of random bytes.
            steps: (B, K) the distances from each row's own position to the outputs, in steps, which the tests use; None
                to use those from its record.

        Returns:
            The reports for the rows.
        """
        # `table_rows` says which row of `table` contains the distances for each row to draw.
        table, table_rows = (self.prediction.steps, rows) if steps is None else (steps, np.arange(len(rows)))
        count = int(subjects.max(initial=-1)) + 1
        state.enlarge(count)
        # The sort is stable, so that a subject's rows remain in order of time.
        order = np.argsort(subjects, kind="stable").astype(np.int64)
        stops = np.cumsum(np.bincount(subjects, minlength=count)).astype(np.int64)
        # For each subject, the position in `order` of its next row (`positions`), and the one after its last row
        # (`stops`).
        positions = np.concatenate([np.zeros(1, dtype=np.int64), stops[:-1]])
        outputs, is_kept = np.full(len(rows), _NONE, dtype=np.int64), np.zeros(len(rows), dtype=np.bool_)
        cumulated = np.cumsum(self.weights, axis=1, dtype=np.uint64)
        numbers = self.prediction
        # The numerators and denominators of both rates, for the compiled sampler.
        rates = np.array([numbers.threshold.as_integer_ratio(), numbers.test.as_integer_ratio()], np.uint64).ravel()
        words, used_words = np.empty(0, dtype=np.uint64), 0
        # Each pass charges the subjects that need it, and then draws until every subject needs the next charge or has
        # no row left.
        while True:
            self._charge_due(positions < stops, state, charge)
            if not ((positions < stops) & state.paid[:count]).any():
                break
            # New words are drawn if few are left, or if the last pass used none: it may have stopped in a row that
            # needs more words than were left.
            if len(words) < _FEW or used_words == 0:
                size = min(_WORDS, _FEW + 8 * int((stops - positions).sum()))
                # Unused words are kept. A row that ran out of words is drawn again from its own first word, so that no
                # word is used for two rows.
                words = np.concatenate([words, np.frombuffer(source(8 * size), dtype="<u8")])
            used_words = _walk_subjects(
                words,
                rows,
                order,
                positions,
                stops,
                (state.last, state.level, state.paid),
                table,
                table_rows,
                cumulated,
                numbers.level,
                rates,
                outputs,
                is_kept,
            )
            words = words[used_words:]
        # `rank` is the position of each row in `order`. If a charge to a subject was refused, none of its rows from the
        # next one on has a report.
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        spent = state.spent[subjects] & (rank >= positions[subjects])
        return TraceReports(outputs=outputs, kept=is_kept, spent=spent)

    def _charge_due(self, rows_left: Bools, state: State, charge: Charge) -> None:
        """Charge subjects that have further rows for their next report or segment, unless it has been charged already.

        Args:
            rows_left: (S,) whether the subject has a row for which no report has been drawn yet.
            state: The subjects' state, whose ``paid`` and ``spent`` are updated.
            charge: The function that says whether each subject may spend an epsilon, and charges it.
        """
        count = len(rows_left)
        # A subject's first charge is for its first report, and each later one is for a whole segment.
        for epsilon, is_first_report in ((self.terms.report, True), (self.terms.segment, False)):
            waiting = rows_left & ~state.paid[:count] & ~state.spent[:count]
            due = np.flatnonzero(waiting & ((state.last[:count] < 0) == is_first_report))
            allowed = np.array(charge(due.tolist(), epsilon), dtype=np.bool_)
            state.paid[due[allowed]], state.spent[due[~allowed]] = True, True

    def nodes(self, count: int) -> tuple[Floats, Ints]:
        """Return the probabilities and the values, in steps, of an approximation to a threshold's noise, for attacks.

        Args:
            count: R, the number of values.

        Returns:
            R equal probabilities, and R quantiles of the noise.
        """
        rate = float(self.prediction.threshold)
        middles = (np.arange(count) + 0.5) / count
        # Quantiles of the exponential distribution at the middles of equal shares. An exponential variable, rounded
        # down, has the geometric distribution that the noise has.
        return np.full(count, 1.0 / count), np.floor(-np.log1p(-middles) / rate).astype(np.int64)

    def renewals(self, last: int, noise: Ints) -> Floats:
        """Return the probability that a test ends in a fresh report, for attacks.

        Args:
            last: The index of the output that was reported last.
            noise: (R,) values of the threshold's noise, in steps.

        Returns:
            (N, R) the probability for each record and value.
        """
        excess = self.prediction.level + noise[None, :] - self.prediction.steps[:, last][:, None]
        # If the distance to the last report is at or above the noisy level, the test always ends in a fresh report.
        renewed = np.exp(-float(self.prediction.test) * np.maximum(excess, 0))
        # The threshold's noise is represented by only a few values, with which an outcome that did occur could be
        # impossible.
        return np.asarray(np.clip(renewed, MIN_PROBABILITY, 1.0 - MIN_PROBABILITY))


@jit()
def _draw_fresh(words, position, cumulated):  # type: ignore[no-untyped-def]
    """Return an output drawn with cumulative weights (K,), and the position of the next unused word.

    If no word is left, nothing is drawn, and the position is -1.
    """
    if position >= words.size:
        return 0, -1
    # The weights sum to 2^63, so the highest 63 bits of a word select an output with exactly the right probability.
    return np.searchsorted(cumulated, words[position] >> np.uint64(1), side="right"), position + 1


@jit()
def _draw_row(words, position, record, step_row, last, level, steps, cumulated, good_level, rates):  # type: ignore[no-untyped-def]
    """Draw the report for one row: repeat the last one if the test accepts it, otherwise draw a fresh one.

    The test fails, so that a fresh report is drawn, with probability exp(-rate (level - steps)), or with probability 1
    if the distance is at least the noisy level. The noise in the level and in the test is non-negative.

    Args:
        words: Random 64-bit words.
        position: The index of the first unused word.
        record: The record from whose row a fresh report is drawn.
        step_row: The row of ``steps`` with the position's distances to the outputs.
        last: The output that was reported last; -1 before the first report.
        level: The segment's noisy threshold in steps; -1 if none has been drawn.
        steps: (n, K) distances to the outputs in steps.
        cumulated: (N, K) the cumulative weights of fresh reports.
        good_level: The threshold without noise, in steps.
        rates: (4,) the numerator and denominator of the threshold's rate, and then those of the test's rate.

    Returns:
        The output; the segment's level (-1 if the report is fresh and has therefore ended the segment); and the
        position of the next unused word. If the words run out, this position is -1, and nothing is drawn.
    """
    if last >= 0:
        if level < 0:
            # This is a segment's first test. The threshold is the level without noise plus geometric noise.
            noise, position = draw_geometric(words, position, rates[0], rates[1])
            if position < 0:
                return last, level, position
            level = good_level + noise
        excess = level - steps[step_row, last]
        renewed = True
        # At or beyond the noisy threshold, the test always fails, and no noise is drawn.
        if excess > 0:
            renewed, position = draw_bernoulli_exp_steps(words, position, np.uint64(excess), rates[2], rates[3])
            if position < 0:
                return last, level, position
        if not renewed:
            return last, level, position
    output, position = _draw_fresh(words, position, cumulated[record])
    return output, -1, position


@jit()
def _walk_subjects(  # type: ignore[no-untyped-def]
    words, rows, order, positions, stops, state, steps, step_rows, cumulated, good_level, rates, outputs, kept_reports
):
    """Draw every subject's reports up to its next charge or its last row, and return the number of words used.

    If the words run out in a row, the row's words do not count as used, and the row will be drawn again from its first
    word.

    Args:
        words: Random 64-bit words.
        rows: (B,) the index of each row's record; -1 for none.
        order: (B,) the rows, subject by subject, in order of time.
        positions, stops: (S,) the position in ``order`` of each subject's next row, which advances, and the end of the
            subject's rows.
        state: Three arrays (S,), which are updated: the last outputs, the levels, and whether the next report has been
            charged.
        steps, step_rows: Distances to the outputs in steps, and the row of ``steps`` for each row to draw, (B,).
        cumulated: (N, K) the cumulative weights of fresh reports.
        good_level: The threshold without noise, in steps.
        rates: (4,) the numerator and denominator of the threshold's rate, and then those of the test's rate.
        outputs, kept_reports: (B,) arrays to be filled with the index of each report, and with whether it repeats the
            last one.
    """
    last, level, paid = state
    word = 0
    for subject in range(positions.size):
        while positions[subject] < stops[subject] and paid[subject]:
            row = order[positions[subject]]
            # A row without a position has no report, and leaves the charge to the next row.
            if rows[row] >= 0:
                output, after_level, next_word = _draw_row(
                    words,
                    word,
                    rows[row],
                    step_rows[row],
                    last[subject],
                    level[subject],
                    steps,
                    cumulated,
                    good_level,
                    rates,
                )
                if next_word < 0:
                    return word
                word = next_word
                # The level is -1 after a fresh report.
                kept_reports[row] = after_level >= 0
                outputs[row] = output
                last[subject], level[subject] = output, after_level
                # A fresh report ends the segment and so uses up its charge.
                paid[subject] = after_level >= 0
            positions[subject] += 1
    return word
