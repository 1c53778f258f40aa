"""The distribution of reports along short traces: every sequence of outputs, with the noise summed in closed form.

It is the kit's own computation, from the numbers that a release holds; the code that draws is not asked.
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

__all__ = ["LEAST_PROBABILITY", "Law", "Reports", "cost_of", "segment_of"]

Reports = tuple[tuple[bool, int], ...]
"""What is seen of a trace: for each row whether the last report was kept, and the report's number."""

LEAST_PROBABILITY: Final = 1e-280
"""Probability beyond which sums of doubles tell nothing."""


@frozen(kw_only=True, eq=False, slots=False)
class Law:
    """Probabilities of reports along traces of some places.

    Attributes:
        fresh: (P, K) probability of each output in a fresh report of each place.
        steps: (P, K) from each place to each output, which tests go by.
        prediction: level and rates of the noise.
    """

    fresh: Floats
    steps: Ints
    prediction: Prediction

    @classmethod
    def of(cls, walker: Walker) -> Self:
        """Return the law along a walker's records."""
        return cls(fresh=walker.weights / float(TOTAL), steps=walker.prediction.steps, prediction=walker.prediction)

    def every(self, trace: Sequence[int]) -> Mapping[Reports, float]:
        """Return the probability of every sequence of reports of a trace, given as numbers of places.

        Cost: outputs to the power of the trace's length.
        """
        outputs, law = self.fresh.shape[1], {}
        for first in range(outputs):
            for rest in itertools.product([None, *range(outputs)], repeat=len(trace) - 1):
                seen, last = [(False, first)], first
                for output in rest:
                    seen.append((output is None, last if output is None else output))
                    last = seen[-1][1]
                law[tuple(seen)] = self.probability(trace, seen)
        return law

    def probability(self, trace: Sequence[int], seen: Sequence[tuple[bool, int]]) -> float:
        """Return the probability of one sequence: the product over its fresh reports, and over its segments."""
        last, total = seen[0][1], float(self.fresh[trace[0], seen[0][1]])
        kept: tuple[int, ...] = ()
        for place, (again, output) in zip(trace[1:], seen[1:], strict=True):
            if again:
                kept += (place,)
                continue
            total *= self._segment(last, kept, place) * float(self.fresh[place, output])
            last, kept = output, ()
        return total * (self._segment(last, kept, None) if kept else 1.0)

    def _segment(self, last: int, kept_steps: tuple[int, ...], renewed: int | None) -> float:
        key = last, tuple(sorted(kept_steps)), renewed
        if key not in self._known:
            numbers = self.prediction
            far = [int(self.steps[place, last]) - numbers.level for place in kept_steps]
            end = None if renewed is None else int(self.steps[renewed, last]) - numbers.level
            self._known[key] = segment_of(float(numbers.threshold), float(numbers.test), far, end)
        return self._known[key]

    @cached_property
    def _known(self) -> dict[tuple[int, tuple[int, ...], int | None], float]:
        return {}


def segment_of(threshold: float, test: float, kept_steps: Sequence[int], renewed: int | None) -> float:
    """Return the probability that tests keep and, at last, renew: geometric series summed over the threshold's noise.

    A test at x steps beyond the level keeps with probability 1 - exp(-test (m - x)) where the threshold's noise m is
    above x, and else renews. Cost: two to the power of the tests that keep.

    Args:
        threshold, test: rates of the noise, per step.
        kept_steps: steps beyond the level at the tests that keep.
        renewed: at the one that renews; None where the segment has not ended.
    """
    start = max([0, *kept_steps])  # below it one of them surely renews
    few = math.inf if renewed is None else max(0, renewed - start)  # so many steps in which renewal is sure
    parts = []
    for chosen in itertools.product((False, True), repeat=len(kept_steps)):
        rate = threshold + test * sum(chosen)
        size = math.exp(-test * sum(start - x for x, taken in zip(kept_steps, chosen, strict=True) if taken))
        first = math.expm1(-rate * few) / math.expm1(-rate)
        parts.append((-1) ** sum(chosen) * size * first)
        if renewed is not None:
            rest = math.exp(-rate * few - test * (start + few - renewed)) / -math.expm1(-(rate + test))
            parts.append((-1) ** sum(chosen) * size * rest)
    return max(0.0, math.exp(-threshold * start) * -math.expm1(-threshold) * math.fsum(parts))


def cost_of(terms: Terms, seen: Reports, apart: Floats) -> Fraction:
    """Return the largest log ratio of a sequence between two traces, which are ``apart`` (T,) at each time.

    By the theorem, from the parts: a sum that the terms state themselves is not asked.
    """
    whole = terms.report + terms.threshold + 2 * terms.test
    spent, begun = terms.report * Fraction(float(apart[0])), 1
    for place in range(1, len(seen)):
        if not seen[place][0]:
            spent += whole * Fraction(float(apart[begun : place + 1].max()))
            begun = place + 1
    rest = apart[begun:]
    return spent + terms.threshold * Fraction(float(rest.max(initial=0.0)))
