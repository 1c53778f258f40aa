"""Closed forms for the distance between a position and its report: mean, quantiles, and the loss after rounding.

The bounds are computed in ball arithmetic and rounded outwards to doubles. docs/reference/proof.md contains the
theorems.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np

from privopt.arrays import Floats
from privopt.numbers.exp_log_bounds import ball_of, float_down, float_up, rational_of_ball
from privopt_spherical_laplace.sampler.exact import RADIUS_KM
from privopt_spherical_laplace.sampler.fast import propose_scaled_distance

__all__ = ["LARGEST_EPSILON", "SMALLEST_EPSILON", "expected_distance", "quantiles", "rounded_loss"]

SMALLEST_EPSILON: Final = Fraction(1, 10**6)
LARGEST_EPSILON: Final = Fraction(10**6)
"""The smallest and largest epsilon, per km, for which the sampler's error bounds are proved."""

_WORKING_BITS: Final = 256
"""The precision of ball arithmetic, in bits."""


@lru_cache(maxsize=64)
def expected_distance(epsilon: Fraction) -> tuple[float, float]:
    """Return lower and upper bounds on the expected distance between a position and its report before rounding, in km.

    The expected distance is R (2 lambda / (1 + lambda^2) + pi / (exp(pi lambda) + 1)), where R is the Earth's radius in
    km and lambda = epsilon R.

    Args:
        epsilon: The rate of the noise, per km.
    """
    import flint

    with flint.ctx.workprec(_WORKING_BITS):
        rate, pi = ball_of(epsilon * RADIUS_KM), flint.arb.pi()
        angle = 2 * rate / (1 + rate * rate) + pi / ((pi * rate).exp() + 1)
        distance = angle * ball_of(RADIUS_KM)
        lower, upper = distance.lower(), distance.upper()
    return float_down(rational_of_ball(lower)), float_up(rational_of_ball(upper))


@lru_cache(maxsize=64)
def rounded_loss(epsilon: Fraction, side: Fraction) -> float:
    """Return an upper bound, in km, on the expected distance between a position and its rounded report.

    The position is uniform on the sphere, and the report is rounded to the centre of a grid cell. Let t be the angle
    between the position and the unrounded report, and s the angle between the unrounded and the rounded report. The
    expected loss is at most R (E[t] + min(E[s], C E[s^2] / 2)). Here R is the Earth's radius in km, lambda = epsilon R,
    and C = (lambda + exp(-pi lambda / 2)) / (1 + exp(-pi lambda)). The constant C bounds the second derivative, with
    respect to s, of the expected distance to a point at angle s from the unrounded report.

    Args:
        epsilon: The rate of the noise, per km.
        side: The side of a cell, in degrees of latitude and longitude.
    """
    import flint

    with flint.ctx.workprec(_WORKING_BITS):
        rate, pi = ball_of(epsilon * RADIUS_KM), flint.arb.pi()  # `rate` is lambda
        angle = 2 * rate / (1 + rate * rate) + pi / ((pi * rate).exp() + 1)  # E[t]
        curvature = (rate + (-pi * rate / 2).exp()) / (1 + (-pi * rate).exp())
        cell = ball_of(side) * pi / 180
        # An upper bound on E[s^2]. Within a cell, latitude and longitude are uniform or closer to the centre, so each
        # has a variance of at most cell^2 / 12. Positions in the caps within half a side of the poles are reported as
        # the poles. The probability of these caps is 1 - cos(cell / 2).
        square = cell * cell / 6 + (1 - (cell / 2).cos()) * cell * cell / 4
        shifts = square.sqrt(), curvature * square / 2
        losses = [((angle + shift) * ball_of(RADIUS_KM)).upper() for shift in shifts]
    return min(float_up(rational_of_ball(loss)) for loss in losses)


def quantiles(epsilon: Fraction, probabilities: Floats) -> Floats:
    """Return quantiles, in km, of the distance between a position and its report before rounding.

    They are accurate to about ten digits, but no error bound is proved.

    Args:
        epsilon: The rate of the noise, per km.
        probabilities: (n,) The levels of the quantiles, from 0 to 1.
    """
    rate = float(epsilon * RADIUS_KM)
    return np.asarray(propose_scaled_distance(np.asarray(probabilities, dtype=np.float64), rate) / float(epsilon))


def doubling_distance(epsilon: Fraction) -> float:
    """Return the distance, in km, at which the guarantee permits a likelihood ratio of 2.

    If two positions are at most this far apart, no report is more than twice as likely from one as from the other.
    """
    return math.log(2) / float(epsilon)
