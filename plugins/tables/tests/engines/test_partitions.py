"""Partitions: whatever parts a table comes in, each row has one report and one charge."""

import pickle
from collections import Counter
from contextlib import contextmanager, suppress
from fractions import Fraction
from functools import partial

import numpy as np
import polars as pl
import pytest
from helpers.lake import COLUMNS, NOTES, charges, expected_reports, reports_by_id, run_reports, run_tally
from scipy.stats import chisquare

import privopt as po
from privopt.errors import DoesNotHoldError, InputError, UsageError

pa = pytest.importorskip("pyarrow")
pytestmark = pytest.mark.filterwarnings(NOTES)


def split_by_subject(trips, parts):
    """Partitions with all rows of a subject in one, as lists of batches."""
    partition_number = pl.col("who").hash(7) % parts
    partitions = [trips.filter(partition_number.fill_null(0) == part) for part in range(parts)]
    return [part.to_arrow().to_batches(max_chunksize=97) for part in partitions]


def both_passes(release, partitions, folder, run=map):
    with release.batch("night", ledger=folder / "book", **COLUMNS) as batch:
        tallies = list(run(partial(run_tally, batch.tally), partitions))
        plan = batch.charge(pa.concat_tables(tallies))
        return list(run(partial(run_reports, plan), partitions)), plan


@contextmanager
def open_plan(release, trips, folder, name="night"):
    """Charge for a table in one partition, and yield the plan while the block runs."""
    with release.batch(name, ledger=folder / "book", **COLUMNS) as batch:
        yield batch.charge(run_tally(batch.tally, trips.to_arrow().to_batches()))


def test_subject_is_charged_once_for_all_rows(release, trips, tmp_path):
    with po.Ledger(tmp_path / "book") as ledger:
        ledger.set_limit(20)
        ledger.charge("s1", po.Cost(epsilon=15, unit="per km as the crow flies"))
    partitions_reported, plan = both_passes(release, split_by_subject(trips, 5), tmp_path)
    result = pl.concat(map(pl.from_arrow, partitions_reported))
    assert result.columns == ["trip", "place", "who", "g", "report", "report_lat", "report_lon"]
    assert sorted(result["trip"]) == trips["trip"].to_list()
    book = charges(tmp_path)
    assert book.pop("s1") == (20, 2)
    assert set(book.values()) == {(20, 1)}
    assert plan.granted["s1"] == 10
    usable = trips.filter(pl.col("lat").is_not_null() & pl.col("who").is_not_null())
    granted_counts = Counter(plan.granted)
    reports = Counter(result.filter(pl.col("report").is_not_null())["who"])
    assert reports <= granted_counts
    missing = Counter(trips.filter(pl.col("lat").is_null() & pl.col("who").is_not_null())["who"])
    assert all(reports[name] >= granted_counts[name] - missing[name] for name in granted_counts)
    assert set(result.filter(pl.col("report").is_not_null())["trip"]) <= set(usable["trip"])
    first = result.filter((pl.col("who") == "s1") & pl.col("report").is_not_null())["trip"].cast(pl.String)
    ids = sorted(map(str, trips.filter(pl.col("who") == "s1")["trip"]))
    assert set(first) <= set(ids[:10])


def test_reports_are_certified_in_any_partition(release, trips, tmp_path):
    with release.batch("night", ledger=tmp_path / "book", **COLUMNS) as batch:
        plan = batch.charge(pa.concat_tables([run_tally(batch.tally, part) for part in split_by_subject(trips, 3)]))
        report_or_none = reports_by_id([run_reports(plan, part) for part in split_by_subject(trips, 3)])
        assert report_or_none == reports_by_id(
            [run_reports(plan, part) for part in split_by_subject(trips.sample(fraction=1.0, shuffle=True), 8)]
        )
    place_by_row = dict(trips.select("trip", "place").iter_rows())
    report_by_row = {row: report for row, report in report_or_none.items() if report is not None}
    expected_counts = expected_reports(release, Counter(place_by_row[row] for row in report_by_row))
    observed = Counter(report_by_row.values())
    assert chisquare([observed[name] for name in expected_counts], list(expected_counts.values())).pvalue > 1e-6
    with pytest.raises(UsageError, match="finished"), release.batch("night", ledger=tmp_path / "book", **COLUMNS):
        pass
    assert not list(tmp_path.glob("book.batches/*/key"))


