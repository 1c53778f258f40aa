"""Functions that fit a release to noisy values, one per kind of method.

All of this is post-processing: the inputs are noisy values, the public tree and totals that are published exactly, but
never true counts. :mod:`..methods` defines the function used by each method.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Final

import numpy as np
from attrs import evolve, frozen

from privopt.arrays import Ints
from privopt.errors import StoppedError
from privopt_hierarchical_dp.fits import half_prices, qip
from privopt_hierarchical_dp.fits.as_published import chain_counts, fit_chain
from privopt_hierarchical_dp.fits.chain import fit_with_totals
from privopt_hierarchical_dp.fits.isotonic import isotonic_integers
from privopt_hierarchical_dp.fits.projection import project_jointly
from privopt_hierarchical_dp.fits.qip import Fit
from privopt_hierarchical_dp.fits.smoothing import smooth_down
from privopt_hierarchical_dp.fits.top_down import top_down
from privopt_hierarchical_dp.least_squares import Noise
from privopt_hierarchical_dp.methods import METHODS
from privopt_hierarchical_dp.tree import Tree, add_up

__all__ = ["Fit", "FitInput", "fit", "fit_at_once"]

_ROOT_PULL = 1e6
"""The weight that keeps the root's total close to G in the relaxed Model 2, where all other weights are at most 1."""


@frozen(kw_only=True, eq=False)
class FitInput:
    """The input to a fit: noisy values, totals, weights and solver options.

    Attributes:
        method: The name of the method.
        tree: The region tree.
        noisy: For each level, an array of noisy values with one row per region. Its columns are counts or cumulative
            counts, one per size. If the totals are known, cumulative counts have no column for the last size.
        total: The total number G of groups, which is public or estimated.
        totals: For each level, a (regions,) array with exact or estimated totals, or None if the regions' totals are
            neither known nor needed.
        weights: The rational weight of each level in the objective, which is 0 for levels that were not measured.
        noise: The moments of the noise on one value, for each level.
        backend: The solver for integer programs.
        gap: The relative gap at which iterative fits stop.
        estimated: Whether the totals are estimates.
    """

    method: str
    tree: Tree
    noisy: list[Ints]
    total: int
    totals: list[Ints] | None
    weights: tuple[Fraction, ...]
    noise: tuple[Noise, ...]
    backend: str = "cbc"
    gap: float = 1e-4
    estimated: bool = False

    @property
    def scaled_weights(self) -> list[float]:
        """The level weights as doubles, scaled so that the largest is 1."""
        max_weight = max(self.weights)
        return [float(weight / max_weight) for weight in self.weights]

    @property
    def known_totals(self) -> list[Ints]:
        """The totals of the regions, for methods that require them. They must not be None."""
        assert self.totals is not None  # methods that need totals also publish them
        return self.totals


def fit(fit_input: FitInput) -> Fit:
    """Fit integers to the noisy values at all levels, using the method named in the input."""
    return FITS[METHODS[fit_input.method].fit](fit_input)


def fit_at_once(fit_input: FitInput) -> Fit:
    """Fit a valid release within seconds, for use when a method is interrupted before it has produced a result.

    A fast method is applied to the same noisy values. Call this only after the time limit has been reached, so that
    projections stop at their first check of the clock.

    Raises:
        StoppedError: The method has no faster fallback.
    """
    rule = METHODS[fit_input.method]
    # Methods whose counts may be inconsistent only exist for comparison with the paper and have no fallback.
    if not rule.valid:
        raise StoppedError(f"interrupted before {fit_input.method} fitted anything; nothing written")
    # None of these methods solves an integer program, and their projections stop at the first check of the clock.
    quick_method = "hierarchical-dp" if rule.query == "counts" else "cumulative-dp"
    if rule.query == "cumulative" and fit_input.totals is not None:
        quick_method = "cumulative-smoothed"
    fitted = fit(evolve(fit_input, method=quick_method))
    return evolve(fitted, lower_bound=None, proved=False, details={"stopped": True})


def fit_smoothed(fit_input: FitInput) -> Fit:
    """Fit cumulative counts level by level, using the fitted counts of each region as the prior for its children."""
    counts = smooth_down(fit_input.tree, fit_input.noisy, noise=fit_input.noise, totals=fit_input.known_totals)
    return Fit(counts=counts, solver="Kalman smoother, ADMM and error diffusion")


