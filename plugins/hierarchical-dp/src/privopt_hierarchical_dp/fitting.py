"""From noisy values to a release: one function a method, all of it post-processing.

Nothing here sees a true count; what comes in are noisy values, the public tree and the totals that
are published exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import numpy as np
from attrs import evolve, field, frozen

from privopt.arrays import Ints
from privopt.errors import StoppedError, UsageError
from privopt_hierarchical_dp import half_prices, qip
from privopt_hierarchical_dp.as_published import chain_counts, fit_chain
from privopt_hierarchical_dp.chain import Fit, fit_with_totals
from privopt_hierarchical_dp.isotonic import isotonic_integers
from privopt_hierarchical_dp.least_squares import Noise
from privopt_hierarchical_dp.methods import METHODS
from privopt_hierarchical_dp.projection import project_jointly, sum_up
from privopt_hierarchical_dp.smoothing import smooth_down
from privopt_hierarchical_dp.top_down import top_down
from privopt_hierarchical_dp.tree import Tree
from privopt_hierarchical_dp.zeros import Order, Zeros, spread

__all__ = ["Task", "falling_back", "fit", "fit_at_once", "refuse_size"]

_ROOT_PULL = 1e6  # weight of G in the relaxed model, beside weights of at most 1


@frozen(kw_only=True, eq=False)
class Task:
    """What a method is given after the noise.

    Attributes:
        method: its name.
        tree: the regions.
        noisy: for each level the noisy values.
        total: G, public or estimated.
        totals: for each level (R_l,) region totals where they are published exactly, or estimated; None otherwise.
        weights: for each level its weight in the objective, a rational.
        noise: for each level that of its values.
        offset: what totals that are estimates add to the objective, whatever is fitted.
        backend: of integer programs.
        time_limit: seconds left, for them.
        gap: relative gap to stop at.
        stopped: asked now and then.
        zeros: what cannot be in some regions alone.
        keep: columns that some region can have, where others were left out.
        sizes: how many columns a release has.
        estimated: whether totals are estimates.
    """

    method: str
    tree: Tree
    noisy: list[Ints]
    total: int
    totals: list[Ints] | None
    weights: tuple[Fraction, ...]
    noise: tuple[Noise, ...]
    offset: Fraction = Fraction(0)
    backend: str = "cbc"
    time_limit: float | None = None
    gap: float = 1e-4
    stopped: Callable[[], bool] = field(default=lambda: False)
    zeros: Zeros | None = None
    keep: Ints | None = None
    sizes: int = 0
    estimated: bool = False

    @property
    def scaled(self) -> list[float]:
        """Weights with largest 1."""
        top = max(self.weights)
        return [float(weight / top) for weight in self.weights]


def refuse_size(method: str, tree: Tree, sizes: int) -> None:
    """Refuse an integer program that is too large, before any noise is drawn.

    Raises:
        UsageError: with the size.
    """
    instead = {
        "hierarchical": "hierarchical-dp solves the same model exactly at any size",
        "cumulative": "cumulative-chain and cumulative-dp take any size",
    }
    if method in instead:
        qip.refuse(tree, sizes, method, instead[method])


def fit(task: Task) -> tuple[Fit, Mapping[str, Any]]:
    """Integers of every level from the noisy values, and the method's own details."""
    found, own = _FITS[task.method](task)
    if task.keep is not None:
        found = evolve(found, counts=spread(found.counts, task.keep, task.sizes))
    return found, own


@contextmanager
def falling_back() -> Iterator[None]:
    """A block for what an interrupted fit falls back on: a library whose import was broken off may fail in any way.

    Raises:
        StoppedError: it did.
    """
    try:
        yield
    except Exception as error:
        raise StoppedError("interrupted before anything could be fitted; nothing written") from error


def fit_at_once(task: Task) -> tuple[Fit, Mapping[str, Any]]:
    """A valid release within seconds, from the same noisy values: what an interrupted method falls back on.

    Raises:
        KeyboardInterrupt: the method has nothing quicker than itself.
    """
    if task.method in ("hierarchical-relaxed", "cumulative-relaxed", "cumulative-chain-as-published"):
        raise KeyboardInterrupt
    if METHODS[task.method].query == "counts":
        quick = "hierarchical-dp"
    else:
        quick = "cumulative-dp" if task.totals is None else "cumulative-smoothed"
    found, _ = fit(evolve(task, method=quick, stopped=lambda: True))
    return evolve(found, lower_bound=None, proved=False), {"stopped": True}


def _known(task: Task) -> list[Ints]:
    assert task.totals is not None  # the method publishes them
    return task.totals


