"""No exception and no warning of a release in Python shows a secret that was handed to it."""

from __future__ import annotations

import datetime
import decimal
import itertools
import traceback
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from helpers.secret_values import PROPERTY, SENTINEL, VALUES
from helpers.toys import write_toy
from hypothesis import given
from hypothesis import strategies as st

import privopt
from privopt.run.solve import solve

NUMBER = float(SENTINEL)
OBJECTS = [
    int(SENTINEL),
    NUMBER,
    -NUMBER,
    (SENTINEL,),
    [SENTINEL],
    {SENTINEL: 1},
    SENTINEL.encode(),
    complex(NUMBER),
    decimal.Decimal(SENTINEL),
    np.float64(NUMBER),
    np.array([NUMBER]),
    10**400 + int(SENTINEL),
    datetime.timedelta(seconds=NUMBER),
]
SECRETS = st.one_of(VALUES, st.sampled_from(OBJECTS))
POSITIONS = st.one_of(
    SECRETS,
    st.tuples(SECRETS, st.sampled_from([1.0, None, "1", float("nan")])),
    st.tuples(st.just(1.0), SECRETS),
    st.tuples(SECRETS, SECRETS, SECRETS),
)


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    folder = tmp_path_factory.mktemp("python_secrets")
    solve("exponential", write_toy(folder / "toy"), folder / "release")
    return privopt.open(folder / "release")


@pytest.fixture(scope="module")
def new_ledger(tmp_path_factory):
    numbers, folder = itertools.count(), tmp_path_factory.mktemp("ledgers")
    return lambda: folder / f"{next(numbers)}.ledger"


def told(call) -> str:
    """Return what a call tells: its exception with causes and notes, as Python prints it, and its warnings."""
    with warnings.catch_warnings(record=True) as entries:
        warnings.simplefilter("always")
        lines = []
        try:
            call()
        except Exception as error:
            lines = [repr(error), *chain_of(error)]
    return "\n".join([*lines, *(str(entry.message) for entry in entries)])


def chain_of(error):
    """Yield the lines that Python prints of an exception and of those before it, but the program's own lines."""
    while error is not None:
        yield "".join(traceback.format_exception_only(error))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


@pytest.mark.parametrize("option", ["input_id", "at", "xy"])
@PROPERTY
@given(secret=st.one_of(SECRETS, POSITIONS), is_charged=st.booleans())
def test_sample_does_not_tell_its_secret(release, new_ledger, option, secret, is_charged):
    charge = {"ledger": new_ledger(), "subject": "anna"} if is_charged else {}
    assert SENTINEL not in told(lambda: release.sample(**{option: secret}, **charge))


def tables_of(secret):
    """Yield tables of each kind with the secret in a column, if that kind can hold it."""
    columns = {"s": [secret, "p1"], "t": [0.1, 0.2], "who": ["a", "b"]}
    makers = [
        lambda: pd.DataFrame({**columns, "s": ["p1", secret]}),
        lambda: pd.DataFrame({**columns, "s": [1.5, secret]}),
        lambda: columns,
        lambda: pd.DataFrame(columns),
        lambda: pl.DataFrame(columns, strict=False),
        lambda: pa.table({**columns, "s": [secret, secret]}),
        lambda: pl.DataFrame({**columns, "s": [secret, secret]}, strict=False).lazy(),
        lambda: pd.DataFrame({**columns, "s": pd.Categorical([secret, "p1"])}),
    ]
    for make in makers:
        try:
            table = make()
        except Exception:  # a library that cannot hold such a column
            continue
        yield table


APPLICATIONS = [
    {"id": "s"},
    {"x": "s", "y": "t"},
    {"x": "t", "y": "s"},
    {"lat": "s", "lon": "t"},
    {"text": "s"},
    {"geometry": "s"},
    {"positions": {"home": ("s", "t")}},
    {"positions": {"home": ("s",), "work": ("s",)}},
    {"x": "s", "y": "t", "max_snap": 1.0},
]
CHARGES = [{}, {"subject": "who"}, {"subject": "who", "sticky": True}, {"subject": "who", "time": "s"}]


