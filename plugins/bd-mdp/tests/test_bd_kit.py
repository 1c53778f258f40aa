from __future__ import annotations

import pytest
from helpers.kits import OF_SOLVING

from privopt.testing import conformance

test_benders = conformance("bd-mdp", methods=["benders"], checks=[*OF_SOLVING, "seed-determinism"], how="dev")
test_every_check = pytest.mark.slow(conformance("bd-mdp", methods=["benders"], how="dev"))
