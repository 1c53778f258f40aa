"""Compiled functions give the same numbers where numba is not installed."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from fractions import Fraction

import numpy as np

from privopt.numbers import exp_bounds
from privopt.numbers.gaussian import draw_gaussian
from privopt.numbers.laplace import draw_laplace
from privopt.numbers.sampling import make_source


def digests() -> dict[str, str]:
    """Return a digest of the output of each kernel that the core has."""
    distances = np.concatenate([[0.0, 1e-300, 1e-9, 50.0, 1e6], np.geomspace(1e-6, 40, 200)])
    outputs = {
        "laplace": draw_laplace(400, Fraction(3, 70), source=make_source(1)),
        "narrow laplace": draw_laplace(400, Fraction(7, 3), source=make_source(2)),
        "wide laplace": draw_laplace(50, Fraction(1, 10**12), source=make_source(3)),
        "gaussian": draw_gaussian(200, Fraction(5, 2), source=make_source(4)),
        "wide gaussian": draw_gaussian(50, Fraction(10**11), source=make_source(5)),
        "exp": np.stack(exp_bounds(distances, Fraction(7, 5))),
    }
    return {name: hashlib.sha256(output.tobytes()).hexdigest() for name, output in outputs.items()}


def test_interpreted_kernels_match_compiled_ones():
    code = (
        "import sys; sys.modules['numba'] = None; import runpy, json;"
        f"print(json.dumps(runpy.run_path({__file__!r})['digests']()))"
    )
    completed = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(completed.stdout) == digests()
