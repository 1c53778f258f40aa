"""What the tests of FL-Linear share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings

settings.register_profile("compiled", deadline=None)  # the first call compiles
settings.load_profile("compiled")


@pytest.fixture
def rng():
    return np.random.default_rng(20260101)
