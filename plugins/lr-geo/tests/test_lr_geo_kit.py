from __future__ import annotations

import pytest
from helpers.kits import OF_SOLVING

from privopt.testing import conformance

test_benders_and_exact = conformance("lr-geo", methods=["benders", "exact"], how="dev")
test_full = conformance("lr-geo", methods=["full"], checks=OF_SOLVING, how="dev")
test_full_by_every_check = pytest.mark.slow(conformance("lr-geo", methods=["full"], how="dev"))
