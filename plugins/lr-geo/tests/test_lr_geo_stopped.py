"""Limits, interrupts and runs that are gone on with."""

from __future__ import annotations

import numpy as np
import pytest

from privopt.declare import load_problem
from privopt.decompose.benders import Start
from privopt.errors import InputError, StoppedError
from privopt.execution.clock import Clock, clock
from privopt.interfaces import SolveContext
from privopt.interfaces.abilities import check_memory
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import load_release, verify
from privopt_lr_geo import server
from privopt_lr_geo.central import clients_of
from privopt_lr_geo.mechanism import LRGeo
from privopt_lr_geo.messages import Answer
from privopt_lr_geo.problem import LRGeoInstance, LRGeoProblem
from privopt_lr_geo.server import interior_start
from privopt_lr_geo.user_randomness import NAME, draw_order_and_centre, stored_seed
from privopt_metric_dp.solvers.exponential import exponential


def interrupt_benders(phase, iteration, lower, upper):
    if phase == "benders":
        raise KeyboardInterrupt


@pytest.fixture
def stopped_run(write, monkeypatch):
    """Return a run without a seed that was interrupted in its first rounds, whose start had no multipliers."""

    def poor(form, seconds):
        return Start(x=interior_start(form, seconds).x)

    monkeypatch.setattr("privopt_lr_geo.server.interior_start", poor)
    path = write()
    options = Options(method="benders", solver="highs", gap=1e-4, progress=interrupt_benders)
    return path, solve("lr-geo", path, path.parent / "out", options)


def test_resume_needs_no_seed(stopped_run):
    path, stopped = stopped_run
    assert stopped.stopped
    assert (path.parent / "out.partial" / NAME).stat().st_mode & 0o777 == 0o600
    options = Options(method="benders", solver="highs", gap=1e-4, resume=True, force=True)
    resumed = solve("lr-geo", path, path.parent / "out", options)
    assert not resumed.stopped
    assert resumed.result.status == "optimal"
    assert resumed.result.solver["iterations"] > stopped.result.solver["iterations"]
    assert verify(path.parent / "out").complaints == ()


@pytest.mark.parametrize("seed", [np.zeros(3, np.uint64), np.zeros(2), np.array("a")])
def test_refuses_forged_seed(stopped_run, seed):
    path, _ = stopped_run
    np.savez(path.parent / "out.partial" / NAME, seed=seed)
    with pytest.raises(InputError, match=r"users\.npz: seed: .*uint64 of shape \(2\)"):
        solve("lr-geo", path, path.parent / "out", Options(method="benders", resume=True, force=True))


def test_new_runs_draw_new_seeds(tmp_path):
    first = stored_seed(tmp_path / "p", None, resume=False)
    assert stored_seed(tmp_path / "p", None, resume=True) == first
    assert stored_seed(tmp_path / "p", None, resume=False) != first
    assert stored_seed(tmp_path / "p", 7, resume=False) == 7


def test_draws_follow_from_seed_and_user():
    records = np.arange(40, 80)
    first, repeated, other_seed, other_user = (
        draw_order_and_centre(*of, records) for of in ((5, 50), (5, 50), (6, 50), (5, 51))
    )
    assert np.array_equal(np.sort(first[0]), np.arange(40))
    assert np.array_equal(first[0], repeated[0])
    assert first[1] == repeated[1]
    assert not np.array_equal(first[0], other_seed[0])
    assert not np.array_equal(first[0], other_user[0])
    assert {draw_order_and_centre(seed, 50, records)[1] for seed in range(400)} == set(records.tolist())


@pytest.mark.parametrize("method", ["benders", "full"])
@pytest.mark.parametrize("has_nothing", [True, False])
def test_stopped_users_lose_at_most_the_exponential(write, monkeypatch, method, has_nothing):
    """The server has nothing in time, or a point as bad as all mass on one output."""
    path = write()
    original_solve = server.solve

    def solve_late(packages, terms, context, **options):
        if has_nothing:
            raise StoppedError("too late")
        solution = original_solve(packages, terms, context, **options)
        for answer in solution.answers:
            answer.z[:] = 0.0
            answer.z[:, -1] = 1.0
        return server.ProgramSolution(
            answers=solution.answers, value=9.0, lower_bound=0.0, stopped=True, solver=solution.solver
        )

    monkeypatch.setattr(server, "solve", solve_late)
    release = solve("lr-geo", path, path.parent / "out", Options(method=method, solver="highs"))
    assert release.stopped
    assert release.result.status == "feasible"
    assert release.result.certificate.holds
    assert release.result.solver["name"] == "exponential"
    assert release.result.solver["path"] == (
        f"{method} (too late), exponential" if has_nothing else f"{method}, exponential"
    )
    assert release.result.details.lp.lower_bound is None
    assert verify(path.parent / "out").complaints == ()
    problem = LRGeoInstance.of(load_problem(LRGeoProblem, path))
    exponential_loss = solve("exponential", _without_users(path), path.parent / "plain").result.objective.value
    assert release.result.objective.value < 2 * exponential_loss
    assert release.result.details.facts["gv"]["ratio"] == 0.0
    clients = clients_of(problem, 0)
    exponential_answers = [
        Answer(z=exponential(client.package.reach, float(problem.data.epsilon))) for client in clients
    ]
    assert release.result.details.lp.value == pytest.approx(program_value(clients, exponential_answers), rel=1e-6)


