"""Workers of Dask and Spark are killed a hundred times: no row has two reports, none is lost, charges are exact."""

import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest
from helpers.lake import COLUMNS, NOTES, charges, reports_by_id

from privopt_tables.partitions import TALLY

pa = pytest.importorskip("pyarrow")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings(NOTES), pytest.mark.filterwarnings("ignore")]

KILLS = 25
"""Least number of killed workers in each of the four pieces."""
MAX_ROUNDS = 8
"""Most rounds of a piece after its workers were killed, in which a second try of a slow task may still come."""


class Fate:
    """What happens to a task: most go on, some are slow, and some die at a random moment of the next half second.

    Attributes:
        marks: a folder with a file for each death, each attempt at a task that has a name, and each that was slow.
        executor: share of deaths that are of the whole executor of Spark.
    """

    def __init__(self, marks, *, executor=0.0):
        self.marks, self.executor = marks, executor
        marks.mkdir()

    def meet(self, name="", attempt=0):
        """Begin a task."""
        chance = random.SystemRandom()
        if name:
            (self.marks / f"began {name} {attempt}").touch()
        if chance.random() < 0.25:
            whom = executor_of() if chance.random() < self.executor else os.getpid()
            threading.Timer(chance.uniform(0, 0.5), self.die, [whom]).start()
        elif name and chance.random() < 0.15:
            (self.marks / f"slow {name} {attempt}").touch()
            time.sleep(10)

    def die(self, whom):
        """Kill a process, and note it."""
        (self.marks / f"died {random.SystemRandom().random()}").touch()
        os.kill(whom, signal.SIGKILL)

    def deaths(self):
        """Count those so far."""
        return sum(path.name.startswith("died") for path in self.marks.iterdir())

    def copies(self):
        """Count the slow tasks of which a second copy began."""
        slow = [path.name.split()[1:] for path in self.marks.iterdir() if path.name.startswith("slow")]
        return sum((self.marks / f"began {stage} {part} {int(number) + 1}").exists() for stage, part, number in slow)


def executor_of():
    """Return the Java process whose daemon this worker of Spark came from; this worker itself if there is none."""
    father = int(Path(f"/proc/{os.getppid()}/stat").read_text().rsplit(")", 1)[1].split()[1])
    mine = "CoarseGrainedExecutorBackend" in Path(f"/proc/{father}/cmdline").read_text()
    return father if mine else os.getpid()


def expected_charges(trips, rounds):
    """Each subject has one charge a round for all its rows, at epsilon 1/2 each."""
    rows = Counter(trips["who"].drop_nulls())
    return {name: (rounds * Fraction(count, 2), rounds) for name, count in rows.items()}


@pytest.fixture
def trips(trips):
    return trips.head(1200)


@pytest.fixture
def fate(tmp_path):
    return Fate(tmp_path / "marks", executor=0.1)


@pytest.mark.parametrize("piece", range(4))
def test_dask_reports_once_despite_killed_workers(release, trips, tmp_path, fate, piece):
    distributed, dask = pytest.importorskip("distributed"), pytest.importorskip("dask")
    frames, cloudpickle = pytest.importorskip("dask.dataframe"), pytest.importorskip("cloudpickle")
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not have this file

    def dying(run):
        def task(part, *arguments):
            fate.meet()
            return run(part, *arguments)

        return task

    rounds = 0
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 10**6, "dataframe.shuffle.method": "tasks"}),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster),
    ):
        cluster.adapt(minimum=2, maximum=2, interval="500ms")  # a nanny whose worker dies as it starts ends with it
        while fate.deaths() < KILLS:
            table = frames.from_pandas(trips.to_pandas(), npartitions=6).shuffle("who")
            with release.batch(f"round {rounds}", ledger=tmp_path / "book", **COLUMNS) as batch:
                tallied = table.map_partitions(dying(batch.tally), meta=batch.tally(table._meta))
                plan = batch.charge(tallied.compute())
                meta = release.map_arrow(table._meta, plan)
                safe = table.map_partitions(dying(partial(release.map_arrow, plan=plan)), meta=meta)
                drawn_rows = reports_by_id([pa.Table.from_pandas(safe.compute())])
                assert reports_by_id([pa.Table.from_pandas(safe.compute())]) == drawn_rows
            rounds += 1
            assert sorted(drawn_rows) == trips["trip"].to_list()
            assert charges(tmp_path) == expected_charges(trips, rounds)
            print(f"piece {piece}, round {rounds}: {fate.deaths()} deaths", flush=True)


@pytest.mark.parametrize("piece", range(4))
def test_spark_reports_once_despite_killed_workers(release, trips, tmp_path, spark, fate, piece):
    from pyspark import cloudpickle
    from pyspark.sql.pandas.types import from_arrow_schema

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not have this file
    trips.write_parquet(tmp_path / "trips.parquet")
    frame = spark.read.parquet(str(tmp_path / "trips.parquet")).repartition(6, "who")

    def dying(run):
        def task(batches):
            from pyspark import TaskContext

            context = TaskContext.get()
            fate.meet(f"{context.stageId()} {context.partitionId()}", context.attemptNumber())
            yield from run(batches)

        return task

    rounds = 0
    # Spark compares a task with the times of others before it tries it twice, so a busy machine may see no second try.
    while fate.deaths() < KILLS or (not fate.copies() and rounds < MAX_ROUNDS):
        with release.batch(f"round {rounds}", ledger=tmp_path / "book", **COLUMNS) as batch:
            plan = batch.charge(frame.mapInArrow(dying(batch.tally), TALLY).toArrow())
            schema = from_arrow_schema(plan.schema(frame.limit(0).toArrow().schema))
            safe = frame.mapInArrow(dying(partial(release.map_arrow, plan=plan)), schema)
            drawn_rows = reports_by_id([safe.toArrow()])
            assert reports_by_id([safe.toArrow()]) == drawn_rows
        rounds += 1
        assert sorted(drawn_rows) == trips["trip"].to_list()
        assert charges(tmp_path) == expected_charges(trips, rounds)
        print(
            f"piece {piece}, round {rounds}: {fate.deaths()} deaths, {fate.copies()} copies of slow tasks", flush=True
        )


@pytest.fixture
def spark(tmp_path, monkeypatch):
    """Two executors on this machine, processes of their own; a second try of slow tasks, without an end of tries."""
    pyspark = pytest.importorskip("pyspark")
    sql = pytest.importorskip("pyspark.sql")
    home = tmp_path / "spark"  # executors write next to where Spark is
    home.mkdir()
    for path in Path(pyspark.__file__).parent.iterdir():
        (home / path.name).symlink_to(path)
    monkeypatch.setenv("SPARK_HOME", str(home))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    builder = sql.SparkSession.builder.master("local-cluster[2,1,1024]")
    options = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "512m",
        "spark.local.dir": str(tmp_path / "blocks"),
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.minTaskRuntime": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.1",
        "spark.task.maxFailures": "1000",
        "spark.stage.maxConsecutiveAttempts": "1000",
        "spark.deploy.maxExecutorRetries": "-1",
    }
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
