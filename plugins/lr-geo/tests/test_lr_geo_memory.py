"""The users' program states the memory that it will take before it begins, and --memory is kept by what comes next."""

from __future__ import annotations

import pytest
from helpers.peaks import peak

from privopt.declare import load_problem
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify import verify
from privopt_lr_geo.central import clients_of
from privopt_lr_geo.messages import Terms
from privopt_lr_geo.problem import LRGeoInstance, LRGeoProblem
from privopt_lr_geo.program import assemble, program_bytes

MEASURE = """
import ctypes, sys
import numba  # the small one needs none of it
from pathlib import Path
from privopt.execution.memory import resident
from privopt.run.solve import Options, solve
small, large, method = sys.argv[1:]
solve("lr-geo", Path(small), Path(small).parent / method, Options(method=method, solver="highs", force=True))
ctypes.CDLL(None).malloc_trim(0)  # what the small one freed would be taken again, and not counted
before = resident()  # what is imported and compiled is held by now
solve("lr-geo", Path(large), Path(large).parent / method, Options(method=method, solver="highs", force=True))
status = Path("/proc/self/status").read_text().splitlines()
print(next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:")) - before)
"""
LARGE = {"rows": 16, "cols": 16, "users": '["r4c4", "r9c9", "r4c11"]', "radius": 2.0, "near": 1.1}


def stated(path):
    problem = LRGeoInstance.of(load_problem(LRGeoProblem, path))
    terms = Terms(epsilon=2.0, within=problem.data.within, obfuscation_radius=1.6, exponent=1.0)
    return program_bytes(assemble([client.package for client in clients_of(problem, 0)], terms))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["full", "benders"])
def test_the_program_takes_the_memory_that_it_states(write, method):
    small, large = write("small"), write("large", **LARGE)
    most = 1.1 * stated(large)
    taken = peak(MEASURE, small, large, method, most=most)
    assert 0.15 * stated(large) <= taken <= most


@pytest.mark.parametrize("method", ["full", "benders"])
def test_a_program_that_does_not_fit_is_not_begun_and_the_next_is(write, monkeypatch, method):
    monkeypatch.setattr("privopt_lr_geo.server.program_bytes", lambda central: 1e12)
    path = write()
    found = solve("lr-geo", path, path.parent / "out", Options(method=method, memory=4.0))
    assert not found.stopped
    assert found.result.method == method
    assert found.result.solver["path"].startswith(f"{method} (needs 1e+03 GB of ")
    assert found.result.solver["name"] != "exponential"
    assert found.result.details.lp.lower_bound is None
    assert found.result.objective.value < 1.0
    assert verify(path.parent / "out").complaints == ()
