"""The decomposition states the memory that its parts take before they begin; what passes --memory is left out."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import helpers
import pytest

from privopt.execution import memory
from privopt.run.options import Options
from privopt.run.solve import solve
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
from privopt.execution.memory import resident
from privopt.interfaces import SolveContext
from privopt_bd_mdp import solver
from privopt_bd_mdp.problem import Decomposition

def two_rounds(phase, rounds, lower, upper):
    if phase == "benders" and rounds >= 2:
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
def test_rounds_take_the_memory_that_is_stated():
    found_in = Path(__file__).parent, Path(helpers.__file__).parents[1]
    command = [sys.executable, "-c", MEASURE, *map(str, found_in)]
    for _ in range(2):  # the first may compile, which takes a gigabyte
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    taken, stated = map(float, done.stdout.split())
    assert 0.3 * stated <= taken <= 1.1 * stated


@pytest.fixture
def problem(tmp_path):
    (tmp_path / "p.toml").write_text(
        "[records]\ngrid = { rows = 4, cols = 5, cell_km = 1.0 }\n[distance]\nkind = 'euclidean'\n[privacy]\n"
        "epsilon = 0.4\nneighbours_within = 1.5\n[utility]\nkind = 'distance'\n"
        "[bd-mdp]\nsubsets = 3\nstart = 'cold'\n"
    )
    return tmp_path / "p.toml"


def test_what_does_not_fit_is_not_begun(problem, monkeypatch):
    monkeypatch.setattr(solver._Rounds, "peak_bytes", lambda *_given: 1e12)
    out = problem.parent / "out"
    made = solve("bd-mdp", problem, out, Options(method="benders", solver="highs", memory=4.0))
    assert not made.stopped
    assert made.result.method == "benders"
    assert made.result.status == "feasible"
    assert "benders (needs 1e+03 GB of " in made.result.solver["path"]
    plain = solve("exponential", problem, problem.parent / "plain").result.objective.value
    assert made.result.objective.value <= plain * (1 + 1e-9)
    assert verify(out).verdict == "proved"


def test_rounds_end_where_there_is_no_room_for_another(make_grid, make_context, monkeypatch):
    held = itertools.count(memory.PROGRAM_BYTES, 10**9)
    monkeypatch.setattr("privopt.decompose.benders.resident", lambda: next(held))  # each round takes a gigabyte
    options = Decomposition(start="cold", partition="minimum-boundary", subsets=3)
    room = max(memory.resident(), memory.PROGRAM_BYTES) + 1e9
    found = decompose(make_grid(3, 5, 1.0), options, make_context(gap=1e-6, memory=room))
    (part,) = found.details["parts"]
    assert part["rounds"] == 1
    assert part["ended"] == "no room for another round"
    assert found.status == "feasible"
