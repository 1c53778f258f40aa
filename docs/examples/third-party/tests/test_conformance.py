"""privopt's conformance kit attacks the mechanism: one case for each method and check."""

from privopt.testing import conformance

test_conformance = conformance("ranked-response")
