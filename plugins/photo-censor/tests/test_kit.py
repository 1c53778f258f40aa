from __future__ import annotations

import pytest
from helpers.kits import BRIEF, OF_SOLVING

from privopt.testing import conformance
from privopt.testing.checks import checks
from privopt_photo_censor.kit import TASKS

OTHERS = ["greedy", "top-1"]

LONG = ("seed-determinism", "use-verifies")
"""Nothing is drawn; what verify and the use of a forged release find is in test_folder.py and test_proof.py."""
test_optimal = conformance(
    "photo-censor",
    profile=TASKS,
    methods=["optimal"],
    checks=[name for name in checks() if name not in LONG],
    how=BRIEF,
)
test_optimal_by_every_check = pytest.mark.slow(
    conformance("photo-censor", profile=TASKS, methods=["optimal"], how="dev")
)
test_others = conformance("photo-censor", methods=OTHERS, checks=OF_SOLVING, how=BRIEF)
test_others_by_every_check = pytest.mark.slow(conformance("photo-censor", methods=OTHERS, how="dev"))
