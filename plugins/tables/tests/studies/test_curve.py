"""Curves over epsilon: what stands in them is what `solve` finds, bounds never above losses, both falling."""

import json
import os
import re
import signal
import time
from contextlib import nullcontext
from fractions import Fraction
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from attrs import evolve
from helpers.toys import grid_text

import privopt as po
from privopt.declare.schema import File
from privopt.errors import StoppedError, UsageError
from privopt.run.task import Options
from privopt_tables.studies import curve as module
from privopt_tables.studies.curve import Point, draw_curves
from privopt_tables.studies.curve_pictures import draw_loss
from privopt_tables.studies.epsilon_range import parse_epsilons

TOML = grid_text(4, 4)
COLUMNS = [
    "mechanism",
    "epsilon",
    "loss",
    "lower_bound",
    "gap",
    "bayes_error",
    "error_p50",
    "error_p95",
    "seconds",
    "status",
]
COLUMNS += ["epsilon_achieved", "adversary_error"]


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "p.toml"
    path.write_text(TOML)
    return File.read(path)


@pytest.fixture(scope="module")
def curves(tmp_path_factory):
    path = tmp_path_factory.mktemp("curve") / "p.toml"
    path.write_text(TOML)
    names = ["exponential", "optimal-lp"]
    return draw_curves(File.read(path), names, parse_epsilons("0.3:3:6"), Options(gap=1e-6))


def test_rows_are_by_mechanism_then_epsilon(curves):
    table = curves.table()
    assert table.columns == COLUMNS
    assert table["mechanism"].to_list() == ["exponential"] * 6 + ["optimal-lp"] * 6
    values = [float(text) for text in table["epsilon"]][:6]
    assert values == sorted(values)
    assert (values[0], values[-1]) == (0.3, 3.0)
    assert np.allclose(np.diff(np.log(values)), np.log(10) / 5)


def test_bounds_are_below_losses_and_decrease(curves):
    for name in ("exponential", "optimal-lp"):
        points = [point for point in curves.points if point.mechanism == name]
        assert all(point.lower_bound <= point.loss for point in points)
        assert all(a.loss >= b.loss and a.lower_bound >= b.lower_bound for a, b in pairwise(points))
    best = {point.epsilon: point for point in curves.points if point.mechanism == "optimal-lp"}
    for point in curves.points:
        assert (
            point.lower_bound == best[point.epsilon].lower_bound
        )  # what is proved holds for all that promise the same
        assert point.loss >= best[point.epsilon].loss - 1e-9
    assert {point.status for point in best.values()} == {"optimal"}


def test_points_match_solve(curves):
    point = curves.points[-3]
    grid = po.grid(4, 4, 1.0)
    release = po.solve("optimal-lp", po.metric_problem(grid, distance="euclidean", epsilon=point.epsilon))
    assert release.loss == pytest.approx(point.loss, rel=2e-6)
    audit = release.audit()
    assert point.bayes_error == pytest.approx(audit["bayes_error"], abs=1e-4)
    data = release.opened.problem.data
    mass = (data.prior[:, None] * release.opened.release.probabilities).ravel()
    distances = data.to_outputs.ravel()
    for mass_share, error in ((0.5, point.error_p50), (0.95, point.error_p95)):
        assert mass[distances <= error].sum() >= mass_share - 1e-6
        assert mass[distances < error].sum() <= mass_share + 1e-6


def test_neighbour_replaces_a_worse_release_or_bound():
    class Line:
        name, guarantee, gap, is_nested = "m", ("same",), 1e-2, True

    values = [(1, 5.0, 3.0), (2, 6.0, 3.5), (3, 2.0, 1.9)]
    points_by_name = {"m": [Point(mechanism="m", epsilon=Fraction(e), loss=x, lower_bound=b) for e, x, b in values]}
    assert module._share_bounds([Line], points_by_name) == []
    assert [(point.loss, point.lower_bound) for point in points_by_name["m"]] == [(5.0, 3.5), (5.0, 3.5), (2.0, 1.9)]
    points_by_name = {"m": [Point(mechanism="m", epsilon=Fraction(e), loss=x) for e, x, _ in values]}
    (note,) = module._share_bounds([Line], points_by_name)
    assert "epsilon 2 than" in note
    assert [point.loss for point in points_by_name["m"]] == [5.0, 6.0, 2.0]


