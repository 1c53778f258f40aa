from __future__ import annotations

import pytest
from helpers.kits import BRIEF, OF_SOLVING

from privopt.testing import conformance
from privopt.testing.checks import checks

LONG = ("seed-determinism", "relabelling", "reordering", "every-point")
"""Of benders: order and names are read alike for exact, which is quick; test_lr_geo_stopped.py has seeds, and
test_lr_geo_everywhere.py every point."""
test_benders = conformance(
    "lr-geo", methods=["benders"], checks=[name for name in checks() if name not in LONG], how=BRIEF
)
OF_ANY = [*OF_SOLVING, "non-interference", "no-secret-leak"]
test_exact = conformance("lr-geo", methods=["exact"], checks=[*OF_ANY, "reordering"], how=BRIEF)
test_full = conformance("lr-geo", methods=["full"], checks=["solves", "certificate-holds", "lower-bound"], how=BRIEF)
test_all_of_full = pytest.mark.slow(conformance("lr-geo", methods=["full"], checks=OF_ANY, how="dev"))
test_long = pytest.mark.slow(conformance("lr-geo", methods=["benders"], checks=LONG, how="dev"))
# Of full only the server's solver is its own; exact has a release, a promise and a check of its own.
OF_RELEASES = [
    "guarantee-stated", "evidence", "vacuous-guarantee", "zeros-on-both-sides", "seed-determinism", "sampler",
    "channel", "round-trip", "oracle", "verify-catches-rows", "use-verifies", "public-report", "input-order",
    "relabelling", "units", "distances", "every-point",
]  # fmt: skip
test_exact_release = pytest.mark.slow(conformance("lr-geo", methods=["exact"], checks=OF_RELEASES, how="dev"))
