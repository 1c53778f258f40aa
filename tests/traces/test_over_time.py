"""Reports over time: what sticky and fresh ones tell, what stays cost."""

import itertools
import json

import numpy as np
import pytest
from click.testing import CliRunner
from helpers.command import run
from helpers.kept_reports import compared, grid_streets, walks
from helpers.toys import grid_text
from hypothesis import given
from hypothesis import strategies as st

import privopt
from privopt.command.cli import cli
from privopt_metric_dp.attacks.hidden_markov import ANYWHERE, Mobility, Step, posteriors
from privopt_metric_dp.attacks.many_reports import bars_of, over_time
from privopt_metric_dp.report import pages


def solved(tmp_path, mechanism, more="", *, side, cell, epsilon):
    problem = tmp_path / "problem.toml"
    problem.write_text(grid_text(side, side, cell, epsilon) + more)
    return privopt.solve(mechanism, problem)


@pytest.fixture(scope="module")
def city(tmp_path_factory):
    """Planar Laplace at epsilon 2 per km over cells of 200 m."""
    return solved(tmp_path_factory.mktemp("city"), "planar-laplace", side=21, cell=0.2, epsilon=2.0)


def test_a_thousand_fresh_reports_find_the_place_and_sticky_ones_do_not(city):
    found = over_time(city.opened.release, city.opened.problem.data)
    assert found["reports"] == [1, 10, 100, 1000]
    likely = found["likelihood"]
    assert likely["fresh"]["median"][-1] < 0.05
    assert likely["fresh"]["median"][0] > 0.4
    assert likely["fresh"]["median"][1] < likely["fresh"]["median"][0]
    for errors in likely["sticky"].values():
        assert errors == pytest.approx([errors[0]] * 4)
    assert likely["sticky"]["median"][0] == pytest.approx(likely["fresh"]["median"][0], rel=0.35)
    assert found["traces"]["fresh"]["median"] < found["traces"]["sticky"]["median"]


def test_kept_reports_tell_less_than_fresh_ones(tmp_path):
    release = solved(tmp_path, "predictive", side=7, cell=0.5, epsilon=1.0).opened
    found = over_time(release.release, release.problem.data)
    assert found["likelihood"]["predicted"]["p95"][-1] > found["likelihood"]["fresh"]["p95"][-1]
    assert found["likelihood"]["predicted"]["median"][2] > found["likelihood"]["fresh"]["median"][2]
    assert found["traces"]["predicted"]["median"] >= found["traces"]["fresh"]["median"]


def test_the_command_adds_one_key_where_it_is_asked_for(tmp_path):
    release = solved(tmp_path, "exponential", side=3, cell=1.0, epsilon=1.0)
    folder = release.save(tmp_path / "release")
    plain, more = (
        json.loads(CliRunner().invoke(cli, ["audit", str(folder), "--json", *asked], catch_exceptions=False).stdout)
        for asked in ([], ["--over-time", "20"])
    )
    assert set(more) - set(plain) == {"over_time"}
    assert more["over_time"]["reports"] == [1, 10, 20]
    shown = CliRunner().invoke(cli, ["audit", str(folder), "--over-time"], catch_exceptions=False).stdout
    assert "likelihood: sticky: median" in shown


def test_the_report_shows_it(tmp_path):
    release = solved(tmp_path, "exponential", side=3, cell=1.0, epsilon=1.0)
    folder = release.save(tmp_path / "release")
    done = run("report", str(folder), "--figures", str(tmp_path / "figures"))
    assert done.exit_code == 0, done.output
    assert list((tmp_path / "figures").glob("over-time.*"))
    assert list((tmp_path / "figures").glob("over-time-traces.*"))
    page = (folder / "report.html").read_text()
    assert "What many reports tell" in page
    assert "20 walks of 100 reports" in page
    bars = bars_of(release.audit(over_time=1)["over_time"]["traces"])
    assert [kind for kind, _, _ in bars] == ["fresh", "sticky"]
    assert all(f"{median:.3g}</text>" in page for _, median, _ in bars)


def test_maps_too_large_for_the_attack_on_traces_show_the_others(tmp_path, monkeypatch):
    release = solved(tmp_path, "exponential", side=3, cell=1.0, epsilon=1.0).opened
    monkeypatch.setattr(pages, "MOST_TRACED", 8)
    drawn = release.mechanism.figures(release.problem, release.release, release.result)
    assert "over-time" in drawn
    assert "over-time-traces" not in drawn


