from __future__ import annotations

import pytest
from helpers.kits import BRIEF, OF_SOLVING

from privopt.testing import conformance

# That another process releases the same is in test_bd_runs.py.
test_benders = conformance("bd-mdp", methods=["benders"], checks=OF_SOLVING, how=BRIEF)
test_every_check = pytest.mark.slow(conformance("bd-mdp", methods=["benders"], how="dev"))
