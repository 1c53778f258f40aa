"""Limits by calendar period: which period a row lies in, what it may still spend there, and what is refused."""

import json
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo

import narwhals as nw
import pandas as pd
import polars as pl
import pytest
from helpers.charging import BY_ID, charged, said, table
from hypothesis import given
from hypothesis import strategies as st

from privopt.errors import BudgetSpentError, InputError, UsageError
from privopt.interfaces.cost import Cost
from privopt.ledger.iso_times import read_iso_time
from privopt.ledger.ledger import Ledger
from privopt.ledger.periods import Calendar, periods_of

HALF = Cost(epsilon="0.5", unit="per km")
ROME = "Europe/Rome"


@pytest.mark.parametrize(
    ("per", "zone", "time", "period"),
    [
        ("day", ROME, "2026-03-28T22:59:59.999999Z", "2026-03-28"),
        ("day", ROME, "2026-03-28T23:00:00Z", "2026-03-29"),  # the night of 23 hours begins at +01:00
        ("day", ROME, "2026-03-29T21:59:59Z", "2026-03-29"),  # and ends at +02:00
        ("day", ROME, "2026-03-29T22:00:00Z", "2026-03-30"),
        ("day", ROME, "2026-10-24T22:00:00Z", "2026-10-25"),  # the night of 25 hours
        ("day", ROME, "2026-10-25T22:59:59Z", "2026-10-25"),
        ("day", ROME, "2026-10-25T23:00:00Z", "2026-10-26"),
        ("day", "America/New_York", "2026-03-08T04:59:59Z", "2026-03-07"),
        ("day", "America/New_York", "2026-11-02T04:59:59Z", "2026-11-01"),
        ("day", "UTC", "2028-02-29", "2028-02-29"),
        ("day", "UTC", "2026-02-29", None),
        ("day", ROME, "2026-03-29 02:30", "2026-03-29"),  # a time that the clock leaves out is of its date
        ("day", ROME, "2026-10-25 02:30", "2026-10-25"),  # and one that it shows twice, too
        ("week", "UTC", "2027-01-03T23:59:59Z", "2026-W53"),
        ("week", "UTC", "2027-01-04", "2027-W01"),
        ("month", ROME, "2026-03-31T22:00:00+00:00", "2026-04"),
        ("month", "UTC", "2026-12-31T23:30-01:00", "2027-01"),
        ("day", "UTC", "2026-05-01T24:00", "2026-05-02"),
        ("day", "UTC", "2026-05-01T24:01", None),
        ("day", "UTC", "2016-12-31T23:59:60Z", "2016-12-31"),  # a leap second is of its day
        ("day", ROME, "2016-12-31T23:59:60Z", "2017-01-01"),
        ("week", "UTC", "2020-W53-5T10:00Z", "2020-W53"),
        ("day", "UTC", "2021-003T10:00:00Z", "2021-01-03"),
        ("day", "UTC", "2021-366", None),
        ("day", "UTC", "20210103T100000Z", "2021-01-03"),
        ("day", "UTC", "2021-01-03T23:30:00\u22120100", "2021-01-04"),
        ("day", "UTC", "2021-01-03T23,9+01", "2021-01-03"),
        ("day", "UTC", "2021-01", None),
        ("day", "UTC", "1609459200", None),  # seconds since 1970 are no date
        ("day", "UTC", "yesterday", None),
        ("day", "UTC", "0001-01-01T00:00+01:00", None),
    ],
)
def test_a_time_lies_in_its_period(per, zone, time, period):
    column = nw.from_native(pl.Series("t", [time, None]), series_only=True)
    assert periods_of(column, Calendar(per, zone)) == [period, None]


@given(st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)), st.sampled_from(["UTC", ROME, "Asia/Kolkata"]))
def test_every_form_of_a_time_lies_in_the_same_period(naive, zone):
    instant = naive.replace(tzinfo=UTC)
    local = instant.astimezone(ZoneInfo(zone))
    calendar = Calendar("day", zone)
    columns = [
        pl.Series("t", [instant]),
        pl.Series("t", [local.replace(tzinfo=None)]),
        pl.Series("t", [local.date()]),
        pl.Series("t", [instant.isoformat()]),
        pl.Series("t", [local.replace(tzinfo=None).isoformat(" ")]),
    ]
    found = {periods_of(nw.from_native(column, series_only=True), calendar)[0] for column in columns}
    assert found == {local.date().isoformat()}


