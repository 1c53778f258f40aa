"""Threads, and kernels that are compiled once."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import threadpoolctl
from helpers.grids import by_pairs
from helpers.toys import grid_text

from privopt.execution import compiled, processes, resources
from privopt.execution.resources import VARIABLES, allowed_threads, limited_to
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt_metric_dp.solvers import interior_point_state as interior_state

PROBLEM = grid_text(16, 17, within=1.0)


def test_block_limits_all_libraries_and_ends(monkeypatch):
    monkeypatch.setenv(VARIABLES[0], "5")
    monkeypatch.delenv(VARIABLES[1], raising=False)
    assert np.linalg.inv(np.eye(3))[0, 0] == 1.0  # linear algebra is loaded
    with limited_to(1):
        assert allowed_threads() == 1
        assert {pool["num_threads"] for pool in threadpoolctl.threadpool_info()} <= {1}
        assert os.environ[VARIABLES[1]] == "1"
    assert allowed_threads() == 5
    assert VARIABLES[1] not in os.environ


def test_default_is_the_number_of_processors(monkeypatch):
    for value in ("", "many"):
        monkeypatch.setenv(VARIABLES[0], value)
        monkeypatch.setattr(os, "cpu_count", lambda: 3)
        assert allowed_threads() == 3
        monkeypatch.setattr(os, "cpu_count", lambda: 64)
        assert allowed_threads() == 8


def test_worker_process_uses_one_thread():
    with processes(1) as executor:
        assert executor.submit("a", allowed_threads).result() == 1


@by_pairs("method, jobs", ["star", "interior-point"], [1, 2, None])
def test_solvers_use_as_many_threads_as_jobs(tmp_path, monkeypatch, method, jobs):
    sizes = []

    class Watched(ThreadPoolExecutor):
        def __init__(self, workers):
            sizes.append(workers)
            super().__init__(workers)

    monkeypatch.setattr(resources, "ThreadPoolExecutor", Watched)
    pool = interior_state.in_threads
    monkeypatch.setattr(interior_state, "in_threads", lambda workers: sizes.append(workers) or pool(workers))
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.delenv(VARIABLES[0], raising=False)
    (tmp_path / "p.toml").write_text(PROBLEM)
    solve("optimal-lp", tmp_path / "p.toml", tmp_path / "out", Options(method=method, gap=0.1, jobs=jobs))
    thread_count = 8 if jobs is None else jobs
    assert set(sizes) <= ({thread_count} if thread_count > 1 else set())
    assert sizes or thread_count == 1 or method == "interior-point"


BARE = """
from numba.core.caching import CacheImpl
CacheImpl._locator_classes = []  # as where no folder can be written
import privopt_metric_dp.proof.lagrangian_bound, privopt_metric_dp.solvers.output_groups
from privopt_metric_dp.solvers import factor_kernels, tree_pricing as pricing, row_kernels
from privopt.execution.compiled import LazyJit
modules = pricing, factor_kernels, row_kernels
found = [[value for value in vars(module).values() if isinstance(value, LazyJit)] for module in modules]
assert all(found)
for value in sum(found, []):
    assert value.dispatcher().py_func is value.py_func
"""


def test_kernels_compile_without_a_cache_folder():
    subprocess.run([sys.executable, "-c", BARE], check=True)


FEW_STEPS = """
import sys
from fractions import Fraction
import numpy as np
from privopt_metric_dp.matrix.certify import max_ratios
from privopt.numbers.distances import euclidean
from privopt_metric_dp.space.metrics import EuclideanMetric
from privopt_metric_dp.space.pairs import reduce_pairs, required_pairs
from privopt_metric_dp.space.places import Space
from privopt_metric_dp.solvers import Instance, dual_bound, solve
from privopt_metric_dp.proof.lagrangian_bound import lower_bound
rng = np.random.default_rng(0)
def answers():
    points = rng.random((9, 2))
    metric = EuclideanMetric(Space(ids=[str(i) for i in range(9)], coordinates=points, kind="planar"))
    pairs, lengths = required_pairs(metric)
    kept = reduce_pairs(pairs, lengths)
    weights = rng.integers(0, 2**62, (9, 9), dtype=np.uint64)
    ratios = max_ratios(weights, pairs)
    found = solve(Instance(cost=metric.table() / 9, pairs=pairs, distances=lengths, epsilon=4.0))
    bound = lower_bound(metric.table() / 9, pairs, lengths, Fraction(4), found.multipliers)
    return [metric.table(), kept, ratios, np.array(bound)], found.objective
rng = np.random.default_rng(0)
few = [answers() for _ in range(2)]
assert "numba" not in sys.modules
import numba
import privopt_metric_dp.matrix.certify
privopt_metric_dp.matrix.certify.MIN_COMPILED_RATIOS = 0
rng = np.random.default_rng(0)
for (one, loss), (other, again) in zip(few, [answers() for _ in range(2)]):
    for a, b in zip(one[:3], other[:3]):
        assert np.array_equal(a, b)
    assert abs(one[3] - other[3]) <= 1e-12 and abs(loss - again) <= 1e-12
"""


@pytest.mark.slow
def test_interpreted_steps_give_the_same_bits():
    subprocess.run([sys.executable, "-c", FEW_STEPS], check=True)


def test_function_is_visible_once_compiled(monkeypatch):
    names = {"jit": compiled.jit}
    exec("@jit()\ndef inner(x):\n    return x + 1\n@jit()\ndef outer(x):\n    return inner(x)\n", names)
    outer, states = names["outer"], []

    def record_and_compile(function, options):
        states.append((outer._ready, names["outer"] is outer))
        return function

    monkeypatch.setattr(compiled, "_make_dispatcher", record_and_compile)
    assert outer(1) == 2
    assert states == [(None, True), (None, True)]
    assert outer._ready is names["outer"] is outer.py_func
    assert names["inner"](1) == 2


KEPT = """
from privopt.execution.compiled import jit
@jit()
def once(x):
    return x + 1
@jit()
def twice(x):
    return 2 * once(x)
assert twice(3) == 8
hits = sum(twice.stats.cache_hits.values())
if __name__ == "__main__":
    print(hits)
"""


@pytest.fixture
def kernel(tmp_path):
    (tmp_path / "kernel.py").write_text(KEPT)
    return tmp_path / "kernel.py"


def test_code_is_cached_where_numba_caches_it(kernel, monkeypatch, tmp_path):
    import numba

    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "code"))
    assert [runpy.run_path(str(kernel), run_name="kernel")["hits"] for _ in range(2)] == [0, 1]
    assert list((tmp_path / "code").rglob("*.nbi"))


@pytest.mark.slow
def test_other_process_uses_the_cached_code(kernel, tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "code")}
    command = [sys.executable, str(kernel)]
    hits = [
        subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout for _ in range(2)
    ]
    assert hits == ["0\n", "1\n"]


def test_compilation_after_the_block_is_not_announced():
    messages = []
    with compiled.when_compiling(messages.append):
        assert compiled._listeners == [messages.append]
    assert compiled._listeners == []
