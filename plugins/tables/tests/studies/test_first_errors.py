"""Tables read in steps as at once, and faults in what is asked of them."""

from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import privopt as po
from privopt.declare import File, table_files
from privopt.declare.table_files import TableSource
from privopt.declare.tables import Column, read_table
from privopt.errors import InputError, UnknownNameError, UsageError
from privopt.report.theme import svg
from privopt_tables.studies.curve import Point
from privopt_tables.studies.curve_pictures import draw_loss

PLACES = po.grid(rows=2, cols=2, cell_km=1)


@pytest.mark.parametrize(
    "number", [np.int64(2), np.float32(0.2), np.float64(0.2), np.float16(0.3), np.longdouble("0.2")]
)
def test_numpy_numbers_round_for_privacy(number):
    problem = po.metric_problem(PLACES, distance="euclidean", epsilon=number, neighbours_within=np.float32(1.1))
    value_by_key = dict(line.split(" = ") for line in problem.toml.splitlines() if " = " in line)
    assert Fraction(value_by_key["epsilon"]) == Fraction(str(number))
    assert Fraction(value_by_key["epsilon"]) <= Fraction(float(number)) + Fraction(1, 10**17)
    assert Fraction(value_by_key["neighbours_within"]) == Fraction(float(np.float32(1.1)))


def test_names_arrays_and_frames_in_wrong_places():
    with pytest.raises(UsageError, match=r"distance must be .*privopt.distances\(D\).*ndarray"):
        po.metric_problem(PLACES, distance=np.ones((2, 2)), epsilon=1)
    with pytest.raises(UsageError, match=r"matrix must be .*DataFrame"):
        po.certify(pl.DataFrame(np.eye(2)), "p.toml")
    with pytest.raises(UsageError, match=r"problem must be .*ndarray"):
        po.certify(np.eye(2), np.eye(2))


def test_counts_faults_and_names_beyond_twenty():
    rows = "".join(f"p{n},{-1 - n}\n" for n in range(40))
    with pytest.raises(InputError) as excinfo:
        read_table(File(name="t.csv", path=None, kept=f"id,p\n{rows}".encode()), [Column(name="p", least=0.0)])
    assert len(excinfo.value.faults) == 21
    assert "20 more faults" in str(excinfo.value)
    message = str(UnknownNameError("record", "nope", map(str, range(2_000))))
    assert message.endswith(" and 1,980 more")
    assert message.count(",") == 20


def test_curve_axes_are_plain_numbers():
    def point(epsilon, loss):
        return Point(
            mechanism="exponential", epsilon=Fraction(epsilon), loss=loss, lower_bound=loss, gap=None, bayes_error=None,
            error_p50=None, error_p95=None, seconds=0.0, status="feasible",
        )  # fmt: skip

    points = [point("1/5", 1.2), point("4/5", 0.7)]
    picture = svg(draw_loss(points, "km", "km"), "t")
    assert "mathdefault" not in picture
    assert ">0.2<" in picture
    assert ">0.7<" in picture


CELL = st.sampled_from(["", "007", "a,b", 'say "x"', "1.10", "é", " blank "])


def rows(path):
    return pl.concat([batch.to_native() for batch in TableSource.of_file(path).batches()]).rows()


@settings(max_examples=25)
@given(table=st.lists(st.tuples(CELL, CELL), min_size=1, max_size=20), blank=st.booleans())
def test_both_readers_give_the_same_rows(tmp_path, table, blank):
    path = tmp_path / "table.csv"
    lines = ['"' + '","'.join(cell.replace('"', '""') for cell in row) + '"' for row in table]
    path.write_text(("\n\n" if blank else "\n").join(["id,x", *lines]) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        all_rows = rows(path)
        patch.setattr(table_files, "WHOLE", 0)
        assert rows(path) == all_rows
    assert len(all_rows) == len(table)


def test_only_large_tables_start_threads(tmp_path, monkeypatch):
    monkeypatch.setattr(pl.LazyFrame, "collect_batches", lambda *_, **__: pytest.fail("streamed"))
    (tmp_path / "table.csv").write_text("id\na\n")
    assert rows(tmp_path / "table.csv") == [("a",)]
