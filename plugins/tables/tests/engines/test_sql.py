"""DuckDB: each row that a query selects has a draw of its own, charged before it; plans are counted, not believed."""

import random
import sqlite3
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from helpers.grids import often
from helpers.lake import NOTES, PLACES, expected_reports
from scipy.stats import chisquare

import privopt as po
from privopt.errors import UsageError

duckdb = pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")
pytestmark = pytest.mark.filterwarnings(NOTES)

EPSILON = Fraction(1, 2)


@pytest.fixture
def lake(release, trips, tmp_path):
    """Connect: ``report`` charges a ledger, ``free`` charges no one; the trips are a table and a file of Parquet."""
    with duckdb.connect(config={"threads": 4}) as connection:
        connection.register("given", trips.head(2100).to_arrow())  # a vector of DuckDB's and some rows
        connection.execute("CREATE TABLE trips AS SELECT * FROM given")
        connection.execute("CREATE TABLE areas AS SELECT range AS g, 'area ' || range AS area FROM range(5)")
        connection.execute(f"COPY trips TO '{tmp_path / 'trips.parquet'}' (ROW_GROUP_SIZE 2048)")
        connection.execute("CREATE TABLE few AS FROM trips LIMIT 300")
        connection.execute(f"CREATE VIEW few_stored AS FROM '{tmp_path / 'trips.parquet'}' WHERE trip < 300")
        connection.execute(f"CREATE VIEW stored AS FROM '{tmp_path / 'trips.parquet'}'")
        po.sql.register(connection, release, ledger=tmp_path / "book")
        po.sql.register(connection, release, "free")
        yield connection


def charges(folder):
    """How often each subject was charged; every sum is that number times epsilon, exactly."""
    with po.Ledger(folder / "book") as ledger:
        accounts = ledger.accounts()
    assert all(account.spent == account.reports * EPSILON for account in accounts)
    return Counter({account.subject: account.reports for account in accounts})


def count_subjects(lake, source):
    """How often each subject stands in what a query selects from."""
    rows = lake.execute(f"SELECT who, count(*) FROM {source} GROUP BY who").fetchall()
    return Counter({name: count for name, count in rows if name is not None})


REPORT = "report(lat, lon, who)"
QUERIES = {
    f"SELECT {REPORT} FROM trips": (1, "trips"),
    f"SELECT trip, {REPORT} AS a, {REPORT} AS b FROM trips": (2, "trips"),
    f"SELECT {REPORT}.id, {REPORT}.id FROM trips": (2, "trips"),
    f"SELECT a.id, a.lat, a.lon FROM (SELECT {REPORT} AS a FROM trips)": (1, "trips"),
    f"SELECT DISTINCT {REPORT} FROM trips": (1, "trips"),
    f"SELECT DISTINCT a.id, b.id FROM (SELECT {REPORT} AS a, {REPORT} AS b FROM trips)": (2, "trips"),
    f"SELECT area, {REPORT} FROM trips JOIN areas USING (g)": (1, "trips JOIN areas USING (g)"),
    f"SELECT {REPORT} FROM trips, range(3)": (1, "trips, range(3)"),
    f"SELECT {REPORT} FROM trips a SEMI JOIN areas USING (g) WHERE g < 2": (1, "trips WHERE g < 2"),
    f"SELECT * FROM (SELECT {REPORT} AS a FROM trips JOIN (SELECT trip FROM stored) USING (trip)) WHERE a.id = 'p3'": (
        1,
        "trips",
    ),
    f"SELECT count(a.id), count(a.lat) FROM (SELECT {REPORT} AS a FROM stored)": (1, "trips"),
    f"SELECT a.id, count(*) FROM (SELECT {REPORT} AS a FROM trips) GROUP BY ALL ORDER BY 1": (1, "trips"),
    f"WITH r AS MATERIALIZED (SELECT trip, {REPORT} AS a FROM trips) FROM r x JOIN r y USING (trip)": (1, "trips"),
    f"SELECT {REPORT} FROM trips UNION ALL SELECT {REPORT} FROM stored": (2, "trips"),
    f"SELECT CASE WHEN g = 1 THEN {REPORT} END FROM trips": (1, "trips WHERE g = 1"),
    f"SELECT trip FROM trips WHERE {REPORT}.id = 'p1'": (1, "trips"),
    f"SELECT (SELECT {REPORT}.id) FROM trips": (1, "trips"),
    f"SELECT trip FROM (SELECT trip, {REPORT} FROM trips)": (0, "trips"),
    "SELECT report(45.0, 7.0, who) FROM trips": (1, "trips"),
}  # fmt: skip
TRIED = [query for number, query in enumerate(QUERIES) if number not in (2, 4, 6, 7, 8, 11, 13)]
"""Without those most like what random queries ask for."""


