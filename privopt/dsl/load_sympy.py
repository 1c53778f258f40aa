"""Import sympy in less time, and so that it costs nothing at the end of the program."""

from __future__ import annotations

import gc
import sys
from importlib import import_module


def load_sympy() -> None:
    """Import sympy with the collector of cyclic garbage paused, and exempt the existing objects from collections.

    Importing sympy creates some 10^5 objects that live as long as the program. Collections during the import and at
    the end of the program look at all of them, which took .25 of the .68 s of processor time of a program that only
    imports NumPy, SciPy and sympy. The exemption (``gc.freeze``) concerns every object of the program at this moment:
    those that later become unreachable in a cycle are freed only at its end. Nothing happens if sympy is loaded
    already.
    """
    if "sympy" in sys.modules:
        return
    # What is garbage now must not be exempted; there are few objects before the import.
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        import_module("sympy")
    finally:
        if was_enabled:
            gc.enable()
    gc.freeze()
