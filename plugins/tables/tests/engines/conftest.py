"""A release over nine places of a town, and trips between them."""

import numpy as np
import polars as pl
import pytest
from helpers.lake import PLACES, TRIPS, coordinates_of

import privopt as po


@pytest.fixture(scope="session")
def release():
    records = po.records({"id": list(PLACES), **coordinates_of(PLACES)}, id="id", lat="lat", lon="lon")
    return po.solve("exponential", po.metric_problem(records, distance="haversine", epsilon="0.5/km"))


@pytest.fixture(scope="session")
def trips():
    """Trips from the nine places of 40 people; some positions and some people are missing."""
    n = np.arange(TRIPS)
    rows = {"trip": n, "place": [f"p{k}" for k in n % 9], "who": [None if k % 97 == 0 else f"s{k % 40}" for k in n]}
    lat, lon = (np.array([PLACES[name][axis] for name in rows["place"]]) for axis in (0, 1))
    return pl.DataFrame({**rows, "g": n % 5, "lat": np.where(n % 50 == 7, np.nan, lat), "lon": lon}).with_columns(
        pl.col("lat").fill_nan(None)
    )
