"""A matrix mechanism with a loss of its own is judged, bounded and drawn by that loss alone."""

import numpy as np
import pytest
from attrs import evolve
from helpers.toys import grid_text

from privopt.declare import load_problem
from privopt.errors import ModelError
from privopt.interfaces import Objective, SolveContext, UtilityLoss
from privopt.interfaces.reporting import open_reporting
from privopt.run.verify import load_release
from privopt_metric_dp.matrix.expected_loss import ExpectedLoss
from privopt_metric_dp.mechanisms.baselines import Exponential
from privopt_metric_dp.problem.data import MetricInstance
from privopt_metric_dp.problem.declared import MetricProblem
from privopt_metric_dp.proof.lagrangian_bound import Multipliers

PROBLEM = grid_text(2, 3)


class Squared(Exponential):
    """Judged by one more than the squared distance, and bounded by multipliers that are all 0."""

    def utility(self, problem, method):
        """Squares."""
        data = problem.data
        return ExpectedLoss(weighted=data.prior[:, None] * (data.cost**2 + 1.0), unit="km^2")

    def matrix(self, problem, context):
        """Return the exponential mechanism."""
        answer = super().matrix(problem, context)
        zeros = np.zeros((len(problem.data.pairs), problem.data.shape[1]))
        return evolve(answer, multipliers=Multipliers.from_arrays(zeros, zeros))


class WorstRecord(UtilityLoss):
    """The greatest expected distance of any record: no sum over records and outputs."""

    unit = "km at worst"

    def __init__(self, data):
        self.data = data

    def evaluate(self, release):
        """Of a release."""
        return float((release.probabilities * self.data.cost).sum(axis=1).max())


class Worst(Exponential):
    """Judged by its worst record."""

    def utility(self, problem, method):
        """Return the worst record's."""
        return WorstRecord(problem.data)


class Boastful(Squared):
    """Multipliers beside a loss that they bound nothing of."""

    utility = Worst.utility


@pytest.fixture
def problem(tmp_path):
    (tmp_path / "problem.toml").write_text(PROBLEM)
    return MetricInstance.of(load_problem(MetricProblem, tmp_path / "problem.toml"))


@pytest.fixture
def solve_and_judge(example):
    """Outcome and result of a mechanism: those of a solved folder, with the mechanism's own objective."""
    of_another = load_release(example("optimal-lp")).result

    def judge(mechanism, problem):
        outcome = mechanism.solve(problem, SolveContext(method="exponential"))
        value = mechanism.utility(problem, "exponential").evaluate(outcome.release)
        objective = Objective.of(value, outcome.lower_bound, unit="km^2")
        return outcome, evolve(of_another, method="exponential", objective=objective)

    return judge


def test_audit_and_report_measure_an_own_loss(problem, solve_and_judge, undrawn):
    mechanism = Squared()
    outcome, result = solve_and_judge(mechanism, problem)
    z, cost = outcome.release.probabilities, problem.data.cost**2 + 1.0
    record_losses = (z * cost).sum(axis=1)
    audit = mechanism.audit(problem, outcome.release, result)
    assert audit["expected_loss"] == result.objective.value == pytest.approx(record_losses.mean())
    assert outcome.lower_bound == pytest.approx(1.0)  # of the squares; of the distances it would be 0
    html = "".join(section.html for section in open_reporting(mechanism).report(problem, outcome.release, result))
    assert "loss (km^2)" in html
    assert "loss (km)" not in html
    layer = open_reporting(mechanism).geo(problem, outcome.release, result)
    assert [feature.properties["expected_loss"] for feature in layer.features] == pytest.approx(record_losses)
    figures = open_reporting(mechanism).figures(problem, outcome.release, result)
    assert figures["loss-map"].axes[1].get_xlabel() == "average loss (km^2)"


def test_loss_without_costs_has_no_map(problem, solve_and_judge, undrawn):
    mechanism = Worst()
    outcome, result = solve_and_judge(mechanism, problem)
    assert mechanism.audit(problem, outcome.release, result)["expected_loss"] == result.objective.value
    assert "loss-map" not in open_reporting(mechanism).figures(problem, outcome.release, result)
    html = "".join(section.html for section in open_reporting(mechanism).report(problem, outcome.release, result))
    assert "km at worst" in html
    assert "one output for" not in html


def test_refuses_multipliers_for_another_loss(problem, solve_and_judge):
    with pytest.raises(ModelError, match=r"ExpectedLoss.*WorstRecord"):
        solve_and_judge(Boastful(), problem)
