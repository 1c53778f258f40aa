"""From noisy values to a release: one function a method, all of it post-processing.

Nothing here sees a true count; what comes in are noisy values, the public tree and the totals that
are published exactly. :mod:`..methods` says which function is whose.
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

_ROOT_PULL = 1e6  # weight of G in the relaxed model, next to weights of at most 1


@frozen(kw_only=True, eq=False)
class FitInput:
    """What a method is given after the noise.

    Attributes:
        method: its name.
        tree: the regions.
        noisy: for each level the noisy values.
        total: G, public or estimated.
        totals: for each level (R_l,) region totals where they are published exactly, or estimated; None otherwise.
        weights: for each level its weight in the objective, a rational; 0 where nothing was measured.
        noise: for each level that of its values.
        backend: of integer programs.
        gap: relative gap to stop at.
        estimated: whether totals are estimates.
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
    def scaled(self) -> list[float]:
        """Weights with largest 1."""
        top = max(self.weights)
        return [float(weight / top) for weight in self.weights]

    @property
    def known(self) -> list[Ints]:
        """Region totals, of a method that has them."""
        assert self.totals is not None  # the method publishes them
        return self.totals


def fit(asked: FitInput) -> Fit:
    """Fit integers of every level to the noisy values, by the method asked for."""
    return FITS[METHODS[asked.method].fit](asked)


def fit_at_once(asked: FitInput) -> Fit:
    """Fit a valid release within seconds to the same noisy values: what an interrupted method falls back on.

    Call it where no time is left: its projections end at their first step then.

    Raises:
        StoppedError: the method has nothing quicker than itself.
    """
    rule = METHODS[asked.method]
    if not rule.valid:
        raise StoppedError(f"interrupted before {asked.method} fitted anything; nothing written")
    quick = "hierarchical-dp" if rule.query == "counts" else "cumulative-dp"
    if rule.query == "cumulative" and asked.totals is not None:
        quick = "cumulative-smoothed"
    found = fit(evolve(asked, method=quick))
    return evolve(found, lower_bound=None, proved=False, details={"stopped": True})


def fit_smoothed(asked: FitInput) -> Fit:
    """Fit cumulative counts with strength borrowed from the parent region."""
    counts = smooth_down(asked.tree, asked.noisy, noise=asked.noise, totals=asked.known)
    return Fit(counts=counts, solver="Kalman smoother, ADMM and error diffusion")


def _with_totals(asked: FitInput, noisy: list[Ints], *, cumulative: bool) -> Fit:
    return fit_with_totals(
        asked.tree,
        noisy,
        totals=asked.known,
        weights=asked.scaled,
        cumulative=cumulative,
        gap=asked.gap,
    )


def _model_1(asked: FitInput, noisy: list[Ints]) -> Fit:
    """Return the nearest consistent counts: exact by half-prices, or with region totals by the joint projection."""
    if asked.totals is not None:
        return _with_totals(asked, noisy, cumulative=False)
    limit = half_prices.largest_weight(asked.tree, noisy, asked.total)
    weights = half_prices.integer_weights(asked.weights, limit=limit)
    counts = half_prices.project_counts(asked.tree, noisy, total=asked.total, weights=weights)
    # in the objective's own weights; where integers had to be coarser the bound is not claimed
    same = [Fraction(int(w), int(max(weights))) for w in weights] == [w / max(asked.weights) for w in asked.weights]
    top = int(max(weights))
    bound = float(Fraction(half_prices.objective(counts, noisy, weights), top)) if same else None
    return Fit(counts=counts, lower_bound=bound, solver="half-prices", proved=same)


def fit_isotonic(asked: FitInput) -> Fit:
    """Fit by Algorithm 2: every region isotonic by itself, then Model 1 on the differences."""
    steps = []
    for level, noisy in enumerate(asked.noisy):
        high = np.full(len(noisy), asked.total) if asked.totals is None else asked.totals[level]
        fitted = isotonic_integers(noisy, high=high)
        if asked.totals is not None:
            fitted = np.concatenate([fitted, high[:, None]], axis=1)
        steps.append(np.diff(fitted, axis=1, prepend=0))
    found = _model_1(evolve(asked, totals=None) if asked.estimated else asked, steps)
    return Fit(counts=found.counts, iterations=found.iterations, solver=f"PAVA and {found.solver}")


