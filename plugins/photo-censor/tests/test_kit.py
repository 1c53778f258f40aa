from __future__ import annotations

from privopt.testing import conformance
from privopt_photo_censor.kit import TASKS

test_every_method = conformance("photo-censor", how="dev")
test_every_task = conformance("photo-censor", profile=TASKS, methods=["optimal"], how="dev")
