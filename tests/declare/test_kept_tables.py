"""Small public tables are parsed once for all that ask for them; what is secret is not kept."""

import polars as pl
import pytest

from privopt.declare import File, frames
from privopt.declare.frames import MAX_KEPT, table_of


@pytest.fixture
def parsed_texts(monkeypatch):
    """Return the contents that polars was given."""
    texts, read = [], pl.read_csv
    monkeypatch.setattr(pl, "read_csv", lambda text, **options: texts.append(text) or read(text, **options))
    frames._cached_cells.cache_clear()
    return texts


def table(contents, **options):
    return File(name="t.csv", path=None, kept=contents, **options)


def test_small_public_table_is_parsed_once(parsed_texts):
    contents = b" id ,x\na,1\nb,\n"
    first = table_of(table(contents))
    first.columns = ["other", "names"]
    second_table = table_of(table(contents))
    assert second_table.to_dict(as_series=False) == {"id": ["a", "b"], "x": ["1", ""]}
    assert parsed_texts == [contents]


@pytest.mark.parametrize(("contents", "options"), [(b"id\na\n", {"secret": True}), (b"id\n" + b"a\n" * MAX_KEPT, {})])
def test_secret_and_large_tables_are_parsed_each_time(parsed_texts, contents, options):
    for _ in range(2):
        table_of(table(contents, **options))
    assert parsed_texts == [contents, contents]
