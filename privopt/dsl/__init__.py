"""The modelling language, in which models are written as sympy formulas and compiled to arrays.

Names are imported on first use. This keeps sympy out of solver processes, which need only compiled forms and row
scaling.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sympy import log, sqrt

    from privopt.dsl.extrema import maximum, minimum
    from privopt.dsl.form import FamilyBlock, StandardForm, VariableBlock
    from privopt.dsl.linear import Eq, Ge, Le, exp, total
    from privopt.dsl.lowering import between, implies
    from privopt.dsl.model import Model
    from privopt.dsl.model_files import write_form
    from privopt.dsl.solution import Solution, solve_form
    from privopt.dsl.symbols import Index, IndexSet, Param
    from privopt.dsl.variables import Variable

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
    "between",
    "exp",
    "implies",
    "log",
    "maximum",
    "minimum",
    "solve_form",
    "sqrt",
    "total",
    "write_form",
]

_WITHOUT_SYMPY = ("privopt.dsl.form", "privopt.dsl.model_files", "privopt.dsl.sets", "privopt.dsl.solution")
"""The modules that work on arrays alone and can be imported without sympy."""
_HOMES = {
    "privopt.dsl.extrema": ("maximum", "minimum"),
    "privopt.dsl.form": ("FamilyBlock", "StandardForm", "VariableBlock"),
    "privopt.dsl.linear": ("Eq", "Ge", "Le", "exp", "log", "sqrt", "total"),
    "privopt.dsl.lowering": ("between", "implies"),
    "privopt.dsl.model": ("Model",),
    "privopt.dsl.model_files": ("write_form",),
    "privopt.dsl.sets": ("IndexSet",),
    "privopt.dsl.solution": ("Solution", "solve_form"),
    "privopt.dsl.symbols": ("Index", "Param"),
    "privopt.dsl.variables": ("Variable",),
}
"""The names in ``__all__``, keyed by the module from which they are imported."""


# not lazy-loader: docs/adr/0008
def __getattr__(name: str) -> Any:
    """Import a name listed in ``__all__`` from its module on first use."""
    for home, names in _HOMES.items():
        if name in names:
            if home not in _WITHOUT_SYMPY:
                from privopt.dsl.load_language import load_language

                load_language()
            return getattr(import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
