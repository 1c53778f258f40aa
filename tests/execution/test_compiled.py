"""Functions compiled where they are first called: in threads, and where no code can be kept."""

from __future__ import annotations

import subprocess
import sys

from privopt.execution import compiled

BARE = """
from numba.core.caching import CacheImpl
CacheImpl._locator_classes = []  # as where no folder can be written
import privopt.exact.bound, privopt.metric.optimal.flows, privopt.metric.optimal.lane_outputs
from privopt.metric.optimal import factor_kernels, flows, pricing, row_kernels
from privopt.execution.compiled import Compiled
modules = flows, pricing, factor_kernels, row_kernels
found = [[value for value in vars(module).values() if isinstance(value, Compiled)] for module in modules]
assert all(found)
for value in sum(found, []):
    assert value.dispatcher().py_func is value.py_func
"""


def test_where_no_folder_can_be_written_kernels_are_compiled_all_the_same():
    subprocess.run([sys.executable, "-c", BARE], check=True)


FEW_STEPS = """
import sys
from fractions import Fraction
import numpy as np
from privopt.exact.certify import greatest_ratios
from privopt.metric.space.formulas import euclidean
from privopt.metric.space.geometry import EuclideanMetric
from privopt.metric.space.pairs import reduce_pairs, required_pairs
from privopt.metric.space.places import Space
from privopt.metric.optimal import Instance, dual_bound, solve
from privopt.exact.bound import lower_bound
rng = np.random.default_rng(0)
def answers():
    points = rng.random((9, 2))
    metric = EuclideanMetric(Space(ids=[str(i) for i in range(9)], coordinates=points, kind="planar"))
    pairs, lengths = required_pairs(metric)
    kept = reduce_pairs(pairs, lengths)
    weights = rng.integers(0, 2**62, (9, 9), dtype=np.uint64)
    ratios = greatest_ratios(weights, *np.ascontiguousarray(pairs.T))
    found = solve(Instance(cost=metric.table() / 9, pairs=pairs, distances=lengths, epsilon=4.0))
    bound = lower_bound(metric.table() / 9, pairs, lengths, Fraction(4), found.multipliers)
    return [metric.table(), kept, ratios, np.array(bound)], found.objective
rng = np.random.default_rng(0)
few = [answers() for _ in range(4)]
assert "numba" not in sys.modules
import numba
import privopt.exact.certify
privopt.exact.certify.FEW = 0
rng = np.random.default_rng(0)
for (one, loss), (other, again) in zip(few, [answers() for _ in range(4)]):
    for a, b in zip(one[:3], other[:3]):
        assert np.array_equal(a, b)
    assert abs(one[3] - other[3]) <= 1e-12 and abs(loss - again) <= 1e-12
"""


def test_few_steps_are_interpreted_with_the_same_answers_bit_by_bit_where_they_count():
    subprocess.run([sys.executable, "-c", FEW_STEPS], check=True)


def test_a_function_is_found_by_others_once_all_that_it_calls_are_made(monkeypatch):
    names = {"jit": compiled.jit}
    exec("@jit()\ndef inner(x):\n    return x + 1\n@jit()\ndef outer(x):\n    return inner(x)\n", names)
    outer, seen = names["outer"], []

    def made(function, options):
        seen.append((outer._ready, names["outer"] is outer))
        return function

    monkeypatch.setattr(compiled, "_dispatcher", made)
    assert outer(1) == 2
    assert seen == [(None, True), (None, True)]
    assert outer._ready is names["outer"] is outer.py_func
    assert names["inner"](1) == 2