@given(
    st.datetimes(datetime(1000, 1, 3), datetime(9999, 12, 29)),
    st.sampled_from(["%Y-%m-%d", "%Y%m%d", "%G-W%V-%u", "%GW%V%u", "%Y-%j", "%Y%j"]),
    st.sampled_from(["T%H:%M:%S", "T%H%M%S", " %H:%M:%S.%f", "t%H%M%S,%f"]),
    st.sampled_from(["", "Z", "z", "+00:00", "-00", "+0000"]),
)
def test_reads_every_form_of_iso_8601(moment, day, clock, offset):
    text = "".join(moment.strftime(form) for form in (day, clock)) + offset
    read = read_iso_time(text)
    assert read is not None
    assert read.moment == moment.replace(microsecond=0, tzinfo=UTC if offset else None)
    assert read.beyond == (Fraction(moment.microsecond, 10**6) if "%f" in clock else 0)


@given(st.text(alphabet="0123456789-:TWZ+., ", max_size=24))
def test_no_text_breaks_the_reader_of_times(text):
    read = read_iso_time(text)
    assert read is None or read.second.year >= 1


@pytest.mark.parametrize(
    ("per", "zone"), [("year", "UTC"), ("day", "Mars/Olympus"), ("day", "/etc/passwd"), ("day", "")]
)
def test_unknown_periods_and_zones_are_refused(per, zone):
    with pytest.raises(UsageError, match="must be"):
        Calendar(per, zone)


def test_each_period_has_its_own_budget(tmp_path):
    with Ledger(tmp_path / "book") as ledger:
        ledger.set_limit(1, per="day", zone=ROME)
        days = ["2026-03-29", "2026-03-28", "2026-03-29", "2026-03-29", "2026-03-28"]
        assert ledger.charge_each(["anna"] * 5, HALF, days) == [True, True, True, False, True]
        assert ledger.charge_each(["bert"], HALF, ["2026-03-29"]) == [True]
        ledger.check()
        accounts = [(each.subject, each.period, each.spent, each.left) for each in ledger.accounts()]
        assert accounts == [
            ("anna", "2026-03-28", 1, 0),
            ("anna", "2026-03-29", 1, 0),
            ("bert", "2026-03-29", Fraction(1, 2), Fraction(1, 2)),
        ]
        assert [charge.period for charge in ledger.charges("anna")] == [days[n] for n in (0, 1, 2, 4)]


def test_without_a_period_the_present_one_is_charged(tmp_path):
    now = datetime(2026, 3, 29, 22, 30, tzinfo=UTC)
    with Ledger(tmp_path / "book", clock=lambda: int(now.timestamp() * 1e9)) as ledger:
        ledger.set_limit("0.5", per="day", zone=ROME)
        ledger.charge("anna", HALF)
        assert ledger.account("anna").period == "2026-03-30"
        with pytest.raises(BudgetSpentError, match="left in 2026-03-30"):
            ledger.charge("anna", HALF)
        now += timedelta(days=1)
        ledger.charge("anna", HALF)


def test_a_calendar_does_not_change_once_something_is_charged(tmp_path):
    with Ledger(tmp_path / "book") as ledger:
        ledger.set_limit(1, hours=24)
        ledger.set_limit(1, per="day", zone=ROME)
        ledger.charge("anna", HALF)
        ledger.set_limit(2, per="day", zone=ROME)
        for other in ({"per": "day"}, {"per": "week", "zone": ROME}, {"hours": 24}, {}):
            with pytest.raises(UsageError, match="as charged so far"):
                ledger.set_limit(1, **other)
        assert ledger.limit_of("epsilon").amount == 2
        with pytest.raises(UsageError, match="window or calendar"):
            ledger.set_limit(1, hours=1, per="day", zone=ROME)
    with Ledger(tmp_path / "other") as ledger:
        ledger.charge("anna", HALF)
        with pytest.raises(UsageError, match="must be none, as charged"):
            ledger.set_limit(1, per="day")
        with pytest.raises(UsageError, match="by the calendar"):
            ledger.charge("anna", HALF, period="2026-03-29")


