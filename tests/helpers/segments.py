"""Probabilities of segments by brute force: every value of the threshold's noise."""

import numpy as np


def summed(threshold, test, kept, renewed):
    """Compute :func:`privopt_tables.kit.trace_law.segment_of`'s closed form by a sum."""
    noise = np.arange(int(40 / threshold) + 2)
    weight = np.exp(-threshold * noise) * -np.expm1(-threshold)
    for x in kept:
        weight = weight * -np.expm1(-test * np.maximum(noise - x, 0))
    if renewed is not None:
        weight = weight * np.exp(-test * np.maximum(noise - renewed, 0))
    return float(weight.sum())


def stayed(law, place, output, rows):
    """Probability that a place's report is an output, and is kept for so many rows more."""
    numbers = law.prediction
    far = int(law.steps[place, output]) - numbers.level
    return float(law.fresh[place, output]) * summed(float(numbers.threshold), float(numbers.test), [far] * rows, None)