def _without_users(path):
    text = path.read_text()
    copy_path = path.with_name("plain.toml")
    copy_path.write_text(text[: text.index("[lr-geo]")])
    return copy_path


def test_program_value_is_that_of_its_answers(write):
    problem = LRGeoInstance.of(load_problem(LRGeoProblem, write()))
    solutions = []
    context = SolveContext(method="full", solver="highs", seed=1)
    original_solve = server.solve

    def solve_and_keep(*arguments, **options):
        solutions.append(original_solve(*arguments, **options))
        return solutions[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "solve", solve_and_keep)
        LRGeo().solve(problem, context)
    assert program_value(clients_of(problem, 1), solutions[0].answers) == pytest.approx(solutions[0].value, rel=1e-6)


def program_value(clients, answers):
    """CLR-Geo's objective of some matrices: the users' prior-weighted costs, summed over their LR sets."""
    return sum(float((c.package.costs * answer.z).sum()) for c, answer in zip(clients, answers, strict=True))


def own_loss(problem, weights):
    return float((weights.astype(float) / 2.0**63 * problem.data.cost[problem.users]).sum(axis=1).mean())


@pytest.mark.parametrize(("method", "path"), [("benders", "benders, exponential"), ("exact", "exponential")])
def test_expired_limit_keeps_the_exponential_loss(write, method, path):
    problem = LRGeoInstance.of(load_problem(LRGeoProblem, write()))
    outcome = LRGeo().solve(problem, SolveContext(method=method, search_time=Clock(0.0, clock())))
    assert outcome.stopped
    assert outcome.solver["path"] == path
    with pytest.raises(StoppedError, match=r"--method \w+ .*--memory"):
        check_memory(LRGeo(), problem, SolveContext(method=method, memory=1e6))
    exponential_rows = exponential(problem.data.to_outputs, float(problem.data.epsilon))[problem.users]
    assert own_loss(problem, outcome.release.weights) <= own_loss(problem, exponential_rows * 2.0**63) * (1 + 1e-9)


def test_rows_of_one_place_are_equal_if_stopped(write, monkeypatch):
    """A program whose start does not come in time begins no rounds."""
    monkeypatch.setattr("privopt_lr_geo.server.interior_start", lambda form, seconds: None)
    path = write(users='"all"', epsilon="3.0")
    stopped = solve("lr-geo", path, path.parent / "out", Options(method="benders", time_limit=60))
    assert stopped.stopped
    facts = stopped.result.details.facts
    assert (facts["users"], facts["gv"]["ratio"]) == (25, 0.0)
    assert stopped.result.solver["path"].startswith("benders (the whole")
    assert "benders" not in stopped.result.details.told
    assert verify(path.parent / "out").complaints == ()
    exact = solve("lr-geo", path, path.parent / "exact", Options(method="exact")).result.objective.value
    assert stopped.result.objective.value <= 1.02 * exact
    release = load_release(path.parent / "out").release
    for row, user in enumerate(release.records.tolist()):
        for name, matrix in release.matrices.items():
            is_user_row = matrix.records == user
            assert (matrix.weights[is_user_row] == release.weights[row]).all(), name


@pytest.mark.parametrize("method", ["benders", "full"])
def test_limit_keeps_the_best_mechanism(write, monkeypatch, method):
    """The server comes too late; the population's mechanism, made before, costs a third of the exponential one here."""

    def solve_late(*arguments, **options):
        raise StoppedError("too late")

    monkeypatch.setattr(server, "solve", solve_late)
    path = write(rows=8, cols=8, epsilon="3.0", users='["r3c3", "r5c4"]', radius=1.6, far=2.0)
    release = solve("lr-geo", path, path.parent / "out", Options(method=method, solver="highs", time_limit=600))
    assert release.stopped
    exponential_loss = solve("exponential", _without_users(path), path.parent / "plain").result.objective.value
    exact = solve("lr-geo", path, path.parent / "exact", Options(method="exact")).result.objective.value
    assert release.result.solver["path"].startswith(f"{method} (too late), ")
    assert release.result.solver["name"] != "exponential"
    assert exact <= release.result.objective.value * (1 + 1e-5) <= 1.05 * exact < exponential_loss
    assert release.result.details.facts["gv"]["ratio"] < 1e-6
    assert verify(path.parent / "out").complaints == ()
