"""Draw reports along traces: repeat the last report while a private test accepts it, otherwise draw a fresh one.

A subject's first report is fresh. Then segments follow: a noisy threshold is drawn once per segment, each further
position is tested against it with fresh noise, and the first failing test ends the segment with a fresh report (sparse
vector technique). All noise consists of integers from exact distributions.
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

#: ``charge(subjects, epsilon)``: whether each may spend so much, which is then charged before anything is drawn.
Charge = Callable[[Sequence[int], Fraction], Sequence[bool]]

MIN_PROBABILITY: Final = 1e-9
_WORDS = 1 << 19
_FEW = 1 << 10  # far more than a row takes
_NOBODY = -1


@define
class State:
    """The state of each subject's trace, from which a further batch of rows continues.

    Attributes:
        last: (S,) output that was reported last, -1 before the first report.
        level: (S,) noisy threshold of the current segment in steps, -1 if there is none.
        paid: (S,) whether the next fresh report, or the current segment, has been charged.
        spent: (S,) whether a charge was refused. No further report follows.
    """

    last: Ints = field(factory=lambda: np.zeros(0, dtype=np.int64))
    level: Ints = field(factory=lambda: np.zeros(0, dtype=np.int64))
    paid: Bools = field(factory=lambda: np.zeros(0, dtype=np.bool_))
    spent: Bools = field(factory=lambda: np.zeros(0, dtype=np.bool_))

    def enlarge(self, subjects: int) -> None:
        """Enlarge the arrays to ``subjects`` subjects."""
        added = max(0, subjects - len(self.last))
        self.last = np.concatenate([self.last, np.full(added, _NOBODY)])
        self.level = np.concatenate([self.level, np.full(added, _NOBODY)])
        self.paid = np.concatenate([self.paid, np.zeros(added, dtype=np.bool_)])
        self.spent = np.concatenate([self.spent, np.zeros(added, dtype=np.bool_)])


@frozen(kw_only=True, eq=False)
class TraceReports:
    """Reports of some rows.

    Attributes:
        outputs: (B,) number of each row's report, -1 for none.
        kept: (B,) whether it is the last one again.
        spent: (B,) whether the subject's budget was spent before; then there is none, whatever the position.
    """

    outputs: Ints
    kept: Bools
    spent: Bools


class Limit:
    """Charges subjects in memory, up to a total for each; None for no limit."""

    def __init__(self, total: Fraction | None) -> None:
        self._total = total
        self.spent: dict[Hashable, Fraction] = {}

    def __call__(self, subjects: Sequence[Hashable], epsilon: Fraction) -> list[bool]:
        """Charge each subject, or refuse."""
        allowed = []
        for subject in subjects:
            new_total = self.spent.get(subject, Fraction(0)) + epsilon
            allowed.append(self._total is None or new_total <= self._total)
            if allowed[-1]:
                self.spent[subject] = new_total
        return allowed


@frozen(kw_only=True, eq=False)
class Walker:
    """Draws the reports of traces, exactly as a release was certified.

    Attributes:
        weights: (N, K) of fresh reports.
        prediction: the test's numbers.
        terms: what it costs.
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
        """Return reports for rows in the order of time.

        What is charged, and when, follows from which rows there are and from earlier reports alone: a row without a
        position is charged like any other, and what was charged stays for the next.

        Args:
            rows: (B,) record of each row, -1 where it has no position: it gets no report, and changes nothing. At
                every point of a region the vertex that was drawn for it, which a fresh report comes from.
            subjects: (B,) number of each row's subject.
            state: is changed.
            charge: asked before a first report and before a segment's first test.
            source: of random bytes.
            steps: (B, K) from each row's own position to the outputs, which tests go by; None: from its record.
        """
        table, places = (self.prediction.steps, rows) if steps is None else (steps, np.arange(len(rows)))
        count = int(subjects.max(initial=-1)) + 1
        state.enlarge(count)
        order = np.argsort(subjects, kind="stable").astype(np.int64)
        stops = np.cumsum(np.bincount(subjects, minlength=count)).astype(np.int64)
        positions = np.concatenate([np.zeros(1, dtype=np.int64), stops[:-1]])
        outputs, is_kept = np.full(len(rows), _NOBODY, dtype=np.int64), np.zeros(len(rows), dtype=np.bool_)
        cumulated = np.cumsum(self.weights, axis=1, dtype=np.uint64)
        numbers = self.prediction
        rates = np.array([numbers.threshold.as_integer_ratio(), numbers.test.as_integer_ratio()], np.uint64).ravel()
        words, used_words = np.empty(0, dtype=np.uint64), 0
        while True:
            self._charge_due(positions < stops, state, charge)
            if not ((positions < stops) & state.paid[:count]).any():
                break
            if len(words) < _FEW or used_words == 0:
                size = min(_WORDS, _FEW + 8 * int((stops - positions).sum()))
                words = np.concatenate([words, np.frombuffer(source(8 * size), dtype="<u8")])
            used_words = _walk_subjects(
                words,
                rows,
                order,
                positions,
                stops,
                (state.last, state.level, state.paid),
                table,
                places,
                cumulated,
                numbers.level,
                rates,
                outputs,
                is_kept,
            )
            words = words[used_words:]
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        spent = state.spent[subjects] & (rank >= positions[subjects])
        return TraceReports(outputs=outputs, kept=is_kept, spent=spent)

    def _charge_due(self, rows_left: Bools, state: State, charge: Charge) -> None:
        """Charge subjects with rows left for their next report or segment, where they have not paid for it yet."""
        count = len(rows_left)
        for epsilon, is_first_report in ((self.terms.report, True), (self.terms.segment, False)):
            waiting = rows_left & ~state.paid[:count] & ~state.spent[:count]
            due = np.flatnonzero(waiting & ((state.last[:count] < 0) == is_first_report))
            allowed = np.array(charge(due.tolist(), epsilon), dtype=np.bool_)
            state.paid[due[allowed]], state.spent[due[~allowed]] = True, True

    def nodes(self, count: int) -> tuple[Floats, Ints]:
        """Return the threshold's noise in a few values, for attacks: (R,) probabilities and (R,) values, in steps."""
        rate = float(self.prediction.threshold)
        middles = (np.arange(count) + 0.5) / count
        return np.full(count, 1.0 / count), np.floor(-np.log1p(-middles) / rate).astype(np.int64)

    def renewals(self, last: int, noise: Ints) -> Floats:
        """Return (N, R) the probability that a test ends in renewal, by record and the threshold's noise."""
        excess = self.prediction.level + noise[None, :] - self.prediction.steps[:, last][:, None]
        renewed = np.exp(-float(self.prediction.test) * np.maximum(excess, 0))
        # a few values of noise cannot rule anything out
        return np.asarray(np.clip(renewed, MIN_PROBABILITY, 1.0 - MIN_PROBABILITY))


