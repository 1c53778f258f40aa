"""A table is the same whether it is read whole or by polars' streaming engine."""

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privopt.declare import table_files
from privopt.declare.table_files import TableSource

CELL = st.sampled_from(["", "007", "a,b", 'say "x"', "1.10", "é", " blank "])
quiet = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def rows(path):
    return pl.concat([batch.to_native() for batch in TableSource.of_file(path).batches()]).rows()


@quiet
@given(table=st.lists(st.tuples(CELL, CELL), min_size=1, max_size=20), blank=st.booleans())
def test_the_same_rows(tmp_path, table, blank):
    path = tmp_path / "table.csv"
    lines = ['"' + '","'.join(cell.replace('"', '""') for cell in row) + '"' for row in table]
    path.write_text(("\n\n" if blank else "\n").join(["id,x", *lines]) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        whole = rows(path)
        patch.setattr(table_files, "WHOLE", 0)
        assert rows(path) == whole
    assert len(whole) == len(table)


def test_only_large_tables_start_its_threads(tmp_path, monkeypatch):
    monkeypatch.setattr(pl.LazyFrame, "collect_batches", lambda *_, **__: pytest.fail("streamed"))
    (tmp_path / "table.csv").write_text("id\na\n")
    assert rows(tmp_path / "table.csv") == [("a",)]
