"""The nearest record by a tree against the nearest by all distances, also at poles and where longitude jumps."""

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privopt.declare.column_texts import texts_of
from privopt.errors import UsageError
from privopt.numbers.distances import haversine
from privopt_metric_dp.space.places import Space
from privopt_tables.nearest_record import REASONS, Snap
from privopt_tables.secret_columns import Secret

AT = Secret.of(lat="lat", lon="lon")
latitudes = st.floats(-90, 90) | st.sampled_from([90.0, -90.0, 89.999, 0.0])
longitudes = st.floats(-180, 360) | st.sampled_from([180.0, -180.0, 179.999, 180.001, 359.999, 0.0])
positions = st.tuples(latitudes, longitudes)


def frame_of(rows):
    return nw.from_native(pl.DataFrame(np.array(rows, dtype=float).reshape(-1, 2), schema=["lat", "lon"]))


@given(st.lists(positions, min_size=1, max_size=12), st.lists(positions, min_size=1, max_size=12))
def test_no_record_is_nearer_on_the_globe(records, query_points):
    ids = tuple(map(str, range(len(records))))
    places = Space(ids=ids, coordinates=records, kind="geographic")
    rows, reason = Snap(ids=np.array(ids), places=places).rows(frame_of(query_points), AT)
    assert (reason == -1).all()
    distances = haversine(np.array(query_points)[:, None], np.array(records)[None])
    chosen_distances = distances[np.arange(len(query_points)), rows]
    assert (chosen_distances <= distances.min(axis=1) + 1e-6).all()  # a millimetre
    is_near = distances.min(axis=1) < 9_000
    assert (chosen_distances[is_near] <= distances.min(axis=1)[is_near] * (1 + 1e-9) + 1e-9).all()


@given(st.lists(st.tuples(*[st.floats(-1e3, 1e3)] * 2), min_size=1, max_size=12), st.floats(0.1, 100))
def test_too_far_means_beyond_the_limit(positions, farthest):
    records = np.array([[0.0, 0.0], [100.0, 0.0]])
    places = Space(ids=("a", "b"), coordinates=records, kind="planar")
    frame = frame_of(positions).rename({"lat": "x", "lon": "y"})
    rows, reason = Snap(ids=np.array(places.ids), places=places, max_distance=farthest).rows(
        frame, Secret.of(x="x", y="y")
    )
    distances = np.hypot(*(np.array(positions)[:, None] - records[None]).transpose(2, 0, 1))
    assert np.allclose(distances[np.arange(len(positions)), rows], distances.min(axis=1))
    assert ((reason == REASONS.index("too far")) == (distances[np.arange(len(positions)), rows] > farthest)).all()


def test_cell_decides_why_there_is_no_report():
    places = Space(ids=("a",), coordinates=[[1.0, 1.0]], kind="geographic")
    cells = ["1", "", None, "x", "nan", "inf", "-90.001", " 2 "]
    for frame in (pl.DataFrame({"lat": cells, "lon": ["1"] * 8}), pd.DataFrame({"lat": cells, "lon": ["1"] * 8})):
        _, reason = Snap(ids=np.array(["a"]), places=places).rows(nw.from_native(frame), AT)
        first_words = [None if code < 0 else REASONS[code].split()[0] for code in reason.tolist()]
        assert first_words == [None, "empty", "empty", "impossible", "empty", "impossible", "impossible", None]


@pytest.mark.parametrize("frame", [pl.DataFrame, pd.DataFrame])
def test_ids_are_equal_from_any_column(frame):
    for values, expected in (
        ([7, 8], ["7", "8"]),
        ([7.0, None, 0.5], ["7", None, "0.5"]),
        ([" a", "", None], ["a", None, None]),
        ([1e17], ["100000000000000000"]),
    ):
        assert texts_of(nw.from_native(frame({"id": values}))["id"]).to_list() == expected


@pytest.mark.parametrize("names", [{}, {"lat": "a"}, {"id": "a", "lat": "b", "lon": "c"}, {"x": "a", "lon": "b"}])
def test_secret_columns_are_one_choice(names):
    with pytest.raises(UsageError, match="--lat COLUMN --lon COLUMN"):
        Secret.of(**names)
