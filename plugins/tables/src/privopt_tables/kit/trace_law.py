"""The distribution of reports along short traces, computed in closed form.

The conformance kit computes the probability of every sequence of reports from the numbers in a release. It does not use
the code that draws reports, so a fault in that code shows up as a difference.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Final, Self

from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt.numbers.sampling import TOTAL
from privopt_metric_dp.traces.draw_trace import Walker
from privopt_metric_dp.traces.prediction import Prediction, Terms

__all__ = ["MIN_PROBABILITY", "Law", "Reports", "max_log_ratio", "segment_probability"]

Reports = tuple[tuple[bool, int], ...]
"""The visible part of a trace: for each row, whether its report repeats the previous one, and the index of its
output."""

MIN_PROBABILITY: Final = 1e-280
"""Probability below which computed probabilities may have a large relative error."""


@frozen(kw_only=True, eq=False, slots=False)
class Law:
    """The distribution of reports along traces through a set of P places, for a release with K outputs.

    Attributes:
        fresh: (P, K) The probability of each output in a fresh report from each place. A fresh report is one that does
            not repeat the previous report.
        steps: (P, K) The distance from each place to each output, in steps. A step is the unit in which repetition
            tests measure distances.
        prediction: The parameters of the repetition tests: the rates of the noise, and the level, i.e. the distance up
            to which a report would be repeated if there were no noise.
    """

    fresh: Floats
    steps: Ints
    prediction: Prediction

    @classmethod
    def of(cls, walker: Walker) -> Self:
        """Create the distribution of reports along traces through the records of the given walker."""
        return cls(fresh=walker.weights / float(TOTAL), steps=walker.prediction.steps, prediction=walker.prediction)

    def sequence_probabilities(self, trace: Sequence[int]) -> Mapping[Reports, float]:
        """Return the probability of every sequence of reports along a trace.

        Each report after the first is either a fresh output or a repetition of the previous report. With K outputs,
        there are K (K + 1)^(n - 1) sequences of n reports.

        Args:
            trace: The indices of the places along the trace.
        """
        outputs, probabilities = self.fresh.shape[1], {}
        for first_output in range(outputs):
            # None stands for a repetition of the last report.
            for later_outputs in itertools.product([None, *range(outputs)], repeat=len(trace) - 1):
                reports, last_output = [(False, first_output)], first_output
                for output in later_outputs:
                    reports.append((output is None, last_output if output is None else output))
                    last_output = reports[-1][1]
                probabilities[tuple(reports)] = self.probability(trace, reports)
        return probabilities

    def probability(self, trace: Sequence[int], reports: Sequence[tuple[bool, int]]) -> float:
        """Return the probability of a sequence of reports along a trace.

        The probability is the product of one factor per fresh report and one per segment. A segment consists of a
        report, the rows that repeat it, and the row that renews it.

        Args:
            trace: The indices of the places along the trace.
            reports: The sequence, as described in :data:`Reports`.
        """
        last_output, probability = reports[0][1], float(self.fresh[trace[0], reports[0][1]])
        repeated_places: tuple[int, ...] = ()
        for place_number, (is_repeated, output) in zip(trace[1:], reports[1:], strict=True):
            if is_repeated:
                repeated_places += (place_number,)
                continue
            # The segment ends here. It contributes the probability of its tests, and then that of the fresh report.
            probability *= self._segment_probability(last_output, repeated_places, place_number) * float(
                self.fresh[place_number, output]
            )
            last_output, repeated_places = output, ()
        return probability * (self._segment_probability(last_output, repeated_places, None) if repeated_places else 1.0)

    def _segment_probability(
        self, last_output: int, repeated_places: tuple[int, ...], renewal_place: int | None
    ) -> float:
        """Return the probability of the outcomes of the repetition tests in one segment.

        Args:
            last_output: The index of the output reported at the start of the segment. Each test either repeats or
                renews this report.
            repeated_places: The indices of the places whose rows repeat the report.
            renewal_place: The index of the place whose row renews the report, or None if the trace ends before it is
                renewed.
        """
        # Given the noise on the threshold, the tests are independent, so their order has no effect.
        key = last_output, tuple(sorted(repeated_places)), renewal_place
        if key not in self._segment_cache:
            prediction = self.prediction
            # A report is repeated as long as its distance is below the noisy threshold. Distances are counted from the
            # level, which is the threshold without noise.
            steps_beyond_level = [
                int(self.steps[place_number, last_output]) - prediction.level for place_number in repeated_places
            ]
            renewal_steps = (
                None if renewal_place is None else int(self.steps[renewal_place, last_output]) - prediction.level
            )
            self._segment_cache[key] = segment_probability(
                float(prediction.threshold), float(prediction.test), steps_beyond_level, renewal_steps
            )
        return self._segment_cache[key]

    @cached_property
    def _segment_cache(self) -> dict[tuple[int, tuple[int, ...], int | None], float]:
        """A cache of the results of :meth:`_segment_probability`, keyed by its arguments with the places sorted."""
        return {}


def segment_probability(
    threshold: float, test: float, repeated_steps: Sequence[int], renewal_steps: int | None
) -> float:
    """Return the probability that all tests in a series repeat a report, and that a final test, if any, renews it.

    If there were no noise, a report would be repeated up to a distance called the level. Let m be the noise on the
    threshold. A test at x steps beyond the level repeats the report with probability 1 - exp(-test (m - x)) if m > x,
    and always renews it if m <= x. The result is a sum of geometric series over m. The number of terms is proportional
    to 2^r, where r is the number of repetitions.

    Args:
        threshold: The rate of the noise on the threshold, per step.
        test: The rate of the noise in a test, per step.
        repeated_steps: The number of steps beyond the level for each test that repeats the report.
        renewal_steps: The number of steps beyond the level for the test that renews the report. If None, there is no
            such test.
    """
    # If the threshold's noise is below this value, some test is certain to renew the report. So the sums start here.
    start = max([0, *repeated_steps])
    # The number of noise values, from the start on, for which the renewing test is certain to renew.
    sure_steps = math.inf if renewal_steps is None else max(0, renewal_steps - start)
    terms = []
    # The product of 1 - exp(-test (m - x)) over the repeating tests is expanded into one term for each subset of them.
    for selection in itertools.product((False, True), repeat=len(repeated_steps)):
        rate = threshold + test * sum(selection)
        factor = math.exp(
            -test * sum(start - x for x, is_selected in zip(repeated_steps, selection, strict=True) if is_selected)
        )
        # The sum of exp(-rate * k) over the noise values start + k with k < sure_steps, for which the renewing test is
        # certain to renew. Without a renewing test, the sum is over all k.
        head_sum = math.expm1(-rate * sure_steps) / math.expm1(-rate)
        terms.append((-1) ** sum(selection) * factor * head_sum)
        if renewal_steps is not None:
            # The sum over all other k, for which that test renews with the probability exp(-test (start + k -
            # renewal_steps)).
            tail_sum = math.exp(-rate * sure_steps - test * (start + sure_steps - renewal_steps)) / -math.expm1(
                -(rate + test)
            )
            terms.append((-1) ** sum(selection) * factor * tail_sum)
    # The terms have both signs, so rounding could otherwise make the probability negative.
    return max(0.0, math.exp(-threshold * start) * -math.expm1(-threshold) * math.fsum(terms))


def max_log_ratio(terms: Terms, reports: Reports, distances: Floats) -> Fraction:
    """Return the largest log ratio that the guarantee allows between a sequence's probabilities along two traces.

    The first report contributes its epsilon times the distance between the traces at the first row. Each segment
    contributes its epsilon times the largest distance at the rows that repeat or renew its report. The epsilon of a
    complete segment is the sum of the epsilon of a report, the epsilon of the threshold and twice the epsilon of a
    test. For a segment that has not ended, it is the epsilon of the threshold alone. The segment cost in ``terms`` is
    not used, because it is one of the numbers being checked.

    Args:
        terms: The epsilons of a report, the threshold and a test.
        reports: The sequence of reports.
        distances: (T,) The distance between the two traces at each row, in the units that the epsilons refer to.
    """
    segment_epsilon = terms.report + terms.threshold + 2 * terms.test
    log_ratio, segment_start = terms.report * Fraction(float(distances[0])), 1
    for index in range(1, len(reports)):
        # A fresh report ends the segment.
        if not reports[index][0]:
            log_ratio += segment_epsilon * Fraction(float(distances[segment_start : index + 1].max()))
            segment_start = index + 1
    open_segment = distances[segment_start:]
    return log_ratio + terms.threshold * Fraction(float(open_segment.max(initial=0.0)))
