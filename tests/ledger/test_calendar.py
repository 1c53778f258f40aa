"""Limits by calendar period: which period a row lies in, what it may still spend there, and what is refused."""

import json
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo

import narwhals as nw
import pandas as pd
import polars as pl
import pytest
from helpers.charging import BY_ID, read_charges, run_command, table
from helpers.mentions import assert_mentions
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
def test_time_is_in_its_period(per, zone, time, period):
    column = nw.from_native(pl.Series("t", [time, None]), series_only=True)
    assert periods_of(column, Calendar(per, zone)) == [period, None]


@given(st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)), st.sampled_from(["UTC", ROME, "Asia/Kolkata"]))
def test_every_form_of_a_time_is_in_one_period(naive, zone):
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
    periods = {periods_of(nw.from_native(column, series_only=True), calendar)[0] for column in columns}
    assert periods == {local.date().isoformat()}


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
    assert read.excess_seconds == (Fraction(moment.microsecond, 10**6) if "%f" in clock else 0)


@given(st.text(alphabet="0123456789-:TWZ+., ", max_size=24))
def test_no_text_breaks_the_reader_of_times(text):
    read = read_iso_time(text)
    assert read is None or read.second.year >= 1


@pytest.mark.parametrize(
    ("per", "zone"), [("year", "UTC"), ("day", "Mars/Olympus"), ("day", "/etc/passwd"), ("day", "")]
)
def test_refuses_unknown_periods_and_zones(per, zone):
    with pytest.raises(UsageError, match="must be"):
        Calendar(per, zone)


def test_each_period_has_its_own_budget(tmp_path):
    with Ledger(tmp_path / "book") as ledger:
        ledger.set_limit(1, per="day", zone=ROME)
        days = ["2026-03-29", "2026-03-28", "2026-03-29", "2026-03-29", "2026-03-28"]
        assert ledger.charge_each(["anna"] * 5, HALF, days) == [True, True, True, False, True]
        assert ledger.charge_each(["bert"], HALF, ["2026-03-29"]) == [True]
        ledger.check()
        accounts = [(account.subject, account.period, account.spent, account.left) for account in ledger.accounts()]
        assert accounts == [
            ("anna", "2026-03-28", 1, 0),
            ("anna", "2026-03-29", 1, 0),
            ("bert", "2026-03-29", Fraction(1, 2), Fraction(1, 2)),
        ]
        assert [charge.period for charge in ledger.charges("anna")] == [days[n] for n in (0, 1, 2, 4)]


def test_charges_the_present_period_by_default(tmp_path):
    moment = datetime(2026, 3, 29, 22, 30, tzinfo=UTC)
    with Ledger(tmp_path / "book", clock=lambda: int(moment.timestamp() * 1e9)) as ledger:
        ledger.set_limit("0.5", per="day", zone=ROME)
        ledger.charge("anna", HALF)
        assert ledger.account("anna").period == "2026-03-30"
        with pytest.raises(BudgetSpentError, match="left in 2026-03-30"):
            ledger.charge("anna", HALF)
        moment += timedelta(days=1)
        ledger.charge("anna", HALF)


def test_calendar_is_fixed_after_a_charge(tmp_path):
    with Ledger(tmp_path / "book") as ledger:
        ledger.set_limit(1, hours=24)
        ledger.set_limit(1, per="day", zone=ROME)
        ledger.charge("anna", HALF)
        ledger.set_limit(2, per="day", zone=ROME)
        for other_calendar in ({"per": "day"}, {"per": "week", "zone": ROME}, {"hours": 24}, {}):
            with pytest.raises(UsageError, match="charged so far"):
                ledger.set_limit(1, **other_calendar)
        assert ledger.limit_of("epsilon").amount == 2
        with pytest.raises(UsageError, match="window or calendar"):
            ledger.set_limit(1, hours=1, per="day", zone=ROME)
    with Ledger(tmp_path / "other") as ledger:
        ledger.charge("anna", HALF)
        with pytest.raises(UsageError, match="none, as charged"):
            ledger.set_limit(1, per="day")
        with pytest.raises(UsageError, match="by the calendar"):
            ledger.charge("anna", HALF, period="2026-03-29")