def test_hashed_subjects_have_periods_too(tmp_path):
    with Ledger(tmp_path / "book", key=tmp_path / "key") as ledger:
        ledger.set_limit("0.5", per="month")
        granted = ledger.charge_each(["anna"] * 3, HALF, ["2026-03", "2026-03", "2026-04"])
        assert granted == [True, False, True]
        assert [len(each.subject) for each in ledger.accounts()] == [64, 64]
        ledger.check()


def rows_of_nights(nights, each):
    start = datetime(2026, 3, 20, 12, tzinfo=UTC)
    return [
        f"{who},p{(night + trip) % 12},{(start + timedelta(days=night, hours=trip)).isoformat()}"
        for night in range(nights)
        for trip in range(each)
        for who in ("anna", "bert")
    ]


def test_a_backlog_is_charged_to_the_days_that_it_is_of(town, tmp_path):
    book = tmp_path / "book"
    assert said("budget", book, "--set", "1", "--per", "day", "--zone", ROME)[0] == 0
    trips = table(tmp_path / "trips.csv", [*rows_of_nights(10, 3), "anna,p1,", "anna,p1,soon"], "who,place,when")
    options = ["--id", "place", "--ledger", book, "--subject", "who", "--time", "when", "--json"]
    code, out, err = said("apply", town, trips, "--out", tmp_path / "safe.csv", *options)
    assert code == 0
    refused = {"budget spent": 20, "no time": 2}
    assert json.loads(out) == {"rows": 62, "reported": 40, "refused": refused}  # two of three a day, epsilon .5 each
    assert "the limit holds in each day (Europe/Rome)" in err
    assert len(charged(book)) == 40
    told = json.loads(said("budget", book, "--json")[1])
    assert list(told) == ["unit", "limit", "per", "zone", "subjects"]
    assert (told["limit"], told["per"], told["zone"]) == ("1", "day", ROME)
    assert len(told["subjects"]) == 20
    assert told["subjects"][0] == {"subject": "anna", "period": "2026-03-20", "spent": "1", "left": "0", "reports": 2}
    one = json.loads(said("budget", book, "--subject", "anna", "--json")[1])["subjects"]
    assert [each["period"] for each in one] == [f"2026-03-{day}" for day in range(20, 30)]
    words = said("budget", book)[1]
    assert "1 per km as the crow flies in each day (Europe/Rome)" in words
    assert "0.5 km apart as the crow flies by a factor of at most 1.65" in words


@pytest.mark.parametrize(
    ("limit", "more", "found"),
    [
        (["--set", "1", "--per", "day"], [], "--time COLUMN must be given"),
        (["--set", "1"], ["--time", "when"], "no limit by"),
        (["--set", "1", "--per", "day"], ["--time", "number"], "numbers|no time"),
        (["--set", "1", "--per", "day"], ["--time", "nowhere"], "no such column"),
        (["--set", "1", "--per", "day"], ["--time", "place"], "the secret"),
    ],
)
def test_times_that_will_not_do_are_refused_before_a_charge(town, tmp_path, limit, more, found):
    book = tmp_path / "book"
    said("budget", book, *limit)
    trips = table(tmp_path / "trips.csv", ["anna,p1,2026-03-29,7"], "who,place,when,number")
    asked = ["--id", "place", "--ledger", book, "--subject", "who", *more]
    code, _, err = said("apply", town, trips, "--out", tmp_path / "safe.csv", *asked)
    assert code == 2
    assert any(each in err for each in found.split("|"))
    assert charged(book) == []


@pytest.mark.parametrize("more", [[], ["--sticky"], ["--hash-subjects", "key"]])
def test_a_time_without_a_calendar_leaves_no_file(town, tmp_path, monkeypatch, more):
    monkeypatch.chdir(tmp_path)
    trips = table(tmp_path / "trips.csv", ["anna,p1,2026-03-29"], "who,place,when")
    asked = ["--id", "place", "--ledger", "book", "--subject", "who", "--time", "when", *more]
    code, _, err = said("apply", town, trips, "--out", "safe.csv", *asked)
    assert (code, "--set AMOUNT --per day makes one" in err) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["trips.csv"]


