"""Where blocks run, what survives a kill, what an interrupt leaves."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from privopt.backends import get
from privopt.decompose import blocks
from privopt.decompose.benders import Benders, Start
from privopt.decompose.split import split_form
from privopt.decompose.state import State
from privopt.errors import InputError
from privopt.execution import from_url, processes, serial
from privopt.execution.clock import clock, limit
from privopt.interfaces import SolveContext

GAP = 1e-7


def solve(model, executor, **options):
    form, blocks = model
    hook = options.pop("improve", None)
    start = options.pop("start", None)
    solve_context = SolveContext(method="benders", solver="highs", gap=GAP, executor=executor, **options)
    return Benders(checkpoint_every=0.0).solve(form, blocks, solve_context, improve=hook, start=start)


@pytest.fixture(scope="module")
def serial_result(shared_model):
    """Return the result of one process."""
    with serial() as executor:
        return solve(shared_model, executor)


@pytest.fixture(scope="module")
def two_processes():
    """Return two processes that take blocks."""
    with processes(2) as executor:
        yield executor


def test_processes_give_the_serial_result(shared_model, serial_result, two_processes):
    first, second = serial_result, solve(shared_model, two_processes)
    assert first.rounds > 5
    assert first.x.tobytes() == second.x.tobytes()
    assert first.bound == second.bound
    assert [t[1:] for t in first.trajectory] == [t[1:] for t in second.trajectory]


@pytest.mark.slow  # tests/execution has a cluster whose worker dies
@pytest.mark.filterwarnings("ignore")
def test_dask_cluster_survives_a_lost_worker(shared_model, serial_result):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    ) as cluster:
        address = cluster.scheduler_address.removeprefix("tcp://")
        with from_url(f"dask://{address}", 1) as there:
            assert solve(shared_model, there).x.tobytes() == serial_result.x.tobytes()
        rounds = []

        def kill(duals, x):
            rounds.append(1)
            if len(rounds) == 4:
                worker = min(cluster.workers.values(), key=lambda w: w.pid)
                os.kill(worker.pid, signal.SIGKILL)
            return

        with from_url(f"dask://{address}", 1) as there:
            result = solve(shared_model, there, improve=kill)
    assert len(rounds) >= 4
    assert result.status == "optimal"
    assert result.objective == pytest.approx(serial_result.objective, rel=1e-6)


def test_killed_worker_changes_nothing(shared_model, serial_result, two_processes):
    rounds = []

    def kill(duals, x):
        rounds.append(1)
        if len(rounds) == 4:
            os.kill(two_processes.submit("victim", os.getpid).result(), signal.SIGKILL)
        return

    result = solve(shared_model, two_processes, improve=kill)
    assert len(rounds) >= 4
    assert result.x.tobytes() == serial_result.x.tobytes()


def test_interrupt_leaves_best_and_checkpoint(shared_model, serial_result, tmp_path):
    def interrupt(duals, x):
        if duals is not None and x is not None:
            raise KeyboardInterrupt
        return

    with serial() as executor:
        interrupted = solve(shared_model, executor, improve=interrupt, checkpoint=tmp_path / "c")
        assert interrupted.status == "stopped"
        assert (tmp_path / "c" / "benders.npz").exists()
        resumed = solve(shared_model, executor, checkpoint=tmp_path / "c", resume=True)
    assert resumed.bound == serial_result.bound
    assert resumed.x.tobytes() == serial_result.x.tobytes()
    assert resumed.rounds == serial_result.rounds


def test_checkpoint_is_private_under_any_umask(shared_model, tmp_path):
    old_umask = os.umask(0)
    try:
        with serial() as executor:
            solve(shared_model, executor, checkpoint=tmp_path / "c")
    finally:
        os.umask(old_umask)
    assert stat.S_IMODE((tmp_path / "c").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "c" / "benders.npz").stat().st_mode) == 0o600


def test_refuses_checkpoint_of_another_model(shared_model, random_block_model, tmp_path):
    with serial() as executor:
        solve(shared_model, executor, checkpoint=tmp_path)
        with pytest.raises(InputError, match="another problem"):
            solve(random_block_model(4), executor, checkpoint=tmp_path, resume=True)


def forge_checkpoint(folder, **changes):
    file = folder / "benders.npz"
    with np.load(file) as archive:
        parts = dict(archive) | {name: np.asarray(value) for name, value in changes.items()}
    np.savez(file, **{name: value for name, value in parts.items() if value.dtype != object})


@pytest.fixture(scope="module")
def stopped_early(shared_model, tmp_path_factory):
    """Return the folder of a run that was stopped after its first rounds."""
    folder = tmp_path_factory.mktemp("early")

    def interrupt(duals, x):
        if duals is not None and x is not None:
            raise KeyboardInterrupt

    with serial() as executor:
        interrupted = solve(shared_model, executor, improve=interrupt, checkpoint=folder)
    assert interrupted.bound is not None
    assert abs(interrupted.objective - interrupted.bound) > 1e-3 * abs(interrupted.objective)
    return folder


@pytest.fixture
def early(stopped_early, serial_result, tmp_path):
    """Return a copy of that folder, and the optimum."""
    return shutil.copytree(stopped_early, tmp_path / "early"), serial_result


def test_forged_bounds_are_not_believed(shared_model, early):
    folder, full_result = early
    with np.load(folder / "benders.npz") as archive:
        x, duals = archive["x"], archive["duals"]
        assert "lower" not in archive
        assert "upper" not in archive
    forge_checkpoint(folder, lower=1e9, upper=1e9, duals=1e6 * duals)
    with serial() as executor:
        resumed = solve(shared_model, executor, checkpoint=folder, resume=True)
    assert resumed.status == "optimal"
    assert resumed.bound <= full_result.objective + 1e-9
    assert resumed.objective == pytest.approx(full_result.objective, rel=1e-5)
    assert len(x) == len(resumed.x)


@pytest.mark.parametrize(
    ("change", "keywords"),
    [
        (lambda parts: {"x": 0.5 * parts["x"]}, "misses"),
        (lambda parts: {"x": np.zeros(3)}, "finite numbers"),
        (lambda parts: {"share": np.nan}, "share"),
        (lambda parts: {"kind": 0 * parts["kind"] - 1, "upper_side": parts["upper_side"] - 1}, "from its proof"),
        (lambda parts: {"idle": parts["idle"][:1]}, "ages"),
    ],
)
def test_refuses_forged_checkpoint(shared_model, early, change, keywords):
    folder, _ = early
    with np.load(folder / "benders.npz") as archive:
        changes = change(archive)
    forge_checkpoint(folder, **changes)
    with serial() as executor, pytest.raises(InputError, match=keywords):
        solve(shared_model, executor, checkpoint=folder, resume=True)


def test_forged_cuts_are_recomputed(shared_model, early):
    folder, full_result = early
    with np.load(folder / "benders.npz") as archive:
        changes = {"upper_side": archive["upper_side"] - 1e3, "slope": 2.0 * archive["slope"]}
    forge_checkpoint(folder, **changes)
    with serial() as executor:
        resumed = solve(shared_model, executor, checkpoint=folder, resume=True)
    assert resumed.bound == full_result.bound
    assert resumed.x.tobytes() == full_result.x.tobytes()


CHILD = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from conftest import chain
from privopt.decompose.benders import Benders
from privopt.interfaces import SolveContext

rounds = iter(range(100))

def slow(duals, x):
    if next(rounds) == 3:
        print("three rounds", flush=True)
        time.sleep(600)

form, blocks = chain(3, 8)
context = SolveContext(method="benders", solver="highs", gap=1e-7, checkpoint=Path(sys.argv[2]))
Benders(checkpoint_every=0.0).solve(form, blocks, context, improve=slow)
"""


