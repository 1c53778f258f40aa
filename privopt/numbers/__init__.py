"""Exact arithmetic for weights, certificates, bounds and samples. All decisions are based on integers and rationals."""

from privopt.numbers.exp_log_bounds import exp_bounds, exp_fixed
from privopt.numbers.laplace import draw_laplace
from privopt.numbers.sampling import TOTAL, Source, draw

__all__ = ["TOTAL", "Source", "draw", "draw_laplace", "exp_bounds", "exp_fixed"]
