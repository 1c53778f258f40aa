"""Parquet columns of a type that cannot be read are left out of points and problem files, and named if needed."""

from decimal import Decimal

import pyarrow as pa
import pytest
from helpers.charging import run_command
from pyarrow import parquet

WIDE = pa.decimal256(76, 38)
VALUES = [Decimal(45), Decimal(46), Decimal(47)]
UNREADABLE = {
    "wide": pa.array(VALUES, WIDE),
    "list": pa.array([[value] for value in VALUES], pa.list_(WIDE)),
    "structure": pa.array([{"a": value} for value in VALUES], pa.struct([("a", WIDE)])),
}
PROBLEM = '[records]\npoints = "t.parquet"\n[distance]\nkind = "haversine"\n[privacy]\nepsilon = 1.0\n'


@pytest.mark.parametrize("kind", UNREADABLE)
def test_init_and_solve_leave_out_what_they_do_not_need(kind, tmp_path):
    columns = {"id": ["a", "b", "c"], "lat": [45.0, 45.01, 45.02], "lon": [7.0, 7.01, 7.0], "area": UNREADABLE[kind]}
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    init = ["init", "exponential", "--points", tmp_path / "t.parquet", "--within", "3", "--out", tmp_path / "p.toml"]
    code, _, err = run_command(*init)
    assert code == 0, err
    assert "columns of a type that cannot be read are left out: area" in err
    code, _, err = run_command("solve", "exponential", tmp_path / "p.toml", "--out", tmp_path / "out", "--quiet")
    assert code == 0, err
    assert run_command("verify", tmp_path / "out")[0] == 0


@pytest.mark.parametrize("kind", UNREADABLE)
@pytest.mark.parametrize("needed", ["id", "lat"])
def test_a_column_that_is_needed_is_named(kind, needed, tmp_path):
    columns = {"id": ["a", "b", "c"], "lat": [45.0, 45.01, 45.02], "lon": [7.0, 7.01, 7.0], needed: UNREADABLE[kind]}
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    (tmp_path / "p.toml").write_text(PROBLEM + '[utility]\nkind = "distance"\n')
    code, _, err = run_command("solve", "exponential", tmp_path / "p.toml", "--out", tmp_path / "out")
    assert code == 2
    assert needed in err
    assert "of a type that cannot be read" in err
