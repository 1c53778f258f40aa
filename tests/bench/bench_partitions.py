"""What a table in files costs: ``release.batch`` by Dask and by Spark, next to ``apply --batch``; and without accounts.

Run as ``python tests/bench/bench_partitions.py [--rows 1000000] [--engines apply dask spark duckdb polars]``. Trips of
10 rows for each rider lie in files of Parquet, each with riders of its own; the release is that of bench_tables.py.
DuckDB and Polars draw without a ledger, the others charge each rider. Seconds are processor seconds of this process and
of those that it has waited for, which Spark's and Dask's are not: compare these by the wall clock. Memory is that of
the largest of the same processes.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from bench_city import PRIVOPT
from bench_tables import release

PART = 250_000
CORES = 2
COLUMNS = {"subject": "rider", "row": "trip", "lat": "lat", "lon": "lon"}


def trips(folder: Path, rows: int, box: tuple[float, float, float, float]) -> None:
    """Write files of Parquet, all rows of a rider in one."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for start in range(0, rows, PART):
        number = np.arange(start, min(start + PART, rows))
        columns = {"trip": number, "rider": number // 10, "lat": rng.uniform(*box[:2], len(number))}
        frame = pl.DataFrame({**columns, "lon": rng.uniform(*box[2:], len(number))})
        frame.write_parquet(folder / f"part-{start:012}.parquet")


def by_apply(folder: Path) -> None:
    """Protect all files as one table, by the command."""
    pl.scan_parquet(folder / "trips" / "*.parquet").sink_parquet(folder / "trips.parquet")
    arguments = ["apply", folder / "out", folder / "trips.parquet", "--lat", "lat", "--lon", "lon", "--batch", "bench"]
    arguments += ["--ledger", folder / "book", "--subject", "rider", "--quiet", "--out", folder / "safe.parquet"]
    subprocess.run([*PRIVOPT, *arguments], check=True, capture_output=True)


def by_dask(folder: Path) -> None:
    """Protect each file as a partition, in processes of a local cluster."""
    import dask.dataframe as dd
    from distributed import Client

    import privopt as po

    table = dd.read_parquet(folder / "trips", split_row_groups=False, aggregate_files=False)
    opened = po.open(folder / "out")
    with (
        Client(n_workers=CORES, threads_per_worker=1, dashboard_address=None),
        opened.batch("bench", ledger=folder / "book", **COLUMNS) as batch,
    ):
        plan = batch.charge(table.map_partitions(batch.tally, meta=batch.tally(table._meta)).compute())
        safe = table.map_partitions(opened.map_arrow, plan, meta=opened.map_arrow(table._meta, plan))
        safe.to_parquet(folder / "safe")


def by_duckdb(folder: Path) -> None:
    """Protect the files by a query that nobody is charged for."""
    import duckdb

    import privopt as po

    with duckdb.connect(config={"threads": CORES}) as connection:
        po.sql.register(connection, po.open(folder / "out"))
        query = f"SELECT trip, rider, report(lat, lon) AS place FROM '{folder}/trips/*.parquet'"
        connection.execute(f"COPY ({query}) TO '{folder}/safe.parquet'")


def by_polars(folder: Path) -> None:
    """Protect the files by a streaming query that nobody is charged for."""
    import privopt as po

    report = po.open(folder / "out").expr("lat", "lon")
    pl.scan_parquet(folder / "trips" / "*.parquet").select("trip", "rider", report).sink_parquet(
        folder / "safe.parquet"
    )


def by_spark(folder: Path) -> None:
    """Protect the files as a table that Spark partitions by rider."""
    from pyspark.sql import SparkSession
    from pyspark.sql.pandas.types import from_arrow_schema

    import privopt as po
    from privopt_tables.partitions import TALLY

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{CORES}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "2g").config("spark.local.dir", str(folder / "spark"))
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    table = spark.read.parquet(str(folder / "trips"))
    table = table.repartition(max(CORES, table.count() // PART), "rider")
    opened = po.open(folder / "out")
    with opened.batch("bench", ledger=folder / "book", **COLUMNS) as batch:
        plan = batch.charge(table.mapInArrow(batch.tally, TALLY).toArrow())
        schema = from_arrow_schema(plan.schema(table.limit(0).toArrow().schema))
        table.mapInArrow(partial(opened.map_arrow, plan=plan), schema).write.parquet(str(folder / "safe"))
    spark.stop()


ENGINES = {"apply": by_apply, "dask": by_dask, "spark": by_spark, "duckdb": by_duckdb, "polars": by_polars}


def child(engine: str, folder: Path) -> None:
    """Run one engine in this process, and print what it and its children took."""
    began = time.monotonic()
    ENGINES[engine](folder)
    wall = time.monotonic() - began
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(usage.ru_utime + usage.ru_stime for usage in used)
    print(wall, seconds, max(usage.ru_maxrss for usage in used) * 1024 / 1e9)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[1_000_000])
    parser.add_argument("--engines", nargs="*", default=list(ENGINES), choices=list(ENGINES))
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        child(arguments.engines[0], arguments.child)
        return
    for rows in arguments.rows:
        with tempfile.TemporaryDirectory() as folder_name:
            folder = Path(folder_name)
            trips(folder / "trips", rows, release(folder))
            for engine in arguments.engines:
                command = [sys.executable, __file__, "--engines", engine, "--child", str(folder)]
                completed = subprocess.run(command, capture_output=True, text=True, check=False)
                if completed.returncode:
                    print(
                        f"{engine}, {rows:,} rows: exit {completed.returncode}: {completed.stderr[-2000:]}", flush=True
                    )
                    continue
                wall, seconds, peak = map(float, completed.stdout.split()[-3:])
                output_bytes = (
                    sum(path.stat().st_size for path in folder.glob("safe*/**/*.parquet"))
                    or (folder / "safe.parquet").stat().st_size
                )
                book = (folder / "book").stat().st_size if (folder / "book").exists() else 0
                print(
                    f"{engine}, {rows:,} rows: {wall:.1f} s, {seconds:.1f} processor seconds, "
                    f"{rows / seconds:,.0f} rows a second a core, {peak:.2f} GB, "
                    f"ledger {book / 1e6:.1f} MB, reports {output_bytes / 1e6:.0f} MB, "
                    f"load {os.getloadavg()[0]:.1f}",
                    flush=True,
                )
                for path in (*folder.glob("safe*"), *folder.glob("book*")):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()


if __name__ == "__main__":
    main()
