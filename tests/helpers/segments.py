"""Probabilities of segments by brute force: every value of the threshold's noise."""

import numpy as np


def sum_segment(threshold, test, kept_steps, renewed):
    """Compute :func:`privopt_tables.kit.trace_law.segment_probability`'s closed form by a sum."""
    noise = np.arange(int(40 / threshold) + 2)
    weight = np.exp(-threshold * noise) * -np.expm1(-threshold)
    for x in kept_steps:
        weight = weight * -np.expm1(-test * np.maximum(noise - x, 0))
    if renewed is not None:
        weight = weight * np.exp(-test * np.maximum(noise - renewed, 0))
    return float(weight.sum())


def stay_probability(law, record, output, rows):
    """Probability that a place's report is an output, and is kept for so many rows more."""
    numbers = law.prediction
    excess_steps = int(law.steps[record, output]) - numbers.level
    return float(law.fresh[record, output]) * sum_segment(
        float(numbers.threshold), float(numbers.test), [excess_steps] * rows, None
    )
