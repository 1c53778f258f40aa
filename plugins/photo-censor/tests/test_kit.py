from __future__ import annotations

import pytest
from helpers.kits import OF_SOLVING

from privopt.testing import conformance
from privopt_photo_censor.kit import TASKS

OTHERS = ["greedy", "top-1"]

test_optimal = conformance("photo-censor", profile=TASKS, methods=["optimal"], how="dev")
test_others = conformance("photo-censor", methods=OTHERS, checks=OF_SOLVING, how="dev")
test_every_method = pytest.mark.slow(conformance("photo-censor", methods=["optimal", *OTHERS], how="dev"))
