"""The decomposition states the memory that its parts take before they begin; what passes --memory is left out."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import helpers
import pytest

from privopt.execution import resources
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify
from privopt_bd_mdp import solver
from privopt_bd_mdp.problem import Decomposition
from privopt_bd_mdp.solver import decompose

MEASURE = """
import sys
import numba  # the small one needs none of it
sys.path[:0] = sys.argv[1:]
from pathlib import Path
from conftest import grid
from privopt.execution.resources import resident
from privopt.interfaces import SolveContext
from privopt_bd_mdp import solver
from privopt_bd_mdp.problem import Decomposition

interrupted = []

def two_rounds(phase, rounds, lower, upper):
    if phase == "benders" and rounds >= 2 and not interrupted:
        interrupted.append(rounds)  # a second interrupt would abandon the best so far
        raise KeyboardInterrupt

stated, own = [], solver._Rounds.peak_bytes
solver._Rounds.peak_bytes = lambda *given: stated.append(own(*given)) or stated[-1]
options = Decomposition(start="cold", partition="minimum-boundary", subsets=4)
solver.decompose(grid(4, 4, 1.0), options, SolveContext(method="benders", solver="highs"))
before = resident()  # what is imported and compiled is held by now
context = SolveContext(method="benders", solver="highs", progress=two_rounds)
found = solver.decompose(grid(10, 10, 1.0), options, context)
assert found.details["parts"][0]["rounds"] >= 1
status = Path("/proc/self/status").read_text().splitlines()
print(next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:")) - before, stated[-1])
"""


@pytest.mark.slow
def test_rounds_take_the_stated_memory():
    found_in = Path(__file__).parent, Path(helpers.__file__).parents[1]
    command = [sys.executable, "-c", MEASURE, *map(str, found_in)]
    for _ in range(2):  # the first may compile, which takes a gigabyte
        completed = subprocess.run(command, capture_output=True, text=True, check=True)
    peak_bytes, stated_bytes = map(float, completed.stdout.split())
    assert 0.3 * stated_bytes <= peak_bytes <= 1.1 * stated_bytes


@pytest.fixture
def problem(tmp_path):
    (tmp_path / "p.toml").write_text(
        "[records]\ngrid = { rows = 4, cols = 5, cell_km = 1.0 }\n[distance]\nkind = 'euclidean'\n[privacy]\n"
        "epsilon = 0.4\nneighbours_within = 1.5\n[utility]\nkind = 'distance'\n"
        "[bd-mdp]\nsubsets = 3\nstart = 'cold'\n"
    )
    return tmp_path / "p.toml"


def test_skips_methods_that_do_not_fit(problem, monkeypatch):
    monkeypatch.setattr(solver._Rounds, "peak_bytes", lambda *_given: 1e12)
    output_folder = problem.parent / "out"
    release = solve("bd-mdp", problem, output_folder, Options(method="benders", solver="highs", memory=4.0))
    assert not release.stopped
    assert release.result.method == "benders"
    assert release.result.status == "feasible"
    assert "benders (needs 1e+03" in release.result.solver["path"]
    exponential_loss = solve("exponential", problem, problem.parent / "plain").result.objective.value
    assert release.result.objective.value <= exponential_loss * (1 + 1e-9)
    assert verify(output_folder).verdict == "proved"


def test_rounds_end_when_memory_is_full(make_grid, make_context, monkeypatch):
    resident_bytes = itertools.count(resources.PROGRAM_BYTES, 10**9)
    # each round takes a gigabyte
    monkeypatch.setattr("privopt.decompose.benders.resident", lambda: next(resident_bytes))
    options = Decomposition(start="cold", partition="minimum-boundary", subsets=3)
    memory_limit = max(resources.resident(), resources.PROGRAM_BYTES) + 1e9
    result = decompose(make_grid(3, 5, 1.0), options, make_context(gap=1e-6, memory=memory_limit))
    (part,) = result.details["parts"]
    assert part["rounds"] == 1
    assert "no room" in part["ended"]
    assert result.status == "feasible"
