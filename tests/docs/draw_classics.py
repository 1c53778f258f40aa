"""docs/img/classics.svg, errors of the classics over epsilon: ``python tests/docs/draw_classics.py`` draws it again.

All curves are closed forms; nothing is drawn at random.
"""

from __future__ import annotations

from fractions import Fraction
from math import exp, expm1
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt

from privopt_classics.exact import odds_below
from privopt_classics.hadamard_response import HadamardLaw
from privopt_classics.laws import Privacy
from privopt_classics.noisy_max import NoisyMax
from privopt_classics.permute_and_flip import PermuteAndFlip
from privopt_classics.piecewise import BoundedNumber, PiecewiseLaw
from privopt_classics.questions import Question
from privopt_classics.randomised_response import ResponseLaw
from privopt_classics.staircase import BoundedSum, StaircaseLaw
from privopt_classics.subset_selection import SubsetLaw
from privopt_classics.unary_encoding import UnaryLaw

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "img" / "classics.svg"
EPSILONS = [Fraction(step, 10) for step in range(2, 61, 2)]
ANSWERS, CHANGE, STEPS = 16, 10, 400
SCORES = [20, 19, 17, 15, 12, 8, 4, 0]
LAWS = {
    "randomised response": ResponseLaw,
    "unary encoding": UnaryLaw,
    "Hadamard response": HadamardLaw,
    "subset selection": SubsetLaw,
}
COLOURS = ("#b0b6bf", "#c2410c", "#9a5b00", "#0b57a4")


def share_errors() -> dict[str, list[float]]:
    """Return n times the variance of an estimated share among 16 answers."""
    answers = tuple(map(str, range(ANSWERS)))
    return {
        name: [
            law(
                problem=Question(answers=answers, privacy=Privacy(epsilon=epsilon)), parameter=odds_below(epsilon)
            ).expected_loss()
            for epsilon in EPSILONS
        ]
        for name, law in LAWS.items()
    }


def sum_errors() -> dict[str, list[float]]:
    """Return the mean absolute noise on a sum to which each person adds at most 10."""
    staircase = []
    for epsilon in EPSILONS:
        problem = BoundedSum(largest=1, sensitivity=CHANGE, privacy=Privacy(epsilon=epsilon))
        staircase.append(StaircaseLaw(problem=problem, parameter=epsilon).expected_loss())
    ratios = [exp(-epsilon / CHANGE) for epsilon in EPSILONS]
    return {"geometric": [2 * a / (1 - a**2) for a in ratios], "staircase": staircase}


def choice_errors() -> dict[str, list[float]]:
    """Return the mean score that is missed among eight choices, at rate epsilon / 2."""
    missed = np.array(SCORES[0]) - np.array(SCORES)
    errors: dict[str, list[float]] = {"exponential": [], "noisy max": [], "permute-and-flip": []}
    for epsilon in EPSILONS:
        weights = np.exp(-float(epsilon) / 2 * missed)
        errors["exponential"].append(float(missed @ weights / weights.sum()))
        # Ties go to the first choice, so the mean of both orders is fair.
        chances = np.array(NoisyMax.chances(SCORES, epsilon / 2)) + NoisyMax.chances(SCORES[::-1], epsilon / 2)[::-1]
        errors["noisy max"].append(float(missed @ chances / 2))
        errors["permute-and-flip"].append(float(missed @ PermuteAndFlip.chances(SCORES, epsilon / 2)))
    return errors


def number_errors() -> dict[str, list[float]]:
    """Return the largest variance of a reported number in [-1, 1]."""
    piecewise = []
    for epsilon in EPSILONS:
        problem = BoundedNumber(steps=STEPS, privacy=Privacy(epsilon=epsilon))
        piecewise.append(PiecewiseLaw(problem=problem, parameter=odds_below(epsilon)).expected_loss())
    two_values = [((exp(epsilon) + 1) / expm1(epsilon)) ** 2 for epsilon in EPSILONS]
    return {
        "Laplace noise": [8 / float(epsilon) ** 2 for epsilon in EPSILONS],
        "two values": two_values,
        "piecewise": piecewise,
    }


def main() -> None:
    """Draw one panel for each kind of problem."""
    mpl.rcParams.update({"svg.hashsalt": "classics", "font.size": 8})
    figure, panels = plt.subplots(1, 4, figsize=(11.5, 2.9), layout="constrained")
    for panel, title, errors in (
        (panels[0], "variance of a share, times reports", share_errors()),
        (panels[1], "mean absolute noise on a sum", sum_errors()),
        (panels[2], "mean score missed", choice_errors()),
        (panels[3], "largest variance of a number", number_errors()),
    ):
        # The last curve has the accent.
        for colour, (name, curve) in zip(COLOURS[-len(errors) :], errors.items(), strict=True):
            panel.plot(list(map(float, EPSILONS)), curve, color=colour, label=name)
        panel.set(yscale="log", xlabel="epsilon")
        panel.set_title(title, fontsize=9)
        panel.spines[["top", "right"]].set_visible(False)
        panel.legend(frameon=False)
    figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