def _fit_with_known_totals(fit_input: FitInput, noisy: list[Ints], *, cumulative: bool) -> Fit:
    """Fit counts (Model 1) or cumulative counts (Model 2) to noisy values, given the totals of all regions.

    Args:
        fit_input: The tree, totals, weights and options.
        noisy: For each level, an array with the noisy values, which replace those in ``fit_input``.
        cumulative: Whether the noisy values are cumulative counts rather than counts.
    """
    return fit_with_totals(
        fit_input.tree,
        noisy,
        totals=fit_input.known_totals,
        weights=fit_input.scaled_weights,
        cumulative=cumulative,
        gap=fit_input.gap,
    )


def _fit_model_1(fit_input: FitInput, noisy: list[Ints]) -> Fit:
    """Fit consistent counts to noisy counts (Model 1).

    If the totals of the regions are not given, the exact solution is computed (:mod:`.half_prices`). If they are given,
    a joint projection (:mod:`.projection`) is rounded to integers.

    Args:
        fit_input: The tree, totals, weights and options.
        noisy: For each level, a (regions, sizes) array with the noisy counts, which replace those in ``fit_input``.
    """
    if fit_input.totals is not None:
        return _fit_with_known_totals(fit_input, noisy, cumulative=False)
    limit = half_prices.largest_weight(fit_input.tree, noisy, fit_input.total)
    weights = half_prices.integer_weights(fit_input.weights, limit=limit)
    counts = half_prices.project_counts(fit_input.tree, noisy, total=fit_input.total, weights=weights)
    # The solution is optimal for the integer weights. If these only approximate the given weights, no bound is claimed.
    max_weight = int(max(weights))
    has_exact_weights = [Fraction(int(w), max_weight) for w in weights] == [
        w / max(fit_input.weights) for w in fit_input.weights
    ]
    bound = float(Fraction(half_prices.objective(counts, noisy, weights), max_weight)) if has_exact_weights else None
    return Fit(counts=counts, lower_bound=bound, solver="half-prices", proved=has_exact_weights)


def fit_isotonic(fit_input: FitInput) -> Fit:
    """Fit counts by Algorithm 2 of the paper, i.e. isotonic regression in each region followed by Model 1."""
    steps = []
    for level, noisy in enumerate(fit_input.noisy):
        # If a region's total is not known, its cumulative counts are bounded by the total number of groups.
        high = np.full(len(noisy), fit_input.total) if fit_input.totals is None else fit_input.totals[level]
        fitted = isotonic_integers(noisy, high=high)
        if fit_input.totals is not None:
            fitted = np.concatenate([fitted, high[:, None]], axis=1)
        steps.append(np.diff(fitted, axis=1, prepend=0))
    # Estimated region totals only bound the isotonic step. Model 1 then only enforces the total of the root.
    fitted_steps = _fit_model_1(evolve(fit_input, totals=None) if fit_input.estimated else fit_input, steps)
    return Fit(counts=fitted_steps.counts, iterations=fitted_steps.iterations, solver=f"PAVA and {fitted_steps.solver}")


def fit_top_down(fit_input: FitInput) -> Fit:
    """Fit the counts level by level from the root down, so that each region's children add up to its fitted counts."""
    counts = top_down(fit_input.tree, fit_input.noisy, total=fit_input.total)
    return Fit(counts=counts, solver="level by level, controlled rounding")


def fit_counts_relaxed(fit_input: FitInput) -> Fit:
    """Fit real-valued counts (Model 1) and round each of them separately.

    The result may be inconsistent, i.e. a parent may differ from the sum of its children.
    """
    grid, relaxed = half_prices.relax_counts(
        fit_input.tree, fit_input.noisy, total=fit_input.total, weights=fit_input.weights
    )
    # Because of the rounding, a parent may differ from the sum of its children. `violations` counts these cases.
    counts = [np.floor(level + 0.5).astype(np.int64) for level in relaxed]
    return Fit(counts=counts, solver=f"half-prices on a grid of 1/{grid}, rounded")


