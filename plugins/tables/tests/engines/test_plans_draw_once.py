"""A plan draws one report for each row that was charged, whatever an engine does with its tasks."""

import multiprocessing
import os
import pickle
import sys
import uuid
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from fractions import Fraction
from functools import partial

import polars as pl
import pytest
from helpers.lake import COLUMNS, NOTES, charges, reports_by_id, run_reports, run_tally
from hypothesis import given
from hypothesis import strategies as st

import privopt as po
from privopt.errors import DoesNotHoldError, UsageError
from privopt_tables.partition_sums import FIELD, ChargedRows, RowSums
from privopt_tables.partitions import TALLY

pa = pytest.importorskip("pyarrow")
pytestmark = pytest.mark.filterwarnings(NOTES)


@pytest.fixture(scope="module")
def small_trips(trips):
    """Sixty trips of people who are known, all with a position."""
    return trips.filter(pl.col("who").is_not_null() & pl.col("lat").is_not_null()).head(60)


@contextmanager
def open_plan(release, table, folder, name="night"):
    """Charge for a table in one partition, and yield the plan while the block runs."""
    with release.batch(name, ledger=folder / "book", **COLUMNS) as batch:
        yield batch.charge(run_tally(batch.tally, table.to_arrow().to_batches()))


def report_all(plan, table):
    return run_reports(plan, table.to_arrow().to_batches())


@pytest.fixture(scope="module")
def plan(release, small_trips, tmp_path_factory):
    """Charge once, and leave the block open for all tests that only read."""
    with open_plan(release, small_trips, tmp_path_factory.mktemp("plan")) as plan:
        yield plan


def move(table, row):
    return {"lat": pl.when(pl.col("trip") == row).then(pl.col("lat") + 1e-9).otherwise(pl.col("lat"))}


CHANGES = {
    "position": lambda table, row: (table.with_columns(**move(table, row)), row),
    "empty position": lambda table, row: (
        table.with_columns(lat=pl.when(pl.col("trip") == row).then(None).otherwise(pl.col("lat"))),
        row,
    ),
    "id": lambda table, row: (
        table.with_columns(trip=pl.when(pl.col("trip") == row).then(70_000 + row).otherwise(pl.col("trip"))),
        70_000 + row,
    ),
    "added": lambda table, row: (
        pl.concat([table, table.filter(pl.col("trip") == row).with_columns(trip=pl.lit(80_000, pl.Int64))]),
        80_000,
    ),
    "twice": lambda table, row: (pl.concat([table, table.filter(pl.col("trip") == row)]), row),
    "stranger": lambda table, row: (
        pl.concat([table, table.head(1).with_columns(who=pl.lit("a stranger"), trip=pl.lit(90_000, pl.Int64))]),
        90_000,
    ),
}
"""What happens to one row, and the id that the error must name."""


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@given(chance=st.randoms(use_true_random=False))
def test_names_one_changed_row_without_its_position(plan, small_trips, change, chance):
    changed_trips, row_id = change(small_trips, chance.choice(small_trips["trip"].to_list()))
    shuffled = changed_trips.sample(fraction=1.0, shuffle=True, seed=chance.randrange(99))
    with pytest.raises(DoesNotHoldError, match=rf"trip {row_id} ") as error:
        report_all(plan, shuffled)
    assert not any(repr(value)[:6] in str(error.value) for value in small_trips["lat"])


@given(chance=st.randoms(use_true_random=False), exchanged=st.integers(1, 60))
def test_refuses_any_number_of_changed_rows(plan, small_trips, chance, exchanged):
    rows = chance.sample(small_trips["trip"].to_list(), exchanged)
    column = chance.choice(["trip", "lat"])
    is_changed = pl.col("trip").is_in(rows)
    changed_trips = small_trips.with_columns(
        pl.when(is_changed).then(pl.col(column) + 1000).otherwise(pl.col(column)).alias(column)
    )
    with pytest.raises(DoesNotHoldError, match="changed"):
        report_all(plan, changed_trips)


def test_compares_all_rows_before_drawing(plan, small_trips):
    # Spark's limit() and show() stop reading early: what was told by then must be of charged rows
    batches = (
        small_trips.with_columns(**move(small_trips, small_trips["trip"][-1])).to_arrow().to_batches(max_chunksize=5)
    )
    with pytest.raises(DoesNotHoldError):
        next(plan.reports(iter(batches)))


def test_refuses_rows_that_change_subjects(plan, small_trips):
    swapped = {"s1": "s2", "s2": "s1"}
    with pytest.raises(DoesNotHoldError):
        report_all(plan, small_trips.with_columns(who=pl.col("who").replace(swapped)))


