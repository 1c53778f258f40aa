"""The baselines, held to the conformance kit as anybody's mechanism would be; at effort ci in test_shipped.py."""

import pytest
from helpers.kits import OF_SOLVING

from privopt.registry import registry
from privopt.testing import conformance

WHOLE = {"optimal-lp": ["auto"], "exponential": ["exponential"]}
"""Of a family of methods the one that every check tries; of the others the suite tries what their solving decides."""
OTHERS = {
    name: [method.name for method in registry().get(name).spec.methods if method.name not in whole]
    for name, whole in WHOLE.items()
}

test_optimal_lp = conformance("optimal-lp", methods=WHOLE["optimal-lp"], how="dev")
test_solvers = conformance("optimal-lp", methods=OTHERS["optimal-lp"], checks=OF_SOLVING, how="dev")
test_exponential = conformance("exponential", methods=WHOLE["exponential"], how="dev")
test_calibrated = conformance("exponential", methods=OTHERS["exponential"], checks=OF_SOLVING, how="dev")
test_planar_laplace = conformance("planar-laplace", how="dev")
test_const_opt = conformance("const-opt", checks=OF_SOLVING, how="dev")
test_given = conformance("given", checks=OF_SOLVING, how="dev")
test_whole_const_opt = pytest.mark.slow(conformance("const-opt", how="dev"))
test_whole_given = pytest.mark.slow(conformance("given", how="dev"))
test_every_method = pytest.mark.slow(conformance("optimal-lp", methods=OTHERS["optimal-lp"], how="dev"))
test_every_exponential = pytest.mark.slow(conformance("exponential", methods=OTHERS["exponential"], how="dev"))
