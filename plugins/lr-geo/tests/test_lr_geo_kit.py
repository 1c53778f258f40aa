from __future__ import annotations

import pytest
from helpers.kits import BRIEF, OF_SOLVING

from privopt.testing import conformance

test_benders = conformance("lr-geo", methods=["benders"], how=BRIEF)
test_others = conformance(
    "lr-geo", methods=["exact", "full"], checks=[*OF_SOLVING, "non-interference", "no-secret-leak"], how=BRIEF
)
# Of full only the server's solver is its own; exact has a release, a promise and a check of its own.
OF_RELEASES = [
    "guarantee-stated", "evidence", "vacuous-guarantee", "zeros-on-both-sides", "seed-determinism", "sampler",
    "channel", "round-trip", "oracle", "verify-catches-rows", "use-verifies", "public-report", "input-order",
    "relabelling", "units", "distances", "every-point",
]  # fmt: skip
test_exact_release = pytest.mark.slow(conformance("lr-geo", methods=["exact"], checks=OF_RELEASES, how="dev"))