def test_what_it_finds_is_always_the_same(tmp_path):
    release = solved(tmp_path, "exponential", side=3, cell=1.0, epsilon=1.0)
    assert release.audit(over_time=10)["over_time"] == release.audit(over_time=10)["over_time"]


# --- forward and backward --------------------------------------------------------------------------------


class Line:
    """Distances of records in a row."""

    def __init__(self, count):
        self.count = count

    def rows(self, some):
        return np.abs(np.asarray(some)[:, None] - np.arange(self.count)[None]).astype(float)


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 4), st.integers(0, 10**6))
def test_posteriors_are_those_of_all_paths_summed(records, levels, length, seed):
    """By brute force over every path of records and hidden levels."""
    chance = np.random.default_rng(seed)
    mobility = Mobility.over(Line(records), nearest=2)
    prior, weights = chance.dirichlet(np.ones(records)), chance.dirichlet(np.ones(levels))
    steps = [
        Step(
            stayed=chance.random((1, records, levels)) + 0.01,
            moved=chance.random((1, records, levels)) + 0.01,
            renewed=chance.random(1) < 0.5,
        )
        for _ in range(length)
    ]
    found = posteriors(mobility, prior, weights, steps)[:, 0]
    near = mobility.moves.toarray()
    moves = (1.0 - ANYWHERE) * near + ANYWHERE / records
    wanted = np.zeros((length, records))
    for path in itertools.product(range(records), repeat=length):
        total = 0.0
        for hidden in itertools.product(range(levels), repeat=length):
            chances = prior[path[0]] * weights[hidden[0]] * steps[0].moved[0, path[0], hidden[0]]
            for at in range(1, length):
                if steps[at - 1].renewed[0]:
                    chances *= weights[hidden[at]]
                elif hidden[at] != hidden[at - 1]:
                    chances = 0.0
                    break
                here = (0, path[at], hidden[at])
                stay = mobility.stays * steps[at].stayed[here] if path[at] == path[at - 1] else 0.0
                chances *= stay + (1 - mobility.stays) * moves[path[at - 1], path[at]] * steps[at].moved[here]
            total += chances
        for at, record in enumerate(path):
            wanted[at, record] += total
    wanted /= wanted.sum(axis=1, keepdims=True)
    assert np.allclose(found, wanted, atol=1e-12)


def test_long_traces_with_tiny_probabilities_stay_numbers():
    steps = [
        Step(stayed=each, moved=each, renewed=np.array([False]))
        for each in np.random.default_rng(1).random((3000, 1, 5, 1)) ** 200 + 1e-300
    ]
    found = posteriors(Mobility.over(Line(5)), np.full(5, 0.2), np.ones(1), steps)
    assert np.isfinite(found).all()
    assert np.allclose(found.sum(axis=2), 1.0)


def test_walks_stay_or_go_to_a_neighbour():
    mobility = Mobility.over(Line(10), nearest=2)
    walks = mobility.traces(np.zeros(50, dtype=np.int64), 200, np.random.default_rng(0))
    moved = walks[:, 1:] != walks[:, :-1]
    assert (np.abs(np.diff(walks, axis=1)) <= 2).all()
    assert 0.02 < moved.mean() < 0.09


SIDE, KM = 7, 1.0


def test_stays_cost_half_of_what_independent_reports_do(tmp_path):
    streets, ends = grid_streets(SIDE, KM)
    rows = "\n".join(f"{tail},{head},{KM}" for tail, head in ends)
    (tmp_path / "roads.csv").write_text(f"from,to,km\n{rows}\n")
    (tmp_path / "points.csv").write_text("id\n" + "\n".join(str(n) for n in range(SIDE**2)) + "\n")
    text = (
        '[records]\npoints = "points.csv"\n[distance]\nkind = "graph"\nedges = "roads.csv"\n'
        '[utility]\nkind = "distance"\n[privacy]\nepsilon = 2\n[predictive]\n'
    )
    walk = walks(streets, 40, 4, 60, 1.0, np.random.default_rng(1))
    found = compared(tmp_path, text, np.arange(SIDE**2), walk, every=(1, 2), gap=1e-3)
    assert found.fresh < 0.05
    assert found.independent[0] <= found.even[0] < found.constant
    assert found.predicted[0] <= 0.3 * found.independent[0]
    assert found.predicted[1] <= 0.3 * found.independent[1]
