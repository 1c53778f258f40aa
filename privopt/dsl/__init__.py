"""The modelling language: write the formula once, in sympy, and get arrays.

Names are imported when they are first used, so that solvers' processes, which need the forms and the conditioning,
do not load sympy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sympy import exp, log, sqrt

    from privopt.dsl.form import FamilyBlock, StandardForm, VariableBlock
    from privopt.dsl.linear import Eq, Ge, Le, total
    from privopt.dsl.lowering import implies
    from privopt.dsl.model import Model
    from privopt.dsl.solution import Solution
    from privopt.dsl.symbols import Index, IndexSet, Param, Variable

__all__ = [
    "Eq",
    "FamilyBlock",
    "Ge",
    "Index",
    "IndexSet",
    "Le",
    "Model",
    "Param",
    "Solution",
    "StandardForm",
    "Variable",
    "VariableBlock",
    "exp",
    "implies",
    "log",
    "sqrt",
    "total",
]

_HOMES = {
    "privopt.dsl.form": ("FamilyBlock", "StandardForm", "VariableBlock"),
    "privopt.dsl.linear": ("Eq", "Ge", "Le", "total"),
    "privopt.dsl.lowering": ("implies",),
    "privopt.dsl.model": ("Model",),
    "privopt.dsl.sets": ("IndexSet",),
    "privopt.dsl.solution": ("Solution",),
    "privopt.dsl.symbols": ("Index", "Param", "Variable"),
    "sympy": ("exp", "log", "sqrt"),
}


# not lazy-loader: docs/adr/0008
def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
