"""Small public tables are parsed once for all that ask for them; what is secret is not kept."""

import polars as pl
import pytest

from privopt.declare import File, frames
from privopt.declare.frames import MAX_KEPT, table_of


@pytest.fixture
def parsed(monkeypatch):
    """Return the contents that polars was given."""
    given, read = [], pl.read_csv
    monkeypatch.setattr(pl, "read_csv", lambda text, **options: given.append(text) or read(text, **options))
    frames._cached_cells.cache_clear()
    return given


def table(contents, **more):
    return File(name="t.csv", path=None, kept=contents, **more)


def test_a_small_public_table_is_parsed_once_and_nobody_changes_it_for_others(parsed):
    contents = b" id ,x\na,1\nb,\n"
    first = table_of(table(contents))
    first.columns = ["other", "names"]
    again = table_of(table(contents))
    assert again.to_dict(as_series=False) == {"id": ["a", "b"], "x": ["1", ""]}
    assert parsed == [contents]


@pytest.mark.parametrize(("contents", "more"), [(b"id\na\n", {"secret": True}), (b"id\n" + b"a\n" * MAX_KEPT, {})])
def test_secret_and_large_tables_are_parsed_each_time(parsed, contents, more):
    for _ in range(2):
        table_of(table(contents, **more))
    assert parsed == [contents, contents]
