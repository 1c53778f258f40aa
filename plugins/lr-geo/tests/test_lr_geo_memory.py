"""The users' program states the memory that it will take before it begins, and --memory is kept by what comes next."""

from __future__ import annotations

import pytest
from helpers.peaks import peak

from privopt.declare import load_problem
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify
from privopt_lr_geo.central import clients_of
from privopt_lr_geo.messages import Terms
from privopt_lr_geo.problem import LRGeoInstance, LRGeoProblem
from privopt_lr_geo.program import assemble, program_bytes

MEASURE = """
import ctypes, sys
import numba  # the small one needs none of it
from pathlib import Path
from privopt.execution.resources import resident
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


def stated_bytes(path):
    problem = LRGeoInstance.of(load_problem(LRGeoProblem, path))
    terms = Terms(epsilon=2.0, within=problem.data.within, obfuscation_radius=1.6, exponent=1.0)
    return program_bytes(assemble([client.package for client in clients_of(problem, 0)], terms))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["full", "benders"])
def test_program_stays_within_stated_memory(write, method):
    small_problem, large_problem = write("small"), write("large", **LARGE)
    max_bytes = 1.1 * stated_bytes(large_problem)
    peak_bytes = peak(MEASURE, small_problem, large_problem, method, max_bytes=max_bytes)
    assert 0.15 * stated_bytes(large_problem) <= peak_bytes <= max_bytes


@pytest.mark.parametrize("method", ["full", "benders"])
def test_skips_programs_that_do_not_fit(write, monkeypatch, method):
    monkeypatch.setattr("privopt_lr_geo.server.program_bytes", lambda central: 1e12)
    path = write()
    release = solve("lr-geo", path, path.parent / "out", Options(method=method, memory=4.0))
    assert not release.stopped
    assert release.result.method == method
    assert release.result.solver["path"].startswith(f"{method} (needs 1e+03")
    assert release.result.solver["name"] != "exponential"
    assert release.result.details.lp.lower_bound is None
    assert release.result.objective.value < 1.0
    assert verify(path.parent / "out").complaints == ()
