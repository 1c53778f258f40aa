"""--jobs holds for threads too: those of the structured solvers, of linear algebra, and of worker processes."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import threadpoolctl
from helpers.toys import grid_text

from privopt.execution import limits, processes
from privopt.execution.limits import VARIABLES, allowed_threads, limited_to
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt_metric_dp.solvers import interior_point_state as interior_state

PROBLEM = grid_text(16, 17, within=1.0)


def test_a_block_limits_what_is_loaded_and_what_is_loaded_later_and_ends(monkeypatch):
    monkeypatch.setenv(VARIABLES[0], "5")
    monkeypatch.delenv(VARIABLES[1], raising=False)
    assert np.linalg.inv(np.eye(3))[0, 0] == 1.0  # linear algebra is loaded
    with limited_to(1):
        assert allowed_threads() == 1
        assert {pool["num_threads"] for pool in threadpoolctl.threadpool_info()} <= {1}
        assert os.environ[VARIABLES[1]] == "1"
    assert allowed_threads() == 5
    assert VARIABLES[1] not in os.environ


def test_without_a_word_of_it_as_many_as_processors(monkeypatch):
    for stated in ("", "many"):
        monkeypatch.setenv(VARIABLES[0], stated)
        monkeypatch.setattr(os, "cpu_count", lambda: 3)
        assert allowed_threads() == 3
        monkeypatch.setattr(os, "cpu_count", lambda: 64)
        assert allowed_threads() == 8


def test_a_worker_process_takes_one_thread():
    with processes(1) as executor:
        assert executor.submit("a", allowed_threads).result() == 1


@pytest.mark.parametrize("method", ["star", "interior-point"])
@pytest.mark.parametrize("jobs", [1, 2, None])
def test_structured_solvers_take_as_many_threads_as_jobs(tmp_path, monkeypatch, method, jobs):
    sizes = []

    class Watched(ThreadPoolExecutor):
        def __init__(self, workers):
            sizes.append(workers)
            super().__init__(workers)

    monkeypatch.setattr(limits, "ThreadPoolExecutor", Watched)
    pool = interior_state.in_threads
    monkeypatch.setattr(interior_state, "in_threads", lambda workers: sizes.append(workers) or pool(workers))
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.delenv(VARIABLES[0], raising=False)
    (tmp_path / "p.toml").write_text(PROBLEM)
    solve("optimal-lp", tmp_path / "p.toml", tmp_path / "out", Options(method=method, gap=0.1, jobs=jobs))
    taken = 8 if jobs is None else jobs
    assert set(sizes) <= ({taken} if taken > 1 else set())
    assert sizes or taken == 1 or method == "interior-point"
