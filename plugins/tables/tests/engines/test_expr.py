"""Polars: each row has a draw of its own each time that the expression stands in a query, in memory and streaming."""

import random
from collections import Counter

import polars as pl
import pytest
from helpers.lake import NOTES, PLACES, expected_reports
from scipy.stats import chisquare

import privopt as po
from privopt.errors import UsageError

pytestmark = [pytest.mark.filterwarnings(NOTES), pytest.mark.filterwarnings("ignore:.*map_batches.*")]
ENGINES = pytest.mark.parametrize("engine", ["in-memory", "streaming"])


@pytest.fixture
def trips(trips):
    return trips.head(300)


@pytest.fixture
def book(tmp_path):
    return tmp_path / "book"


@pytest.fixture
def lazy(trips, tmp_path):
    """Trips in a file, read in many parts."""
    trips.write_parquet(tmp_path / "trips.parquet", row_group_size=50)
    return pl.scan_parquet(tmp_path / "trips.parquet")


def charges(book, *, check=True):
    with po.Ledger(book) as ledger:
        if check:
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
def test_each_row_is_drawn_and_charged_once(release, trips, lazy, book, name, engine):
    times, row_filter, query = QUERIES[name]
    expr = release.expr("lat", "lon", ledger=book, subject="who")
    query(lazy, expr).collect(engine=engine)
    rows = trips if row_filter is None else trips.filter(row_filter)
    whom = Counter(subject for subject in rows["who"] if subject is not None)
    assert charges(book) == Counter({subject: times * count for subject, count in whom.items() if times})


@ENGINES
def test_calls_share_no_draw_and_follow_the_law(release, lazy, engine):
    expr = release.expr("lat", "lon")
    known_rows = pl.concat([lazy.filter(pl.col("lat").is_not_null())] * 20)
    result = known_rows.select("place", expr.alias("a"), expr.alias("b")).collect(engine=engine)
    assert 0 < (result["a"] == result["b"]).mean() < 0.5
    expected_counts = expected_reports(release, Counter(result["place"]))
    for name in ("a", "b"):
        observed = Counter(result[name].struct.field("id"))
        assert chisquare([observed[report] for report in expected_counts], list(expected_counts.values())).pvalue > 1e-6
    for report in result["a"].head(50):
        assert (report["lat"], report["lon"]) == pytest.approx(PLACES[report["id"]])


def test_row_without_report_is_null(release, trips, book):
    with po.Ledger(book) as ledger:
        ledger.set_limit(2)
        result = trips.with_columns(release.expr("lat", "lon", ledger=ledger, subject="who"))
        assert {account.spent for account in ledger.accounts()} == {2}
    assert result.filter(pl.col("lat").is_null() | pl.col("who").is_null())["report"].null_count() > 0
    assert result.filter(pl.col("report").is_not_null())["who"].value_counts()["count"].max() <= 4


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [(["lat"], {}, "lat, lon"), (["lat", "lon"], {"subject": "who"}, "ledger and subject")],
)
def test_refuses_other_columns(release, columns, options, words):
    with pytest.raises(UsageError, match=words):
        release.expr(*columns, **options)


@ENGINES
def test_fault_in_a_column_is_passed_on(release, trips, book, engine):
    # Polars makes an error again from its text, and InputError took each letter for a fault
    expr = release.expr("lat", "lon", ledger=book, subject="who")
    faulty_frame = trips.lazy().with_columns(who=pl.lit("a\x07b")).with_columns(expr)
    with pytest.raises(UsageError, match=r"^table: column subject: .*U\+0007"):
        faulty_frame.collect(engine=engine)


SOURCES = {
    "file": lambda lf: lf,
    "sorted": lambda lf: lf.sort("place", "trip"),
    "joined": lambda lf: lf.join(pl.LazyFrame({"g": [0, 2, 4], "area": ["a", "b", "c"]}), on="g"),
    "crossed": lambda lf: lf.join(pl.LazyFrame({"n": [1, 2]}), how="cross"),
    "in parts": lambda lf: pl.concat([lf.filter(pl.col("g") < 2), lf.filter(pl.col("g") > 2)]),
}
FILTERS = [pl.lit(True), pl.col("g") == 2, pl.col("trip") % 7 < 3, pl.col("lat").is_not_null(), pl.lit(False)]
ENDS = {
    "as it is": lambda lf: lf,
    "some reports": lambda lf: lf.filter(field("r0").is_in(["p1", "p2"])),
    "by report": lambda lf: lf.sort(field("r0")),
    "distinct": lambda lf: lf.unique(),
    "counted": lambda lf: lf.group_by(pl.col("^r.$")).len(),
    "limited": lambda lf: lf.head(13),
}


@pytest.mark.slow
def test_random_queries_draw_what_they_select(release, trips, lazy, book):
    count = 1000
    expr = release.expr("lat", "lon", ledger=book, subject="who")
    chance, observed, places, old_charges = random.Random(count), Counter(), Counter(), Counter()
    for _ in range(count):
        source, rule, end = (chance.choice(list(choices)) for choices in (SOURCES, FILTERS, ENDS))
        calls, engine = chance.randint(1, 3), chance.choice(["in-memory", "streaming"])
        used_columns = [f"r{n}" for n in range(calls) if n == 0 or chance.random() < 0.7]
        source_rows = SOURCES[source](lazy).filter(rule)
        query = source_rows.with_columns(expr.alias(f"r{n}") for n in range(calls)).select(
            "place", "who", *used_columns
        )
        result = ENDS[end](query).collect(engine=engine)
        new_charges = charges(book, check=False)
        rows = SOURCES[source](trips.lazy()).filter(rule).collect()
        max_charges = Counter(
            {subject: len(used_columns) * times for subject, times in Counter(rows["who"].drop_nulls()).items()}
        )
        about = (source, str(rule), end, calls, used_columns, engine)
        if end == "limited":  # a limit may spare draws, and never lets two rows have one
            assert new_charges - old_charges <= max_charges, about
            assert (new_charges - old_charges).total() >= len(used_columns) * result["who"].count(), about
        else:
            assert new_charges - old_charges == max_charges, about
        if end in ("as it is", "by report"):
            for name in used_columns:
                for place_name, report in result.select("place", name).drop_nulls().iter_rows():
                    observed[report["id"]] += 1
                    places[place_name] += 1
        old_charges = new_charges
    charges(book)  # the whole chain holds
    expected_counts = expected_reports(release, places)
    assert observed.total() > 20 * count
    assert chisquare([observed[name] for name in expected_counts], list(expected_counts.values())).pvalue > 1e-6
