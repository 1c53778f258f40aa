"""Prediction between any two points of streets or of a plane: the promise by brute force, draws by their law."""

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from attrs import evolve
from helpers.segments import stayed
from scipy.stats import chisquare

import privopt
from privopt.errors import PrivoptError
from privopt.numbers import TOTAL
from privopt.numbers.sampling import seeded
from privopt.run.verify import verify
from privopt_metric_dp.mechanisms import trace_dp as notion
from privopt_metric_dp.region.region import MM_PER_KM, Plane
from privopt_metric_dp.region.snap_to_region import Snapper
from privopt_metric_dp.traces import interpolate as ways
from privopt_metric_dp.traces import prediction
from privopt_metric_dp.traces.draw_trace import Limit, State
from privopt_metric_dp.traces.interpolate import SLACK_STEPS, Ways
from privopt_tables import trace_rows as traces
from privopt_tables.kit.trace_law import Law, cost_of

STEP = 20_000
"""mm: a coarse step, so that sums over noise are short; what it adds to distances is counted."""

PLANE = """
[records]
points = "points.csv"
[distance]
kind = "euclidean"
"""
STREETS = """
[records]
points = "points.csv"
[distance]
kind = "graph"
edges = "edges.csv"
"""
REST = """
[privacy]
epsilon = 0.7
everywhere = true
[utility]
kind = "distance"
[predictive]
good_within = 0.6
"""
CORNERS = [("a", 0.0, 0.0), ("b", 0.8, 0.0), ("c", 0.0, 0.8), ("d", 0.8, 0.8)]


@pytest.fixture(scope="module", autouse=True)
def coarse():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ways, "STEP_MM", STEP)
        patch.setattr(notion, "STEP_MM", STEP)
        patch.setattr(prediction, "STEP_KM", Fraction(STEP, MM_PER_KM))
        yield


@pytest.fixture(scope="module", params=["plane", "streets"])
def solved(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "points.csv").write_text("id,x,y\n" + "".join(f"{i},{x},{y}\n" for i, x, y in CORNERS))
    (folder / "edges.csv").write_text("from,to,km\na,b,.8\nb,d,.8\na,c,1.1\n")
    text = (PLANE if request.param == "plane" else STREETS) + REST
    (folder / "problem.toml").write_text(text)
    return privopt.solve("predictive", folder / "problem.toml")


def points_of(opened, positions):
    """Return a walker whose records are the positions, their rows mixed as a fresh report's are."""
    data, walker = opened.problem.data, opened.release.walker
    snapped = Snapper.of(data.region, data.epsilon).snap(np.array(positions))
    rows = []
    for row in range(len(positions)):
        shares = snapped.exact(row)
        mixed = sum(
            share * np.array([int(w) for w in walker.weights[corner]], dtype=object)
            for share, corner in zip(shares, snapped.corners[row], strict=True)
        )
        rows.append([int(each) for each in mixed])
    steps = Ways.of(data).of_points(snapped)
    assert np.array(rows, dtype=object).sum() <= TOTAL * len(rows)
    return evolve(walker, weights=np.array(rows, dtype=np.uint64), prediction=evolve(walker.prediction, steps=steps))


def test_no_sequence_tells_positions_apart_better_than_their_ways_allow(solved):
    """Positions a metre apart too, on both sides of a junction or of two triangles' side, and off the map."""
    east = [[0.5, 0.0], [0.501, 0.0], [0.1, 0.0], [0.7999, 0.0], [0.8, 0.0], [0.8, 0.001], [0.8, 0.3]]
    along = np.array([0.5, 0.501, 0.1, 0.7999, 0.8, 0.801, 1.1])
    if isinstance(solved.opened.problem.data.region, Plane):
        east += [[0.4, 0.399], [0.4, 0.401], [-1.0, 0.3], [-3.0, 0.301]]
    walker = points_of(solved.opened, east)
    places = np.array(east) if len(east) > 7 else along[:, None]
    places = np.maximum(places, 0.0)  # the nearest point of the map
    apart = np.linalg.norm(places[:, None] - places[None], axis=2) + SLACK_STEPS * STEP / MM_PER_KM
    last = len(east) - 1
    pairs = [([0] * 4, [1] * 4), ([2, 3, 3], [2, 5, 4]), ([0, 2, 6], [6, 0, 2])]
    pairs += [([last - 1] * 3, [last] * 3), ([last - 3] * 3, [last - 2] * 3)]
    worst = 0.0
    for one, two in pairs:
        law, other = map(Law.of(walker).every, (one, two))
        assert math.fsum(law.values()) == pytest.approx(1.0, abs=1e-9)
        for seen in law:
            assert (law[seen] > 1e-280) == (other[seen] > 1e-280), seen
            ratio = abs(math.log(law[seen] / other[seen])) if law[seen] > 1e-280 else 0.0
            bound = float(cost_of(walker.terms, seen, apart[one, two]))
            assert ratio <= bound + 1e-9, (one, two, seen)
            worst = max(worst, ratio / bound)
    assert worst > 0.3


