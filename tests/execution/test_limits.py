"""--jobs holds for threads too: those of the structured solvers, of linear algebra, and of worker processes."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import threadpoolctl
from toys import grid_text

from privopt.errors import StoppedError
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
    monkeypatch.setattr(interior_state, "ThreadPoolExecutor", Watched)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.delenv(VARIABLES[0], raising=False)
    (tmp_path / "p.toml").write_text(PROBLEM)
    solve("optimal-lp", tmp_path / "p.toml", tmp_path / "out", Options(method=method, gap=0.1, jobs=jobs))
    taken = 8 if jobs is None else jobs
    assert set(sizes) <= ({taken} if taken > 1 else set())
    assert sizes or taken == 1 or method == "interior-point"


def test_work_in_threads_ends_when_its_time_has_come():
    with limits.ending_at(time.monotonic()), limits.ending_at(None), pytest.raises(StoppedError):
        limits.in_threads(lambda a, b: b - a, 1000)
    with limits.ending_at(time.monotonic() + 3600):
        with limits.ending_at(time.monotonic() + 7200):  # the earlier of the two
            assert sum(limits.in_threads(lambda a, b: b - a, 1000)) == 1000
        with limits.ending_at(time.monotonic()), pytest.raises(StoppedError):
            limits.check_end()
    limits.check_end()  # nothing ends here


def test_what_is_not_begun_when_the_time_has_come_is_not_begun(monkeypatch):
    """The time comes with the first span; the others wait until what was not begun has been taken back."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    begun, left = [], threading.Event()

    class Pool(ThreadPoolExecutor):
        def __exit__(self, *raised):
            left.set()
            return super().__exit__(*raised)

    def slow(a, b):
        begun.append(a)
        if a:
            left.wait()

    monkeypatch.setattr(limits, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=lambda: float(len(begun))))
    with limits.ending_at(0.5), pytest.raises(StoppedError):
        limits.in_threads(slow, 10_000)
    assert 1 <= len(begun) <= 3  # of 8: one more is with each thread, at most