def fit_top_down(asked: FitInput) -> Fit:
    """Fit two levels at a time, from the root down."""
    counts = top_down(asked.tree, asked.noisy, total=asked.total)
    return Fit(counts=counts, solver="level by level, controlled rounding")


def fit_counts_relaxed(asked: FitInput) -> Fit:
    """Fit Model 1 without integrality, every count rounded by itself."""
    grid, relaxed = half_prices.relax_counts(asked.tree, asked.noisy, total=asked.total, weights=asked.weights)
    counts = [np.floor(level + 0.5).astype(np.int64) for level in relaxed]
    return Fit(counts=counts, solver=f"half-prices on a grid of 1/{grid}, rounded")


def fit_cumulative_relaxed(asked: FitInput) -> Fit:
    """Fit Model 2 without integrality, to a stated tolerance, every region rounded by itself."""
    size = asked.noisy[0].shape[1]
    if size == 0:  # one size, whose counts are the totals
        return Fit(counts=[total[:, None] for total in asked.known], solver="none")
    weights = [np.full(size, weight) for weight in asked.scaled]
    noisy = [level.astype(np.float64) for level in asked.noisy]
    if asked.totals is None:
        tops = [np.full(width, asked.total) for width in asked.tree.widths]
        weights[0] = weights[0].copy()
        weights[0][-1], noisy[0][0, -1] = _ROOT_PULL, float(asked.total)
    else:
        tops = asked.totals
    found = project_jointly(asked.tree, noisy, weights=weights, totals=tops, gap=asked.gap, iterations=60)
    levels = add_up(asked.tree, found.leaves)
    missed = abs(float(levels[0][0, -1]) - asked.total) if asked.totals is None else 0.0
    counts = []
    for level, values in enumerate(levels):
        whole = np.floor(values + 0.5).astype(np.int64)
        if asked.totals is not None:
            whole = np.concatenate([whole, asked.totals[level][:, None]], axis=1)
        counts.append(np.diff(whole, axis=1, prepend=0))
    details = {"relaxed": {"gap": found.gap, "total_missed": missed}}
    return Fit(counts=counts, iterations=found.iterations, solver="ADMM, rounded", details=details)


def fit_published_chain(asked: FitInput) -> Fit:
    """Fit the chain of section 9.2 as it is printed."""
    fitted = fit_chain(asked.tree, asked.noisy, total=asked.total)
    value = float(half_prices.objective(fitted, asked.noisy))
    return Fit(counts=chain_counts(fitted), lower_bound=value, solver="PAVA", proved=True)


def fit_program(asked: FitInput) -> Fit:
    """Fit M_H or M_c: the QIP in the modelling language, started from a fast method's integers."""
    cumulative = METHODS[asked.method].query == "cumulative"
    quick = fit_isotonic(asked) if cumulative else _model_1(asked, asked.noisy)
    start, noisy = quick.counts, asked.noisy
    if cumulative:
        start = [np.cumsum(level, axis=1) for level in start]
        if asked.totals is not None:
            noisy = [np.concatenate([n, t[:, None]], axis=1) for n, t in zip(noisy, asked.totals, strict=True)]
    try:
        found = qip.solve_exactly(
            asked.tree,
            noisy,
            start=start,
            total=asked.total,
            totals=asked.totals,
            weights=asked.scaled,
            cumulative=cumulative,
            backend=asked.backend,
        )
    except StoppedError:
        return Fit(counts=quick.counts, solver=quick.solver, details={"stopped": True})
    counts = [np.diff(level, axis=1, prepend=0) for level in found.counts] if cumulative else found.counts
    return evolve(found, counts=counts, details={} if found.proved else {"stopped": True})


def fit_counts(asked: FitInput) -> Fit:
    """Fit Model 1 to noisy counts."""
    return _model_1(asked, asked.noisy)


def fit_jointly(asked: FitInput) -> Fit:
    """Fit Model 2 to noisy cumulative counts, region totals known."""
    return _with_totals(asked, asked.noisy, cumulative=True)


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
