"""The law of reports along short traces, by brute force: every sequence of outputs, the noise summed over.

It is the kit's own reckoning, from the numbers that a release holds; the code that draws is not asked.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final

import numpy as np

from privopt.arrays import Floats
from privopt.exact.sample import TOTAL
from privopt.metric.traces.walk import Walker

__all__ = ["Reports", "cost_of", "law_of", "probability_of"]

Reports = tuple[tuple[bool, int], ...]
"""What is seen of a trace: for each row whether the last report was kept, and the report's number."""

TAIL: Final = 40.0
"""Noise is summed up to where exp(-rate m) is exp of minus this."""


def law_of(walker: Walker, trace: Sequence[int]) -> Mapping[Reports, float]:
    """Probability of every sequence of reports of a trace, given as numbers of records.

    Cost: outputs to the power of the trace's length.
    """
    outputs = walker.weights.shape[1]
    law = {}
    for first in range(outputs):
        for rest in itertools.product([None, *range(outputs)], repeat=len(trace) - 1):
            seen, last = [(False, first)], first
            for output in rest:
                seen.append((output is None, last if output is None else output))
                last = seen[-1][1]
            law[tuple(seen)] = probability_of(walker, trace, seen)
    return law


def probability_of(walker: Walker, trace: Sequence[int], seen: Sequence[tuple[bool, int]]) -> float:
    """The probability of one sequence: the product over its segments, each a sum over the threshold's noise."""
    numbers = walker.prediction
    rate, test = float(numbers.threshold), float(numbers.test)
    noise = np.arange(int(TAIL / rate) + 2)
    weight = np.exp(-rate * noise) * -np.expm1(-rate)
    last = seen[0][1]
    total = int(walker.weights[trace[0], last]) / TOTAL
    running, begun = weight, False
    for record, (kept, output) in zip(trace[1:], seen[1:], strict=True):
        over = np.maximum(numbers.level + noise - numbers.steps[record, last], 0)
        renewed = np.exp(-test * over)
        running, begun = running * ((1.0 - renewed) if kept else renewed), True
        if not kept:
            total *= float(running.sum()) * int(walker.weights[record, output]) / TOTAL
            last, running, begun = output, weight, False
    return total * (float(running.sum()) if begun else 1.0)


def cost_of(walker: Walker, seen: Reports, apart: Floats) -> Fraction:
    """What the log ratio of a sequence between two traces may be, which are ``apart`` (T,) at each time."""
    terms = walker.terms
    spent, begun = terms.report * Fraction(float(apart[0])), 1
    for place in range(1, len(seen)):
        if not seen[place][0]:
            spent += terms.segment * Fraction(float(apart[begun : place + 1].max()))
            begun = place + 1
    rest = apart[begun:]
    return spent + terms.threshold * Fraction(float(rest.max(initial=0.0)))
