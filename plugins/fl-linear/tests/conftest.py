"""What the tests of FL-Linear share."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.data import data_path


@pytest.fixture
def or_library():
    """Return a reader of the OR-Library: opening costs, costs (facility, customer), demands."""

    def read(name):
        words = data_path("orlib_uflp", f"{name}.txt").read_text().split()  # capacities are words in some of them
        facilities, customers = int(words[0]), int(words[1])
        opening, customer_values = (
            np.array(values, dtype=float) for values in (words[3 : 2 + 2 * facilities : 2], words[2 + 2 * facilities :])
        )
        customer_values = customer_values.reshape(customers, facilities + 1)
        return opening, customer_values[:, 1:].T, customer_values[:, 0]

    return read


@pytest.fixture
def rng():
    return np.random.default_rng(20260101)