@often("query", QUERIES, TRIED)
def test_each_selected_row_is_drawn_and_charged_once(lake, tmp_path, query):
    times, source = QUERIES[query]
    lake.execute(query).fetchall()
    rows = count_subjects(lake, source)
    assert charges(tmp_path) == Counter({name: times * count for name, count in rows.items() if times})


def test_plan_has_a_call_for_each_occurrence(lake):
    def plan(query):
        return lake.execute(f"EXPLAIN {query}").fetchall()[0][1]

    assert plan("SELECT free(lat, lon), free(lat, lon) FROM trips").count("free(") == 2
    fields = plan("SELECT a.id, a.lat FROM (SELECT free(lat, lon) AS a FROM trips) WHERE a.lon > 0")
    assert fields.count("struct_extract(a,") == 3  # of one column: a filter or a field is no second call
    assert fields.count("free(") <= 1
    volatility_query = "SELECT stability FROM duckdb_functions() WHERE function_name IN ('free', 'report')"
    assert lake.execute(volatility_query).fetchall() == [("VOLATILE",)] * 2


def test_equal_rows_and_calls_share_no_draw(lake):
    """Dictionaries, constants and equal expressions: places where an engine might evaluate once for many rows."""
    for source in (
        "trips",
        "stored",
        "trips JOIN areas USING (g)",
        "(SELECT 45.0 AS lat, 7.0 AS lon FROM range(3000))",
    ):
        pairs = lake.execute(f"SELECT free(lat, lon), free(lat, lon) FROM {source} WHERE lat IS NOT NULL").fetchall()
        equal_share = np.mean([first == second for first, second in pairs])
        assert 0 < equal_share < 0.5, source
        assert len({first["id"] for first, _ in pairs}) == len(PLACES)
    for first, _ in pairs:
        assert (first["lat"], first["lon"]) == pytest.approx(PLACES[first["id"]])


def test_reports_follow_the_law(lake, release):
    rows = lake.execute(
        "SELECT place, a.id FROM (SELECT place, free(lat, lon) AS a FROM trips, range(20) WHERE lat IS NOT NULL)"
    ).fetchall()
    expected_counts = expected_reports(release, Counter(place_name for place_name, _ in rows))
    observed = Counter(report for _, report in rows)
    assert chisquare([observed[name] for name in expected_counts], list(expected_counts.values())).pvalue > 1e-6


def test_refused_row_is_null_and_charged_alike(lake, release, tmp_path):
    with po.Ledger(tmp_path / "small") as ledger:
        ledger.set_limit(10)
    po.sql.register(lake, release, "few", ledger=tmp_path / "small")
    rows = lake.execute("SELECT who, lat, few(lat, lon, who) FROM trips").fetchall()
    with po.Ledger(tmp_path / "small") as ledger:
        accounts = ledger.accounts()
    assert {account.spent for account in accounts} == {10}
    reported = Counter(name for name, _, report in rows if report is not None)
    empty = Counter(name for name, lat, _ in rows if lat is None)
    assert None not in reported
    assert all(20 - empty[account.subject] <= reported[account.subject] <= 20 for account in accounts)