def test_options_of_budget_that_cannot_be_meant_so(tmp_path):
    for options in (["--per", "day"], ["--set", "1", "--zone", ROME], ["--set", "1", "--per", "day", "--window", "24"]):
        assert said("budget", tmp_path / "book", *options)[0] == 2
    assert said("budget", tmp_path / "book", "--set", "1", "--per", "day", "--zone", "Rome")[0] == 2
    said("budget", tmp_path / "book", "--set", "1", "--per", "day")
    assert said("budget", tmp_path / "book", "--window", "24")[0] == 2


def test_kept_reports_are_charged_to_the_day_of_their_first_visit(town, tmp_path):
    book = tmp_path / "book"
    said("budget", book, "--set", "0.5", "--per", "day")
    rows = [f"anna,{place},2026-03-{day}" for day, place in ((20, "p1"), (20, "p2"), (21, "p1"), (21, "p2"))]
    trips = table(tmp_path / "trips.csv", rows, "who,place,when")
    options = ["--id", "place", "--ledger", book, "--subject", "who", "--time", "when", "--sticky", "--json"]
    _, out, _ = said("apply", town, trips, "--out", tmp_path / "safe.csv", *options)
    assert json.loads(out)["reported"] == 3  # p2 has none left on the first day, and is charged on the second
    with Ledger(book) as ledger:
        assert [(each.period, each.spent) for each in ledger.accounts()] == [
            ("2026-03-20", Fraction(1, 2)),
            ("2026-03-21", Fraction(1, 2)),
        ]


def test_python_takes_dates(town, tmp_path):
    import privopt

    with Ledger(tmp_path / "book") as ledger:
        ledger.set_limit("0.5", per="day")
        given = {"place": ["p1"] * 3, "who": ["a"] * 3, "when": [date(2026, 1, 1), date(2026, 1, 1), date(2026, 1, 2)]}
        with pytest.warns(privopt.PrivoptWarning):
            made = privopt.open(town).apply(pl.DataFrame(given), id="place", ledger=ledger, subject="who", time="when")
        assert made["report"].is_null().to_list() == [False, True, False]
    assert BY_ID.columns == ("place",)


def test_a_missing_time_of_pandas_is_no_time():
    column = nw.from_native(pd.Series([pd.Timestamp("2026-01-01"), pd.NaT], name="t"), series_only=True)
    assert periods_of(column, Calendar("day")) == ["2026-01-01", None]


def test_the_two_times_of_an_hour_that_clocks_repeat_are_told_apart():
    """They are equal to Python, which once kept one period for both: a day held more than its limit."""
    instants = [datetime(2026, 11, 1, hour, 30, tzinfo=UTC) for hour in (5, 6)]
    column = pl.Series("t", instants).dt.convert_time_zone("America/New_York")
    found = periods_of(nw.from_native(column, series_only=True), Calendar("day", "America/Costa_Rica"))
    assert found == ["2026-10-31", "2026-11-01"]


def test_times_beyond_the_calendar_and_durations_are_bad_input():
    for column in (pl.Series("t", [10**15]).cast(pl.Datetime("ms")), pl.Series("t", [timedelta(days=1)])):
        with pytest.raises(InputError):
            periods_of(nw.from_native(column, series_only=True), Calendar("day"))


def test_what_is_no_period_is_not_charged(tmp_path):
    with Ledger(tmp_path / "book") as ledger:
        ledger.set_limit(1, per="day")
        for period in ("2026-1-1", "2026-02-30", "rho", "2026-W01", ""):
            with pytest.raises(UsageError, match="period must be a day"):
                ledger.charge("anna", HALF, period=period)
        ledger.check()
    for per, period in (("week", "2026-W54"), ("week", "2026-W1"), ("month", "2026-13"), ("month", "202603")):
        with pytest.raises(UsageError, match=f"period must be a {per}"):
            Calendar(per).check(period)
    for zone in ("localtime", "Factory"):
        with pytest.raises(UsageError, match="zone must be"):
            Calendar("day", zone)


def test_numbers_are_no_times():
    with pytest.raises(InputError, match="numbers"):
        periods_of(nw.from_native(pl.Series("t", [1, 2]), series_only=True), Calendar("day"))
