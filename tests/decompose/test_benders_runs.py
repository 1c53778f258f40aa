"""Where blocks run, what survives a kill, what an interrupt leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from privopt.backends import get
from privopt.decompose import Benders, Improvement, Start
from privopt.errors import InputError
from privopt.execution import from_url, processes, serial
from privopt.interfaces import SolveContext

GAP = 1e-7


def solve(model, executor, **options):
    form, blocks = model
    hook = options.pop("improve", None)
    start = options.pop("start", None)
    found = SolveContext(method="benders", gap=GAP, executor=executor, **options)
    return Benders(checkpoint_every=0.0).solve(form, blocks, found, improve=hook, start=start)


def test_serial_and_processes_find_the_same_bit_for_bit(shared_model):
    with serial() as one, processes(2) as two:
        first, second = solve(shared_model, one), solve(shared_model, two)
    assert first.rounds > 5
    assert first.x.tobytes() == second.x.tobytes()
    assert first.bound == second.bound
    assert [t[1:] for t in first.trajectory] == [t[1:] for t in second.trajectory]


@pytest.mark.filterwarnings("ignore")
def test_a_dask_cluster_finds_the_same_and_bears_the_loss_of_a_worker(shared_model):
    distributed = pytest.importorskip("distributed")
    with serial() as one:
        alone = solve(shared_model, one)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    ) as cluster:
        address = cluster.scheduler_address.removeprefix("tcp://")
        with from_url(f"dask://{address}", 1) as there:
            assert solve(shared_model, there).x.tobytes() == alone.x.tobytes()
        rounds = []

        def kill(duals, x):
            rounds.append(1)
            if len(rounds) == 4:
                worker = min(cluster.workers.values(), key=lambda w: w.pid)
                os.kill(worker.pid, signal.SIGKILL)
            return

        with from_url(f"dask://{address}", 1) as there:
            after = solve(shared_model, there, improve=kill)
    assert len(rounds) >= 4
    assert after.status == "optimal"
    assert after.objective == pytest.approx(alone.objective, rel=1e-6)


def test_a_killed_worker_process_is_rebuilt_and_changes_nothing(shared_model):
    with serial() as one:
        alone = solve(shared_model, one)
    with processes(2) as two:
        rounds = []

        def kill(duals, x):
            rounds.append(1)
            if len(rounds) == 4:
                os.kill(two.submit("victim", os.getpid).result(), signal.SIGKILL)
            return

        after = solve(shared_model, two, improve=kill)
    assert len(rounds) >= 4
    assert after.x.tobytes() == alone.x.tobytes()


def test_an_interrupt_gives_the_best_so_far_and_a_checkpoint(shared_model, tmp_path):
    def interrupt(duals, x):
        if duals is not None and x is not None:
            raise KeyboardInterrupt
        return

    with serial() as one:
        stopped = solve(shared_model, one, improve=interrupt, checkpoint=tmp_path / "c")
        assert stopped.status == "stopped"
        assert (tmp_path / "c" / "benders.npz").exists()
        again = solve(shared_model, one, checkpoint=tmp_path / "c", resume=True)
        whole = solve(shared_model, one)
    assert again.bound == whole.bound
    assert again.x.tobytes() == whole.x.tobytes()
    assert again.rounds == whole.rounds


def test_a_checkpoint_of_another_model_is_refused(shared_model, random_block_model, tmp_path):
    with serial() as one:
        solve(shared_model, one, checkpoint=tmp_path)
        with pytest.raises(InputError, match="another problem"):
            solve(random_block_model(4), one, checkpoint=tmp_path, resume=True)


CHILD = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from conftest import chain
from privopt.decompose import Benders
from privopt.interfaces import SolveContext

def slow(duals, x):
    time.sleep(0.1)

form, blocks = chain(3, 8)
context = SolveContext(method="benders", gap=1e-7, checkpoint=Path(sys.argv[2]))
Benders(checkpoint_every=0.0).solve(form, blocks, context, improve=slow)
"""


def test_a_killed_run_goes_on_from_its_checkpoint_to_the_same_bound(shared_model, tmp_path):
    with serial() as one:
        whole = solve(shared_model, one)
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(Path(__file__).parent), str(tmp_path)])
    file = tmp_path / "benders.npz"
    patience = time.monotonic() + 60
    while not file.exists() and time.monotonic() < patience:
        time.sleep(0.02)
    time.sleep(0.3)
    child.kill()
    child.wait()
    with np.load(file) as archive:
        assert 0 < archive["rounds"] < whole.rounds
    with serial() as one:
        resumed = solve(shared_model, one, checkpoint=tmp_path, resume=True)
    assert resumed.bound == whole.bound
    assert resumed.x.tobytes() == whole.x.tobytes()


def test_improvements_from_outside_never_cross_bounds(shared_model):
    form, _ = shared_model
    whole = get("highs").solve(form)

    def hook(duals, x):
        return Improvement(x=whole.x)

    with serial() as one:
        result = solve(shared_model, one, improve=hook, start=Start(x=whole.x))
    assert all(lower <= upper for _, lower, upper in result.trajectory)
    assert result.objective == pytest.approx(whole.objective, rel=1e-6)
