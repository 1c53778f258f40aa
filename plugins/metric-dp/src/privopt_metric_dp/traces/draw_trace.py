"""Draw reports along traces, repeating each report until a private test calls for a fresh one.

A subject's first report is fresh. The rest of the trace is divided into segments (sparse vector technique), each with
its own noisy threshold. For each position, a test with fresh noise compares the position's distance to the previous
report with this threshold. The first test that fails ends the segment, and a fresh report is drawn. All noise is
integer-valued and drawn exactly from its distribution.
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

#: ``charge(subjects, epsilon)`` returns whether each subject may spend epsilon. Subjects who may are charged before
#: anything is drawn.
Charge = Callable[[Sequence[int], Fraction], Sequence[bool]]

MIN_PROBABILITY: Final = 1e-9
"""The smallest probability assigned to an outcome of a test in simulated attacks."""
_WORDS = 1 << 19
"""The maximum number of 64-bit random words to draw at a time (4 MB)."""
_FEW = 1 << 10
"""The number of unused random words below which more are drawn. A single row uses far fewer."""
_NONE = -1
"""A placeholder for "no output" or "no threshold"."""


@define
class State:
    """The state of S subjects' traces, kept from one batch of rows to the next.

    Attributes:
        last: Array of shape (S,) with the index of the most recently reported output, or -1 before the first report.
        level: Array of shape (S,) with the noisy threshold of the current segment, or -1 if none has been drawn. It is
            measured in the same steps as :attr:`Prediction.steps`, and is compared with the distance between the
            subject's position and the previous report.
        paid: Boolean array of shape (S,) indicating whether the charge for the subject's next fresh report has already
            been made. The first charge pays for the first report. Each later charge pays for a segment, including the
            fresh report that ends it.
        spent: Boolean array of shape (S,) indicating whether a charge to the subject has been refused. Such a subject
            gets no more reports.
    """

    last: Ints = field(factory=lambda: np.zeros(0, dtype=np.int64))
    level: Ints = field(factory=lambda: np.zeros(0, dtype=np.int64))
    paid: Bools = field(factory=lambda: np.zeros(0, dtype=np.bool_))
    spent: Bools = field(factory=lambda: np.zeros(0, dtype=np.bool_))

    def enlarge(self, subjects: int) -> None:
        """Extend the arrays to at least the given number of subjects.

        The new subjects have no previous report, no threshold and no charge.
        """
        added = max(0, subjects - len(self.last))
        self.last = np.concatenate([self.last, np.full(added, _NONE)])
        self.level = np.concatenate([self.level, np.full(added, _NONE)])
        self.paid = np.concatenate([self.paid, np.zeros(added, dtype=np.bool_)])
        self.spent = np.concatenate([self.spent, np.zeros(added, dtype=np.bool_)])


@frozen(kw_only=True, eq=False)
class TraceReports:
    """The reports drawn for a batch of B rows.

    Attributes:
        outputs: Array of shape (B,) with the output index of each row's report, or -1 if the row has no report.
        kept: Boolean array of shape (B,) indicating whether each row's report repeats the subject's previous one.
        spent: Boolean array of shape (B,) indicating whether the row has no report because the subject's budget is
            exhausted. This never depends on the subject's position.
    """

    outputs: Ints
    kept: Bools
    spent: Bools


class Limit:
    """A :data:`Charge` function that keeps each subject's total epsilon in memory and refuses charges beyond a limit.

    Attributes:
        spent: The total epsilon charged to each subject so far.
    """

    def __init__(self, total: Fraction | None) -> None:
        """Start with no epsilon charged to any subject.

        Args:
            total: The largest total epsilon per subject, or None for no limit.
        """
        self._total = total
        self.spent: dict[Hashable, Fraction] = {}

    def __call__(self, subjects: Sequence[Hashable], epsilon: Fraction) -> list[bool]:
        """Charge epsilon to each subject whose total would stay within the limit.

        Returns:
            Whether each subject was charged, in the order of ``subjects``.
        """
        allowed = []
        for subject in subjects:
            new_total = self.spent.get(subject, Fraction(0)) + epsilon
            allowed.append(self._total is None or new_total <= self._total)
            if allowed[-1]:
                self.spent[subject] = new_total
        return allowed


@frozen(kw_only=True, eq=False)
class Walker:
    """A sampler that draws reports along traces with exactly the certified probabilities.

    Attributes:
        weights: Array of shape (N, K) with the integer weights used to draw fresh reports.
        prediction: The public parameters of the private test.
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
        """Draw a report for each row of a batch, in chronological order.

        The charges and their timing depend only on which rows exist and on earlier reports, never on a position. As a
        result, a charge may be made for a row without a position, in which case it covers the subject's next row.

        Args:
            rows: Array of shape (B,) with the record index of each row, or -1 if the row has no position and therefore
                gets no report. Fresh reports are drawn from the matrix row with this index. In a problem with a region,
                this is the index of the vertex to which the position was randomly snapped.
            subjects: Array of shape (B,) with the index of each row's subject.
            state: The state of the subjects, modified in place.
            charge: The function that charges epsilon. It is called before each subject's first report and before the
                first test of each segment.
            source: The source of random bytes.
            steps: Array of shape (B, K) with the distances in steps from each row's position to the outputs, used by
                the tests. If None, the distances from the row's record are used.
        """
        # For each row of the batch, `table_rows` gives the row of `table` that contains its distances.
        table, table_rows = (self.prediction.steps, rows) if steps is None else (steps, np.arange(len(rows)))
        count = int(subjects.max(initial=-1)) + 1
        state.enlarge(count)
        # The sort is stable, so that a subject's rows remain in chronological order.
        order = np.argsort(subjects, kind="stable").astype(np.int64)
        stops = np.cumsum(np.bincount(subjects, minlength=count)).astype(np.int64)
        # `positions` points to each subject's next row in `order`, and `stops` to the element after its last row.
        positions = np.concatenate([np.zeros(1, dtype=np.int64), stops[:-1]])
        outputs, is_kept = np.full(len(rows), _NONE, dtype=np.int64), np.zeros(len(rows), dtype=np.bool_)
        cumulated = np.cumsum(self.weights, axis=1, dtype=np.uint64)
        numbers = self.prediction
        # Numerators and denominators of both rates, for the compiled sampler.
        rates = np.array([numbers.threshold.as_integer_ratio(), numbers.test.as_integer_ratio()], np.uint64).ravel()
        words, used_words = np.empty(0, dtype=np.uint64), 0
        # Each pass charges the subjects that need a charge. It then draws until every subject needs the next charge or
        # has no more rows.
        while True:
            self._charge_due(positions < stops, state, charge)
            if not ((positions < stops) & state.paid[:count]).any():
                break
            # More words are drawn if few remain. They are also drawn if the last pass used none, because it may have
            # stopped at a row that needs more words than remained.
            if len(words) < _FEW or used_words == 0:
                size = min(_WORDS, _FEW + 8 * int((stops - positions).sum()))
                # Unused words are kept. A row for which the words ran out is drawn again from its first word, so that
                # no word is used for two rows.
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
        # `rank` is the position of each row in `order`. Once a charge to a subject is refused, its remaining rows get
        # no reports.
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        spent = state.spent[subjects] & (rank >= positions[subjects])
        return TraceReports(outputs=outputs, kept=is_kept, spent=spent)

    def _charge_due(self, rows_left: Bools, state: State, charge: Charge) -> None:
        """Charge each subject that has unprocessed rows and has been neither charged already nor refused.

        Args:
            rows_left: Boolean array of shape (S,) indicating whether each subject has rows that have not been processed
                yet.
            state: The state of the subjects, whose ``paid`` and ``spent`` are updated.
            charge: The function that charges epsilon to each of the given subjects whose limit permits it, and returns
                whether each was charged.
        """
        count = len(rows_left)
        # A subject's first charge is for its first report, and each later one is for a whole segment.
        for epsilon, is_first_report in ((self.terms.report, True), (self.terms.segment, False)):
            waiting = rows_left & ~state.paid[:count] & ~state.spent[:count]
            due = np.flatnonzero(waiting & ((state.last[:count] < 0) == is_first_report))
            allowed = np.array(charge(due.tolist(), epsilon), dtype=np.bool_)
            state.paid[due[allowed]], state.spent[due[~allowed]] = True, True

    def nodes(self, count: int) -> tuple[Floats, Ints]:
        """Approximate the distribution of the threshold's noise with R equally likely values, for simulated attacks.

        Args:
            count: The number R of values.

        Returns:
            Two arrays of shape (R,): the probabilities of the values, which are all equal, and the values, which are
            quantiles of the noise in steps.
        """
        rate = float(self.prediction.threshold)
        middles = (np.arange(count) + 0.5) / count
        # The values are quantiles of the exponential distribution at the midpoints of intervals of equal probability.
        # The noise has a geometric distribution, which is that of an exponential variable rounded down.
        return np.full(count, 1.0 / count), np.floor(-np.log1p(-middles) / rate).astype(np.int64)

    def renewals(self, last: int, noise: Ints) -> Floats:
        """Return the probabilities that a test fails, for use in simulated attacks.

        When a test fails, a fresh report is drawn.

        Args:
            last: The index of the most recently reported output.
            noise: Array of shape (R,) with values of the threshold's noise in steps.

        Returns:
            Array of shape (N, R) with one row for each possible record of the subject and one column for each value of
            the noise. Probabilities are kept slightly away from 0 and 1.
        """
        excess = self.prediction.level + noise[None, :] - self.prediction.steps[:, last][:, None]
        # If the distance to the previous report is at least the noisy level, the test always fails.
        renewed = np.exp(-float(self.prediction.test) * np.maximum(excess, 0))
        # Because only a few values approximate the threshold's noise, an outcome that did occur could seem impossible.
        # Probabilities are therefore bounded away from 0 and 1.
        return np.asarray(np.clip(renewed, MIN_PROBABILITY, 1.0 - MIN_PROBABILITY))


