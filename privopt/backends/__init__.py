"""Adapters to LP and MILP solvers (HiGHS, CBC), behind one small interface.

Names are imported on first use. A solver is therefore loaded only when needed, and a worker process
(:mod:`privopt.backends.workers`) loads only the solver that it runs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privopt.backends.base import Backend, Capabilities
    from privopt.backends.choose import get, names
    from privopt.backends.read_files import read_mps
    from privopt.backends.session import Answer, Session
    from privopt.dsl.outcome import Basis, Outcome, Result

__all__ = ["Answer", "Backend", "Basis", "Capabilities", "Outcome", "Result", "Session", "get", "names", "read_mps"]

_HOMES = {
    "privopt.backends.base": ("Backend", "Capabilities", "Result"),
    "privopt.backends.choose": ("get", "names"),
    "privopt.dsl.outcome": ("Basis", "Outcome"),
    "privopt.backends.read_files": ("read_mps",),
    "privopt.backends.session": ("Answer", "Session"),
}
"""The names in ``__all__``, keyed by the module from which they are imported."""


# not lazy-loader: docs/adr/0008
def __getattr__(name: str) -> Any:
    """Import a name listed in ``__all__`` from its module on first use."""
    for home, members in _HOMES.items():
        if name in members:
            return getattr(import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
