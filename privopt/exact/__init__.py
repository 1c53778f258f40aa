"""Exact arithmetic: integer weights, certificates, lower bounds, samples. Integers and rationals decide everything."""

from privopt.exact.additive import MeasuredBudget, certify_additive
from privopt.exact.bound import lower_bound
from privopt.exact.bounds import exp_bounds, exp_fixed
from privopt.exact.certify import Failure, Measured, certify
from privopt.exact.laplace import draw_laplace
from privopt.exact.multipliers import Multipliers
from privopt.exact.sample import TOTAL, Source, draw
from privopt.exact.weights import Repaired, repair, rounded

__all__ = [
    "TOTAL",
    "Failure",
    "Measured",
    "MeasuredBudget",
    "Multipliers",
    "Repaired",
    "Source",
    "certify",
    "certify_additive",
    "draw",
    "draw_laplace",
    "exp_bounds",
    "exp_fixed",
    "lower_bound",
    "repair",
    "rounded",
]
