"""Distances and losses next to the smallest doubles: whole programs are solved, and nothing claims a limit."""

import numpy as np
import pytest

from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify

TEXT = """
[records]
count = 3
[distance]
kind = "matrix"
matrix = "d.npy"
[privacy]
epsilon = 1.0
[utility]
kind = "matrix"
cost = "c.npy"
[const-opt]
radius = 1.5
"""
LINE = np.array([[0, 1, 2], [1, 0, 1], [2, 1, 0]], float)


@pytest.mark.parametrize("mechanism", ["optimal-lp", "const-opt"])
@pytest.mark.parametrize("solver", ["highs", "cbc"])
@pytest.mark.parametrize(("distance", "cost"), [(1e-320, 1e-320), (1.0, 1e-320), (1e-320, 1.0), (1.0, 5e-324)])
def test_whole_programs_run_to_their_end(tmp_path, mechanism, solver, distance, cost):
    np.save(tmp_path / "d.npy", LINE * distance)
    np.save(tmp_path / "c.npy", (1 - np.eye(3)) * cost)
    (tmp_path / "p.toml").write_text(TEXT)
    solved = solve(mechanism, tmp_path / "p.toml", tmp_path / "out", Options(method="full", solver=solver))
    assert not solved.stopped
    assert verify(tmp_path / "out").verdict == "proved"