def fit_cumulative_relaxed(fit_input: FitInput) -> Fit:
    """Fit real-valued cumulative counts (Model 2) and round each of them separately.

    The result may be inconsistent, i.e. a parent may differ from the sum of its children.
    """
    size = fit_input.noisy[0].shape[1]
    if size == 0:  # there is only one size, so the counts are the totals
        return Fit(counts=[total[:, None] for total in fit_input.known_totals], solver="none")
    weights = [np.full(size, weight) for weight in fit_input.scaled_weights]
    noisy = [level.astype(np.float64) for level in fit_input.noisy]
    if fit_input.totals is None:
        tops = [np.full(width, fit_input.total) for width in fit_input.tree.widths]
        # The root's total is exact, but the projection has no equality constraint for it. A large weight approximates
        # one, and the remaining difference is reported.
        weights[0] = weights[0].copy()
        weights[0][-1], noisy[0][0, -1] = _ROOT_PULL, float(fit_input.total)
    else:
        tops = fit_input.totals
    projection = project_jointly(fit_input.tree, noisy, weights=weights, totals=tops, gap=fit_input.gap, iterations=60)
    levels = add_up(fit_input.tree, projection.leaves)
    total_error = abs(float(levels[0][0, -1]) - fit_input.total) if fit_input.totals is None else 0.0
    counts = []
    for level, values in enumerate(levels):
        rounded = np.floor(values + 0.5).astype(np.int64)
        if fit_input.totals is not None:
            rounded = np.concatenate([rounded, fit_input.totals[level][:, None]], axis=1)
        counts.append(np.diff(rounded, axis=1, prepend=0))
    details = {"relaxed": {"gap": projection.gap, "total_missed": total_error}}
    return Fit(counts=counts, iterations=projection.iterations, solver="ADMM, rounded", details=details)


def fit_published_chain(fit_input: FitInput) -> Fit:
    """Fit a chain of cumulative counts across all regions, exactly as described in section 9.2 of the paper."""
    fitted = fit_chain(fit_input.tree, fit_input.noisy, total=fit_input.total)
    # The fit is optimal for equal weights, so the value of its objective is a lower bound.
    value = float(half_prices.objective(fitted, fit_input.noisy))
    return Fit(counts=chain_counts(fitted), lower_bound=value, solver="PAVA", proved=True)


def fit_program(fit_input: FitInput) -> Fit:
    """Fit counts (M_H) or cumulative counts (M_c) with an integer program that starts from the result of a fast method.

    If time runs out before a solution of the program is found, the result of the fast method is returned.
    """
    cumulative = METHODS[fit_input.method].query == "cumulative"
    # The program's piecewise-linear costs are exact near this fit, which is also the fallback if time runs out.
    quick_fit = fit_isotonic(fit_input) if cumulative else _fit_model_1(fit_input, fit_input.noisy)
    start, noisy = quick_fit.counts, fit_input.noisy
    if cumulative:
        start = [np.cumsum(level, axis=1) for level in start]
        if fit_input.totals is not None:
            # The last cumulative count is the known total, which was not measured.
            noisy = [np.concatenate([n, t[:, None]], axis=1) for n, t in zip(noisy, fit_input.totals, strict=True)]
    try:
        solution = qip.solve_exactly(
            fit_input.tree,
            noisy,
            start=start,
            total=fit_input.total,
            totals=fit_input.totals,
            weights=fit_input.scaled_weights,
            cumulative=cumulative,
            backend=fit_input.backend,
        )
    except StoppedError:
        return Fit(counts=quick_fit.counts, solver=quick_fit.solver, details={"stopped": True})
    counts = [np.diff(level, axis=1, prepend=0) for level in solution.counts] if cumulative else solution.counts
    return evolve(solution, counts=counts, details={} if solution.proved else {"stopped": True})


def fit_counts(fit_input: FitInput) -> Fit:
    """Fit the consistent non-negative counts nearest to the noisy counts (Model 1)."""
    return _fit_model_1(fit_input, fit_input.noisy)


def fit_jointly(fit_input: FitInput) -> Fit:
    """Fit consistent cumulative counts to noisy ones (Model 2), given the totals of all regions."""
    return _fit_with_known_totals(fit_input, fit_input.noisy, cumulative=True)


FITS: Final[Mapping[str, Callable[[FitInput], Fit]]] = {
    function.__name__: function
    for function in (
        fit_smoothed,
        fit_jointly,
        fit_isotonic,
        fit_program,
        fit_cumulative_relaxed,
        fit_counts,
        fit_counts_relaxed,
        fit_top_down,
        fit_published_chain,
    )
}
