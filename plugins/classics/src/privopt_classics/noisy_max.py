"""Report noisy max (Dwork and Roth 2014, section 3.3, claim 3.9), with discrete Laplace noise.

Law: the published choice i is the one with the highest noisy score q_i + Z_i, where q_i is the score and P(Z = z) is
proportional to exp(-rate |z|). Ties are broken in favour of the choice that comes first in the public order. P(i) is
the sum over all z of P(Z_i = z) times the product over all j != i of the probability that q_j + Z_j loses to q_i + z.
The rate is epsilon / 2, or epsilon if one person changes all scores in the same direction.

Proof: fix the noise of the other choices. Then i wins if Z_i reaches an integer threshold, which differs by at most 2
between neighbouring inputs, or by 1 if scores are monotone. Moreover, P(Z_i >= s + c) >= exp(-rate c) P(Z_i >= s). Ties
do not invalidate this argument, because the order that breaks them is fixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, exp

import numpy as np

from privopt.arrays import Floats, Ints
from privopt.numbers.noise import discrete_laplace
from privopt_classics.choices import ChoiceMechanism


def _at_most(value: Ints, ratio: float) -> Floats:
    """Return P(Z <= value) for each entry of ``value``, where P(Z = z) is proportional to ratio**|z|."""
    # Negative values have their own formula, because 1 minus the upper tail would lose the digits of a small result.
    lower_tail = ratio ** np.maximum(-value, 0) / (1 + ratio)
    probabilities: Floats = np.where(value < 0, lower_tail, 1 - ratio ** np.maximum(value + 1, 0) / (1 + ratio))
    return probabilities


class NoisyMax(ChoiceMechanism):
    """A mechanism that publishes the choice with the highest noisy score."""

    kit = "privopt_classics.kit:NOISY_MAX"

    @classmethod
    def chances(cls, scores: Sequence[int], rate: Fraction) -> list[float]:
        """Return each choice's probability of being published, computed as the sum in the module docstring.

        Terms below about exp(-50) are omitted. Scores far below the highest one are raised to shorten the sum. The
        effect is negligible, because choices with such scores have a probability below about exp(-350) either way.

        Args:
            scores: The secret score of each choice.
            rate: The rate of the noise per unit of score.
        """
        # Noise beyond `max_noise` has a probability of about exp(-50).
        ratio, max_noise, max_gap = exp(-rate), ceil(50 / rate), ceil(350 / rate)
        gaps = [max(score - max(scores), -max_gap) for score in scores]
        chances = []
        for index, gap in enumerate(gaps):
            # The range is wide enough for the choice with the lowest score to beat the one with the highest.
            noise = np.arange(min(gaps) - max_noise, max_noise - min(gaps) + 1)
            chance = (1 - ratio) / (1 + ratio) * ratio ** np.abs(noise)
            for rival, rival_gap in enumerate(gaps):
                if rival != index:
                    # A rival loses if its noisy score is lower, or if it ties and comes later in the public order.
                    chance = chance * _at_most(noise + gap - rival_gap - (rival < index), ratio)
            chances.append(float(chance.sum()))
        return chances

    def choose(self, scores: Sequence[int], rate: Fraction, seed: int | None) -> tuple[int, Fraction]:
        """Add noise to all scores, and return the index of the first choice with the highest noisy score.

        Args:
            scores: The secret score of each choice.
            rate: The rate of the noise per unit of score.
            seed: A seed that makes the draw reproducible but not private, or None to use the operating system's
                entropy.

        Returns:
            The index of the choice, and the rate at which the noise was actually drawn.
        """
        noisy, record = discrete_laplace(np.array(scores, dtype=np.int64), rate, seed=seed)
        return int(noisy.argmax()), 1 / record.scale
