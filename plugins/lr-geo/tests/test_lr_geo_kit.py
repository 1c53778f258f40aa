from __future__ import annotations

import pytest
from helpers.kits import OF_SOLVING

from privopt.testing import conformance

test_benders = conformance("lr-geo", methods=["benders"], how="dev")
test_others = conformance(
    "lr-geo", methods=["exact", "full"], checks=[*OF_SOLVING, "non-interference", "no-secret-leak"], how="dev"
)
test_others_by_every_check = pytest.mark.slow(conformance("lr-geo", methods=["exact", "full"], how="dev"))