def test_refuses_other_rows_with_equal_counts(release, small_trips, tmp_path):
    with open_plan(release, small_trips, tmp_path) as plan:
        first = reports_by_id([report_all(plan, small_trips)])
        for shift in range(1, 50):
            with pytest.raises(DoesNotHoldError):
                report_all(plan, small_trips.with_columns(pl.col("trip") + 10_000 * shift))
        assert reports_by_id([report_all(plan, small_trips)]) == first


def test_plan_ends_with_its_block_everywhere(release, small_trips, tmp_path):
    with open_plan(release, small_trips, tmp_path) as plan:
        pickled = pickle.dumps(plan)
        first = reports_by_id([report_all(plan, small_trips)])
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as worker:
            part = small_trips.to_arrow().to_batches()
            assert reports_by_id([worker.submit(run_reports, pickle.loads(pickled), part).result()]) == first
            changed_batches = small_trips.with_columns(trip=pl.col("trip") + 1).to_arrow().to_batches()
            with pytest.raises(DoesNotHoldError):
                worker.submit(run_reports, pickle.loads(pickled), changed_batches).result()
    with (
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as worker,
        pytest.raises(UsageError, match="ended"),
    ):
        worker.submit(run_reports, pickle.loads(pickled), part).result()
    for plan_copy in (plan, pickle.loads(pickled)):
        for table in (small_trips, small_trips.head(0)):
            with pytest.raises(UsageError, match="ended"):
                report_all(plan_copy, table)


def test_plan_of_a_failed_block_ends(release, small_trips, tmp_path):
    with suppress(KeyboardInterrupt), open_plan(release, small_trips, tmp_path) as old:
        first = reports_by_id([report_all(old, small_trips)])
        raise KeyboardInterrupt
    with pytest.raises(UsageError, match="ended"):
        report_all(old, small_trips)
    with open_plan(release, small_trips, tmp_path) as new:
        with pytest.raises(UsageError, match="ended"):
            report_all(old, small_trips)
        assert reports_by_id([report_all(new, small_trips)]) == first
    assert not list(tmp_path.glob("book.batches/*/key"))
    assert not list(tmp_path.glob("book.batches/*/open"))


def with_new_ids(part):
    """Give each row an id of this very run of the task, as uuid() of an engine does."""
    return part.assign(trip=[uuid.uuid4().hex for _ in range(len(part))])


def test_refuses_dask_ids_made_in_the_engine(release, small_trips, tmp_path):
    dask = pytest.importorskip("dask.dataframe")
    frame = dask.from_pandas(small_trips.to_pandas(), npartitions=3).shuffle("who")
    frame = frame.map_partitions(with_new_ids, meta=frame._meta.assign(trip="a"))
    with release.batch("night", ledger=tmp_path / "book", **COLUMNS) as batch:
        tallies = frame.map_partitions(batch.tally, meta=batch.tally(frame._meta)).compute(scheduler="threads")
        plan = batch.charge(tallies)
        safe = frame.map_partitions(release.map_arrow, plan, meta=release.map_arrow(frame._meta, plan))
        with pytest.raises(DoesNotHoldError, match=r"uuid\(\)"):
            safe.compute(scheduler="threads")


def die_once(mark, run, part, *arguments):
    """Kill this worker the first time, in the middle of its task."""
    if len(part):
        result = run(part, *arguments)
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return result
        os._exit(9)
    return run(part, *arguments)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_dask_retries_draw_no_second_report(release, small_trips, tmp_path):
    distributed, frames = pytest.importorskip("distributed"), pytest.importorskip("dask.dataframe")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        stored_frame = frames.from_pandas(small_trips.to_pandas(), npartitions=3).shuffle("who", shuffle_method="tasks")
        new_id_frame = stored_frame.map_partitions(with_new_ids, meta=stored_frame._meta.assign(trip="a"))
        for name, table in (("stored", stored_frame), ("made", new_id_frame)):
            run = partial(die_once, str(tmp_path / name))
            with release.batch(name, ledger=tmp_path / "book", **COLUMNS) as batch:
                plan = batch.charge(table.map_partitions(batch.tally, meta=batch.tally(table._meta)).compute())
                meta = release.map_arrow(table._meta, plan)
                safe = table.map_partitions(partial(run, release.map_arrow), plan, meta=meta)
                if name == "made":
                    with pytest.raises(DoesNotHoldError):
                        safe.compute()
                    continue
                first = safe.compute()
                assert (tmp_path / name).exists()  # a worker died
                parts = stored_frame.partitions[0].compute()
                copies = [client.submit(release.map_arrow, parts, plan, pure=False) for _ in range(4)]
                reports = {(row.trip, row.report) for copy in copies for row in copy.result().itertuples()}
                assert reports <= {(row.trip, row.report) for row in first.itertuples()}
                assert sorted(first["trip"]) == sorted(small_trips["trip"])
    rows = dict(small_trips["who"].value_counts().iter_rows())
    assert {
        name: spent_epsilon for name, (spent_epsilon, _) in charges(tmp_path).items()
    } == rows  # half an epsilon a row, two batches


