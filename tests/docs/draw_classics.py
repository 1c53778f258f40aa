"""Figures of docs/reference/classics.md: ``python tests/docs/draw_classics.py`` draws them again.

``classics.svg`` has the errors of all mechanisms over epsilon. ``classics-NAME.svg`` has the distribution of one
mechanism's reports for two inputs that the guarantee compares. All numbers are closed forms, and
nothing is drawn at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import exp, expm1
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt

from privopt_classics.exact import odds_below
from privopt_classics.geometric import Count, GeometricLaw
from privopt_classics.hadamard_response import HadamardLaw
from privopt_classics.laws import Privacy, ReportLaw
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
EXAMPLE_EPSILON = Fraction(1)
"""Epsilon of the figures of single mechanisms."""
COLOURS = ("#9aa1ab", "#c2410c", "#1b1f24", "#0b57a4")


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


def example_laws() -> dict[str, ReportLaw]:
    """Return a small law of each mechanism that publishes its distribution, by name."""
    privacy, odds = Privacy(epsilon=EXAMPLE_EPSILON), odds_below(EXAMPLE_EPSILON)
    question = Question(answers=("a", "b", "c", "d"), privacy=privacy)
    bits = Question(answers=("a", "b", "c"), privacy=privacy)
    return {
        "randomised-response": ResponseLaw(problem=question, parameter=odds),
        "unary-encoding": UnaryLaw(problem=bits, parameter=odds),
        "hadamard-response": HadamardLaw(problem=question, parameter=odds),
        "subset-selection": SubsetLaw(problem=Question(answers=tuple("abcdef"), privacy=privacy), parameter=odds),
        "piecewise": PiecewiseLaw(problem=BoundedNumber(steps=20, privacy=privacy), parameter=odds),
        "geometric": GeometricLaw(problem=Count(largest=8, privacy=privacy), parameter=EXAMPLE_EPSILON),
        "staircase": StaircaseLaw(
            problem=BoundedSum(largest=12, sensitivity=4, privacy=privacy), parameter=EXAMPLE_EPSILON
        ),
    }


def example_chances() -> dict[str, list[list[float]]]:
    """Return the chances of four choices under two neighbouring lists of scores, by mechanism."""
    neighbours = [4, 3, 2, 0], [3, 3, 3, 1]
    rate = EXAMPLE_EPSILON / 2
    return {
        "permute-and-flip": [list(PermuteAndFlip.chances(scores, rate)) for scores in neighbours],
        "noisy-max": [list(NoisyMax.chances(scores, rate)) for scores in neighbours],
    }


def draw_pair(name: str, outputs: Sequence[str], rows: Sequence[Sequence[float]], inputs: Sequence[str]) -> None:
    """Draw the probabilities of all outputs for two inputs, as bars side by side."""
    figure, panel = plt.subplots(figsize=(4.6, 2.0), layout="constrained")
    positions = np.arange(len(outputs))
    for offset, row, label, colour in zip((-0.2, 0.2), rows, inputs, (COLOURS[1], COLOURS[3]), strict=True):
        panel.bar(positions + offset, row, 0.4, color=colour, label=label)
    # At most 10 labels fit beside one another, and fewer of long ones.
    most = min(10, 40 // (1 + max(map(len, outputs))))
    shown = positions[:: max(1, -(-len(outputs) // most))]
    panel.set_xticks(shown, [outputs[position] for position in shown])
    panel.set(ylabel="probability", xlabel=f"what is published, at epsilon {EXAMPLE_EPSILON}")
    panel.spines[["top", "right"]].set_visible(False)
    figure.legend(frameon=False, ncols=2, loc="outside upper right")
    figure.savefig(PICTURE.with_name(f"classics-{name}.svg"), metadata={"Date": None})
    plt.close(figure)


def draw_laws() -> None:
    """Draw the distributions of all mechanisms, each for two inputs that the guarantee compares."""
    for name, law in example_laws().items():
        # Two sums may differ by the sensitivity, and all numbers in [-1, 1] are neighbours of one another.
        first, second = {"staircase": (4, 8), "piecewise": (2, 14)}.get(name, (1, 2))
        inputs = [f"secret {law.records[index]}" for index in (first, second)]
        probabilities = law.probabilities()
        outputs = [f"{float(output):.1f}" if name == "piecewise" else output for output in law.outputs()]
        draw_pair(name, outputs, [probabilities[first].tolist(), probabilities[second].tolist()], inputs)
    for name, rows in example_chances().items():
        draw_pair(name, ["a", "b", "c", "d"], rows, ["scores 4, 3, 2, 0", "scores 3, 3, 3, 1"])


def main() -> None:
    """Draw one panel for each kind of problem, and the figure of each mechanism."""
    mpl.rcParams.update({"svg.hashsalt": "classics", "font.size": 10})
    draw_laws()
    # Two by two, and not wider than a figure of one mechanism: it can be read on a telephone too.
    figure, grid = plt.subplots(2, 2, figsize=(5.2, 5.6), layout="constrained")
    panels = grid.ravel()
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
        panel.set_title(title, fontsize=10)
        panel.spines[["top", "right"]].set_visible(False)
        # Room for the legend above the curves.
        panel.set_ylim(top=20 * panel.get_ylim()[1])
        panel.legend(frameon=False, handlelength=1.2, fontsize=9, loc="upper right", borderaxespad=0.0)
    figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
