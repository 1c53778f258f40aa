from __future__ import annotations

from privopt.testing import conformance

test_conformance = conformance("lr-geo", how="dev")