def test_killed_run_resumes_to_same_bound(shared_model, serial_result, tmp_path):
    command = [sys.executable, "-c", CHILD, str(Path(__file__).parent), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "three rounds\n"
        child.kill()
    with np.load(tmp_path / "benders.npz") as archive:
        assert 0 < archive["rounds"] < serial_result.rounds
    with serial() as executor:
        resumed = solve(shared_model, executor, checkpoint=tmp_path, resume=True)
    assert resumed.bound == serial_result.bound
    assert resumed.x.tobytes() == serial_result.x.tobytes()


def test_outside_improvements_never_cross_bounds(shared_model):
    form, _ = shared_model
    full_result = get("highs").solve(form)

    def hook(duals, x):
        return Start(x=full_result.x)

    with serial() as executor:
        result = solve(shared_model, executor, improve=hook, start=Start(x=full_result.x))
    assert all(lower <= upper for _, lower, upper in result.trajectory)
    assert result.objective == pytest.approx(full_result.objective, rel=1e-6)


def test_waiting_blocks_have_less_time(shared_model, monkeypatch):
    """A round of Benders on 500 records ended minutes late: each of its blocks had been given all that was left."""
    form, members = shared_model
    seconds_left = []

    def slow(_token, _piece, _solver):
        seconds_left.append(clock().left)
        time.sleep(0.2)
        return blocks.BlockAnswer(outcome=blocks.Outcome.OPTIMAL)

    monkeypatch.setattr(blocks, "relax_block", slow)
    block_set = blocks.Blocks(split_form(form, members), "highs", SolveContext(method="benders", solver="highs"))
    with limit(60.0):
        block_set.relax_all(State.begin(len(block_set)))
    assert len(seconds_left) == len(block_set) > 1
    assert all(later <= earlier - 0.19 for earlier, later in pairwise(seconds_left))
