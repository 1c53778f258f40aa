"""The baselines, held to the conformance kit as anybody's mechanism would be."""

from privopt.testing import conformance

test_optimal_lp = conformance("optimal-lp")
test_exponential = conformance("exponential")
test_planar_laplace = conformance("planar-laplace")
test_const_opt = conformance("const-opt")
test_given = conformance("given")
