"""The whole LP states its bound by the core's function, which mechanisms outside of metric DP use too."""

import pytest

from privopt.run.solve import solve
from privopt.run.task import Options
from privopt_metric_dp.mechanisms.answer import Matrix

PROBLEM = """
[records]
grid = { rows = 3, cols = 3, cell_km = 1.0 }
[distance]
kind = "euclidean"
[privacy]
epsilon = EPSILON
[utility]
kind = "distance"
"""


@pytest.mark.parametrize("solver", ["cbc", "highs"])
@pytest.mark.parametrize("epsilon", ["0.5", "3.0"])
def test_stated_bound_is_that_of_the_core(solver, epsilon, tmp_path, monkeypatch):
    make, answers = Matrix.of, []

    def remember(solution, data, context):
        answers.append((make(solution, data, context), solution))
        return answers[-1][0]

    monkeypatch.setattr(Matrix, "of", remember)
    (tmp_path / "p.toml").write_text(PROBLEM.replace("EPSILON", epsilon))
    objective = solve(
        "optimal-lp", tmp_path / "p.toml", tmp_path / "out", Options(method="full", solver=solver)
    ).result.objective
    ((answer, solution),) = answers
    assert answer.bound == solution.rigorous_bound
    # The proof in the folder may give up a part of the gap for a smaller file.
    assert objective.lower_bound >= answer.bound - 1e-6 * objective.value
    assert objective.lower_bound <= objective.value
