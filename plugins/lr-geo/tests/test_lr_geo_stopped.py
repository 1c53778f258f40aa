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
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify import load_release, verify
from privopt_lr_geo import server
from privopt_lr_geo.central import clients_of
from privopt_lr_geo.mechanism import LRGeo
from privopt_lr_geo.messages import Answer
from privopt_lr_geo.problem import LRGeoInstance, LRGeoProblem
from privopt_lr_geo.server import interior_start
from privopt_lr_geo.user_randomness import NAME, draw_order_and_centre, stored_seed
from privopt_metric_dp.solvers.exponential import exponential


def interrupted(phase, iteration, lower, upper):
    if phase == "benders":
        raise KeyboardInterrupt


@pytest.fixture
def stopped(write, monkeypatch):
    """Return a run without a seed that was interrupted in its first rounds, whose start had no multipliers."""

    def poor(form, seconds):
        return Start(x=interior_start(form, seconds).x)

    monkeypatch.setattr("privopt_lr_geo.server.interior_start", poor)
    path = write()
    options = Options(method="benders", solver="highs", gap=1e-4, progress=interrupted)
    return path, solve("lr-geo", path, path.parent / "out", options)


def test_resume_needs_no_seed(stopped):
    path, before = stopped
    assert before.stopped
    assert (path.parent / "out.partial" / NAME).stat().st_mode & 0o777 == 0o600
    options = Options(method="benders", solver="highs", gap=1e-4, resume=True, force=True)
    after = solve("lr-geo", path, path.parent / "out", options)
    assert not after.stopped
    assert after.result.status == "optimal"
    assert after.result.solver["iterations"] > before.result.solver["iterations"]
    assert verify(path.parent / "out").complaints == ()


@pytest.mark.parametrize("seed", [np.zeros(3, np.uint64), np.zeros(2), np.array("a")])
def test_a_forged_seed_is_bad_input(stopped, seed):
    path, _ = stopped
    np.savez(path.parent / "out.partial" / NAME, seed=seed)
    with pytest.raises(InputError, match=r"users\.npz: seed: expected uint64 of shape \(2\).*, got .*"):
        solve("lr-geo", path, path.parent / "out", Options(method="benders", resume=True, force=True))


def test_seeds_are_new_where_no_run_is_gone_on_with(tmp_path):
    first = stored_seed(tmp_path / "p", None, resume=False)
    assert stored_seed(tmp_path / "p", None, resume=True) == first
    assert stored_seed(tmp_path / "p", None, resume=False) != first
    assert stored_seed(tmp_path / "p", 7, resume=False) == 7


def test_draws_follow_from_the_seed_and_the_user():
    records = np.arange(40, 80)
    one, same, other, beside = (draw_order_and_centre(*of, records) for of in ((5, 50), (5, 50), (6, 50), (5, 51)))
    assert np.array_equal(np.sort(one[0]), np.arange(40))
    assert np.array_equal(one[0], same[0])
    assert one[1] == same[1]
    assert not np.array_equal(one[0], other[0])
    assert not np.array_equal(one[0], beside[0])
    assert {draw_order_and_centre(seed, 50, records)[1] for seed in range(400)} == set(records.tolist())


@pytest.mark.parametrize("method", ["benders", "full"])
@pytest.mark.parametrize("nothing", [True, False])
def test_a_limit_never_leaves_users_more_loss_than_the_exponential_mechanism(write, monkeypatch, method, nothing):
    """The server has nothing in time, or a point as bad as all mass on one output."""
    path = write()
    found = server.solve

    def late(packages, terms, context, **options):
        if nothing:
            raise StoppedError("too late")
        solved = found(packages, terms, context, **options)
        for answer in solved.answers:
            answer.z[:] = 0.0
            answer.z[:, -1] = 1.0
        return server.ProgramSolution(
            answers=solved.answers, value=9.0, lower_bound=0.0, stopped=True, solver=solved.solver
        )

    monkeypatch.setattr(server, "solve", late)
    made = solve("lr-geo", path, path.parent / "out", Options(method=method, solver="highs"))
    assert made.stopped
    assert made.result.status == "feasible"
    assert made.result.certificate.holds
    assert made.result.solver["name"] == "exponential"
    assert made.result.solver["path"] == (f"{method} (too late), exponential" if nothing else f"{method}, exponential")
    assert made.result.details.lp.lower_bound is None
    assert verify(path.parent / "out").complaints == ()
    problem = LRGeoInstance.of(load_problem(LRGeoProblem, path))
    plain = solve("exponential", _without_users(path), path.parent / "plain").result.objective.value
    assert made.result.objective.value < 2 * plain
    assert made.result.details.facts["gv"]["ratio"] == 0.0
    clients = clients_of(problem, 0)
    alone = [Answer(z=exponential(client.package.reach, float(problem.data.epsilon))) for client in clients]
    assert made.result.details.lp.value == pytest.approx(program_value(clients, alone), rel=1e-6)


