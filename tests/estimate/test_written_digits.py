"""Files of estimates: as many decimals as the reports can show, and intervals that are not narrower than computed."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from privopt.estimate.written_digits import round_frame, round_shares


@given(
    st.lists(st.floats(1e-9, 1), min_size=1, max_size=8),
    st.floats(1e-12, 0.5),
    st.sampled_from([1.0, 1e-3, 1e-9]),
)
def test_intervals_contain_what_was_computed(shares, width, factor):
    share = np.array(shares) / sum(shares)
    low, high = np.maximum(share - width * factor, 0.0), np.minimum(share + width, 1.0)
    new_share, new_low, new_high = round_shares(share, low, high)
    assert (new_low <= low).all()
    assert (new_high >= high).all()
    assert ((new_low >= 0) & (new_high <= 1)).all()
    assert ((new_low <= new_share) & (new_share <= new_high)).all()
    assert abs(new_share.sum() - 1) < 1e-12
    # Each number moves by 1 % of the narrowest interval at most, or by 1e-6, or by 1e-12.
    step = max(1e-12, min(1e-6, 0.01 * min((high - low)[high > low], default=1.0)))
    for old, new in ((share, new_share), (low, new_low), (high, new_high)):
        assert (np.abs(new - old) <= 1.01 * step).all()


def test_tables_have_six_decimals_unless_intervals_are_narrow():
    frame = pl.DataFrame({"id": ["a", "b"], "share": [1 / 3, 2 / 3], "low": [0.3, 0.61], "high": [0.4, 0.7]})
    assert round_frame(frame).rows() == [("a", 0.333333, 0.3, 0.4), ("b", 0.666667, 0.61, 0.7)]
    narrow = frame.with_columns(low=pl.Series([1 / 3 - 1e-6, 0.61]), high=pl.Series([1 / 3 + 1e-6, 0.7]))
    assert round_frame(narrow)["share"].to_list() == [0.333333333, 0.666666667]
