"""Ids match their text, and the form with .0 that pandas writes of whole numbers next to gaps."""

import io

import narwhals as nw
import pandas as pd
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from privopt.declare.column_texts import number_ids, texts_of

IDS = st.lists(st.integers(-(10**12), 10**12), min_size=1, max_size=20, unique=True)


@given(IDS, st.data())
def test_ids_next_to_gaps_are_those_that_pandas_was_given(ids, data):
    """CSV, Parquet and frames of pandas give the same ids, whatever rows are empty."""
    rows = data.draw(st.lists(st.one_of(st.none(), st.sampled_from(ids)), min_size=1, max_size=30))
    numbers = {str(name): number for number, name in enumerate(ids)}
    frame = pd.DataFrame({"report": pd.Series(rows, dtype="float64"), "n": range(len(rows))})
    binary = io.BytesIO()
    frame.to_parquet(binary)
    expected = [-1 if row is None else numbers[str(row)] for row in rows]
    for table in (pl.read_csv(frame.to_csv().encode(), infer_schema=False), pl.read_parquet(binary.getvalue()), frame):
        texts = texts_of(nw.from_native(table["report"], series_only=True))
        assert number_ids(texts, numbers).tolist() == expected


@given(st.lists(st.sampled_from(["1", "1.0", "1.00", "01", "1.5", "-1", "x.0", "1.0.0", "", "é"])))
def test_an_id_of_the_very_text_comes_first(texts):
    numbers = {"1": 0, "1.0": 1, "x": 2, "-1": 3}
    expected = [{"1": 0, "1.0": 1, "1.00": 0, "-1": 3}.get(text, -1) for text in texts]
    assert number_ids(pl.Series(texts, dtype=pl.String), numbers).tolist() == expected
