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
    found = SolveContext(method="benders", solver="highs", gap=GAP, executor=executor, **options)
    return Benders(checkpoint_every=0.0).solve(form, blocks, found, improve=hook, start=start)


@pytest.fixture(scope="module")
def alone(shared_model):
    """Return the result of one process."""
    with serial() as one:
        return solve(shared_model, one)


@pytest.fixture(scope="module")
def two():
    """Return two processes that take blocks."""
    with processes(2) as executor:
        yield executor


def test_serial_and_processes_find_the_same_bit_for_bit(shared_model, alone, two):
    first, second = alone, solve(shared_model, two)
    assert first.rounds > 5
    assert first.x.tobytes() == second.x.tobytes()
    assert first.bound == second.bound
    assert [t[1:] for t in first.trajectory] == [t[1:] for t in second.trajectory]


@pytest.mark.slow  # tests/execution has a cluster whose worker dies
@pytest.mark.filterwarnings("ignore")
def test_a_dask_cluster_finds_the_same_and_bears_the_loss_of_a_worker(shared_model, alone):
    distributed = pytest.importorskip("distributed")
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


def test_a_killed_worker_process_is_rebuilt_and_changes_nothing(shared_model, alone, two):
    rounds = []

    def kill(duals, x):
        rounds.append(1)
        if len(rounds) == 4:
            os.kill(two.submit("victim", os.getpid).result(), signal.SIGKILL)
        return

    after = solve(shared_model, two, improve=kill)
    assert len(rounds) >= 4
    assert after.x.tobytes() == alone.x.tobytes()


def test_an_interrupt_gives_the_best_so_far_and_a_checkpoint(shared_model, alone, tmp_path):
    def interrupt(duals, x):
        if duals is not None and x is not None:
            raise KeyboardInterrupt
        return

    with serial() as one:
        stopped = solve(shared_model, one, improve=interrupt, checkpoint=tmp_path / "c")
        assert stopped.status == "stopped"
        assert (tmp_path / "c" / "benders.npz").exists()
        again = solve(shared_model, one, checkpoint=tmp_path / "c", resume=True)
    assert again.bound == alone.bound
    assert again.x.tobytes() == alone.x.tobytes()
    assert again.rounds == alone.rounds


def test_a_checkpoint_is_its_owners_own_whatever_the_umask(shared_model, tmp_path):
    before = os.umask(0)
    try:
        with serial() as one:
            solve(shared_model, one, checkpoint=tmp_path / "c")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "c").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "c" / "benders.npz").stat().st_mode) == 0o600


def test_a_checkpoint_of_another_model_is_refused(shared_model, random_block_model, tmp_path):
    with serial() as one:
        solve(shared_model, one, checkpoint=tmp_path)
        with pytest.raises(InputError, match="another problem"):
            solve(random_block_model(4), one, checkpoint=tmp_path, resume=True)


def forged(folder, **changes):
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

    with serial() as one:
        stopped = solve(shared_model, one, improve=interrupt, checkpoint=folder)
    assert stopped.bound is not None
    assert abs(stopped.objective - stopped.bound) > 1e-3 * abs(stopped.objective)
    return folder


@pytest.fixture
def early(stopped_early, alone, tmp_path):
    """Return a copy of that folder, and the optimum."""
    return shutil.copytree(stopped_early, tmp_path / "early"), alone


def test_bounds_that_a_forged_checkpoint_claims_are_not_believed(shared_model, early):
    folder, whole = early
    with np.load(folder / "benders.npz") as archive:
        x, duals = archive["x"], archive["duals"]
        assert "lower" not in archive
        assert "upper" not in archive
    forged(folder, lower=1e9, upper=1e9, duals=1e6 * duals)
    with serial() as one:
        again = solve(shared_model, one, checkpoint=folder, resume=True)
    assert again.status == "optimal"
    assert again.bound <= whole.objective + 1e-9
    assert again.objective == pytest.approx(whole.objective, rel=1e-5)
    assert len(x) == len(again.x)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda parts: {"x": 0.5 * parts["x"]}, "misses"),
        (lambda parts: {"x": np.zeros(3)}, "finite numbers"),
        (lambda parts: {"share": np.nan}, "share"),
        (lambda parts: {"kind": 0 * parts["kind"] - 1, "upper_side": parts["upper_side"] - 1}, "from its proof"),
        (lambda parts: {"idle": parts["idle"][:1]}, "ages"),
    ],
)
def test_a_forged_checkpoint_is_bad_input(shared_model, early, change, what):
    folder, _ = early
    with np.load(folder / "benders.npz") as archive:
        changes = change(archive)
    forged(folder, **changes)
    with serial() as one, pytest.raises(InputError, match=what):
        solve(shared_model, one, checkpoint=folder, resume=True)


def test_cuts_of_a_forged_checkpoint_are_made_again_from_their_multipliers(shared_model, early):
    folder, whole = early
    with np.load(folder / "benders.npz") as archive:
        changes = {"upper_side": archive["upper_side"] - 1e3, "slope": 2.0 * archive["slope"]}
    forged(folder, **changes)
    with serial() as one:
        again = solve(shared_model, one, checkpoint=folder, resume=True)
    assert again.bound == whole.bound
    assert again.x.tobytes() == whole.x.tobytes()


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


def test_a_killed_run_goes_on_from_its_checkpoint_to_the_same_bound(shared_model, alone, tmp_path):
    command = [sys.executable, "-c", CHILD, str(Path(__file__).parent), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "three rounds\n"
        child.kill()
    with np.load(tmp_path / "benders.npz") as archive:
        assert 0 < archive["rounds"] < alone.rounds
    with serial() as one:
        resumed = solve(shared_model, one, checkpoint=tmp_path, resume=True)
    assert resumed.bound == alone.bound
    assert resumed.x.tobytes() == alone.x.tobytes()


def test_improvements_from_outside_never_cross_bounds(shared_model):
    form, _ = shared_model
    whole = get("highs").solve(form)

    def hook(duals, x):
        return Start(x=whole.x)

    with serial() as one:
        result = solve(shared_model, one, improve=hook, start=Start(x=whole.x))
    assert all(lower <= upper for _, lower, upper in result.trajectory)
    assert result.objective == pytest.approx(whole.objective, rel=1e-6)


def test_a_block_that_waited_has_less_time(shared_model, monkeypatch):
    """A round of Benders on 500 records ended minutes late: each of its blocks had been given all that was left."""
    form, members = shared_model
    asked = []

    def slow(_token, _piece, _solver):
        asked.append(clock().left)
        time.sleep(0.2)
        return blocks.BlockAnswer(outcome=blocks.Outcome.OPTIMAL)

    monkeypatch.setattr(blocks, "relax_block", slow)
    made = blocks.Blocks(split_form(form, members), "highs", SolveContext(method="benders", solver="highs"))
    with limit(60.0):
        made.relax_all(State.begin(len(made)))
    assert len(asked) == len(made) > 1
    assert all(later <= earlier - 0.19 for earlier, later in pairwise(asked))