def _smoothed(task: Task) -> tuple[Fit, Mapping[str, Any]]:
    counts, squares = smooth_down(task.tree, task.noisy, noise=task.noise, totals=_known(task), stopped=task.stopped)
    shown = {f"level_{level}": np.sqrt(square[:20]).round(4) for level, square in enumerate(squares, start=2)}
    return (
        Fit(counts=counts, lower_bound=None, iterations=0, solver="Kalman smoother, ADMM and error diffusion"),
        {"heterogeneity": shown},
    )


def _with_totals(task: Task, noisy: list[Ints], *, cumulative: bool) -> Fit:
    return fit_with_totals(
        task.tree,
        noisy,
        totals=_known(task),
        weights=task.scaled,
        cumulative=cumulative,
        gap=task.gap,
        backend=task.backend,
        time_limit=task.time_limit,
        stopped=task.stopped,
    )


def _model_1(task: Task, noisy: list[Ints]) -> Fit:
    """The nearest consistent counts: exact by half-prices, or with region totals by the joint projection."""
    if task.totals is not None:
        return _with_totals(task, noisy, cumulative=False)
    walled = _walled(task, noisy)
    limit = half_prices.largest_weight(task.tree, walled, task.total)
    weights = half_prices.integer_weights(task.weights, limit=limit)
    counts = half_prices.project_counts(task.tree, walled, total=task.total, weights=weights)
    # in the objective's own weights; where integers had to be coarser the bound is not claimed
    same = [Fraction(int(w), int(max(weights))) for w in weights] == [w / max(task.weights) for w in task.weights]
    top = int(max(weights))
    bound = float(Fraction(half_prices.objective(counts, noisy, weights), top)) if same else None
    return Fit(counts=counts, lower_bound=bound, iterations=0, solver="half-prices", proved=same)


