"""Prediction between any two points of streets or of a plane: the promise by brute force, draws by their law."""

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from attrs import evolve
from helpers.segments import stay_probability
from scipy.stats import chisquare

import privopt
from privopt.errors import PrivoptError
from privopt.numbers import TOTAL
from privopt.numbers.sampling import make_source
from privopt.run.verify import verify
from privopt_metric_dp.mechanisms import trace_dp as notion
from privopt_metric_dp.region.region import MM_PER_KM, Plane
from privopt_metric_dp.region.snap_to_region import Snapper
from privopt_metric_dp.traces import interpolate as ways
from privopt_metric_dp.traces import prediction
from privopt_metric_dp.traces.draw_trace import Limit, State
from privopt_metric_dp.traces.interpolate import SLACK_STEPS, Ways
from privopt_tables import trace_rows as traces
from privopt_tables.kit.trace_law import Law, max_log_ratio

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
def solve_everywhere(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "points.csv").write_text("id,x,y\n" + "".join(f"{i},{x},{y}\n" for i, x, y in CORNERS))
    (folder / "edges.csv").write_text("from,to,km\na,b,.8\nb,d,.8\na,c,1.1\n")
    text = (PLANE if request.param == "plane" else STREETS) + REST
    (folder / "problem.toml").write_text(text)
    return privopt.solve("predictive", folder / "problem.toml")


def points_of(release_folder, positions):
    """Return a walker whose records are the positions, their rows mixed as a fresh report's are."""
    data, walker = release_folder.problem.data, release_folder.release.walker
    snapped_positions = Snapper.of(data.region, data.epsilon).snap(np.array(positions))
    rows = []
    for row in range(len(positions)):
        shares = snapped_positions.exact(row)
        mixed_weights = sum(
            corner_share * np.array([int(w) for w in walker.weights[corner]], dtype=object)
            for corner_share, corner in zip(shares, snapped_positions.corners[row], strict=True)
        )
        rows.append([int(weight) for weight in mixed_weights])
    steps = Ways.of(data).of_points(snapped_positions)
    assert np.array(rows, dtype=object).sum() <= TOTAL * len(rows)
    return evolve(walker, weights=np.array(rows, dtype=np.uint64), prediction=evolve(walker.prediction, steps=steps))


def test_sequences_reveal_at_most_the_allowed(solve_everywhere):
    """Positions a metre apart too, on both sides of a junction or of two triangles' side, and off the map."""
    east = [[0.5, 0.0], [0.501, 0.0], [0.1, 0.0], [0.7999, 0.0], [0.8, 0.0], [0.8, 0.001], [0.8, 0.3]]
    along = np.array([0.5, 0.501, 0.1, 0.7999, 0.8, 0.801, 1.1])
    if isinstance(solve_everywhere.opened.problem.data.region, Plane):
        east += [[0.4, 0.399], [0.4, 0.401], [-1.0, 0.3], [-3.0, 0.301]]
    walker = points_of(solve_everywhere.opened, east)
    places = np.array(east) if len(east) > 7 else along[:, None]
    places = np.maximum(places, 0.0)  # the nearest point of the map
    distances = np.linalg.norm(places[:, None] - places[None], axis=2) + SLACK_STEPS * STEP / MM_PER_KM
    last = len(east) - 1
    pairs = [([0] * 4, [1] * 4), ([2, 3, 3], [2, 5, 4]), ([0, 2, 6], [6, 0, 2])]
    pairs += [([last - 1] * 3, [last] * 3), ([last - 3] * 3, [last - 2] * 3)]
    worst = 0.0
    for trace, other_trace in pairs:
        law, other_law = map(Law.of(walker).sequence_probabilities, (trace, other_trace))
        assert math.fsum(law.values()) == pytest.approx(1.0, abs=1e-9)
        for sequence in law:
            assert (law[sequence] > 1e-280) == (other_law[sequence] > 1e-280), sequence
            ratio = abs(math.log(law[sequence] / other_law[sequence])) if law[sequence] > 1e-280 else 0.0
            bound = float(max_log_ratio(walker.terms, sequence, distances[trace, other_trace]))
            assert ratio <= bound + 1e-9, (trace, other_trace, sequence)
            worst = max(worst, ratio / bound)
    assert worst > 0.3


def test_stay_reveals_the_same_for_any_length(solve_everywhere):
    walker = points_of(solve_everywhere.opened, [[0.5, 0.0], [0.6, 0.0]])
    numbers = walker.prediction
    assert abs(numbers.steps[0] - numbers.steps[1]).max() <= 0.1 * MM_PER_KM / STEP + SLACK_STEPS
    log_weights = [math.log(int(w)) for w in walker.weights[:, 0]]
    for length in (2, 20, 200):
        log_first, log_second = (math.log(stay_probability(Law.of(walker), position, 0, length)) for position in (0, 1))
        max_change = float(walker.terms.threshold) * (0.1 + SLACK_STEPS * STEP / MM_PER_KM)
        assert abs((log_first - log_weights[0]) - (log_second - log_weights[1])) <= max_change + 1e-9


