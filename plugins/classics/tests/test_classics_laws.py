"""Laws of the classics against what their papers prove of them."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import exp, expm1

import numpy as np
import pytest
from scipy.optimize import linprog

from privopt.numbers import exp_fixed
from privopt.numbers.integer_draws import draw_below
from privopt_classics.exact import draw_exp_event, odds_below
from privopt_classics.geometric import Count, GeometricLaw
from privopt_classics.hadamard_response import HadamardLaw, find_sign
from privopt_classics.laws import Privacy
from privopt_classics.noisy_max import NoisyMax
from privopt_classics.permute_and_flip import PermuteAndFlip
from privopt_classics.piecewise import BoundedNumber, PiecewiseLaw
from privopt_classics.questions import Question
from privopt_classics.randomised_response import ResponseLaw
from privopt_classics.staircase import BoundedSum, StaircaseLaw
from privopt_classics.subset_selection import SubsetLaw
from privopt_classics.unary_encoding import UnaryLaw

EPSILONS = [Fraction(1, 100), Fraction(1, 2), Fraction(1), Fraction(3), Fraction(12)]


def privacy(epsilon):
    return Privacy(epsilon=epsilon)


def question(law, size, epsilon):
    answers = tuple(f"answer {number}" for number in range(size))
    return law(problem=Question(answers=answers, privacy=privacy(epsilon)), parameter=odds_below(epsilon))


SUPPORTS = {
    ResponseLaw: lambda law, report, index: report == law.records[index],
    UnaryLaw: lambda law, report, index: report[index] == "1",
    SubsetLaw: lambda law, report, index: report[index] == "1",
}
"""Whether a report supports an answer, by law."""


def largest_log_ratio(law):
    table = law.channel().probabilities
    return float(np.log(table.max(axis=0) / table.min(axis=0)).max())


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("size", [2, 3, 6])
@pytest.mark.parametrize("law_class", SUPPORTS)
def test_local_laws_use_all_of_epsilon_and_have_the_stated_variance(law_class, size, epsilon):
    law = question(law_class, size, epsilon)
    assert largest_log_ratio(law) == pytest.approx(float(epsilon), rel=1e-9)
    channel = law.channel()
    supports = np.array([[SUPPORTS[law_class](law, report, index) for report in channel.outputs] for index in (0, 1)])
    p, q = (channel.probabilities[0] @ row for row in supports)
    assert law.expected_loss() == pytest.approx(q * (1 - q) / (p - q) ** 2, rel=1e-7)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("size", [2, 5, 40])
def test_variances_are_those_of_the_papers(size, epsilon):
    """Wang et al. 2017, times n, for the first two; Acharya et al. 2019 for the sign of Hadamard."""
    odds = exp(epsilon)
    rows = {
        ResponseLaw: (size - 2 + odds) / expm1(epsilon) ** 2,
        UnaryLaw: 4 * odds / expm1(epsilon) ** 2,
    }
    if odds < 2:  # a single block
        rows[HadamardLaw] = ((odds + 1) / expm1(epsilon)) ** 2
    for law_class, variance in rows.items():
        assert question(law_class, size, epsilon).expected_loss() == pytest.approx(variance, rel=1e-9)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("size", [2, 3, 6, 13])
def test_hadamard_response_is_unbiased_with_the_stated_variance(size, epsilon):
    law = question(HadamardLaw, size, epsilon)
    table, reports = law.channel().probabilities, range(law.count_outputs())
    assert largest_log_ratio(law) == pytest.approx(float(epsilon), rel=1e-9)
    assert law.blocks * (law.order - 1) >= size
    scale = float(law.denominator / (law.order // 2 * (law.parameter - 1)))
    estimates = scale * np.array([[find_sign(index, report, law.order) for report in reports] for index in range(size)])
    assert table @ estimates.T == pytest.approx(np.eye(size), abs=1e-9 * scale)
    others = table[1:].mean(axis=0)
    assert law.expected_loss() == pytest.approx(others @ estimates[0] ** 2, rel=1e-7)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_subset_selection_of_one_answer_is_randomised_response(epsilon):
    """Ye and Barg 2018, section III: w = 1. With w > 1 it is better than both others."""
    subsets, response = (question(law, 30, epsilon) for law in (SubsetLaw, ResponseLaw))
    if subsets.subset_size == 1:
        assert subsets.expected_loss() == pytest.approx(response.expected_loss())
    else:
        assert subsets.expected_loss() < min(
            response.expected_loss(), question(UnaryLaw, 30, epsilon).expected_loss() * 1.001
        )


def test_odds_are_below_and_near():
    for epsilon in (*EPSILONS, Fraction(20), Fraction(40), Fraction(700), Fraction(1, 10**6)):
        lower, _ = exp_fixed(epsilon, 200)
        assert odds_below(epsilon) <= Fraction(lower, 2**200) < odds_below(epsilon) + Fraction(1, 2**62)


def test_draws_have_exact_probabilities():
    draws = 20_000
    for exponent in (Fraction(0), Fraction(1, 3), Fraction(5, 2)):
        hits = sum(draw_exp_event(exponent) for _ in range(draws))
        chance = exp(-exponent)
        assert abs(hits - draws * chance) <= 5 * (draws * chance * (1 - chance)) ** 0.5
    counts = np.bincount([draw_below(3) for _ in range(draws)], minlength=3)
    assert (abs(counts - draws / 3) < 5 * (draws * 2 / 9) ** 0.5).all()
    assert draw_below(1) == 0


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2)])
def test_geometric_is_optimal_for_every_prior(epsilon):
    """Ghosh, Roughgarden and Sundararajan 2012: after a remap it costs what the linear program does."""
    n = 4
    law = GeometricLaw(problem=Count(largest=n, privacy=privacy(epsilon)), parameter=epsilon)
    table, size = law.channel().probabilities, n + 1
    loss = abs(np.subtract.outer(np.arange(size), np.arange(size))).astype(float)
    rows = []
    for i, j, report in product(range(size), range(size), range(size)):
        if abs(i - j) == 1:
            row = np.zeros((size, size))
            row[i, report], row[j, report] = 1.0, -exp(epsilon)
            rows.append(row.ravel())
    sums = np.kron(np.eye(size), np.ones(size))
    for prior in (np.full(size, 1 / size), np.array([0.6, 0.2, 0.1, 0.05, 0.05]), np.array([0.1, 0, 0.8, 0, 0.1])):
        cost = (prior[:, None] * loss).ravel()
        optimum = linprog(cost, A_ub=np.array(rows), b_ub=np.zeros(len(rows)), A_eq=sums, b_eq=np.ones(size))
        remapped = (table.T @ (prior[:, None] * loss)).min(axis=1).sum()
        assert remapped == pytest.approx(optimum.fun, abs=1e-7)


def sums_of(change, epsilon, largest=6):
    problem = BoundedSum(largest=largest, sensitivity=change, privacy=privacy(epsilon))
    return StaircaseLaw(problem=problem, parameter=epsilon)


@pytest.mark.parametrize("epsilon", EPSILONS[1:])
@pytest.mark.parametrize("change", [1, 2, 5, 9])
def test_staircase_has_its_sums(change, epsilon):
    law = sums_of(change, epsilon)
    distances = np.arange(80 * change + 1)
    mass = law.mass(distances)
    assert 2 * mass.sum() - mass[0] == pytest.approx(1)
    assert 2 * (distances * mass).sum() == pytest.approx(law.expected_loss())
    assert mass[::-1].cumsum()[::-1] == pytest.approx(law.tail(distances), abs=1e-12)
    assert law.expected_loss() == law.absolute_noise(np.arange(1, change + 1)).min()
    mass = mass[mass > 1e-290]
    assert (mass[change:] * exp(epsilon) >= mass[:-change] * (1 - 1e-12)).all()


def test_far_reports_have_no_probability_of_zero():
    """Audits and estimates would else find an infinite loss where doubles end."""
    law = GeometricLaw(problem=Count(largest=200, privacy=privacy(Fraction(12))), parameter=Fraction(12))
    table = law.channel().probabilities
    assert table.min() > 0
    assert abs(np.log(table[1:] / table[:-1])).max() <= 12 + 1e-9


@pytest.mark.parametrize("epsilon", EPSILONS[1:])
def test_staircase_tends_to_the_continuous_optimum(epsilon):
    """Geng et al. 2015: the least expected amplitude is D exp(epsilon / 2) / (exp(epsilon) - 1)."""
    change = 2000
    law = sums_of(change, epsilon, largest=1)
    optimum = change * exp(epsilon / 2) / expm1(epsilon)
    assert law.expected_loss() == pytest.approx(optimum, rel=2e-3 + 1 / optimum)
    assert law.step_width == pytest.approx(change / (1 + exp(epsilon / 2)), abs=2)


def test_staircase_of_sensitivity_1_is_geometric():
    for epsilon in EPSILONS:
        geometric = GeometricLaw(problem=Count(largest=6, privacy=privacy(epsilon)), parameter=epsilon)
        assert sums_of(1, epsilon).probabilities() == pytest.approx(geometric.probabilities(), rel=1e-9)


def numbers(steps, epsilon):
    return PiecewiseLaw(problem=BoundedNumber(steps=steps, privacy=privacy(epsilon)), parameter=odds_below(epsilon))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("steps", [1, 4, 31])
def test_piecewise_is_unbiased(steps, epsilon):
    law = numbers(steps, epsilon)
    table, values = law.probabilities(), law.values()
    truth = np.linspace(-1, 1, steps + 1)
    assert table @ values == pytest.approx(truth, abs=1e-9 * values.max())
    variances = table @ values**2 - truth**2
    assert [law.variance(index) for index in range(steps + 1)] == pytest.approx(variances, rel=1e-7, abs=1e-9)
    assert law.expected_loss() == pytest.approx(variances.max(), rel=1e-7)
    assert largest_log_ratio(law) == pytest.approx(float(epsilon), rel=1e-9)


@pytest.mark.parametrize("epsilon", [Fraction(1, 10**6), Fraction(20), Fraction(40)])
@pytest.mark.parametrize("steps", [1, 4, 30])
def test_piecewise_variance_has_all_digits(steps, epsilon):
    """A difference of doubles had none at epsilon 40: the stated loss was 0."""
    law = numbers(steps, epsilon)
    count, w, r = law.count_outputs(), law.window, law.parameter
    values = [(2 * j - count + 1) / (law.slope * steps) for j in range(count)]
    for index in (0, steps // 2, steps):
        weights = [r if index <= j < index + w else 1 for j in range(count)]
        mean, square = (
            sum(weight * value**power for weight, value in zip(weights, values, strict=True)) / sum(weights)
            for power in (1, 2)
        )
        assert mean == Fraction(2 * index - steps, steps)
        assert law.variance(index) == float(square - mean**2) > 0


@pytest.mark.parametrize("epsilon", EPSILONS[1:4])
def test_piecewise_tends_to_the_paper(epsilon):
    """Wang et al. 2019, lemma 1: t**2 / (h - 1) + (h + 3) / (3 (h - 1)**2) with h = exp(epsilon / 2)."""
    law, h = numbers(2000, epsilon), exp(epsilon / 2)
    for index, number in ((0, -1.0), (1000, 0.0), (1500, 0.5)):
        variance = number**2 / (h - 1) + (h + 3) / (3 * (h - 1) ** 2)
        assert law.variance(index) == pytest.approx(variance, rel=2e-3)


SCORES = [(0, 0), (3, 1), (4, 1, 0), (2, 2, 2, 0), (0, 1, 2, 3, 4)]


def exponential_mechanism(scores, rate):
    weights = np.exp(float(rate) * (np.array(scores) - max(scores)))
    return weights / weights.sum()


@pytest.mark.parametrize("scores", SCORES)
@pytest.mark.parametrize("rate", [Fraction(1, 4), Fraction(2)])
def test_permute_and_flip_is_never_worse_than_the_exponential_mechanism(scores, rate):
    """McKenna and Sheldon 2020."""
    chances = PermuteAndFlip.chances(scores, rate)
    missed = max(scores) - np.array(scores)
    assert sum(chances) == pytest.approx(1)
    assert missed @ np.array(chances) <= missed @ exponential_mechanism(scores, rate) + 1e-12


def test_permute_and_flip_between_many():
    """Expanded into coefficients, the integral had no correct digit from 100 equal scores on."""
    assert PermuteAndFlip.chances([7] * 200, Fraction(1, 2)) == pytest.approx([1 / 200] * 200, rel=1e-9)


def test_permute_and_flip_between_two():
    """The better one loses where its coin comes second and the other's shows heads."""
    heads = exp(-Fraction(3, 2))
    assert PermuteAndFlip.chances([3, 0], Fraction(1, 2)) == pytest.approx([1 - heads / 2, heads / 2])