def test_refuses_invalid_registrations(lake, release, tmp_path):
    with po.Ledger(tmp_path / "daily") as ledger:
        ledger.set_limit(1, per="day")
    with pytest.raises(UsageError, match=r"by day .*apply --time"):
        po.sql.register(lake, release, "daily", ledger=tmp_path / "daily")
    with pytest.raises(UsageError, match="DuckDB"):
        po.sql.register(sqlite3.connect(":memory:"), release)
    with pytest.raises(UsageError, match=r"privopt\.open, got str"):
        po.sql.register(lake, "folder")
    for name in (" ", None):
        with pytest.raises(UsageError, match="of a function"):
            po.sql.register(lake, release, name)
    unread = lake.execute("FROM range(3)")
    for name in ("report", "Free", "count", "abs"):
        with pytest.raises(UsageError, match=f"got {name}"):
            po.sql.register(lake, release, name)
    assert len(unread.fetchall()) == 3
    lake.remove_function("free")
    po.sql.register(lake, release, "free")


def test_failed_charge_ends_the_query(lake, tmp_path):
    lake.execute("SELECT report(lat, lon, who) FROM few").fetchall()  # the first charge makes the ledger's file
    with sqlite3.connect(tmp_path / "book") as book:
        book.execute("UPDATE entries SET total = '7'")
    with pytest.raises(duckdb.Error, match="changed"):
        lake.execute("SELECT report(lat, lon, who) FROM trips")


def test_warns_of_what_holds_for_all_reports(release, tmp_path):
    with duckdb.connect() as connection, pytest.warns(po.PrivoptWarning, match="all reports"):
        po.sql.register(connection, release, ledger=po.Ledger(tmp_path / "open"))


def random_query(chance):
    """Return a query, how many calls of the function it has, what it selects from, its limit, and DISTINCT."""
    source = chance.choice(["few", "few_stored", "few JOIN areas USING (g)", "few, range(2)"])
    row_filter = chance.choice(
        ["", "WHERE g = 2", "WHERE trip % 7 < 3", "WHERE lat IS NOT NULL AND g <> 1", "WHERE false"]
    )
    calls = chance.randint(1, 3)
    columns = ", ".join(f"{REPORT} AS r{number}" for number in range(calls))
    distinct = chance.choice(["", "DISTINCT "])
    query = f"SELECT {distinct}place, {columns} FROM {source} {row_filter}"
    if chance.random() < 0.3:
        query = f"SELECT * FROM ({query}) WHERE r0.id IS NOT NULL OR place IS NOT NULL"
    if chance.random() < 0.3:
        query = f"WITH q AS MATERIALIZED ({query}) SELECT * FROM q"
    if chance.random() < 0.2:
        query = f"SELECT * FROM ({query}) ORDER BY r0.id"
    limit = chance.choice([None, None, None, 0, 1, 50])
    return query + ("" if limit is None else f" LIMIT {limit}"), calls, f"{source} {row_filter}", limit, distinct


@pytest.mark.parametrize("count", [30, pytest.param(1000, marks=pytest.mark.slow)])
def test_random_queries_draw_what_they_select(lake, release, tmp_path, count):
    chance, observed, places, old_charges = random.Random(count), Counter(), Counter(), Counter()
    for _ in range(count):
        query, calls, source, limit, distinct = random_query(chance)
        result = lake.execute(query).fetchall()
        rows, new_charges = count_subjects(lake, source), charges(tmp_path)
        charged_counts = new_charges - old_charges
        expected_charges = Counter({subject: calls * times for subject, times in rows.items()})
        if limit is None:
            assert charged_counts == +expected_charges, query
        else:  # a limit may spare draws, and never lets two rows have one
            assert charged_counts <= expected_charges, query
            assert charged_counts.total() >= calls * sum(row[1] is not None for row in result), query
        if limit is None and not distinct:
            for place_name, *reports in result:
                for report in reports:
                    if report is not None:
                        observed[report["id"]] += 1
                        places[place_name] += 1
        old_charges = new_charges
    expected_counts = expected_reports(release, places)
    assert chisquare([observed[name] for name in expected_counts], list(expected_counts.values())).pvalue > 1e-6
    assert observed.total() > 40 * count
    with po.Ledger(tmp_path / "book") as ledger:
        ledger.check()
