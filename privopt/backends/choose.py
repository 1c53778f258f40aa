"""Backends by name."""

from __future__ import annotations

from importlib import import_module

from privopt.backends.base import Backend
from privopt.dsl.form import StandardForm
from privopt.errors import SolverError, UnknownNameError

__all__ = ["explain_infeasible", "explain_unbounded", "get", "names"]

_HOMES = {"cbc": ("privopt.backends.cbc", "Cbc"), "highs": ("privopt.backends.highs", "Highs")}


def names() -> tuple[str, ...]:
    """Names of the backends, the default first."""
    return tuple(_HOMES)


def get(name: str) -> Backend:
    """The backend called so.

    >>> get("cbc").capabilities.isolated
    True

    Raises:
        UnknownNameError: there is none.
    """
    if name not in _HOMES:
        raise UnknownNameError("solver", name, _HOMES)
    module, kind = _HOMES[name]
    made: Backend = getattr(import_module(module), kind)()
    return made


def explain_infeasible(form: StandardForm, time_limit: float = 20.0) -> str:
    """Why a model has no solution: the families, and rows where that is cheap, that clash.

    Raises:
        SolverError: the model has a solution after all.
    """
    found = import_module("privopt.backends.diagnose").clash(form, time_limit=time_limit)
    if found.contradicted:
        raise SolverError("one solver calls the model infeasible, but highs finds a point that satisfies every row")
    return str(found)


def explain_unbounded(form: StandardForm, time_limit: float = 20.0) -> str:
    """Where an unbounded model runs off to, in its variables' names."""
    return str(import_module("privopt.backends.diagnose").direction(form, time_limit=time_limit))