@pytest.mark.parametrize("scores", SCORES[:3])
def test_noisy_max_sums_over_all_noise(scores):
    rate, reach = Fraction(1), 30
    noise = np.arange(-reach, reach + 1)
    mass = exp(-rate) ** abs(noise)
    mass /= mass.sum()
    noisy_scores = np.stack(np.meshgrid(*(noise + score for score in scores), indexing="ij"))
    weights = np.prod(np.meshgrid(*[mass] * len(scores), indexing="ij"), axis=0)
    winners = noisy_scores.argmax(axis=0)
    chances = [weights[winners == index].sum() for index in range(len(scores))]
    assert NoisyMax.chances(scores, rate) == pytest.approx(chances, rel=1e-9)


@pytest.mark.parametrize("mechanism", [PermuteAndFlip, NoisyMax])
@pytest.mark.parametrize("scores", [(0, 0, 1), (5, 0, 1)])
def test_choices_keep_epsilon_between_all_neighbours(mechanism, scores):
    """Changes in both directions cost 2 rate, changes in one direction the rate."""
    rate = Fraction(1, 2)
    chances = np.array(mechanism.chances(scores, rate))
    for changes in product((-1, 0, 1), repeat=len(scores)):
        others = np.array(mechanism.chances([a + b for a, b in zip(scores, changes, strict=True)], rate))
        allowed = (1 if min(changes) >= 0 or max(changes) <= 0 else 2) * rate
        assert abs(np.log(chances / others)).max() <= float(allowed) + 1e-9
