"""Functions that fit a release to noisy values, one for each kind of method.

All of this is post-processing: the inputs are noisy values, the public tree and totals that are published exactly, but
never true counts. :mod:`..methods` assigns a function to each method.
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
"""The weight that keeps the root's total near G in the relaxed Model 2. All other weights are at most 1."""


@frozen(kw_only=True, eq=False)
class FitInput:
    """The input that every fit receives.

    Attributes:
        method: The name of the method.
        tree: The regions.
        noisy: The noisy values of each level: counts (R_l, N), or cumulative counts (R_l, N) or, without those of size
            N, (R_l, N - 1).
        total: G, public or estimated.
        totals: The regions' (R_l,) totals on each level, exact or estimated. None if the method has no totals.
        weights: The rational weight of each level in the objective; 0 if the level was not measured.
        noise: The noise on one value of each level.
        backend: The solver of integer programs.
        gap: The relative gap at which an iteration stops.
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
        """The weights, scaled so that the largest is 1."""
        max_weight = max(self.weights)
        return [float(weight / max_weight) for weight in self.weights]

    @property
    def known_totals(self) -> list[Ints]:
        """The regions' totals, in a method that requires them."""
        assert self.totals is not None  # the method publishes them
        return self.totals


def fit(fit_input: FitInput) -> Fit:
    """Fit integers to the noisy values of every level, by the input's method."""
    return FITS[METHODS[fit_input.method].fit](fit_input)


def fit_at_once(fit_input: FitInput) -> Fit:
    """Fit a valid release to the same noisy values within seconds, as the fallback of an interrupted method.

    Call this when no time is left, so that projections end at their first check of the clock.

    Raises:
        StoppedError: The method has no quicker fallback.
    """
    rule = METHODS[fit_input.method]
    # Methods whose releases can be inconsistent only exist for comparison with the paper, and have no fallback.
    if not rule.valid:
        raise StoppedError(f"interrupted before {fit_input.method} fitted anything; nothing written")
    # None of these solves an integer program, and their projections end at the first check of the clock.
    quick_method = "hierarchical-dp" if rule.query == "counts" else "cumulative-dp"
    if rule.query == "cumulative" and fit_input.totals is not None:
        quick_method = "cumulative-smoothed"
    fitted = fit(evolve(fit_input, method=quick_method))
    return evolve(fitted, lower_bound=None, proved=False, details={"stopped": True})


def fit_smoothed(fit_input: FitInput) -> Fit:
    """Fit cumulative counts level by level, with the counts of a parent region as the prior of its children."""
    counts = smooth_down(fit_input.tree, fit_input.noisy, noise=fit_input.noise, totals=fit_input.known_totals)
    return Fit(counts=counts, solver="Kalman smoother, ADMM and error diffusion")


def _fit_with_known_totals(fit_input: FitInput, noisy: list[Ints], *, cumulative: bool) -> Fit:
    """Fit Model 1 or Model 2 to noisy values, given the totals of all regions.

    Args:
        fit_input: The tree, totals, weights and options.
        noisy: The noisy values of each level, which are used instead of those of ``fit_input``.
        cumulative: Whether the noisy values are cumulative counts (Model 2) instead of counts (Model 1).
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
    """Return the consistent counts nearest to noisy counts.

    Without region totals, the method of half-prices (:mod:`.half_prices`) gives the exact solution. With them, a joint
    projection is rounded.

    Args:
        fit_input: The tree, totals, weights and options.
        noisy: The (R_l, N) counts on each level, which are used instead of those of ``fit_input``.
    """
    if fit_input.totals is not None:
        return _fit_with_known_totals(fit_input, noisy, cumulative=False)
    limit = half_prices.largest_weight(fit_input.tree, noisy, fit_input.total)
    weights = half_prices.integer_weights(fit_input.weights, limit=limit)
    counts = half_prices.project_counts(fit_input.tree, noisy, total=fit_input.total, weights=weights)
    # The optimum holds for the integer weights. If these had to be coarser than the objective's, no bound is claimed.
    max_weight = int(max(weights))
    has_exact_weights = [Fraction(int(w), max_weight) for w in weights] == [
        w / max(fit_input.weights) for w in fit_input.weights
    ]
    bound = float(Fraction(half_prices.objective(counts, noisy, weights), max_weight)) if has_exact_weights else None
    return Fit(counts=counts, lower_bound=bound, solver="half-prices", proved=has_exact_weights)


def fit_isotonic(fit_input: FitInput) -> Fit:
    """Fit by the paper's Algorithm 2: isotonic regression in each region, then Model 1 on the differences."""
    steps = []
    for level, noisy in enumerate(fit_input.noisy):
        # Without a region's total, its cumulative counts are bounded by the whole hierarchy's.
        high = np.full(len(noisy), fit_input.total) if fit_input.totals is None else fit_input.totals[level]
        fitted = isotonic_integers(noisy, high=high)
        if fit_input.totals is not None:
            fitted = np.concatenate([fitted, high[:, None]], axis=1)
        steps.append(np.diff(fitted, axis=1, prepend=0))
    # The regions' estimated totals only bound the isotonic step. Model 1 only keeps the root's total.
    fitted_steps = _fit_model_1(evolve(fit_input, totals=None) if fit_input.estimated else fit_input, steps)
    return Fit(counts=fitted_steps.counts, iterations=fitted_steps.iterations, solver=f"PAVA and {fitted_steps.solver}")