def test_command_writes_table_and_page(source, tmp_path, privopt):
    arguments = ("curve", source.path, "--mechanisms", "optimal-lp,exponential", "--epsilon", "1:2:3", "--quiet")
    completed = privopt(*arguments, "--out", tmp_path / "c.csv", "--report", tmp_path / "c.html")
    assert (completed.returncode, completed.stdout) == (0, "")
    table = pl.read_csv(tmp_path / "c.csv")
    assert (table.columns, table.height) == (COLUMNS, 6)
    assert table["epsilon"].to_list() == [1, pytest.approx(2**0.5), 2] * 2
    page = (tmp_path / "c.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "")
    points = json.loads(re.search(r'id="points">(.*?)</script>', page)[1])
    assert len(points["epsilons"]) == len(points["rows"]) == 3
    assert [row[0] for row in points["rows"][0]] == ["optimal-lp", "exponential"]
    second_run = privopt(*arguments, "--out", tmp_path / "d.csv", "--report", tmp_path / "." / "d.csv")
    assert (second_run.returncode, "name two files" in second_run.stderr) == (2, True)
    (tmp_path / "e.csv").write_text("somebody's own")
    second_run = privopt(*arguments, "--out", tmp_path / "e.csv")
    assert (second_run.returncode, "--force" in second_run.stderr) == (2, True)


def test_curve_in_memory_is_a_table():
    problem = po.metric_problem(po.grid(2, 3, 1.0), distance="euclidean", epsilon=1)
    table = po.curve(problem, ["exponential"], (0.5, 2, 2))
    assert table["epsilon"].to_list() == ["0.5", "2"]
    assert table["lower_bound"].null_count() == 2
    axes = table.plot().axes[0]
    assert axes.get_ylabel() == "loss (km)"
    assert axes.lines[0].get_ydata() == pytest.approx(table["loss"].to_list())


NONE = ["1:2", "2:1:3", "0:1:3", "1:1:2", "1:2:1", "a:2:3", "1:nan:3", "1:inf:3", "1:2:x", "1:1e999:3", "1e-400:1:3"]
NONE += ["1:2:\u0663", f"1:2:{'9' * 5000}", f"1:1.{'0' * 5000}1:2", "1:1.0000000000000000001:3", "1:2:3:4"]


@pytest.mark.parametrize("epsilon", NONE, ids=lambda text: text[:12])
def test_refuses_invalid_epsilons(epsilon):
    with pytest.raises(UsageError, match="epsilon: expected"):
        parse_epsilons(epsilon)


@pytest.mark.parametrize(
    ("epsilon", "count"), [("1.00000000001:1.00000000002:3", 3), ("1e-300:1e300:5", 5), ("0.1:0.100001:10000", 10_000)]
)
def test_epsilons_ascend_within_their_ends(epsilon, count):
    values = parse_epsilons(epsilon)
    assert len(values) == count
    assert all(epsilon_before < epsilon_after for epsilon_before, epsilon_after in pairwise(values))
    assert [values[0], values[-1]] == [Fraction(end) for end in epsilon.split(":")[:2]]


def test_names_mechanism_without_curve(source):
    with pytest.raises(UsageError, match="no mechanism is"):
        draw_curves(source, ["optimal"], parse_epsilons("1:2:2"))
    with pytest.raises(UsageError, match="got none"):
        draw_curves(source, [], parse_epsilons("1:2:2"))
    counts = {"level_1": ["a"], "size": [1], "groups": [3]}
    problem = po.problem(hierarchy={"counts": po.table(counts), "sizes": 2}, privacy={"epsilon": 1.0})
    with pytest.raises(UsageError, match="has no curve"):
        po.curve(problem, ["hierarchical-dp"], "1:2:2")


def test_limit_ends_the_curve(source):
    with pytest.raises(StoppedError):
        draw_curves(source, ["exponential"], parse_epsilons("1:2:2"), Options(time_limit=1e-9))


@pytest.mark.parametrize("is_caught", [False, True], ids=["raised", "caught within"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupt_keeps_the_solved_points(source, monkeypatch, number, is_caught):
    calls = []
    original_solve = module._solve_point

    def slow(*arguments):
        calls.append(arguments)
        if len(calls) < 3:
            return original_solve(*arguments)
        try:
            os.kill(os.getpid(), number)
            time.sleep(5)
        except KeyboardInterrupt:
            if not is_caught:
                raise
        return original_solve(*arguments)

    monkeypatch.setattr(module, "_solve_point", slow)
    interrupted = draw_curves(source, ["exponential", "optimal-lp"], parse_epsilons("1:2:4"))
    assert [point.status for point in interrupted.points] == ["feasible"] * (2 + is_caught) + ["stopped"] * (
        6 - is_caught
    )
    assert interrupted.stopped_count == 6 - is_caught
    calls[:] = [None] * 2
    early = pytest.raises(StoppedError, match="before anything")
    with nullcontext() if is_caught else early:
        draw_curves(source, ["exponential"], parse_epsilons("1:2:2"))


def test_given_matrix_is_a_repaired_line(tmp_path):
    places = np.array([(a, b) for a in range(4) for b in range(4)], dtype=float)
    z = np.exp(-0.5 * np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1)))  # keeps epsilon 1
    np.save(tmp_path / "mine.npy", z / z.sum(axis=1, keepdims=True))
    path = tmp_path / "p.toml"
    path.write_text(f'{TOML}\n[given]\nmatrix = "mine.npy"\n')
    both_curves = draw_curves(File.read(path), ["optimal-lp", "given"], parse_epsilons("0.25:2:4"), Options(gap=1e-6))
    best, mine = both_curves.points[:4], both_curves.points[4:]
    assert mine[2].loss == pytest.approx(mine[3].loss, rel=1e-12)
    assert mine[2].epsilon_achieved == pytest.approx(mine[3].epsilon_achieved)
    assert mine[0].loss > mine[1].loss > mine[2].loss  # what does not keep epsilon loses more, and keeps it then
    for best_point, given_point in zip(best, mine, strict=True):
        assert given_point.epsilon_achieved <= given_point.epsilon
        assert given_point.lower_bound == best_point.lower_bound <= best_point.loss < given_point.loss


def test_each_line_has_its_own_colour_and_marker(source):
    curve = draw_curves(source, ["exponential"], parse_epsilons("1:2:2"))
    points = [evolve(curve.points[0], mechanism=f"m{number}", epsilon=e) for number in range(12) for e in (1, 2)]
    lines = draw_loss(points, "km", "km").axes[0].lines[:-1:2]
    assert len({(line.get_color(), line.get_marker()) for line in lines}) == 12
