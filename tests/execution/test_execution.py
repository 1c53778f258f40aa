from __future__ import annotations

import gc
import operator
import os
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from privopt import errors
from privopt.errors import SolverError, UsageError
from privopt.execution import from_url, processes, serial, spans, threads, worker_state


@pytest.fixture(scope="module")
def workers():
    with processes(2) as executor:
        yield executor


@pytest.mark.parametrize("make", [serial, lambda: threads(3), lambda: processes(2)])
def test_results_are_in_order(make):
    with make() as executor:
        assert list(executor.map(pow, range(10), [2] * 10)) == [n * n for n in range(10)]
        futures = [executor.submit(key, operator.add, key, 1) for key in range(5)]
        assert [future.result() for future in futures] == [1, 2, 3, 4, 5]
        with pytest.raises(ZeroDivisionError):
            executor.submit("k", operator.truediv, 1, 0).result()


def test_key_stays_with_its_worker(workers):
    pids = [[workers.submit(key, os.getpid).result() for _ in range(3)] for key in "abcd"]
    assert all(len(set(row)) == 1 for row in pids)
    assert len({row[0] for row in pids}) == 2
    assert os.getpid() not in {row[0] for row in pids}


def test_held_arrays_are_sent_once(workers):
    array = np.arange(200_000, dtype=float).reshape(400, 500)
    reference = workers.hold(array)
    for _ in range(2):
        assert workers.submit("a", np.sum, reference).result() == array.sum()
    product = workers.submit("a", np.multiply, reference, array).result()
    assert (product == array**2).all()
    assert product.flags.writeable
    assert workers.submit("a", np.transpose, np.asfortranarray(array)).result().shape == (500, 400)


def test_dead_worker_is_rebuilt_and_retried(workers, tmp_path):
    reference = workers.hold(np.ones(3))
    assert workers.submit("a", np.sum, reference).result() == 3
    marker = tmp_path / "died"
    code = f"import os; p = {str(marker)!r}; os.path.exists(p) or (open(p, 'w').close(), os.kill(os.getpid(), 9))"
    assert workers.submit("a", exec, code, {}).result() is None  # killed once, then it went through
    assert marker.exists()
    with pytest.raises(SolverError, match="_exit, twice"):
        workers.submit("a", os._exit, 7).result()
    assert workers.submit("a", np.sum, reference).result() == 3  # held values follow to the new worker


def test_names_what_cannot_be_pickled(workers):
    with pytest.raises(UsageError, match="importable"):
        workers.submit("a", lambda: 1).result()
    with pytest.raises(SolverError, match="cannot be sent"):
        workers.submit("a", open, os.devnull).result()
    assert workers.submit("a", abs, -2).result() == 2


@pytest.mark.parametrize(
    "expression",
    [
        'InputError([Fault(file="a.toml", where="k", actual="1", expectation="2")])',
        'UnknownNameError("solver", "cbx", ["cbc"])',
        'StoppedError("late")',
    ],
)
def test_errors_arrive_unchanged(workers, expression):
    error = eval(expression, vars(errors))
    with pytest.raises(type(error)) as excinfo:
        workers.submit(
            "a", exec, f"from privopt.errors import *; from privopt.errors import Fault; raise {expression}"
        ).result()
    assert str(excinfo.value) == str(error)
    assert vars(excinfo.value) == vars(error)


def test_errors_name_their_worker(workers):
    with pytest.raises(KeyError) as excinfo_of_other:
        workers.submit("a", {}.__getitem__, 3).result()
    assert "worker process" in excinfo_of_other.value.__notes__[0]


def test_unheld_values_are_forgotten(workers):
    reference = workers.hold(np.zeros(10))
    assert workers.submit("a", np.sum, reference).result() == 0
    worker = workers._workers[workers._slots["a"]]
    number = reference.number
    assert number in worker.held
    del reference
    gc.collect()
    workers.submit("a", abs, 1).result()
    assert number not in worker.held


class Unloadable:
    def __reduce__(self):
        return exec, ("raise RuntimeError('unloadable')",)


def test_values_of_an_unloadable_task_are_sent_again(workers):
    reference = workers.hold(np.ones(3))
    pid = workers.submit("a", os.getpid).result()
    with pytest.raises(UsageError, match="unloadable"):
        workers.submit("a", print, reference, Unloadable()).result()
    assert workers.submit("a", np.sum, reference).result() == 3
    assert workers.submit("a", os.getpid).result() == pid


def test_values_are_dropped_once_though_an_answer_cannot_be_loaded(workers):
    reference = workers.hold(np.ones(3))
    pid = workers.submit("a", os.getpid).result()
    assert workers.submit("a", np.sum, reference).result() == 3
    del reference
    gc.collect()
    answer = "type('Answer', (), {'__reduce__': lambda self: (exec, ('raise RuntimeError(\"unloadable\")',))})()"
    with pytest.raises(RuntimeError, match="unloadable"):
        workers.submit("a", eval, answer).result()
    assert workers.submit("a", os.getpid).result() == pid


def test_output_of_a_worker_stays_out_of_the_pipe(workers):
    assert workers.submit("a", os.write, 1, b"noise\n").result() == 6
    assert workers.submit("a", print, "more").result() is None


def test_state_stays_with_the_worker():
    assert worker_state() is worker_state()
    with threads(1) as executor:
        state = executor.submit("a", worker_state).result()
        state["warm"] = 1
        assert executor.submit("a", worker_state).result() == {"warm": 1}
    assert "warm" not in worker_state()


def test_scripts_need_no_main_guard(tmp_path):
    script = tmp_path / "plain.py"
    script.write_text(
        textwrap.dedent(
            """
            from privopt.execution import processes
            print("started")
            with processes(2) as executor:
                print(sum(executor.map(abs, [-1, -2, -3])))
            """
        )
    )
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=3000, check=True)
    assert run.stdout.split() == ["started", "6"]


def test_workers_end_with_a_killed_parent(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, time
            from privopt.execution import processes
            executor = processes(1)
            print(executor.submit(0, os.getpid).result(), flush=True)
            executor.submit(0, time.sleep, 3000)
            time.sleep(3000)
            """
        )
    )
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 600  # only a guard against hanging
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(child)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_immediate_close_does_not_wait():
    executor = processes(1)
    executor.submit("a", abs, 1).result()
    future = executor.submit("a", time.sleep, 3000)
    start = time.monotonic()
    time.sleep(0.2)
    executor.close(wait=False)
    assert time.monotonic() - start < 600
    with pytest.raises(SolverError):
        future.result(timeout=3000)


def test_spans_cover_everything_once():
    for count in (0, 1, 7, 100):
        for block in (1, 3, 200):
            for parts in (1, 4):
                cuts = spans(count, block, parts)
                assert [n for a, b in cuts for n in range(a, b)] == list(range(count))
                assert all(b - a <= block for a, b in cuts)


def test_urls():
    with from_url(None, 1) as executor:
        assert executor.jobs == 1
    with from_url(None, 3) as executor:
        assert executor.jobs == 3
    for url in ("spark://x:1", "dask", "dask://"):
        with pytest.raises(UsageError):
            from_url(url)
    with pytest.raises(UsageError):
        from_url(None, 0)


def test_names_missing_dask(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match=r"privopt\[dask\]"):
        from_url("dask://127.0.0.1:1")