def test_a_stay_tells_the_same_however_long_it_is(solved):
    walker = points_of(solved.opened, [[0.5, 0.0], [0.6, 0.0]])
    numbers = walker.prediction
    assert abs(numbers.steps[0] - numbers.steps[1]).max() <= 0.1 * MM_PER_KM / STEP + SLACK_STEPS
    fresh = [math.log(int(w)) for w in walker.weights[:, 0]]
    for stay in (2, 20, 200):
        one, two = (math.log(stayed(Law.of(walker), at, 0, stay)) for at in (0, 1))
        most = float(walker.terms.threshold) * (0.1 + SLACK_STEPS * STEP / MM_PER_KM)
        assert abs((one - fresh[0]) - (two - fresh[1])) <= most + 1e-9


def test_tests_of_vertices_would_tell_more_with_every_row():
    """A street of 1 km, a test for each row of the end that is drawn for it: eleven times what a threshold allows."""
    epsilon, step, rows = 4.0, 1e-3, 100
    noise = np.arange(15_000)
    chances = np.exp(-epsilon * step * noise)
    near, far = (1.0 - np.exp(-epsilon * np.maximum(0.5 + noise * step - off, 0.0)) for off in (0.0, 1.0))
    one, two = (math.log((chances * ((1 - at) * near + at * far) ** rows).sum()) for at in (0.0, 0.001))
    assert abs(one - two) > 11 * epsilon * 0.001


def test_draws_follow_that_law(solved):
    positions = [[0.5, 0.0], [0.1, 0.0], [0.8, 0.3]]
    walker = points_of(solved.opened, positions)
    trace, count, source = [0, 1, 2, 2], 20_000, seeded(7)
    rows = np.repeat(np.array(trace), count)
    spread = Snapper.of(solved.opened.problem.data.region, solved.opened.problem.data.epsilon)
    vertices = spread.snap(np.array(positions)[rows]).draw(source)
    found = solved.opened.release.walker.walk(
        vertices,
        np.tile(np.arange(count), len(trace)),
        State(),
        charge=Limit(None),
        source=source,
        steps=walker.prediction.steps[rows],
    )
    pairs = zip(found.kept.reshape(-1, count).T.tolist(), found.outputs.reshape(-1, count).T.tolist(), strict=True)
    seen = Counter(tuple(zip(*each, strict=True)) for each in pairs)
    law = Law.of(walker).every(trace)
    assert set(seen) <= set(law)
    got, wanted = np.array([(seen[each], count * law[each]) for each in law if law[each] > 0]).T
    usual = wanted >= 5
    if not usual.all():
        got, wanted = (np.append(each[usual], each[~usual].sum()) for each in (got, wanted))
    assert chisquare(got, wanted * got.sum() / wanted.sum()).pvalue > 1e-4


@pytest.mark.filterwarnings("ignore::privopt.PrivoptWarning")
def test_a_table_of_positions_is_reported(solved, monkeypatch):
    table = {"who": ["a"] * 30 + ["b"] * 30, "x": [0.31] * 60, "y": [0.02] * 60}
    made = solved.apply(table, x="x", y="y", subject="who", seed=1)
    assert sum(made["kept"]) > 20
    assert not made["kept"][0]
    assert all(report == made["report"][n - 1] for n, report in enumerate(made["report"]) if made["kept"][n])
    monkeypatch.setattr(traces, "_STEPS", 40)  # a few rows at once
    parts = solved.apply(table | {"x": [0.31] * 59 + [math.nan]}, x="x", y="y", subject="who")
    assert parts["report"][-1] is None
    assert all(parts["report"][:-1])
    assert [n for n in range(60) if parts["report_first"][n]] == [0, 30]


def test_what_is_promised_says_what_is_read(solved, tmp_path):
    assert solved.guarantee.scope == "everywhere"
    assert f"counts {SLACK_STEPS * STEP} mm more than it is" in solved.guarantee.statement
    numbers, data = solved.opened.release.prediction, solved.opened.problem.data
    terms = solved.opened.release.terms
    assert numbers.failures(data, terms) == []
    for changed in ({"threshold": numbers.threshold * 2}, {"test": numbers.test * 2}, {"steps": numbers.steps + 2}):
        assert f"prediction.npz: {next(iter(changed))}" in evolve(numbers, **changed).failures(data, terms)[0]
    far = Ways.of(data).from_vertices
    for by, rows in ((1, far % 1 < 0.7), (-1, far % 1 > 0.3)):  # two so changed differ by more than their way and SLACK
        steps = numbers.steps.copy()
        steps[tuple(np.argwhere(rows)[0])] += by
        assert "prediction.npz: steps" in evolve(numbers, steps=steps).failures(data, terms)[0]
    assert verify(solved.save(tmp_path / "out")).verdict == "proved"


def test_ways_that_doubles_do_not_tell_are_refused(tmp_path):
    (tmp_path / "edges.csv").write_text("from,to,km\na,b,1e12\nb,c,1e12\n")
    (tmp_path / "points.csv").write_text("id\na\nb\nc\n")
    text = (STREETS + REST).replace("epsilon = 0.7\n", "epsilon = 1e-12\nsplit_km = 1e13\n").replace("0.6", "1e12")
    (tmp_path / "problem.toml").write_text(text)
    with pytest.raises(PrivoptError, match=r"path lengths that doubles give to a millimetre"):
        privopt.solve("predictive", tmp_path / "problem.toml")
