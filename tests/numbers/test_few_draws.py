"""Few draws are interpreted and many are compiled: both use the same random bytes for the same values."""

import subprocess
import sys

import pytest

COMPARE = """
import random
import sys
from fractions import Fraction

import numpy as np

from privopt.numbers import gaussian, laplace

chance = random.Random(int(sys.argv[1]))


def fraction(largest):
    return Fraction(chance.randint(1, largest), chance.randint(1, largest))


def draw_all(cases):
    return [draw(40, parameter, source=random.Random(seed).randbytes) for draw, parameter, seed in cases]


cases = []
for number in range(60):
    largest = chance.choice([50, 10**6, laplace.LARGEST_TERM])
    cases.append((laplace.draw_laplace, fraction(largest), number))
    variance = min(fraction(chance.choice([50, 10**6])), Fraction(gaussian.LARGEST_VARIANCE))
    cases.append((gaussian.draw_gaussian, variance, number))
laplace_fill, gaussian_fill = laplace._fill, gaussian._fill
laplace._fill, gaussian._fill = laplace_fill._interpret, gaussian_fill._interpret
interpreted = draw_all(cases)
assert "numba" not in sys.modules
laplace._fill, gaussian._fill = laplace_fill.dispatcher(), gaussian_fill.dispatcher()
for by_interpreter, by_machine in zip(interpreted, draw_all(cases), strict=True):
    np.testing.assert_array_equal(by_interpreter, by_machine)
print(len(cases))
"""

LOADS = """
import sys
from fractions import Fraction

from privopt.numbers.gaussian import draw_gaussian
from privopt.numbers.laplace import FEW_DRAWS, draw_laplace

for draw in (draw_laplace, draw_gaussian):
    draw(FEW_DRAWS, Fraction(1, 3))
    print("numba" in sys.modules)
draw_laplace(FEW_DRAWS + 1, Fraction(1, 3))
print("numba" in sys.modules)
"""


def run_alone(code, *arguments):
    """Run code in a process of its own, because functions that are compiled once are not interpreted again."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize("seed", ["1", "2"])
def test_interpreted_draws_equal_compiled_ones(seed):
    assert run_alone(COMPARE, seed) == ["120"]


def test_few_draws_load_no_compiled_code():
    assert run_alone(LOADS) == ["False", "False", "True"]
