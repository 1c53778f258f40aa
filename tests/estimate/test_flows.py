"""Flows between districts: their sums, what they recover, relabelling, tables with faults, and what is said of them."""

import csv
import json
from itertools import islice

import numpy as np
import polars as pl
import pytest
from helpers.command import run
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.sparse import csr_array

import privopt as po
from privopt.api.released import PrivoptWarning
from privopt.errors import InputError, UsageError
from privopt.estimate.count_trips import TripCounts
from privopt.estimate.flow_fit import fit_flows, improve_flows, merge_columns, merge_outputs, scale_to_sums
from privopt.estimate.flow_links import find_links
from privopt.estimate.flow_page import matrix_figure
from privopt.estimate.flows import estimate_flows
from privopt.estimate.shares import EstimateOptions, ReportCounts, estimate
from privopt.estimate.written_digits import round_frame
from privopt.interfaces import Channel

SIDE = 6
IDS = [f"r{row}c{column}" for row in range(SIDE) for column in range(SIDE)]
COORDINATES = np.array([[row, column] for row in range(SIDE) for column in range(SIDE)]) * 0.5
DISTANCES = np.linalg.norm(COORDINATES[:, None] - COORDINATES, axis=2)
DISTRICTS = (COORDINATES // 1.5) @ [2, 1]
GROUPS = {f"d{number}": np.flatnonzero(number == DISTRICTS) for number in range(4)}
GROUP_BY_ID = {name: f"d{int(number)}" for name, number in zip(IDS, DISTRICTS, strict=True)}


def channel_at(rate, order=None):
    """Return the exponential mechanism at a rate per km, with records in another order if one is given."""
    order = np.arange(len(IDS)) if order is None else order
    z = np.exp(-rate * DISTANCES)
    z /= z.sum(axis=1, keepdims=True)
    names = [IDS[number] for number in order.tolist()]
    return Channel(inputs=names, outputs=names, probabilities=z[np.ix_(order, order)])


def trip_law(seed):
    """Return the probability (N, N) of each trip: short ones are likelier, and places differ."""
    rng = np.random.default_rng(seed)
    law = rng.gamma(2.0, size=(1, len(IDS))) * rng.gamma(2.0, size=(len(IDS), 1)) * np.exp(-DISTANCES)
    return law / law.sum()


def draw_trips(channel, law, n, seed):
    """Return counted trips: both ends of each are reported independently of one another."""
    expected = channel.probabilities.T @ law @ channel.probabilities
    counts = np.random.default_rng(seed).multinomial(n, expected.ravel() / expected.sum()).reshape(expected.shape)
    return TripCounts(channel=channel, counts=csr_array(counts))


def group_law(law, groups):
    return np.array([[law[np.ix_(start, end)].sum() for end in groups.values()] for start in groups.values()])


def flows_of(trips, groups=None, **options):
    return estimate_flows(trips, EstimateOptions(**options), groups or GROUPS)


@settings(max_examples=5)
@given(st.integers(0, 10**6), st.sampled_from([1.0, 3.0]), st.sampled_from([500, 20_000]))
def test_sums_are_the_estimates_of_each_column(seed, rate, n):
    trips = draw_trips(channel_at(rate), trip_law(seed), n, seed)
    flows = flows_of(trips)
    assert flows.shares.sum() == pytest.approx(1)
    for end, sums in enumerate((flows.starts, flows.ends)):
        observed = [ReportCounts(channel=trips.channel, counts=trips.margin(end))]
        column = estimate(observed, EstimateOptions(), groups=GROUPS)
        assert sums == pytest.approx(column.shares, abs=1e-8)
    assert (flows.low <= flows.shares).all()
    assert (flows.shares <= flows.high).all()


def test_recovers_a_known_law_through_a_weak_channel():
    """The reports themselves are over three times as far off as the estimate; 4 x 4 intervals hold it at once."""
    law = trip_law(4)
    trips = draw_trips(channel_at(1.0), law, 200_000, 1)
    truth = group_law(law, GROUPS)
    raw = group_law(trips.counts.toarray() / trips.n, GROUPS)
    flows = flows_of(trips)
    assert np.abs(flows.shares - truth).mean() < np.abs(raw - truth).mean() / 3
    assert ((flows.low <= truth) & (truth <= flows.high)).all()


@pytest.mark.parametrize("kind", ["same", "neighbour", "independent", "centre"])
def test_flows_are_not_drawn_towards_independence(kind):
    """Through noise of .9 km on average, intervals hold, and the error is a fraction of the reports' own."""
    rng = np.random.default_rng(8)
    starts, ends = rng.dirichlet(np.full(len(IDS), 2.0), 2)
    near = ((DISTANCES > 0) & (DISTANCES < 1.2)).astype(float)
    centre = np.exp(-2 * DISTANCES[14] ** 2)
    law = {
        "same": np.diag(starts),
        "neighbour": starts[:, None] * near / near.sum(axis=1, keepdims=True),
        "independent": np.outer(starts, ends),
        "centre": np.outer(starts, centre / centre.sum()),
    }[kind]
    truth = group_law(law, GROUPS)
    trips = draw_trips(channel_at(1.4), law, 200_000, 1)
    flows = flows_of(trips)
    raw = group_law(trips.counts.toarray() / trips.n, GROUPS)
    assert np.abs(flows.shares - truth).mean() < np.abs(raw - truth).mean() / 4
    assert ((flows.low <= truth) & (truth <= flows.high)).all()


def test_flows_say_what_their_intervals_assume():
    flows = flows_of(draw_trips(channel_at(1.4), trip_law(1), 500, 1))
    assert flows.intervals == "fitted links"
    assert "measured, not proved" in flows.assumption
    assert flows.assumption in flows.notes
    assert flows.to_frame()["assumes"].unique().to_list() == ["fitted links"]


def test_places_in_many_parts_that_nothing_connects_are_refused():
    """No resolution merges parts that are infinitely far apart, whether these are single places or pairs of them."""
    for part_size in (1, 2):
        count = 301 * part_size
        parts = np.arange(count) // part_size
        distances = np.where(np.eye(count, dtype=bool), 0.0, np.where(parts[:, None] == parts, 1.0, np.inf))
        ids = [f"r{number}" for number in range(count)]
        channel = Channel(inputs=ids, outputs=ids, probabilities=np.eye(count))
        trips = TripCounts(channel=channel, counts=csr_array(np.eye(count, dtype=np.int64)))
        groups = {"low": np.arange(150), "high": np.arange(150, count)}
        rows = distances.__getitem__
        with pytest.raises(UsageError, match=f"{count} with too many infinite distances"):
            estimate_flows(trips, EstimateOptions(resolution=0.0), groups, rows=rows)


def test_without_noise_flows_are_the_counts():
    channel = Channel(inputs=IDS, outputs=IDS, probabilities=np.eye(len(IDS)))
    counts = np.random.default_rng(2).multinomial(5_000, trip_law(1).ravel()).reshape(len(IDS), -1)
    flows = flows_of(TripCounts(channel=channel, counts=csr_array(counts)))
    assert flows.shares == pytest.approx(group_law(counts / 5_000, GROUPS), abs=2e-4)


@settings(max_examples=3)
@given(st.integers(0, 10**6))
def test_relabelling_changes_nothing_but_the_order(seed):
    """Of records, of districts, and of starts and ends."""
    law, rng = trip_law(seed), np.random.default_rng(seed)
    trips = draw_trips(channel_at(2.0), law, 5_000, seed)
    flows = flows_of(trips)
    order = rng.permutation(len(IDS))
    moved = TripCounts(channel=channel_at(2.0, order), counts=csr_array(trips.counts.toarray()[np.ix_(order, order)]))
    positions = np.argsort(order)
    moved_groups = {name: positions[members] for name, members in GROUPS.items()}
    # Other halves are drawn for cross-validation, which can change the number of rounds.
    half_widths = (flows.high - flows.low).max() / 2
    assert flows_of(moved, moved_groups).shares == pytest.approx(flows.shares, abs=half_widths)
    names = rng.permutation(list(GROUPS)).tolist()
    renamed = flows_of(trips, {name: GROUPS[name] for name in names})
    at = [list(GROUPS).index(name) for name in names]
    assert renamed.shares == pytest.approx(flows.shares[np.ix_(at, at)], abs=1e-8)
    turned = flows_of(TripCounts(channel=trips.channel, counts=csr_array(trips.counts.toarray().T)))
    assert turned.shares == pytest.approx(flows.shares.T, abs=half_widths)


@settings(max_examples=5)
@given(st.integers(0, 10**6))
def test_a_fit_depends_on_no_labels(seed):
    """With the same number of rounds, relabelling and exchanging starts and ends change the order alone."""
    law, rng = trip_law(seed), np.random.default_rng(seed)
    z = channel_at(2.0).probabilities
    counts = draw_trips(channel_at(2.0), law, 5_000, seed).counts.toarray().astype(float)
    order = rng.permutation(len(IDS))
    members = np.array([np.isin(np.arange(len(IDS)), group) for group in GROUPS.values()], dtype=float).T

    def fit(columns, trips, groups):
        shares = [trips.sum(axis=axis) / trips.sum() for axis in (1, 0)]
        (weights,) = find_links(columns, trips, *shares)
        return fit_flows(columns, trips, groups, weights, gap=1e-9, rounds=5).flows

    flows = fit(z, counts, members)
    # Rows and columns of links are scaled in turn, a limited number of times.
    assert fit(z[np.ix_(order, order)], counts[np.ix_(order, order)], members[order]) == pytest.approx(flows, abs=1e-3)
    assert fit(z, counts.T, members) == pytest.approx(flows.T, abs=1e-3)


def test_rounds_never_lose_likelihood_and_end_at_the_maximum():
    law = trip_law(3)
    counts = draw_trips(channel_at(3.0), law, 5_000, 1).counts.toarray().astype(float)
    z = channel_at(3.0).probabilities
    steps = list(islice(improve_flows(z, counts, np.full(z.shape, 1 / z.size)), 400))
    values = [step.log_likelihood for step in steps]
    assert (np.diff(values) > 0).all()
    assert steps[-1].gap(z, counts) < steps[0].gap(z, counts) / 100


def test_links_are_those_of_the_trips():
    """Trips that end where they began begin the fit near the identity, independent ones at independence."""
    z, shares = channel_at(2.0).probabilities, np.full(len(IDS), 1 / len(IDS))
    for law in (np.diag(shares), np.outer(shares, shares)):
        counts = draw_trips(channel_at(2.0), law, 100_000, 1).counts.toarray().astype(float)
        best, *extremes = find_links(z, counts, shares, shares, extremes=True)
        assert best.sum() == pytest.approx(1)
        assert np.abs(best - law).sum() / 2 < 0.25
        assert len(extremes) <= 2


def test_few_trips_leave_the_links_open():
    """Fifty trips through wide noise allow links nearer to the identity, and to independence, than the best."""
    z, shares = channel_at(0.5).probabilities, np.full(len(IDS), 1 / len(IDS))
    counts = draw_trips(channel_at(0.5), trip_law(1), 50, 1).counts.toarray().astype(float)
    links = find_links(z, counts, shares, shares, extremes=True)
    assert len(links) >= 2
    diagonals = [np.trace(link) for link in links]
    assert max(diagonals) > min(diagonals) + 0.2


def test_likelihood_matches_an_independent_solver():
    """On four outputs and three bumps, many rounds reach the maximum that another method finds."""
    rng = np.random.default_rng(5)
    columns = rng.dirichlet(np.ones(4), 3)
    counts = rng.multinomial(2_000, rng.dirichlet(np.ones(16))).reshape(4, 4).astype(float)
    start = np.full((3, 3), 1 / 9)
    flow_fit = fit_flows(columns, counts, np.eye(3), start, gap=1e-6, rounds=200_000)

    def loss(z):
        weights = np.exp(z - z.max()).reshape(3, 3)
        return -(counts * np.log(columns.T @ (weights / weights.sum()) @ columns)).sum() / 2_000

    best = min(minimize(loss, rng.normal(size=9), options={"gtol": 1e-9}).fun for _ in range(3))
    value = -(counts * np.log(columns.T @ flow_fit.weights @ columns)).sum() / 2_000
    assert flow_fit.gap <= 1e-6
    # The gap is proved: no other weights are likelier by more.
    assert value - best <= flow_fit.gap + 1e-9


@given(st.integers(2, 12), st.integers(0, 10**6))
def test_scaling_keeps_odds_ratios_and_reaches_the_sums(count, seed):
    rng = np.random.default_rng(seed)
    flows = rng.uniform(0.1, 1, (count, count))
    starts, ends = rng.dirichlet(np.ones(count), 2)
    scaled = scale_to_sums(flows, starts, ends)
    assert scaled.sum(axis=1) == pytest.approx(starts, abs=1e-9)
    assert scaled.sum(axis=0) == pytest.approx(ends, abs=1e-9)
    odds = [table[0, 0] * table[1, 1] / (table[0, 1] * table[1, 0]) for table in (flows, scaled)]
    assert odds[0] == pytest.approx(odds[1], rel=1e-6)


def test_merged_outputs_say_almost_the_same():
    z = channel_at(2.0).probabilities
    cells = merge_outputs(np.hstack([z / 2, z / 2]), 100)
    # Each output twice: their cells are the same, and no two others share one.
    assert (cells[: len(z)] == cells[len(z) :]).all()
    assert len(np.unique(cells)) == len(z)
    few = merge_outputs(z, 9)
    assert len(np.unique(few)) == 9
    assert merge_columns(z, few).sum(axis=1) == pytest.approx(1)
    spans = [DISTANCES[np.ix_(few == cell, few == cell)].max() for cell in range(9)]
    assert max(spans) < DISTANCES.max() / 2


@pytest.fixture(scope="module")
def trip_folder(tmp_path_factory):
    """Return a folder with a release over a grid of cells, reports of 3,000 trips, and districts."""
    folder = tmp_path_factory.mktemp("trips")
    places = po.grid(rows=SIDE, cols=SIDE, cell_km=0.5)
    release = po.solve("exponential", po.metric_problem(places, distance="euclidean", epsilon="2/km"))
    release.save(folder / "release")
    channel = release.opened.mechanism.channel(release.opened.problem, release.opened.release)
    counts = draw_trips(channel, trip_law(4), 3_000, 3).counts.tocoo()
    names = np.array(channel.outputs)
    starts, ends = (names[np.repeat(numbers, counts.data)].tolist() for numbers in counts.coords)
    starts[5] = ends[9] = None
    frame = pl.DataFrame({"rider": [str(row // 2) for row in range(3_000)], "start_report": starts, "end_report": ends})
    frame.write_csv(folder / "trips.csv")
    rows = "".join(f"{name},{GROUP_BY_ID[name]}\n" for name in channel.inputs)
    (folder / "districts.csv").write_text(f"id,group\n{rows}")
    return folder


def arguments_of(folder, out, *options, table="trips.csv", groups="districts.csv"):
    ends = ("--from", "start_report", "--to", "end_report", "--by", folder / groups)
    return ("estimate", folder / "release", folder / table, *ends, "--out", out, *options)


def test_command_writes_table_json_and_page(trip_folder, tmp_path):
    completed = run(*arguments_of(trip_folder, tmp_path / "f.csv", "--json", "--report", tmp_path / "f.html"))
    assert completed.exit_code == 0, completed.stderr
    with (tmp_path / "f.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == ["from", "to", "share", "low", "high", "assumes"]
    assert len(rows) == 16
    assert sum(float(row["share"]) for row in rows) == pytest.approx(1)
    summary = json.loads(completed.stdout)
    assert (summary["n"], summary["skipped"], summary["intervals"]) == (2_998, 2, "fitted links")
    # The sum of both reports: each costs 2 per km.
    sentence = (
        "each trip has two reports, drawn independently, which together cost epsilon 4 per km as the crow flies: "
        "the sum of epsilon 2 per km as the crow flies for the start and as much for the end"
    )
    assert sentence in summary["pair_guarantee"]
    assert sentence in completed.stderr
    assert "4 x 4 flows from 2,998 trips" in completed.stderr
    assert "skipped 2 rows without both reports" in completed.stderr
    page = (tmp_path / "f.html").read_text()
    assert f"<p>E{sentence[1:]}.</p>" in page
    assert "trips (% of all)" in page
    assert '<th scope="col">from</th>' in page
    assert "Trips from district to district" in page
    in_memory = po.open(trip_folder / "release")
    frame = pl.read_csv(trip_folder / "trips.csv")
    with pytest.warns(PrivoptWarning, match="measured, not proved"):
        flows = in_memory.estimate_flows(frame, start="start_report", end="end_report", by=GROUP_BY_ID)
    assert flows.pair_guarantee == sentence
    shares = {(row["from"], row["to"]): row["share"] for row in round_frame(flows.to_frame()).to_dicts()}
    assert shares == {(row["from"], row["to"]): float(row["share"]) for row in rows}
    with (
        pytest.warns(PrivoptWarning, match="subjects had one already: 1,498"),
        pytest.warns(PrivoptWarning, match="measured, not proved"),
    ):
        first_trips = in_memory.estimate_flows(
            frame, start="start_report", end="end_report", by=GROUP_BY_ID, subject="rider"
        )
    assert first_trips.n == 1_500
    assert "from 1,500 trips, maximum-likelihood" in repr(first_trips)


def test_smooth_flows_say_what_they_assume(trip_folder, tmp_path):
    options = ("--resolution", "0.8", "--json")
    completed = run(*arguments_of(trip_folder, tmp_path / "f.csv", *options))
    assert completed.exit_code == 0, completed.stderr
    summary = json.loads(completed.stdout)
    assert (summary["method"], summary["intervals"]) == ("smooth-maximum-likelihood", "smooth")
    assert "assume that shares are smooth over the map, no rougher than bumps 0.4 km wide" in summary["assumption"]
    assert pl.read_csv(tmp_path / "f.csv")["assumes"].unique().to_list() == ["smooth, fitted links"]


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        (("start_report", "other"), (), "a column start_report (--from)"),
        (("end_report", "other"), (), "a column end_report (--to)"),
        (None, ("--subject", "nobody"), "a column nobody (--subject)"),
        (None, ("--to", "start_report"), "--from and --to must name different columns, got start_report"),
        (("rider,", "start_sticky,"), (), "column start_sticky: expected reports drawn for each trip alone"),
        (("rider,", "sticky,"), (), "column sticky: expected reports drawn for each trip alone"),
        (None, ("--geo", "g.geojson"), "--geo must be left out"),
        (None, ("--intervals", "asymptotic"), "--intervals asymptotic must be left out"),
        (None, ("--intervals", "smooth"), "--intervals smooth must be left out"),
        (None, ("--column", "x"), "--column must be left out"),
    ],
)
def test_faults_name_the_option_and_write_nothing(trip_folder, tmp_path, change, options, words):
    text = (trip_folder / "trips.csv").read_text()
    (trip_folder / "changed.csv").write_text(text.replace(*change, 1) if change else text)
    completed = run(*arguments_of(trip_folder, tmp_path / "f.csv", *options, table="changed.csv"))
    assert completed.exit_code == 2
    assert words in completed.stderr
    assert "Traceback" not in completed.stderr
    assert not (tmp_path / "f.csv").exists()


def test_unknown_ids_are_named_by_row_and_not_shown(trip_folder, tmp_path):
    lines = (trip_folder / "trips.csv").read_text().splitlines()
    lines[3] = "1,r0c0,41.90;12.48"
    (trip_folder / "foreign.csv").write_text("\n".join(lines) + "\n")
    completed = run(*arguments_of(trip_folder, tmp_path / "f.csv", table="foreign.csv"))
    assert completed.exit_code == 2
    assert "row 4, column end_report: expected one of the release's 36 outputs" in completed.stderr
    assert "41.90" not in completed.stderr


def test_empty_tables_and_missing_districts_are_refused(trip_folder, tmp_path):
    (trip_folder / "empty.csv").write_text("start_report,end_report\n")
    (trip_folder / "one-end.csv").write_text("start_report,end_report\nr0c0,\n")
    for table in ("empty.csv", "one-end.csv"):
        completed = run(*arguments_of(trip_folder, tmp_path / "f.csv", table=table))
        assert completed.exit_code == 2
        assert "reports must be at least one, got none" in completed.stderr
    (trip_folder / "few.csv").write_text("id,group\nr0c0,d0\n")
    completed = run(*arguments_of(trip_folder, tmp_path / "f.csv", groups="few.csv"))
    assert completed.exit_code == 2
    assert "35 records" in completed.stderr
    folder = trip_folder / "release"
    for missing, options in (
        ("--by", ("--from", "a", "--to", "b")),
        ("--to", ("--from", "a")),
        ("--from", ("--to", "b")),
    ):
        completed = run("estimate", folder, trip_folder / "trips.csv", *options, "--out", tmp_path / "f.csv")
        assert completed.exit_code == 2
        assert f"{missing} must be given" in completed.stderr


def test_noisy_counts_have_no_flows(example):
    release = po.open(example("fl-linear"))
    with pytest.raises(UsageError, match="flows must be of reports, got a release of noisy counts"):
        release.estimate_flows({"a": ["x"], "b": ["y"]}, start="a", end="b", by={})


def test_many_records_without_distances_are_refused():
    names = [str(number) for number in range(310)]
    channel = Channel(inputs=names, outputs=names, probabilities=np.eye(310))
    trips = TripCounts(channel=channel, counts=csr_array(np.eye(310, dtype=np.int64)))
    with pytest.raises(UsageError, match=r"records with distances, or of at most 300 records, got 310"):
        estimate_flows(trips, EstimateOptions(), {"all": np.arange(310)})


def test_in_memory_faults_name_columns(trip_folder):
    release = po.open(trip_folder / "release")
    with pytest.raises(InputError, match=r"a column b \(--to\)"):
        release.estimate_flows({"a": ["r0c0"]}, start="a", end="b", by=GROUP_BY_ID)
    with pytest.raises(UsageError, match="each record's id"):
        release.estimate_flows({"a": ["r0c0"], "b": ["r0c0"]}, start="a", end="b", by={"r0c0": "d"})


def test_matrix_has_units_and_names():
    flows = flows_of(draw_trips(channel_at(2.0), trip_law(1), 500, 1))
    matrix, bar = matrix_figure(flows).axes
    assert [text.get_text() for text in matrix.get_yticklabels()] == list(GROUPS)
    assert (matrix.get_xlabel(), matrix.get_ylabel()) == ("to", "from")
    assert bar.get_ylabel() == "trips (% of all)"
    assert np.asarray(matrix.images[0].get_array()) == pytest.approx(100 * flows.shares)
