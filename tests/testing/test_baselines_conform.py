"""The baselines, held to the conformance kit as anybody's mechanism would be."""

from privopt.testing import conformance
from privopt.testing.baselines import CONST_OPT, EXPONENTIAL, PLANAR

test_optimal_lp = conformance("optimal-lp")
test_exponential = conformance("exponential", profile=EXPONENTIAL)
test_planar_laplace = conformance("planar-laplace", profile=PLANAR)
test_const_opt = conformance("const-opt", profile=CONST_OPT)