def test_tests_of_vertices_would_reveal_more():
    """A street of 1 km, a test for each row of the end that is drawn for it: eleven times what a threshold allows."""
    epsilon, step, rows = 4.0, 1e-3, 100
    noise = np.arange(15_000)
    chances = np.exp(-epsilon * step * noise)
    near_chance, far_chance = (
        1.0 - np.exp(-epsilon * np.maximum(0.5 + noise * step - distance, 0.0)) for distance in (0.0, 1.0)
    )
    log_first, log_second = (
        math.log((chances * ((1 - position) * near_chance + position * far_chance) ** rows).sum())
        for position in (0.0, 0.001)
    )
    assert abs(log_first - log_second) > 11 * epsilon * 0.001


def test_draws_follow_that_law(solve_everywhere):
    positions = [[0.5, 0.0], [0.1, 0.0], [0.8, 0.3]]
    walker = points_of(solve_everywhere.opened, positions)
    trace, count, source = [0, 1, 2, 2], 20_000, make_source(7)
    rows = np.repeat(np.array(trace), count)
    spread = Snapper.of(solve_everywhere.opened.problem.data.region, solve_everywhere.opened.problem.data.epsilon)
    vertices = spread.snap(np.array(positions)[rows]).draw(source)
    walked = solve_everywhere.opened.release.walker.walk(
        vertices,
        np.tile(np.arange(count), len(trace)),
        State(),
        charge=Limit(None),
        source=source,
        steps=walker.prediction.steps[rows],
    )
    pairs = zip(walked.kept.reshape(-1, count).T.tolist(), walked.outputs.reshape(-1, count).T.tolist(), strict=True)
    observed = Counter(tuple(zip(*sequence, strict=True)) for sequence in pairs)
    law = Law.of(walker).sequence_probabilities(trace)
    assert set(observed) <= set(law)
    observed_counts, expected_counts = np.array(
        [(observed[sequence], count * law[sequence]) for sequence in law if law[sequence] > 0]
    ).T
    usual = expected_counts >= 5
    if not usual.all():
        observed_counts, expected_counts = (
            np.append(sequence[usual], sequence[~usual].sum()) for sequence in (observed_counts, expected_counts)
        )
    assert chisquare(observed_counts, expected_counts * observed_counts.sum() / expected_counts.sum()).pvalue > 1e-4


@pytest.mark.filterwarnings("ignore::privopt.PrivoptWarning")
def test_reports_a_table_of_positions(solve_everywhere, monkeypatch):
    table = {"who": ["a"] * 30 + ["b"] * 30, "x": [0.31] * 60, "y": [0.02] * 60}
    result = solve_everywhere.apply(table, x="x", y="y", subject="who", seed=1)
    assert sum(result["kept"]) > 20
    assert not result["kept"][0]
    assert all(report == result["report"][n - 1] for n, report in enumerate(result["report"]) if result["kept"][n])
    monkeypatch.setattr(traces, "MAX_HELD_STEPS", 40)  # a few rows at once
    parts = solve_everywhere.apply(table | {"x": [0.31] * 59 + [math.nan]}, x="x", y="y", subject="who")
    assert parts["report"][-1] is None
    assert all(parts["report"][:-1])
    assert [n for n in range(60) if parts["report_first"][n]] == [0, 30]


def test_promise_states_the_reading_error(solve_everywhere, tmp_path):
    assert solve_everywhere.guarantee.scope == "everywhere"
    assert f"{SLACK_STEPS * STEP} mm more" in solve_everywhere.guarantee.statement
    numbers, data = solve_everywhere.opened.release.prediction, solve_everywhere.opened.problem.data
    terms = solve_everywhere.opened.release.terms
    assert numbers.failures(data, terms) == []
    for changed_numbers in (
        {"threshold": numbers.threshold * 2},
        {"test": numbers.test * 2},
        {"steps": numbers.steps + 2},
    ):
        assert (
            f"prediction.npz: {next(iter(changed_numbers))}"
            in evolve(numbers, **changed_numbers).failures(data, terms)[0]
        )
    far_steps = Ways.of(data).from_vertices
    # two so changed differ by more than their way and SLACK
    for step, rows in (
        (1, far_steps % 1 < 0.7),
        (-1, far_steps % 1 > 0.3),
    ):
        steps = numbers.steps.copy()
        steps[tuple(np.argwhere(rows)[0])] += step
        assert "prediction.npz: steps" in evolve(numbers, steps=steps).failures(data, terms)[0]
    assert verify(solve_everywhere.save(tmp_path / "out")).verdict == "proved"


def test_refuses_ways_beyond_doubles(tmp_path):
    (tmp_path / "edges.csv").write_text("from,to,km\na,b,1e12\nb,c,1e12\n")
    (tmp_path / "points.csv").write_text("id\na\nb\nc\n")
    text = (STREETS + REST).replace("epsilon = 0.7\n", "epsilon = 1e-12\nsplit_km = 1e13\n").replace("0.6", "1e12")
    (tmp_path / "problem.toml").write_text(text)
    with pytest.raises(PrivoptError, match="to a millimetre"):
        privopt.solve("predictive", tmp_path / "problem.toml")