def _without_users(path):
    text = path.read_text()
    plain = path.with_name("plain.toml")
    plain.write_text(text[: text.index("[lr-geo]")])
    return plain


def test_the_value_of_a_program_is_that_of_its_answers(write):
    problem = LRGeoInstance.of(load_problem(LRGeoProblem, write()))
    kept = []
    context = SolveContext(method="full", solver="highs", seed=1)
    found = server.solve

    def solved(*arguments, **options):
        kept.append(found(*arguments, **options))
        return kept[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "solve", solved)
        LRGeo().solve(problem, context)
    assert program_value(clients_of(problem, 1), kept[0].answers) == pytest.approx(kept[0].value, rel=1e-6)


def program_value(clients, answers):
    """CLR-Geo's objective of some matrices: the users' prior-weighted costs, summed over their LR sets."""
    return sum(float((c.package.costs * answer.z).sum()) for c, answer in zip(clients, answers, strict=True))


def own_loss(problem, weights):
    return float((weights.astype(float) / 2.0**63 * problem.data.cost[problem.users]).sum(axis=1).mean())


@pytest.mark.parametrize(("method", "path"), [("benders", "benders, exponential"), ("exact", "exponential")])
def test_a_limit_that_has_come_already_leaves_no_more_than_the_exponential_mechanisms_loss(write, method, path):
    problem = LRGeoInstance.of(load_problem(LRGeoProblem, write()))
    outcome = LRGeo().solve(problem, SolveContext(method=method, search_time=Clock(0.0, clock())))
    assert outcome.stopped
    assert outcome.solver["path"] == path
    with pytest.raises(StoppedError, match=r"--method \w+ need .* nothing was begun or written; use --memory"):
        check_memory(LRGeo(), problem, SolveContext(method=method, memory=1e6))
    plain = exponential(problem.data.to_outputs, float(problem.data.epsilon))[problem.users]
    assert own_loss(problem, outcome.release.weights) <= own_loss(problem, plain * 2.0**63) * (1 + 1e-9)


def test_rows_of_one_place_are_equal_where_the_users_program_cannot_end(write, monkeypatch):
    """A program whose start does not come in time begins no rounds."""
    monkeypatch.setattr("privopt_lr_geo.server.interior_start", lambda form, seconds: None)
    path = write(users='"all"', epsilon="3.0")
    made = solve("lr-geo", path, path.parent / "out", Options(method="benders", time_limit=60))
    assert made.stopped
    facts = made.result.details.facts
    assert (facts["users"], facts["gv"]["ratio"]) == (25, 0.0)
    assert made.result.solver["path"].startswith("benders (the whole program did not come in its share of the time), ")
    assert "benders" not in made.result.details.told
    assert verify(path.parent / "out").complaints == ()
    exact = solve("lr-geo", path, path.parent / "exact", Options(method="exact")).result.objective.value
    assert made.result.objective.value <= 1.02 * exact
    release = load_release(path.parent / "out").release
    for row, user in enumerate(release.records.tolist()):
        for name, matrix in release.matrices.items():
            here = matrix.records == user
            assert (matrix.weights[here] == release.weights[row]).all(), name


@pytest.mark.parametrize("method", ["benders", "full"])
def test_at_a_limit_users_take_the_best_that_there_is(write, monkeypatch, method):
    """The server comes too late; the population's mechanism, made before, costs a third of the exponential one here."""

    def late(*arguments, **options):
        raise StoppedError("too late")

    monkeypatch.setattr(server, "solve", late)
    path = write(rows=8, cols=8, epsilon="3.0", users='["r3c3", "r5c4"]', radius=1.6, far=2.0)
    made = solve("lr-geo", path, path.parent / "out", Options(method=method, solver="highs", time_limit=600))
    assert made.stopped
    plain = solve("exponential", _without_users(path), path.parent / "plain").result.objective.value
    exact = solve("lr-geo", path, path.parent / "exact", Options(method="exact")).result.objective.value
    assert made.result.solver["path"].startswith(f"{method} (too late), ")
    assert made.result.solver["name"] != "exponential"
    assert exact <= made.result.objective.value * (1 + 1e-5) <= 1.05 * exact < plain
    assert made.result.details.facts["gv"]["ratio"] < 1e-6
    assert verify(path.parent / "out").complaints == ()
