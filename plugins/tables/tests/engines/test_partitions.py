"""Partitions: whatever parts a table comes in, each row has one report and one charge."""

import pickle
from collections import Counter
from contextlib import contextmanager, suppress
from fractions import Fraction
from functools import partial

import polars as pl
import pytest
from helpers.lake import COLUMNS, NOTES, charges, drawn, expected, reported, tallied
from scipy.stats import chisquare

import privopt as po
from privopt.errors import DoesNotHoldError, InputError, UsageError

pa = pytest.importorskip("pyarrow")
pytestmark = pytest.mark.filterwarnings(NOTES)


def split(trips, parts):
    """Partitions with all rows of a subject in one, as lists of batches."""
    where = pl.col("who").hash(7) % parts
    found = [trips.filter(where.fill_null(0) == part) for part in range(parts)]
    return [part.to_arrow().to_batches(max_chunksize=97) for part in found]


def both_passes(release, partitions, folder, run=map):
    with release.batch("night", ledger=folder / "book", **COLUMNS) as batch:
        tallies = list(run(partial(tallied, batch.tally), partitions))
        plan = batch.charge(pa.concat_tables(tallies))
        return list(run(partial(reported, plan), partitions)), plan


@contextmanager
def open_plan(release, trips, folder, name="night"):
    """Charge for a table in one partition, and yield the plan while the block runs."""
    with release.batch(name, ledger=folder / "book", **COLUMNS) as batch:
        yield batch.charge(tallied(batch.tally, trips.to_arrow().to_batches()))


def test_a_subject_has_one_charge_for_all_its_rows_and_no_more_reports_than_it_paid_for(release, trips, tmp_path):
    with po.Ledger(tmp_path / "book") as ledger:
        ledger.set_limit(20)
        ledger.charge("s1", po.Cost(epsilon=15, unit="per km as the crow flies"))
    made, plan = both_passes(release, split(trips, 5), tmp_path)
    found = pl.concat(map(pl.from_arrow, made))
    assert found.columns == ["trip", "place", "who", "g", "report", "report_lat", "report_lon"]
    assert sorted(found["trip"]) == trips["trip"].to_list()
    book = charges(tmp_path)
    assert book.pop("s1") == (20, 2)
    assert set(book.values()) == {(20, 1)}
    assert plan.granted["s1"] == 10
    usable = trips.filter(pl.col("lat").is_not_null() & pl.col("who").is_not_null())
    allowed = Counter(plan.granted)
    reports = Counter(found.filter(pl.col("report").is_not_null())["who"])
    assert reports <= allowed
    missing = Counter(trips.filter(pl.col("lat").is_null() & pl.col("who").is_not_null())["who"])
    assert all(reports[name] >= allowed[name] - missing[name] for name in allowed)
    assert set(found.filter(pl.col("report").is_not_null())["trip"]) <= set(usable["trip"])
    first = found.filter((pl.col("who") == "s1") & pl.col("report").is_not_null())["trip"].cast(pl.String)
    ids = sorted(map(str, trips.filter(pl.col("who") == "s1")["trip"]))
    assert set(first) <= set(ids[:10])


def test_reports_come_as_certified_and_do_not_depend_on_partitions_or_order(release, trips, tmp_path):
    with release.batch("night", ledger=tmp_path / "book", **COLUMNS) as batch:
        plan = batch.charge(pa.concat_tables([tallied(batch.tally, part) for part in split(trips, 3)]))
        one = drawn([reported(plan, part) for part in split(trips, 3)])
        assert one == drawn([reported(plan, part) for part in split(trips.sample(fraction=1.0, shuffle=True), 8)])
    place = dict(trips.select("trip", "place").iter_rows())
    good = {row: report for row, report in one.items() if report is not None}
    wanted = expected(release, Counter(place[row] for row in good))
    seen = Counter(good.values())
    assert chisquare([seen[name] for name in wanted], list(wanted.values())).pvalue > 1e-6
    with pytest.raises(UsageError, match="finished"), release.batch("night", ledger=tmp_path / "book", **COLUMNS):
        pass
    assert not list(tmp_path.glob("book.batches/*/key"))


def test_what_fails_in_the_driver_is_repeated_with_the_same_reports_and_no_second_charge(release, trips, tmp_path):
    parts, before = split(trips.head(600), 4), None
    for _ in range(3):
        with suppress(KeyboardInterrupt), release.batch("night", ledger=tmp_path / "book", **COLUMNS) as batch:
            plan = batch.charge(pa.concat_tables([tallied(batch.tally, part) for part in parts]))
            made = drawn([reported(plan, part) for part in parts])
            assert before in (None, (made, charges(tmp_path)))
            before = (made, charges(tmp_path))
            raise KeyboardInterrupt
    assert before is not None
    again = [part[:-1] for part in parts]
    with (
        pytest.raises(UsageError, match="began with"),
        release.batch("night", ledger=tmp_path / "book", **COLUMNS) as b,
    ):
        b.charge(pa.concat_tables([tallied(b.tally, part) for part in again]))
    assert charges(tmp_path) == before[1]


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda t: pl.concat([t, t.head(1)]), InputError, "an id twice"),
        (lambda t: t.with_columns(trip=None), InputError, "an id of each row"),
        (lambda t: t.drop("lon"), InputError, "no such column"),
        (lambda t: t.drop("trip"), InputError, "the id of each row"),
    ],
)
def test_tables_that_will_not_do_are_refused_before_a_charge(release, trips, tmp_path, change, error, words):
    with pytest.raises(error, match=words), release.batch("night", ledger=tmp_path / "book", **COLUMNS) as batch:
        tallied(batch.tally, change(trips.filter(pl.col("who") == "s1")).to_arrow().to_batches())
    assert charges(tmp_path) == {}