@pytest.fixture(scope="module")
def spark():
    """Start Spark in this process, with a second attempt at each task."""
    sql = pytest.importorskip("pyspark.sql")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        builder = sql.SparkSession.builder.master("local[2,2]").config("spark.ui.enabled", "false")
        session = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.memory", "1g").getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()


def lose_first_attempt(run, batches):
    """Draw, and lose what the first attempt at a task has drawn."""
    from pyspark import TaskContext

    reports = list(run(batches))
    if TaskContext.get().attemptNumber() == 0:
        raise RuntimeError("this attempt is lost")
    yield from reports


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ids", ["stored", "uuid"])
def test_spark_retries_draw_no_second_report(release, small_trips, tmp_path, spark, ids):
    from pyspark import cloudpickle
    from pyspark.sql import functions
    from pyspark.sql.pandas.types import from_arrow_schema

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not have this file
    small_trips.write_parquet(tmp_path / "trips.parquet")
    table = spark.read.parquet(str(tmp_path / "trips.parquet"))
    if ids == "uuid":
        make_id = functions.udf(lambda: uuid.uuid4().hex).asNondeterministic()
        table = table.withColumn("trip", make_id())
    table = table.repartition(3, "who")
    with release.batch("night", ledger=tmp_path / "book", **COLUMNS) as batch:
        plan = batch.charge(table.mapInArrow(batch.tally, TALLY).toArrow())
        schema = from_arrow_schema(plan.schema(table.limit(0).toArrow().schema))
        safe = table.mapInArrow(partial(lose_first_attempt, partial(release.map_arrow, plan=plan)), schema)
        if ids == "uuid":
            with pytest.raises(Exception, match="DoesNotHoldError"):
                safe.toArrow()
            return
        first = reports_by_id([safe.toArrow()])
        assert reports_by_id([safe.toArrow()]) == first
        assert sorted(first) == sorted(small_trips["trip"])


@given(st.lists(st.integers(0, FIELD - 1), min_size=1, max_size=9, unique=True), st.integers(0, FIELD - 1))
def test_sums_name_the_changed_element(charged, new):
    old, new_sums = RowSums(), RowSums()
    for element in charged:
        old.add(element)
    for element in [new, *charged[1:]]:
        new_sums.add(element)
    assert new_sums.changed_element(old) == (new if new != charged[0] else None)
    new_sums.add(charged[0])
    added = new_sums.changed_element(old)
    assert added == new or new == 0


@given(st.dictionaries(st.text(min_size=1), st.tuples(st.integers(0, FIELD - 1), st.integers(0, FIELD - 1))))
def test_finds_sums_by_subject(sums):
    key = b"k" * 32
    totals, squares = zip(*sums.values(), strict=True) if sums else ((), ())
    charged_rows = ChargedRows.of(key, list(sums), totals, squares)
    for subject, (total, square) in sums.items():
        subject_sums = charged_rows.sums_of(key, subject)
        assert (subject_sums.total, subject_sums.squares) == (total, square)
    assert charged_rows.sums_of(key, "\x00 nobody") == RowSums()


def test_explains_subject_spellings_in_partitions(release, small_trips, tmp_path):
    halves = [
        small_trips.head(30).with_columns(who=pl.lit("Zoe 7")),
        small_trips.tail(30).with_columns(who=pl.lit("Zoe  7")),
    ]
    with (
        pytest.raises(UsageError, match="spelled"),
        release.batch("night", ledger=tmp_path / "book", **COLUMNS) as batch,
    ):
        batch.charge(pa.concat_tables([run_tally(batch.tally, half.to_arrow().to_batches()) for half in halves]))


def test_limit_applies_to_the_same_rows(release, small_trips, tmp_path):
    with po.Ledger(tmp_path / "book") as ledger:
        ledger.set_limit(Fraction(1, 2))
    with open_plan(release, small_trips, tmp_path) as plan:
        assert plan.granted
        first = reports_by_id([report_all(plan, small_trips)])
        assert reports_by_id([report_all(plan, small_trips.sample(fraction=1.0, shuffle=True, seed=1))]) == first
        with pytest.raises(DoesNotHoldError):
            report_all(plan, small_trips.with_columns(pl.col("trip") + 1))
