"""Amounts of calls in memory: exact in any unit, refused where they cannot be meant so."""

from fractions import Fraction

import numpy as np
import pytest

import privopt as po
from privopt.errors import UsageError


def cells(epsilon):
    return po.metric_problem(po.grid(1, 3, 1.0), distance="euclidean", epsilon=epsilon)


@pytest.mark.parametrize(
    ("amount", "exact"),
    [
        ("3/km", 3),
        (" 3 per km ", 3),
        ("0.003/m", 3),
        (3, 3),
        ("0.1", Fraction(1, 10)),
        (Fraction(1, 8), Fraction(1, 8)),
    ],
)
@pytest.mark.filterwarnings("ignore:the best guess at the")
def test_amounts_are_exact_in_any_unit(amount, exact):
    assert po.solve("exponential", cells(amount)).opened.problem.data.epsilon == exact


def test_inexact_units_round_to_privacy():
    epsilon = po.solve("exponential", cells("1/mi")).opened.problem.data.epsilon
    exact = 1 / Fraction("1.609344")
    assert exact * (1 - Fraction(1, 10**30)) < epsilon < exact


@pytest.mark.parametrize("epsilon", ["3 km", "3/mile", "3/h", "km", "-3/km", True, None, Fraction(1, 3)])
def test_refuses_invalid_amounts(epsilon):
    with pytest.raises(UsageError, match="epsilon must be"):
        cells(epsilon)


def test_distance_without_unit_takes_plain_numbers():
    words = po.vectors(np.eye(3), ids=["u", "v", "w"])
    with pytest.raises(UsageError, match="no named unit"):
        po.metric_problem(words, distance="euclidean", epsilon="1/km")
    table = po.distances(np.ones((3, 3)) - np.eye(3))
    problem = po.metric_problem(words, distance=table, epsilon=1, utility=po.cost(np.eye(3)))
    assert po.solve("exponential", problem).guarantee.unit == "per unit of distance"
