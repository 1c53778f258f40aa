"""privopt's conformance kit attacks the mechanism and every kind: one case for each check."""

from privopt.testing import conformance, kind_conformance

test_conformance = conformance("ranked-response")
test_distance = kind_conformance("distance", "hamming")
test_loss = kind_conformance("loss", "squared-distance")
test_notion = kind_conformance("notion", "approximate-metric-dp")
test_solver = kind_conformance("solver", "clarabel")
test_decomposer = kind_conformance("decomposer", "lazy-rows")
