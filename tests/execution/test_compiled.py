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
