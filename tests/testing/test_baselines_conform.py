"""The baselines, held to the conformance kit as anybody's mechanism would be; at effort ci in test_shipped.py."""

from privopt.testing import conformance

test_optimal_lp = conformance("optimal-lp", how="dev")
test_exponential = conformance("exponential", how="dev")
test_planar_laplace = conformance("planar-laplace", how="dev")
test_const_opt = conformance("const-opt", how="dev")
test_given = conformance("given", how="dev")