def fit_top_down(fit_input: FitInput) -> Fit:
    """Fit two levels at a time, from the root down."""
    counts = top_down(fit_input.tree, fit_input.noisy, total=fit_input.total)
    return Fit(counts=counts, solver="level by level, controlled rounding")


def fit_counts_relaxed(fit_input: FitInput) -> Fit:
    """Fit Model 1 without integrality, and round each count separately. The result may be inconsistent."""
    grid, relaxed = half_prices.relax_counts(
        fit_input.tree, fit_input.noisy, total=fit_input.total, weights=fit_input.weights
    )
    # Each count is rounded by itself: a parent may then differ from the sum of its children, which
    # `violations` counts.
    counts = [np.floor(level + 0.5).astype(np.int64) for level in relaxed]
    return Fit(counts=counts, solver=f"half-prices on a grid of 1/{grid}, rounded")


def fit_cumulative_relaxed(fit_input: FitInput) -> Fit:
    """Fit Model 2 without integrality, and round each region separately. The result may be inconsistent."""
    size = fit_input.noisy[0].shape[1]
    if size == 0:  # one size, whose counts are the totals
        return Fit(counts=[total[:, None] for total in fit_input.known_totals], solver="none")
    weights = [np.full(size, weight) for weight in fit_input.scaled_weights]
    noisy = [level.astype(np.float64) for level in fit_input.noisy]
    if fit_input.totals is None:
        tops = [np.full(width, fit_input.total) for width in fit_input.tree.widths]
        # The total of the hierarchy is exact, and the projection has no equality for it. A large weight takes its
        # place, and the remaining difference is reported.
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
    """Fit the chain of section 9.2 of the paper exactly as it is printed."""
    fitted = fit_chain(fit_input.tree, fit_input.noisy, total=fit_input.total)
    # The fit is exact for weights of 1, so its objective is the optimum.
    value = float(half_prices.objective(fitted, fit_input.noisy))
    return Fit(counts=chain_counts(fitted), lower_bound=value, solver="PAVA", proved=True)


def fit_program(fit_input: FitInput) -> Fit:
    """Fit M_H or M_c by an integer program that starts from the integers of a fast method."""
    cumulative = METHODS[fit_input.method].query == "cumulative"
    # The piecewise-linear costs of the program are exact around this fit, which is also the release if the program
    # finds nothing in time.
    quick_fit = fit_isotonic(fit_input) if cumulative else _fit_model_1(fit_input, fit_input.noisy)
    start, noisy = quick_fit.counts, fit_input.noisy
    if cumulative:
        start = [np.cumsum(level, axis=1) for level in start]
        if fit_input.totals is not None:
            # The last cumulative count is the total, which is not measured because it is known.
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
    """Fit Model 1 to noisy counts."""
    return _fit_model_1(fit_input, fit_input.noisy)


def fit_jointly(fit_input: FitInput) -> Fit:
    """Fit Model 2 to noisy cumulative counts, given the totals of all regions."""
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
