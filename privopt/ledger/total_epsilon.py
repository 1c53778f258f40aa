"""Conversion of a subject's accounts in several units to a single (epsilon, delta) bound that covers all mechanisms."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from privopt.errors import UsageError
from privopt.interfaces.cost import EPSILON, PAIR, RHO, Sum
from privopt.numbers.gaussian import epsilon_of


def total_epsilon(sums: Mapping[str, Sum], delta: Fraction, *, squares: Fraction | None = None) -> Fraction | None:
    """Return an epsilon for which a subject's charged reports are jointly (epsilon, delta)-differentially private.

    A mechanism that is pure DP with epsilon is also rho-zero-concentrated DP (zCDP) with rho = epsilon^2 / 2. Any
    rho-zCDP mechanism is converted to (epsilon, delta) using the bound of Canonne, Kamath and Steinke (2020, Corollary
    13). For Gaussian noise alone, a smaller epsilon would suffice. Epsilons of pure DP are either added unchanged or
    converted to rho, whichever gives the smaller total. Deltas of approximate DP add up, and the rest of ``delta`` is
    spent on the conversion.

    Args:
        sums: The amounts spent, or the limits, by unit.
        delta: The delta for the total, above 0 and below 1.
        squares: The sum of the squares of the individual pure-DP epsilons. The default is the square of their sum,
            which is an upper bound.

    Returns:
        The total epsilon, or None if more than ``delta`` was spent or none of it is left for converting rho. The total
        is exact, except that any converted part is rounded up to six digits.

    Raises:
        UsageError: ``delta`` is not strictly between 0 and 1.
    """
    if not 0 < delta < 1:
        raise UsageError(f"delta must be a number above 0 and below 1, got {delta}")
    pure, rho = (sums.get(unit, (Fraction(0),))[0] for unit in (EPSILON, RHO))
    approximate = sums.get(PAIR, (Fraction(0), Fraction(0)))
    remaining_delta = delta - approximate[1]
    # Converting rho needs some of the delta.
    if remaining_delta < 0 or (remaining_delta == 0 and rho):
        return None
    totals = []
    # Each total is a valid epsilon for the pure and the concentrated accounts together, so the smallest is valid too.
    if rho == 0:
        totals.append(pure)
    if remaining_delta > 0:
        # Pure DP of epsilon is epsilon^2 / 2 of zero-concentrated DP (Bun and Steinke 2016).
        totals.append(epsilon_of(rho + (pure**2 if squares is None else squares) / 2, remaining_delta))
        if rho and pure:
            totals.append(pure + epsilon_of(rho, remaining_delta))
    return approximate[0] + min(totals)
