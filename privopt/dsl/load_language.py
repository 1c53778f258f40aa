"""Import the modelling language, with sympy and SciPy, so that it costs less then and at the end of the program."""

from __future__ import annotations

import atexit
import gc
import sys
from importlib import import_module


def load_language() -> None:
    """Import the language with the collector of cyclic garbage paused.

    Importing sympy and SciPy creates some 10^5 objects that live as long as the program. Collections during the import
    would look at all of them again and again, so the collector is paused, and enabled afterwards if it was before. At
    the end of the program, Python collects once more before it exits, which takes 0.3 s of CPU time with these objects
    and frees nothing that the system does not. So they are exempted then (``gc.freeze``), and not before. Nothing
    happens if sympy is loaded already.
    """
    if "sympy" in sys.modules:
        return
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        import_module("privopt.dsl.model")
    finally:
        if was_enabled:
            gc.enable()
    atexit.register(gc.freeze)