def test_nothing_is_drawn_by_what_was_not_charged(release, trips, tmp_path):
    some = trips.filter(pl.col("who") == "s1").to_arrow()
    with release.batch("night", ledger=tmp_path / "book", **COLUMNS) as batch:
        with pytest.raises(UsageError, match="before the charge"):
            release.map_arrow(iter(some.to_batches()), batch.partitions)
        for table in (some, some.to_batches()):
            with pytest.raises(UsageError, match="an iterator of Arrow batches"):
                batch.tally(table)
        counted = tallied(batch.tally, some.to_batches())
        rows = counted.column_names.index("rows")
        none = counted.set_column(rows, "rows", pa.array([0] * counted.num_rows, pa.int64()))
        for wrong in (counted.drop_columns("digest"), none):
            with pytest.raises(UsageError, match="must be what tally gives"):
                batch.charge(wrong)
    assert charges(tmp_path) == {}


def test_a_frame_keeps_its_own_columns_as_they_are(release, trips, tmp_path):
    # whole numbers with nulls came back as doubles, and categories of an empty frame as none
    pandas = pytest.importorskip("pandas")
    frame = trips.select("trip", "who", "lat", "lon").head(40).to_pandas()
    frame["count"] = pandas.array([2**60 + 1, None] * 20, dtype="Int64")
    frame["kind"] = pandas.Categorical(["a", "b"] * 20)
    frame.index = ["twice"] * 40
    with release.batch("night", ledger=tmp_path / "book", **COLUMNS) as batch:
        plan = batch.charge(batch.tally(frame))
        for part in (frame, frame.iloc[:0]):
            made, own = release.map_arrow(part, plan), ["trip", "who", "count", "kind"]
            pandas.testing.assert_frame_equal(made[own], part[own])
            assert list(made.columns) == [*own, "report", "report_lat", "report_lon"]


def test_a_subject_in_two_partitions_is_refused(release, trips, tmp_path):
    halves = [trips.head(1500), trips.tail(1500)]
    with (
        pytest.raises(UsageError, match="repartition"),
        release.batch("b", ledger=tmp_path / "book", **COLUMNS) as batch,
    ):
        batch.charge(pa.concat_tables([tallied(batch.tally, half.to_arrow().to_batches()) for half in halves]))
    assert charges(tmp_path) == {}


@pytest.mark.parametrize("limit", [5, 10**6])
def test_rows_that_come_or_go_between_the_passes_are_refused(release, trips, tmp_path, limit):
    # where the limit allowed all rows, one that came later was drawn and not charged
    with po.Ledger(tmp_path / "book") as ledger:
        ledger.set_limit(limit)
    trips = trips.head(600)
    known = trips.filter(pl.col("who").is_not_null())
    added = known.tail(1).with_columns(trip=pl.lit(9999, pl.Int64))
    stranger = added.with_columns(who=pl.lit("nobody knows"))
    with open_plan(release, trips, tmp_path) as plan:
        for changed in (pl.concat([known, added]), pl.concat([known, stranger]), known.tail(-1), known.head(300)):
            with pytest.raises(DoesNotHoldError, match="changed"):
                reported(plan, changed.to_arrow().to_batches())
            with pytest.raises(DoesNotHoldError, match="changed"):
                plan.reports(changed.to_pandas())
        for part in split(trips, 3):  # as charged
            reported(plan, part)


def test_what_workers_get_can_be_pickled_and_does_not_hold_its_key(release, trips, tmp_path):
    with release.batch("night", ledger=tmp_path / "book", **COLUMNS) as batch:
        key = batch.batch.key()
        pickled, part = pickle.dumps(batch.tally), split(trips, 1)[0]
        assert tallied(pickle.loads(pickled), part).equals(tallied(batch.tally, part))
        plan = batch.charge(tallied(batch.tally, part))
        for shown in (repr(plan).encode(), pickled, pickle.dumps(plan)):
            assert key not in shown
            assert key.hex().encode() not in shown
            assert repr(key)[2:-1].encode() not in shown


def test_dask_gives_each_row_one_report_and_one_charge(release, trips, tmp_path):
    dask = pytest.importorskip("dask.dataframe")
    trips = trips.head(1000)
    frame = dask.from_pandas(trips.to_pandas(), npartitions=4).shuffle("who")
    with release.batch("night", ledger=tmp_path / "book", **COLUMNS) as batch:
        counted = frame.map_partitions(batch.tally, meta=batch.tally(frame._meta)).compute(scheduler="threads")
        plan = batch.charge(counted)
        made = frame.map_partitions(release.map_arrow, plan, meta=release.map_arrow(frame._meta, plan))
        got = made.compute(scheduler="threads")
        assert made.compute(scheduler="threads").sort_index().equals(got.sort_index())
    assert sorted(got["trip"]) == trips["trip"].to_list()
    assert got.sort_values("trip")["g"].to_list() == trips["g"].to_list()
    rows = Counter(trips["who"].drop_nulls())
    assert charges(tmp_path) == {name: (Fraction(count, 2), 1) for name, count in rows.items()}