@pytest.mark.parametrize("columns", APPLICATIONS, ids=lambda columns: "-".join(columns))
@PROPERTY
@given(secret=SECRETS, charge=st.sampled_from(CHARGES))
def test_apply_does_not_tell_secrets(release, new_ledger, columns, secret, charge):
    for table in tables_of(secret):
        ledger = {"ledger": new_ledger()} if charge else {}
        assert SENTINEL not in told(lambda: release.apply(table, **columns, **charge, **ledger))  # noqa: B023


@pytest.mark.parametrize(
    "array",
    [
        np.array([SENTINEL, "p1"]),
        np.array([[NUMBER, 1.0]]),
        np.array([NUMBER, 1.0]),
        np.array([[NUMBER, 1, 2]]),
        np.array([SENTINEL, None], dtype=object),
        [SENTINEL],
        SENTINEL,
        [(NUMBER, 1)],
        pd.Series([SENTINEL]),
        pl.Series([NUMBER]),
        pl.Series([{SENTINEL: 1}]),
        pl.Series([SENTINEL], dtype=pl.Enum([SENTINEL])),
    ],
    ids=str,
)
def test_arrays_are_not_quoted(release, array):
    assert SENTINEL not in told(lambda: release.apply(array))
    assert SENTINEL not in told(lambda: release.estimate(array))


@PROPERTY
@given(secret=SECRETS)
def test_estimate_does_not_tell_what_is_no_report(release, secret):
    for table in tables_of(secret):
        assert SENTINEL not in told(lambda: release.estimate(table, column="s"))  # noqa: B023
        assert SENTINEL not in told(lambda: release.estimate(table, column="who", subject="s"))  # noqa: B023


@PROPERTY
@given(secret=SECRETS)
def test_engines_do_not_tell_secrets(release, new_ledger, secret):
    """Polars and DuckDB put words of their own around an error of a function that they call."""
    duckdb = pytest.importorskip("duckdb")
    for table in tables_of(secret):
        if isinstance(table, pl.DataFrame):
            assert SENTINEL not in told(lambda: table.select(release.expr("s", "t")))  # noqa: B023
        if isinstance(table, pa.Table):
            connection = duckdb.connect()
            privopt.sql.register(connection, release, "protect")
            query = "SELECT protect(s, t) FROM held"
            assert SENTINEL not in told(lambda: connection.register("held", table).execute(query).fetchall())  # noqa: B023


@PROPERTY
@given(secret=SECRETS)
def test_partitions_do_not_tell_secrets(release, new_ledger, secret):
    def protect(table, changed_table):
        columns = {"subject": "who", "row": "who", "x": "s", "y": "t"}
        with release.batch("night", ledger=new_ledger(), **columns) as batch:
            plan = batch.charge(batch.tally(table))
            release.map_arrow(changed_table, plan)

    good = pd.DataFrame({"s": [0.7, 0.7], "t": [0.1, 0.2], "who": ["a", "b"]})
    for table in tables_of(secret):
        if isinstance(table, pd.DataFrame):
            assert SENTINEL not in told(lambda: protect(table, table))  # noqa: B023
            assert SENTINEL not in told(lambda: protect(good, table))  # noqa: B023
            assert SENTINEL not in told(lambda: protect(table, good))  # noqa: B023


@PROPERTY
@given(subject=SECRETS)
def test_ledger_with_a_key_does_not_tell_subjects(release, new_ledger, subject):
    """Nor does its file hold them, nor an account that it shows."""
    path = new_ledger()
    cost = release.result.guarantee.epsilon
    with privopt.Ledger(path, key=path.with_suffix(".key")) as ledger:
        ledger.set_limit(2 * cost)
        texts = [
            told(lambda: ledger.account(subject)),
            told(lambda: ledger.charges(subject)),
            told(lambda: [release.sample("p1", ledger=ledger, subject=subject) for _ in range(4)]),
            told(lambda: release.apply({"s": ["p1"] * 4, "who": [subject] * 4}, id="s", ledger=ledger, subject="who")),
            repr(ledger.accounts()),
            repr(ledger.charges()),
        ]
    assert SENTINEL not in "\n".join(texts)
    assert SENTINEL.encode() not in path.read_bytes()
