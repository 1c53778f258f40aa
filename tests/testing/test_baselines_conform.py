"""The baselines, held to the conformance kit as anybody's mechanism would be; at effort ci in test_shipped.py."""

from helpers.kits import BRIEF, OF_SOLVING

from privopt.registry import registry
from privopt.testing import conformance
from privopt.testing.checks import checks

OTHERS = [method.name for method in registry().get("optimal-lp").spec.methods if method.name != "auto"]

# Releases of matrices are one: one mechanism is held to every check (every-point is planar Laplace's below), and of the
# others the suite tries what their solving decides.
test_optimal_lp = conformance(
    "optimal-lp", methods=["auto"], checks=[name for name in checks() if name != "every-point"], how=BRIEF
)
test_solvers = conformance("optimal-lp", methods=OTHERS, checks=OF_SOLVING, how=BRIEF)
test_exponential = conformance("exponential", checks=OF_SOLVING, how=BRIEF)
test_planar_laplace = conformance("planar-laplace", checks=[*OF_SOLVING, "every-point"], how=BRIEF)
FEW = ["solves", "certificate-holds", "epsilon-achieved", "objective-reported"]
test_const_opt = conformance("const-opt", checks=FEW, how=BRIEF)
test_given = conformance("given", checks=FEW, how=BRIEF)