@jit()
def _draw_fresh(words, position, cumulated):  # type: ignore[no-untyped-def]
    """Return an output by its cumulated weights, and the place of the next word."""
    if position >= words.size:
        return 0, -1
    return np.searchsorted(cumulated, words[position] >> np.uint64(1), side="right"), position + 1


@jit()
def _draw_row(words, position, record, step_row, last, level, steps, cumulated, good_level, rates):  # type: ignore[no-untyped-def]
    """Draw one row: its output, the segment's level (-1: it ended in this fresh report), the place of the next word.

    Renewal has the probability exp(-rate (level - steps)), 1 below the level: noise from 0 upwards on either side.
    """
    if last >= 0:
        if level < 0:
            noise, position = draw_geometric(words, position, rates[0], rates[1])
            if position < 0:
                return last, level, position
            level = good_level + noise
        excess = level - steps[step_row, last]
        renewed = True
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
    words, rows, order, positions, stops, state, steps, places, cumulated, good_level, rates, outputs, kept_reports
):
    """Go on with every subject up to its next charge, its end, or that of the words; the words used by whole rows.

    A row in whose middle the words ran out starts again from its own first word.
    """
    last, level, paid = state
    word = 0
    for subject in range(positions.size):
        while positions[subject] < stops[subject] and paid[subject]:
            row = order[positions[subject]]
            if rows[row] >= 0:
                output, after_level, next_word = _draw_row(
                    words,
                    word,
                    rows[row],
                    places[row],
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
                kept_reports[row] = after_level >= 0
                outputs[row] = output
                last[subject], level[subject] = output, after_level
                paid[subject] = after_level >= 0
            positions[subject] += 1
    return word
