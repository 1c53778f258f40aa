"""Intervals of smooth shares: their calibration, what they say that they assume, and where they do not exist."""

import csv
import json
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from helpers.command import run
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg

import privopt as po
from privopt.errors import UsageError
from privopt.estimate.page import map_figure
from privopt.estimate.shares import EstimateOptions, ReportCounts, estimate
from privopt.estimate.smooth_intervals import half_widths_of
from privopt.interfaces import Channel

SIDE = 12
REPORTS = 20_000
COORDINATES = np.array([[row, column] for row in range(SIDE) for column in range(SIDE)]) * 0.5
DISTANCES = np.linalg.norm(COORDINATES[:, None] - COORDINATES, axis=2)
IDS = [f"r{row}c{column}" for row in range(SIDE) for column in range(SIDE)]
DISTRICTS = (COORDINATES // 1.5) @ [4, 1]
GROUPS = {f"d{number}": np.flatnonzero(number == DISTRICTS) for number in range(16)}


def bump_at(x, y, width):
    """Return shares (N,) of a bump."""
    shares = np.exp(-0.5 * ((COORDINATES - [x, y]) ** 2).sum(axis=1) / width**2)
    return shares / shares.sum()


def town():
    """Return the channel of the exponential mechanism at 4 per km."""
    z = np.exp(-2.0 * DISTANCES)
    return Channel(inputs=IDS, outputs=IDS, probabilities=z / z.sum(axis=1, keepdims=True))


def estimate_town(truth, seed, intervals="smooth", **options):
    """Return the estimate of the town's districts from drawn reports."""
    channel = town()
    counts = np.random.default_rng(seed).multinomial(REPORTS, truth @ channel.probabilities)
    return estimate(
        [ReportCounts(channel=channel, counts=counts)],
        EstimateOptions(intervals=intervals, **options),
        groups=GROUPS,
        rows=lambda numbers: DISTANCES[numbers],
        unit="km",
    )


def test_all_hold_at_once_if_shares_are_smooth():
    """Of 12 repetitions at 95 %, under 8 hold all at once with a probability below 2e-4 (binomial)."""
    truth = 0.6 * bump_at(2.0, 3.0, 1.0) + 0.4 * bump_at(4.5, 1.0, 0.8)
    group_shares = np.array([truth[members].sum() for members in GROUPS.values()])
    held_count, widths = 0, []
    for seed in range(12):
        estimated = estimate_town(truth, seed)
        held_count += bool(((estimated.low <= group_shares) & (group_shares <= estimated.high)).all())
        widths.append(np.mean(estimated.high - estimated.low))
    assert held_count >= 8
    finite_sample = estimate_town(truth, 0, "finite-sample")
    assert np.mean(widths) < np.mean(finite_sample.high - finite_sample.low) / 2


def test_same_reports_have_the_same_intervals():
    truth = bump_at(2.0, 3.0, 1.0)
    first, second = estimate_town(truth, 1), estimate_town(truth, 1)
    assert (first.low == second.low).all()
    assert (first.high == second.high).all()


@settings(max_examples=25)
@given(st.integers(2, 40), st.floats(0.5, 0.99), st.integers(0, 2**32))
def test_half_widths_scale_and_permute_with_errors(groups, confidence, seed):
    rng = np.random.default_rng(seed)
    errors = rng.normal(rng.normal(size=groups), rng.uniform(0.1, 3, groups), (30, groups))
    half_widths = half_widths_of(errors, confidence, 10**9)
    assert half_widths_of(2 * errors, confidence, 10**9) == pytest.approx(2 * half_widths)
    order = rng.permutation(groups)
    assert half_widths_of(errors[:, order], confidence, 10**9) == pytest.approx(half_widths[order])
    # Repeated shares cannot make simultaneous intervals wider: their errors are the same.
    assert half_widths_of(np.hstack([errors, errors]), confidence, 10**9)[:groups] == pytest.approx(
        half_widths, rel=0.08
    )


def test_half_widths_of_independent_errors_match_the_normal_law():
    """Against an independent computation: of G independent errors the largest has the power G of the normal law."""
    from scipy.stats import norm

    rng = np.random.default_rng(3)
    half_widths = half_widths_of(rng.normal(0, 0.01, (2_000, 10)), 0.95, 10**9)
    assert half_widths == pytest.approx(np.full(10, 0.01 * norm.isf((1 - 0.95**0.1) / 2)), rel=0.08)


def test_share_that_no_report_shows_keeps_a_width():
    """A share of 0 among n reports may be up to the rule of three, divided among the groups."""
    assert half_widths_of(np.zeros((30, 4)), 0.95, 1_000) == pytest.approx(np.log(4 / 0.05) / 1_000)


def test_resolution_can_be_given():
    with_resolution = estimate_town(bump_at(2.0, 3.0, 1.0), 1, resolution=0.9)
    assert with_resolution.resolution == 0.9
    assert "bumps 0.225 km wide" in with_resolution.assumption
    with pytest.raises(UsageError, match=r"resolution must be a distance above 0 if intervals are smooth, got 0"):
        EstimateOptions(intervals="smooth", resolution=0)


def test_needs_distances():
    channel = Channel(inputs=["a", "b"], outputs=["a", "b"], probabilities=np.array([[0.7, 0.3], [0.3, 0.7]]))
    with pytest.raises(UsageError, match=r"finite-sample or asymptotic without distances.*got smooth"):
        estimate(
            [ReportCounts(channel=channel, counts=np.array([3, 4]))],
            EstimateOptions(intervals="smooth"),
        )


def test_without_smoothness_intervals_assume_nothing():
    """Between two records no resolution is coarser than their distance, so that nothing smooth can be assumed."""
    channel = Channel(inputs=["a", "b"], outputs=["a", "b"], probabilities=np.array([[0.7, 0.3], [0.3, 0.7]]))
    observed = [ReportCounts(channel=channel, counts=np.array([30, 20]))]
    distances = np.array([[0.0, 1.0], [1.0, 0.0]])
    smooth = estimate(observed, EstimateOptions(intervals="smooth"), rows=lambda numbers: distances[numbers])
    plain = estimate(observed, EstimateOptions())
    assert (smooth.intervals, smooth.assumption) == ("finite-sample", "")
    assert "support no smoothness" in smooth.notes[0]
    assert smooth.low == pytest.approx(plain.low)
    assert smooth.high == pytest.approx(plain.high)
    assert "assumes" not in smooth.to_frame().columns


@pytest.fixture(scope="module")
def town_folder(tmp_path_factory):
    """Return a release over the town, with reports and districts."""
    folder = tmp_path_factory.mktemp("town")
    places = po.grid(rows=SIDE, cols=SIDE, cell_km=0.5)
    release = po.solve("exponential", po.metric_problem(places, distance="euclidean", epsilon="4/km"))
    release.save(folder / "release")
    channel = release.opened.mechanism.channel(release.opened.problem, release.opened.release)
    truth = bump_at(2.0, 3.0, 1.0)
    counts = np.random.default_rng(1).multinomial(REPORTS, truth @ channel.probabilities)
    pl.DataFrame({"report": np.repeat(list(channel.outputs), counts)}).write_csv(folder / "reports.csv")
    rows = "".join(f"{name},{'east' if column >= SIDE // 2 else 'west'}\n" for name, column in _columns(channel))
    (folder / "districts.csv").write_text(f"id,group\n{rows}")
    return folder


def _columns(channel):
    return [(name, int(name.split("c")[1])) for name in channel.inputs]


def test_every_output_says_what_is_assumed(town_folder, tmp_path):
    arguments = (
        "estimate",
        town_folder / "release",
        town_folder / "reports.csv",
        "--by",
        town_folder / "districts.csv",
    )
    outputs = ("--report", tmp_path / "e.html", "--geo", tmp_path / "e.geojson", "--json")
    completed = run(*arguments, "--intervals", "smooth", "--out", tmp_path / "e.csv", *outputs)
    assert completed.exit_code == 0, completed.stderr
    summary = json.loads(completed.stdout)
    assert (summary["intervals"], summary["intervals_by"]) == ("smooth", "parametric bootstrap")
    sentence = summary["assumption"]
    assert "assume that shares are smooth over the map" in sentence
    assert "without any sign of it" in sentence
    assert f"note: {sentence}" in completed.stderr
    page = (tmp_path / "e.html").read_text()
    assert sentence[1:] in page  # its first letter is a capital there
    assert "probability, if shares are smooth over the map and there are many reports." in page
    assert "gap_to_all" not in page.split("For experts")[0]
    with (tmp_path / "e.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["assumes"] for row in rows] == ["smooth", "smooth"]
    features = json.loads((tmp_path / "e.geojson").read_text())["features"]
    assert {feature["properties"]["assumes"] for feature in features} == {"smooth"}
    plain = run(*arguments, "--out", tmp_path / "f.csv", "--json")
    assert "assumption" not in json.loads(plain.stdout)
    assert (tmp_path / "f.csv").read_text().startswith("id,share,low,high\n")


def test_district_maps_have_a_scale_each_and_separate_labels():
    coordinates = np.array([(lat, lon) for lat in np.linspace(41.88, 41.92, 5) for lon in np.linspace(12.46, 12.52, 5)])
    shares = {"share": np.linspace(0.05, 0.1, 25), "low": np.full(25, 0.001), "high": np.full(25, 0.9)}
    estimate = SimpleNamespace(shares=shares["share"], low=shares["low"], high=shares["high"], group_of=np.arange(25))
    figure = map_figure(estimate, SimpleNamespace(coordinates=coordinates, geographic=True, streets=None))
    maps, bars = figure.axes[:3], figure.axes[3:]
    assert [axes.collections[-1].get_clim()[1] for axes in maps] == pytest.approx([10, 0.1, 90])
    assert [axes.get_xlabel() for axes in bars] == [f"{name} (%)" for name in shares]
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    labels = [
        text.get_window_extent(renderer)
        for axes in maps
        for text in axes.get_xticklabels()
        if axes.bbox.x0 <= text.get_window_extent(renderer).x0 <= axes.bbox.x1
    ]
    assert len(labels) >= 6
    assert all(label.x1 < next_label.x0 for label, next_label in pairwise(labels))
