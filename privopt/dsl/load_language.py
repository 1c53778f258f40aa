"""Import the modelling language, with sympy and SciPy, so that it costs less then and at the end of the program."""

from __future__ import annotations

import gc
import sys
from importlib import import_module


def load_language() -> None:
    """Import the language with the collector of cyclic garbage paused, and exempt the existing objects from it.

    Importing sympy and SciPy creates some 10^5 objects that live as long as the program. Collections during the import
    and at the end of the program look at all of them, which took a third of the .8 s of processor time of a program
    that states and compiles a small model. The exemption (``gc.freeze``) concerns every object of the program at this
    moment: those that later become unreachable in a cycle are freed only at its end. Nothing happens if sympy is loaded
    already.
    """
    if "sympy" in sys.modules:
        return
    # What is garbage now must not be exempted; there are few objects before the import.
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        import_module("privopt.dsl.model")
    finally:
        if was_enabled:
            gc.enable()
    gc.freeze()
