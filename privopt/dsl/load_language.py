"""Import the modelling language, with sympy and SciPy, without slow garbage collections during import or at exit."""

from __future__ import annotations

import atexit
import gc
import sys
from importlib import import_module


def load_language() -> None:
    """Import the modelling language with Python's cyclic garbage collector paused, unless sympy is already loaded.

    Importing sympy and SciPy creates about 10^5 objects that live as long as the program. Garbage collections during
    the import would scan all of them repeatedly.

    Python also collects garbage at exit. With these objects, that takes about 0.1 s of CPU time, mostly to free memory
    that the operating system would reclaim anyway. All objects that exist at exit, including the program's own, are
    therefore exempted from the final collections (``gc.freeze``). As a result, finalizers of objects in reference
    cycles may not run at exit. (Python does not guarantee that they do.)
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
