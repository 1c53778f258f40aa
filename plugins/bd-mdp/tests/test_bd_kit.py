from __future__ import annotations

from privopt.testing import conformance

test_benders = conformance("bd-mdp", methods=["benders"], how="dev")