def test_hashed_subjects_have_periods(tmp_path):
    with Ledger(tmp_path / "book", key=tmp_path / "key") as ledger:
        ledger.set_limit("0.5", per="month")
        is_granted = ledger.charge_each(["anna"] * 3, HALF, ["2026-03", "2026-03", "2026-04"])
        assert is_granted == [True, False, True]
        assert [len(account.subject) for account in ledger.accounts()] == [64, 64]
        ledger.check()


def rows_of_nights(nights, trip_count):
    start = datetime(2026, 3, 20, 12, tzinfo=UTC)
    return [
        f"{name},p{(night + trip) % 12},{(start + timedelta(days=night, hours=trip)).isoformat()}"
        for night in range(nights)
        for trip in range(trip_count)
        for name in ("anna", "bert")
    ]


def test_backlog_is_charged_to_its_days(town, tmp_path):
    book = tmp_path / "book"
    assert run_command("budget", book, "--set", "1", "--per", "day", "--zone", ROME)[0] == 0
    trips = table(tmp_path / "trips.csv", [*rows_of_nights(10, 3), "anna,p1,", "anna,p1,soon"], "who,place,when")
    options = ["--id", "place", "--ledger", book, "--subject", "who", "--time", "when", "--json"]
    code, output, err = run_command("apply", town, trips, "--out", tmp_path / "safe.csv", *options)
    assert code == 0
    refusal_counts = {"budget spent": 20, "no time": 2}
    # two of three a day, epsilon .5 each
    assert json.loads(output) == {
        "rows": 62,
        "reported": 40,
        "refused": refusal_counts,
    }
    assert "each day (Europe/Rome)" in err
    assert len(read_charges(book)) == 40
    budget = json.loads(run_command("budget", book, "--json")[1])
    assert list(budget) == ["unit", "limit", "per", "zone", "subjects"]
    assert (budget["limit"], budget["per"], budget["zone"]) == ("1", "day", ROME)
    assert len(budget["subjects"]) == 20
    assert budget["subjects"][0] == {"subject": "anna", "period": "2026-03-20", "spent": "1", "left": "0", "reports": 2}
    subject_accounts = json.loads(run_command("budget", book, "--subject", "anna", "--json")[1])["subjects"]
    assert [account["period"] for account in subject_accounts] == [f"2026-03-{day}" for day in range(20, 30)]
    words = run_command("budget", book)[1]
    assert_mentions(words, "per km", "in each day (Europe/Rome)")
    assert_mentions(words, "0.5 km apart", "at most 1.65")


@pytest.mark.parametrize(
    ("limit", "extra_options", "keywords"),
    [
        (["--set", "1", "--per", "day"], [], "--time COLUMN must be given"),
        (["--set", "1"], ["--time", "when"], "no limit by"),
        (["--set", "1", "--per", "day"], ["--time", "number"], "numbers|no time"),
        (["--set", "1", "--per", "day"], ["--time", "nowhere"], "no such column"),
        (["--set", "1", "--per", "day"], ["--time", "place"], "the secret"),
    ],
)
def test_refuses_invalid_times_before_a_charge(town, tmp_path, limit, extra_options, keywords):
    book = tmp_path / "book"
    run_command("budget", book, *limit)
    trips = table(tmp_path / "trips.csv", ["anna,p1,2026-03-29,7"], "who,place,when,number")
    arguments = ["--id", "place", "--ledger", book, "--subject", "who", *extra_options]
    code, _, err = run_command("apply", town, trips, "--out", tmp_path / "safe.csv", *arguments)
    assert code == 2
    assert any(keyword in err for keyword in keywords.split("|"))
    assert read_charges(book) == []


@pytest.mark.parametrize("extra_options", [[], ["--sticky"], ["--hash-subjects", "key"]])
def test_time_without_calendar_leaves_no_file(town, tmp_path, monkeypatch, extra_options):
    monkeypatch.chdir(tmp_path)
    trips = table(tmp_path / "trips.csv", ["anna,p1,2026-03-29"], "who,place,when")
    arguments = ["--id", "place", "--ledger", "book", "--subject", "who", "--time", "when", *extra_options]
    code, _, err = run_command("apply", town, trips, "--out", "safe.csv", *arguments)
    assert (code, "--per day" in err) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["trips.csv"]


