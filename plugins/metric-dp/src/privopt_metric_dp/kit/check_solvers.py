"""A check of a registered solver: models of metric DP."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from privopt.backends import Backend, get
from privopt.testing.checks.base import CheckFailedError
from privopt.testing.efforts import Effort
from privopt.testing.runner import CheckResult, run_examples

__all__ = ["privacy_rows"]


def privacy_rows(name: str, how: Effort, seed: int) -> CheckResult:
    """Solve models of metric DP with a registered solver: answers are as good as certified mechanisms."""
    return run_examples("privacy-rows", partial(_privacy, get(name)), how, seed)


def _privacy(backend: Backend, data: Any) -> None:
    """Models of metric DP: the answer is as good as a certified mechanism, and its multipliers prove it."""
    from privopt.declare import load_problem
    from privopt_metric_dp.kit.problems import metric_problems
    from privopt_metric_dp.kit.reference import best_loss
    from privopt_metric_dp.matrix.expected_loss import ExpectedLoss
    from privopt_metric_dp.matrix.privacy import MetricDP
    from privopt_metric_dp.mechanisms.optimal_lp import optimal_model
    from privopt_metric_dp.problem.data import MetricInstance
    from privopt_metric_dp.problem.declared import MetricProblem
    from privopt_metric_dp.proof import multipliers_of
    from privopt_metric_dp.proof.lagrangian_bound import lower_bound

    problem = data.draw(metric_problems(budgets=("1.0", "0.5", "2.0"), shapes=("grid", "points", "clique", "clusters")))
    with tempfile.TemporaryDirectory() as folder:
        loaded = MetricInstance.of(load_problem(MetricProblem, problem.write(Path(folder)))).data
    model = optimal_model(loaded, MetricDP.of(loaded), ExpectedLoss.of(loaded))
    solution = model.solve(backend.name, gap=1e-9)
    reached = best_loss(loaded)
    if solution.objective is None or solution.objective > reached + 1e-5 * (1 + abs(reached)):
        raise CheckFailedError(f"objective {solution.objective!r}; a certified mechanism has {reached!r}", problem)
    found = multipliers_of(solution, loaded)
    if found is None:
        return
    pairs, distances = loaded.needed
    bound = lower_bound(loaded.weighted, pairs, distances, loaded.epsilon, found)
    if bound < reached - 1e-4 * (1 + abs(reached)):
        raise CheckFailedError(f"its multipliers prove {bound!r} only; the optimum is {reached!r}", problem)