def test_repeated_task_draws_the_same_reports_whatever_its_process_drew_before(tmp_path):
    """Positions between places: the same place is the nearest whether or not a larger partition was drawn before."""
    grid = [(x, y) for x in range(7) for y in range(7)]
    columns = {"id": [f"p{k}" for k in range(49)], "x": [x for x, _ in grid], "y": [y for _, y in grid]}
    records = po.records(columns, id="id", x="x", y="y")
    release = po.solve("exponential", po.metric_problem(records, distance="euclidean", epsilon="5/km"))
    n = np.arange(4_000)
    trips = pl.DataFrame({"trip": n, "who": [f"s{k % 10}" for k in n], "x": n * 7 % 13 / 2, "y": n // 10 % 13 / 2})
    small, large = (
        [part.to_arrow().to_batches()] for part in (trips.filter(who="s1"), trips.filter(pl.col("who") != "s1"))
    )
    names = {"subject": "who", "row": "trip", "x": "x", "y": "y"}
    with release.batch("night", ledger=tmp_path / "book", **names) as batch:
        fresh_batch = pickle.dumps(batch.tally)
        tallies = [run_tally(pickle.loads(fresh_batch), part) for part in (*small, *large)]
        plan = pickle.dumps(batch.charge(pa.concat_tables(tallies)))
        worker, other_worker = pickle.loads(plan), pickle.loads(plan)
        run_reports(other_worker, *large)
        assert reports_by_id([run_reports(worker, *small)]) == reports_by_id([run_reports(other_worker, *small)])


def test_failed_driver_repeats_reports_and_charges(release, trips, tmp_path):
    parts, first_outcome = split_by_subject(trips.head(600), 4), None
    for _ in range(3):
        with suppress(KeyboardInterrupt), release.batch("night", ledger=tmp_path / "book", **COLUMNS) as batch:
            plan = batch.charge(pa.concat_tables([run_tally(batch.tally, part) for part in parts]))
            drawn_rows = reports_by_id([run_reports(plan, part) for part in parts])
            assert first_outcome in (None, (drawn_rows, charges(tmp_path)))
            first_outcome = (drawn_rows, charges(tmp_path))
            raise KeyboardInterrupt
    assert first_outcome is not None
    shortened = [part[:-1] for part in parts]
    with (
        pytest.raises(UsageError, match="began with"),
        release.batch("night", ledger=tmp_path / "book", **COLUMNS) as b,
    ):
        b.charge(pa.concat_tables([run_tally(b.tally, part) for part in shortened]))
    assert charges(tmp_path) == first_outcome[1]


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda t: pl.concat([t, t.head(1)]), InputError, "an id twice"),
        (lambda t: t.with_columns(trip=None), InputError, "id of each"),
        (lambda t: t.drop("lon"), InputError, "no such column"),
        (lambda t: t.drop("trip"), InputError, "id of each"),
    ],
)
def test_refuses_unfit_tables_before_a_charge(release, trips, tmp_path, change, error, words):
    with pytest.raises(error, match=words), release.batch("night", ledger=tmp_path / "book", **COLUMNS) as batch:
        run_tally(batch.tally, change(trips.filter(pl.col("who") == "s1")).to_arrow().to_batches())
    assert charges(tmp_path) == {}


def test_draws_nothing_without_a_charge(release, trips, tmp_path):
    subject_rows = trips.filter(pl.col("who") == "s1").to_arrow()
    with release.batch("night", ledger=tmp_path / "book", **COLUMNS) as batch:
        with pytest.raises(UsageError, match="before the charge"):
            release.map_arrow(iter(subject_rows.to_batches()), batch.partitions)
        for table in (subject_rows, subject_rows.to_batches()):
            with pytest.raises(UsageError, match="iterator of Arrow"):
                batch.tally(table)
        tallied_rows = run_tally(batch.tally, subject_rows.to_batches())
        rows = tallied_rows.column_names.index("rows")
        zero_rows = tallied_rows.set_column(rows, "rows", pa.array([0] * tallied_rows.num_rows, pa.int64()))
        for forged_tally in (tallied_rows.drop_columns("digest"), zero_rows):
            with pytest.raises(UsageError, match="tally gives"):
                batch.charge(forged_tally)
    assert charges(tmp_path) == {}


def test_frame_keeps_its_own_columns(release, trips, tmp_path):
    # whole numbers with nulls came back as doubles, and categories of an empty frame as none
    pandas = pytest.importorskip("pandas")
    frame = trips.select("trip", "who", "lat", "lon").head(40).to_pandas()
    frame["count"] = pandas.array([2**60 + 1, None] * 20, dtype="Int64")
    frame["kind"] = pandas.Categorical(["a", "b"] * 20)
    frame.index = ["twice"] * 40
    with release.batch("night", ledger=tmp_path / "book", **{**COLUMNS, "keep": ()}) as batch:
        plan = batch.charge(batch.tally(frame))
        for part in (frame, frame.iloc[:0]):
            reported_frame, own_columns = release.map_arrow(part, plan), ["trip", "who", "count", "kind"]
            pandas.testing.assert_frame_equal(reported_frame[own_columns], part[own_columns])
            assert list(reported_frame.columns) == [*own_columns, "report", "report_lat", "report_lon"]


def test_refuses_subject_in_two_partitions(release, trips, tmp_path):
    halves = [trips.head(1500), trips.tail(1500)]
    with (
        pytest.raises(UsageError, match="repartition"),
        release.batch("b", ledger=tmp_path / "book", **COLUMNS) as batch,
    ):
        batch.charge(pa.concat_tables([run_tally(batch.tally, half.to_arrow().to_batches()) for half in halves]))
    assert charges(tmp_path) == {}


