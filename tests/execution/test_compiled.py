"""Functions compiled where they are first called: in threads, and where no code can be kept."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from privopt.execution import compiled

BARE = """
from numba.core.caching import CacheImpl
CacheImpl._locator_classes = []  # as where no folder can be written
import privopt.exact.bound, privopt.metric.optimal.lane_outputs
from privopt.metric.optimal import factor_kernels, pricing, row_kernels
from privopt.execution.compiled import Compiled
modules = pricing, factor_kernels, row_kernels
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


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A module whose code was kept, the files of it, and how to load it anew."""
    path = tmp_path_factory.mktemp("kept") / "kernel_kept.py"
    lines = "from privopt.execution.compiled import jit\n@jit()\ndef {}(x):\n    return {}\n"
    path.write_text(lines.format("once", "x + 1") + lines.format("twice", "2 * once(x)"))

    def load():
        spec = importlib.util.spec_from_file_location("kernel_kept", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.twice

    assert load()(3) == 8
    return load, path.parent / "__pycache__"


def cut(data):
    return data[: len(data) // 2]


def turned(data):
    """One bit in the middle, as of machine code."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 16]) + data[middle + 1 :]


@pytest.mark.parametrize(("spoil", "ending"), [(cut, "nbi"), (cut, "nbc"), (turned, "nbc")])
def test_kept_code_that_cannot_be_read_is_compiled_anew(kept, spoil, ending):
    load, folder = kept
    files = sorted(folder.glob(f"*.{ending}"))
    assert files
    for path in files:
        path.write_bytes(spoil(path.read_bytes()))
    assert load()(3) == 8
    again = load()
    assert again(3) == 8
    assert sum(again.dispatcher().stats.cache_hits.values()) == 1  # it was kept anew


def test_kept_code_where_nothing_can_be_written_is_compiled_anew(kept):
    load, folder = kept
    for path in folder.glob("*.nbi"):
        path.unlink()
        path.mkdir()
    assert load()(3) == 8
