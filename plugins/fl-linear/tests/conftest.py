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
        opening, rest = (
            np.array(own, dtype=float) for own in (words[3 : 2 + 2 * facilities : 2], words[2 + 2 * facilities :])
        )
        rest = rest.reshape(customers, facilities + 1)
        return opening, rest[:, 1:].T, rest[:, 0]

    return read


@pytest.fixture
def rng():
    return np.random.default_rng(20260101)