def test_refuses_contradictory_budget_options(tmp_path):
    for options in (["--per", "day"], ["--set", "1", "--zone", ROME], ["--set", "1", "--per", "day", "--window", "24"]):
        assert run_command("budget", tmp_path / "book", *options)[0] == 2
    assert run_command("budget", tmp_path / "book", "--set", "1", "--per", "day", "--zone", "Rome")[0] == 2
    run_command("budget", tmp_path / "book", "--set", "1", "--per", "day")
    assert run_command("budget", tmp_path / "book", "--window", "24")[0] == 2


def test_kept_reports_are_charged_to_the_first_day(town, tmp_path):
    book = tmp_path / "book"
    run_command("budget", book, "--set", "0.5", "--per", "day")
    rows = [f"anna,{name},2026-03-{day}" for day, name in ((20, "p1"), (20, "p2"), (21, "p1"), (21, "p2"))]
    trips = table(tmp_path / "trips.csv", rows, "who,place,when")
    options = ["--id", "place", "--ledger", book, "--subject", "who", "--time", "when", "--sticky", "--json"]
    _, output, _ = run_command("apply", town, trips, "--out", tmp_path / "safe.csv", *options)
    assert json.loads(output)["reported"] == 3  # p2 has none left on the first day, and is charged on the second
    with Ledger(book) as ledger:
        assert [(account.period, account.spent) for account in ledger.accounts()] == [
            ("2026-03-20", Fraction(1, 2)),
            ("2026-03-21", Fraction(1, 2)),
        ]


def test_python_accepts_dates(town, tmp_path):
    import privopt

    with Ledger(tmp_path / "book") as ledger:
        ledger.set_limit("0.5", per="day")
        table = {"place": ["p1"] * 3, "who": ["a"] * 3, "when": [date(2026, 1, 1), date(2026, 1, 1), date(2026, 1, 2)]}
        with pytest.warns(privopt.PrivoptWarning):
            result = privopt.open(town).apply(
                pl.DataFrame(table), id="place", ledger=ledger, subject="who", time="when"
            )
        assert result["report"].is_null().to_list() == [False, True, False]
    assert BY_ID.columns == ("place",)


def test_missing_time_of_pandas_is_no_time():
    column = nw.from_native(pd.Series([pd.Timestamp("2026-01-01"), pd.NaT], name="t"), series_only=True)
    assert periods_of(column, Calendar("day")) == ["2026-01-01", None]


def test_distinguishes_times_of_a_repeated_hour():
    """They are equal to Python, which once kept one period for both: a day held more than its limit."""
    instants = [datetime(2026, 11, 1, hour, 30, tzinfo=UTC) for hour in (5, 6)]
    column = pl.Series("t", instants).dt.convert_time_zone("America/New_York")
    periods = periods_of(nw.from_native(column, series_only=True), Calendar("day", "America/Costa_Rica"))
    assert periods == ["2026-10-31", "2026-11-01"]


def test_refuses_durations_and_distant_times():
    for column in (pl.Series("t", [10**15]).cast(pl.Datetime("ms")), pl.Series("t", [timedelta(days=1)])):
        with pytest.raises(InputError):
            periods_of(nw.from_native(column, series_only=True), Calendar("day"))


def test_does_not_charge_invalid_periods(tmp_path):
    with Ledger(tmp_path / "book") as ledger:
        ledger.set_limit(1, per="day")
        for period in ("2026-1-1", "2026-02-30", "rho", "2026-W01", ""):
            with pytest.raises(UsageError, match="be a day"):
                ledger.charge("anna", HALF, period=period)
        ledger.check()
    for per, period in (("week", "2026-W54"), ("week", "2026-W1"), ("month", "2026-13"), ("month", "202603")):
        with pytest.raises(UsageError, match=f"be a {per}"):
            Calendar(per).check(period)
    for zone in ("localtime", "Factory"):
        with pytest.raises(UsageError, match="zone must be"):
            Calendar("day", zone)


def test_numbers_are_no_times():
    with pytest.raises(InputError, match="numbers"):
        periods_of(nw.from_native(pl.Series("t", [1, 2]), series_only=True), Calendar("day"))
