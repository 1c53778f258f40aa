"""Importing the language changes nothing of the garbage collector that the program has set."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("setting", ["enable", "disable"])
def test_collector_is_as_before_the_import(setting: str) -> None:
    program = f"""
import gc
gc.{setting}()
import privopt.dsl
assert "sympy" not in __import__("sys").modules
from privopt.dsl import IndexSet
from privopt.dsl import Model
assert gc.isenabled() is ({setting!r} == "enable")
assert gc.get_freeze_count() == 0

class Node: pass
node = Node()
node.self = node
reference = __import__("weakref").ref(node)
del node
gc.collect()
assert reference() is None
"""
    subprocess.run([sys.executable, "-c", program], check=True)