@jit()
def _draw_fresh(words, position, cumulated):  # type: ignore[no-untyped-def]
    """Draw an output from a matrix row, and return its index and the index of the next unused word.

    If there are no words left, nothing is drawn and the second value is -1.

    Args:
        words: Random 64-bit words.
        position: The index of the first unused word.
        cumulated: Array of shape (K,) with the cumulative weights of the row.
    """
    if position >= words.size:
        return 0, -1
    # The weights sum to 2^63, so the upper 63 bits of a word select an output with exactly the right probability.
    return np.searchsorted(cumulated, words[position] >> np.uint64(1), side="right"), position + 1


@jit()
def _draw_row(words, position, record, step_row, last, level, steps, cumulated, good_level, rates):  # type: ignore[no-untyped-def]
    """Draw the report for one row of a trace.

    If the test passes, the previous report is repeated. Otherwise, a fresh one is drawn. Let d be the distance in steps
    from the position to the previous report, l the noisy threshold, and r the rate of the test's noise. The test fails
    with probability exp(-r (l - d)) if d < l, and with probability 1 otherwise. The noise in the threshold and in the
    test is non-negative.

    Args:
        words: Random 64-bit words.
        position: The index of the first unused word.
        record: The index of the record whose matrix row is used to draw a fresh report.
        step_row: The index of the row in ``steps`` that contains the distances from the subject's position to the
            outputs.
        last: The index of the most recently reported output, or -1 before the first report.
        level: The segment's noisy threshold in steps, or -1 if none has been drawn.
        steps: Array of shape (n, K) with the distances to the outputs in steps.
        cumulated: Array of shape (N, K) with the cumulative weights of fresh reports.
        good_level: The threshold without noise, in steps.
        rates: Array of shape (4,) with the numerator and denominator of the threshold's rate, followed by the numerator
            and denominator of the test's rate.

    Returns:
        The index of the output, the segment's noisy threshold (or -1 if the report is fresh), and the index of the next
        unused word. If there are too few words, nothing is drawn and the last of these values is -1.
    """
    if last >= 0:
        if level < 0:
            # This is the first test of a segment. The threshold is the level without noise plus geometric noise.
            noise, position = draw_geometric(words, position, rates[0], rates[1])
            if position < 0:
                return last, level, position
            level = good_level + noise
        excess = level - steps[step_row, last]
        renewed = True
        # At or above the noisy threshold, the test always fails, and no noise is drawn.
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
    """Draw each subject's reports up to its next charge or its last row, and return the number of words used.

    If the words run out while a row is being drawn, the words used for that row are not counted, and the row must be
    drawn again.

    Args:
        words: Random 64-bit words.
        rows: Array of shape (B,) with the record index of each row, or -1 if it has no position.
        order: Array of shape (B,) with the row indices, subject by subject, in chronological order.
        positions, stops: Arrays of shape (S,) with indices into ``order``. ``positions`` points to each subject's next
            row and is advanced. ``stops`` points to the element after the subject's last row.
        state: Three arrays of shape (S,), modified in place: ``last``, ``level`` and ``paid`` of :class:`State`.
        steps: Array of shape (n, K) with the distances to the outputs in steps.
        step_rows: Array of shape (B,) with the index of the row in ``steps`` for each row of the batch.
        cumulated: Array of shape (N, K) with the cumulative weights of fresh reports.
        good_level: The threshold without noise, in steps.
        rates: Array of shape (4,) with the numerator and denominator of the threshold's rate, followed by the numerator
            and denominator of the test's rate.
        outputs, kept_reports: Arrays of shape (B,) that receive the output index of each report, and whether it repeats
            the subject's previous one.
    """
    last, level, paid = state
    word = 0
    for subject in range(positions.size):
        while positions[subject] < stops[subject] and paid[subject]:
            row = order[positions[subject]]
            # A row without a position gets no report, and its charge is used for the next row.
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
                # A fresh report ends the segment, and thereby uses up its charge.
                paid[subject] = after_level >= 0
            positions[subject] += 1
    return word
