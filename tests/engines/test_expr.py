"""Polars: each row has a draw of its own each time that the expression stands in a query, in memory and streaming."""

from collections import Counter

import polars as pl
import pytest
from helpers.lake import NOTES, PLACES, expected
from scipy.stats import chisquare

import privopt as po
from privopt.errors import UsageError

pytestmark = [
    pytest.mark.filterwarnings(NOTES),
    pytest.mark.filterwarnings("ignore:.*map_batches.*"),
]
ENGINES = pytest.mark.parametrize("engine", ["in-memory", "streaming"])


@pytest.fixture
def trips(trips):
    return trips.head(600)


@pytest.fixture
def book(tmp_path):
    return tmp_path / "book"


@pytest.fixture
def lazy(trips, tmp_path):
    """Trips in a file, read in many parts."""
    trips.write_parquet(tmp_path / "trips.parquet", row_group_size=100)
    return pl.scan_parquet(tmp_path / "trips.parquet")


def charges(book):
    with po.Ledger(book) as ledger:
        ledger.check()
        accounts = ledger.accounts()
    assert all(account.spent * 2 == account.reports for account in accounts)
    return Counter({account.subject: account.reports for account in accounts})


def field(name):
    return pl.col(name).struct.field("id")


QUERIES = {
    "once": (1, None, lambda lf, e: lf.select(e)),
    "twice the same expression": (2, None, lambda lf, e: lf.select(e.alias("a"), e.alias("b"))),
    "its fields": (2, None, lambda lf, e: lf.select(e.struct.field("id"), e.struct.field("lat"))),
    "one after the other": (2, None, lambda lf, e: lf.with_columns(e.alias("a")).with_columns(e.alias("b"))),
    "fields of one": (1, None, lambda lf, e: lf.with_columns(e.alias("a")).select(field("a"), pl.col("a").alias("b"))),
    "a filter before": (1, pl.col("g") == 3, lambda lf, e: lf.filter(pl.col("g") == 3).with_columns(e)),
    "a filter after": (1, pl.col("g") == 3, lambda lf, e: lf.with_columns(e).filter(pl.col("g") == 3)),
    "a filter of reports": (1, None, lambda lf, e: lf.with_columns(e.alias("a")).filter(field("a") == "p1")),
    "distinct": (1, None, lambda lf, e: lf.select(e).unique()),
    "one frame twice": (1, None, lambda lf, e: pl.concat([f := lf.with_columns(e), f])),
    "a join": (1, None, lambda lf, e: lf.join(lf.select("trip"), on="trip").with_columns(e)),
    "not asked for": (0, None, lambda lf, e: lf.with_columns(e.alias("a")).select("trip")),
    "groups": (1, None, lambda lf, e: lf.group_by("g").agg(e)),
}


@ENGINES
@pytest.mark.parametrize("name", QUERIES)
def test_each_row_is_drawn_for_once_and_charged_once(release, trips, lazy, book, name, engine):
    times, some, query = QUERIES[name]
    expr = release.expr("lat", "lon", ledger=book, subject="who")
    query(lazy, expr).collect(engine=engine)
    rows = trips if some is None else trips.filter(some)
    whom = Counter(who for who in rows["who"] if who is not None)
    assert charges(book) == Counter({who: times * count for who, count in whom.items() if times})


@ENGINES
def test_no_two_places_of_a_query_share_a_draw_and_reports_come_as_certified(release, lazy, engine):
    expr = release.expr("lat", "lon")
    some = pl.concat([lazy.filter(pl.col("lat").is_not_null())] * 40)
    got = some.select("place", expr.alias("a"), expr.alias("b")).collect(engine=engine)
    assert 0 < (got["a"] == got["b"]).mean() < 0.5
    wanted = expected(release, Counter(got["place"]))
    for name in ("a", "b"):
        seen = Counter(got[name].struct.field("id"))
        assert chisquare([seen[report] for report in wanted], list(wanted.values())).pvalue > 1e-6
    for report in got["a"].head(50):
        assert (report["lat"], report["lon"]) == pytest.approx(PLACES[report["id"]])


def test_what_has_no_report_is_null(release, trips, book):
    with po.Ledger(book) as ledger:
        ledger.set_limit(5)
        got = trips.with_columns(release.expr("lat", "lon", ledger=ledger, subject="who"))
        assert {account.spent for account in ledger.accounts()} == {5}
    assert got.filter(pl.col("lat").is_null() | pl.col("who").is_null())["report"].null_count() > 0
    assert got.filter(pl.col("report").is_not_null())["who"].value_counts()["count"].max() <= 10


@pytest.mark.parametrize(
    ("columns", "more", "words"),
    [(["lat"], {}, "lat, lon"), (["lat", "lon"], {"subject": "who"}, "both ledger and subject")],
)
def test_other_columns_are_refused(release, columns, more, words):
    with pytest.raises(UsageError, match=words):
        release.expr(*columns, **more)


@ENGINES
def test_a_fault_in_a_column_comes_as_it_is_said(release, trips, book, engine):
    # Polars makes an error again from its text, and InputError took each letter for a fault
    expr = release.expr("lat", "lon", ledger=book, subject="who")
    named = trips.lazy().with_columns(who=pl.lit("a\x07b")).with_columns(expr)
    with pytest.raises(UsageError, match=r"^table: column subject: found a name with U\+0007"):
        named.collect(engine=engine)
