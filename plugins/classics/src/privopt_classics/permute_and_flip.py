"""Permute-and-flip (McKenna and Sheldon 2020, algorithm 1).

Law: each choice has a biased coin. The coins are flipped in random order, and the first choice i whose coin shows heads
is published. The coin of a choice with score q_i shows heads with probability p_i = exp(-rate (q_max - q_i)). Hence
P(i) is p_i times the integral, for t from 0 to 1, of the product of 1 - t p_j over j != i. The rate is epsilon / 2, or
epsilon if one person changes all scores in the same direction.

Proof: the published choice has the distribution of the argmax of q_i + E_i, where the E_i are independent exponential
variables with the same rate (Ding et al. 2021). Fix the E_j of the other choices. Then i wins if E_i exceeds a
threshold, which differs by at most 2 between neighbouring inputs, or by 1 if scores are monotone. Moreover, P(E_i > s +
c) >= exp(-rate c) P(E_i > s).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from fractions import Fraction
from math import exp

import numpy as np
from numpy.polynomial.legendre import leggauss

from privopt.numbers.integer_draws import draw_below
from privopt.numbers.sampling import make_source
from privopt_classics.choices import ChoiceMechanism
from privopt_classics.exact import draw_exp_event


class PermuteAndFlip(ChoiceMechanism):
    """A mechanism that flips a biased coin for each choice and publishes the first choice whose coin comes up heads.

    The coins are flipped in random order. The higher the score of a choice, the more likely its coin is to come up
    heads. These probabilities are sampled exactly.
    """

    kit = "privopt_classics.kit:PERMUTE_AND_FLIP"

    @classmethod
    def chances(cls, scores: Sequence[int], rate: Fraction) -> list[float]:
        """Return each choice's probability of being published, computed as the integral in the module docstring.

        The integration variable t is the position of the choice in the random order, as a fraction from 0 to 1. Each of
        the other choices comes before it with probability t.

        Args:
            scores: The secret score of each choice.
            rate: The mechanism's rate per unit of score.
        """
        heads_probabilities = np.array([exp(-rate * (max(scores) - score)) for score in scores])
        # Gauss-Legendre quadrature with m nodes is exact for polynomials up to degree 2 m - 1, and it only adds
        # positive numbers. Integrating the expanded product would lose all digits to cancellation for 100 equal scores.
        # The nodes are for the interval [-1, 1], so they are mapped to [0, 1] and the sum is halved.
        nodes, weights = leggauss((len(scores) + 1) // 2)
        tails = 1 - np.outer((nodes + 1) / 2, heads_probabilities)
        chances = []
        for index, heads_probability in enumerate(heads_probabilities.tolist()):
            no_earlier_heads = np.delete(tails, index, axis=1).prod(axis=1)
            chances.append(heads_probability * float(weights @ no_earlier_heads) / 2)
        return chances

    def choose(self, scores: Sequence[int], rate: Fraction, seed: int | None) -> tuple[int, Fraction]:
        """Flip the coins of the choices in random order until one comes up heads.

        The loop terminates because the coin of a choice with the highest score always comes up heads.

        Args:
            scores: The secret score of each choice.
            rate: The mechanism's rate per unit of score.
            seed: A seed that makes the draw reproducible but not private, or None to use the operating system's
                entropy.

        Returns:
            The index of the first choice whose coin comes up heads, and ``rate``.
        """
        source = os.urandom if seed is None else make_source(seed)
        remaining = list(range(len(scores)))
        while True:
            index = remaining.pop(draw_below(len(remaining), source))
            if draw_exp_event(rate * (max(scores) - scores[index]), source):
                return index, rate