def _walled(task: Task, noisy: list[Ints]) -> list[Ints]:
    """Noisy counts whose impossible ones are so far below zero that no group is put there.

    With a group in such a leaf, moving it to a possible one changes at most 2 L nodes, each by at most
    w_max (2 (G + M) + 1) where noisy values are at most M away from 0, and the leaf by -w_leaf (2 B + 1): more, for
    w_leaf B >= L w_max (2 (G + M) + 1). B is twice that, for weights that are rounded.
    """
    if task.zeros is None:
        return noisy
    largest = max(int(np.abs(level).max(initial=0)) for level in noisy)
    heaviest = -(-max(task.weights) // task.weights[-1])
    wall = 2 * task.tree.depth * int(heaviest) * (2 * (task.total + largest) + 1)
    if wall >= 1 << 60:
        raise UsageError(
            f"noisy counts of up to {largest:,} with impossible sizes pass 64 bits; wanted a larger epsilon, or level "
            "weights that are closer to each other"
        )
    return [np.where(zero, -wall, level) for zero, level in zip(task.zeros.levels, noisy, strict=True)]


def _isotonic(task: Task, level: int, noisy: Ints, high: Ints) -> Ints:
    """The nearest rising integers to what was measured, regions with the same impossible sizes together."""
    if task.zeros is None:
        return isotonic_integers(noisy, high=high)
    order: Order = "less" if task.totals is None else "inner"
    chosen, fitted = task.zeros.measured(level, order), np.zeros_like(noisy)
    for pattern in np.unique(chosen, axis=0):
        rows = np.flatnonzero((chosen == pattern).all(axis=1))
        at = np.ix_(rows, np.flatnonzero(pattern))
        fitted[at] = isotonic_integers(noisy[at], high=high[rows])
    return task.zeros.filled(level, order, fitted, high)


def _cumulative_dp(task: Task) -> tuple[Fit, Mapping[str, Any]]:
    """Algorithm 2: every region isotonic by itself, then Model 1 on the differences."""
    steps = []
    for level, noisy in enumerate(task.noisy):
        high = np.full(len(noisy), task.total) if task.totals is None else task.totals[level]
        fitted = _isotonic(task, level, noisy, high)
        if task.totals is not None:
            fitted = np.concatenate([fitted, high[:, None]], axis=1)
        steps.append(np.diff(fitted, axis=1, prepend=0))
    found = _model_1(evolve(task, totals=None) if task.estimated else task, steps)
    return Fit(
        counts=found.counts, lower_bound=None, iterations=found.iterations, solver=f"PAVA and {found.solver}"
    ), {}


def _top_down(task: Task) -> tuple[Fit, Mapping[str, Any]]:
    counts = top_down(task.tree, _walled(task, task.noisy), total=task.total, totals=task.totals)
    return Fit(counts=counts, lower_bound=None, iterations=0, solver="level by level, controlled rounding"), {}


def _hierarchical_relaxed(task: Task) -> tuple[Fit, Mapping[str, Any]]:
    noisy = _walled(task, task.noisy)
    grid, relaxed = half_prices.relax_counts(task.tree, noisy, total=task.total, weights=task.weights)
    counts = [np.floor(level + 0.5).astype(np.int64) for level in relaxed]
    return Fit(counts=counts, lower_bound=None, iterations=0, solver=f"half-prices on a grid of 1/{grid}, rounded"), {}


def _cumulative_relaxed(task: Task) -> tuple[Fit, Mapping[str, Any]]:
    """Model 2 without integrality, to a stated tolerance, every region rounded by itself."""
    size = task.noisy[0].shape[1]
    if size == 0:  # one size, whose counts are the totals
        return Fit(counts=[total[:, None] for total in _known(task)], lower_bound=None, iterations=0, solver="none"), {}
    weights = [np.full(size, weight) for weight in task.scaled]
    noisy = [level.astype(np.float64) for level in task.noisy]
    if task.totals is None:
        tops = [np.full(width, task.total) for width in task.tree.widths]
        weights[0] = weights[0].copy()
        weights[0][-1], noisy[0][0, -1] = _ROOT_PULL, float(task.total)
    else:
        tops = task.totals
    found = project_jointly(
        task.tree, noisy, weights=weights, totals=tops, gap=task.gap, iterations=60, stopped=task.stopped
    )
    levels = sum_up(task.tree, found.leaves)
    missed = abs(float(levels[0][0, -1]) - task.total) if task.totals is None else 0.0
    counts = []
    for level, values in enumerate(levels):
        whole = np.floor(values + 0.5).astype(np.int64)
        if task.totals is not None:
            whole = np.concatenate([whole, task.totals[level][:, None]], axis=1)
        counts.append(np.diff(whole, axis=1, prepend=0))
    details = {"relaxed": {"gap": found.gap, "total_missed": missed}}
    return Fit(counts=counts, lower_bound=None, iterations=found.iterations, solver="ADMM, rounded"), details


def _published(task: Task) -> tuple[Fit, Mapping[str, Any]]:
    fitted = fit_chain(task.tree, task.noisy, total=task.total)
    value = float(half_prices.objective(fitted, task.noisy))
    return Fit(counts=chain_counts(fitted), lower_bound=value, iterations=0, solver="PAVA", proved=True), {}


def _integer_program(task: Task) -> tuple[Fit, Mapping[str, Any]]:
    """M_H and M_c: the QIP in the modelling language, started from a fast method's integers."""
    cumulative = METHODS[task.method].query == "cumulative"
    quick = _cumulative_dp(task)[0] if cumulative else _model_1(task, task.noisy)
    start, noisy = quick.counts, task.noisy
    weights: list[Any] = list(task.scaled)
    if cumulative:
        start = [np.cumsum(level, axis=1) for level in start]
        if task.totals is not None:
            noisy = [np.concatenate([n, t[:, None]], axis=1) for n, t in zip(noisy, task.totals, strict=True)]
        if task.zeros is not None:  # what repeats a measurement has no weight of its own
            known = (task.zeros.measured(level, "less") for level in range(task.tree.depth))
            weights = [weight * own for weight, own in zip(weights, known, strict=True)]
    try:
        found = qip.solve_exactly(
            task.tree,
            noisy,
            start=start,
            total=task.total,
            totals=task.totals,
            weights=weights,
            cumulative=cumulative,
            backend=task.backend,
            time_limit=task.time_limit,
            zeros=None if task.zeros is None else task.zeros.levels,
        )
    except StoppedError:
        return Fit(counts=quick.counts, lower_bound=None, iterations=0, solver=quick.solver), {"stopped": True}
    counts = [np.diff(level, axis=1, prepend=0) for level in found.counts] if cumulative else found.counts
    return evolve(found, counts=counts), {} if found.proved else {"stopped": True}


_FITS: dict[str, Callable[[Task], tuple[Fit, Mapping[str, Any]]]] = {
    "cumulative-smoothed": _smoothed,
    "cumulative-chain": lambda task: (_with_totals(task, task.noisy, cumulative=True), {}),
    "cumulative-dp": _cumulative_dp,
    "cumulative": _integer_program,
    "cumulative-relaxed": _cumulative_relaxed,
    "hierarchical-dp": lambda task: (_model_1(task, task.noisy), {}),
    "hierarchical": _integer_program,
    "hierarchical-relaxed": _hierarchical_relaxed,
    "top-down": _top_down,
    "cumulative-chain-as-published": _published,
}