@pytest.mark.parametrize("limit", [5, 10**6])
def test_refuses_changed_rows_between_passes(release, trips, tmp_path, limit):
    # where the limit allowed all rows, one that came later was drawn and not charged
    with po.Ledger(tmp_path / "book") as ledger:
        ledger.set_limit(limit)
    trips = trips.head(600)
    known_rows = trips.filter(pl.col("who").is_not_null())
    added = known_rows.tail(1).with_columns(trip=pl.lit(9999, pl.Int64))
    stranger = added.with_columns(who=pl.lit("nobody knows"))
    with open_plan(release, trips, tmp_path) as plan:
        for changed_rows in (
            pl.concat([known_rows, added]),
            pl.concat([known_rows, stranger]),
            known_rows.tail(-1),
            known_rows.head(300),
        ):
            with pytest.raises(DoesNotHoldError, match="changed"):
                run_reports(plan, changed_rows.to_arrow().to_batches())
            with pytest.raises(DoesNotHoldError, match="changed"):
                plan.reports(changed_rows.to_pandas())
        for part in split_by_subject(trips, 3):  # as charged
            run_reports(plan, part)


def test_plan_is_pickled_without_its_key(release, trips, tmp_path):
    with release.batch("night", ledger=tmp_path / "book", **COLUMNS) as batch:
        key = batch.batch.key()
        pickled, part = pickle.dumps(batch.tally), split_by_subject(trips, 1)[0]
        assert run_tally(pickle.loads(pickled), part).equals(run_tally(batch.tally, part))
        plan = batch.charge(run_tally(batch.tally, part))
        for representation in (repr(plan).encode(), pickled, pickle.dumps(plan)):
            assert key not in representation
            assert key.hex().encode() not in representation
            assert repr(key)[2:-1].encode() not in representation


def test_dask_reports_and_charges_each_row_once(release, trips, tmp_path):
    dask = pytest.importorskip("dask.dataframe")
    trips = trips.head(1000)
    frame = dask.from_pandas(trips.to_pandas(), npartitions=4).shuffle("who")
    with release.batch("night", ledger=tmp_path / "book", **COLUMNS) as batch:
        tallied = frame.map_partitions(batch.tally, meta=batch.tally(frame._meta)).compute(scheduler="threads")
        plan = batch.charge(tallied)
        reported_frame = frame.map_partitions(release.map_arrow, plan, meta=release.map_arrow(frame._meta, plan))
        first_result = reported_frame.compute(scheduler="threads")
        assert reported_frame.compute(scheduler="threads").sort_index().equals(first_result.sort_index())
    assert sorted(first_result["trip"]) == trips["trip"].to_list()
    assert first_result.sort_values("trip")["g"].to_list() == trips["g"].to_list()
    rows = Counter(trips["who"].drop_nulls())
    assert charges(tmp_path) == {name: (Fraction(count, 2), 1) for name, count in rows.items()}


@pytest.mark.parametrize("keep", [(), ("spot",)])
def test_columns_that_state_the_position_in_some_partition_are_dropped_from_all(release, trips, tmp_path, keep):
    text = pl.format("at {}, {}", "lat", "lon")
    rows = pl.int_range(pl.len())
    trips = trips.with_columns(spot=text, note=pl.when(rows >= len(trips) - 30).then(text), fare=rows % 37)
    dropped = {"spot", "note"} - {*keep}
    columns = {**COLUMNS, "keep": ("place", *keep)}
    with release.batch("night", ledger=tmp_path / "book", **columns) as batch:
        tallies = [run_tally(batch.tally, part) for part in split_by_subject(trips, 4)]
        with pytest.warns(po.PrivoptWarning) as warnings:
            plan = batch.charge(pa.concat_tables(tallies))
        made = [run_reports(plan, part) for part in split_by_subject(trips, 4)]
        assert plan.schema(trips.to_arrow().schema) == made[0].schema
    assert {
        name for name in ("spot", "note") if f"column {name} was dropped" in str([w.message for w in warnings])
    } == dropped
    for table in made:
        assert {*trips.columns} - {*table.column_names} == {"lat", "lon", *dropped}


def test_subjects_that_state_the_position_stay_with_a_warning(release, trips, tmp_path):
    trips = trips.drop_nulls().with_columns(who=pl.format("{} at {}, {}", "who", "lat", "lon"))
    with release.batch("night", ledger=tmp_path / "book", **COLUMNS) as batch:
        part = trips.to_arrow().to_batches()
        with pytest.warns(po.PrivoptWarning, match="column who stays and states the secret"):
            plan = batch.charge(run_tally(batch.tally, part))
        assert run_reports(plan, part)["who"].to_pylist() == trips["who"].to_list()


def test_a_column_to_keep_must_be_there(release, trips, tmp_path):
    with (
        pytest.raises(UsageError, match="keep must name"),
        release.batch("b", ledger=tmp_path / "book", **{**COLUMNS, "keep": ["plcae"]}) as batch,
    ):
        batch.charge(run_tally(batch.tally, trips.to_arrow().to_batches()))
    assert charges(tmp_path) == {}
