"""What is known within moments, for a limit that comes early: a mechanism and a bound, both from the star.

Where the star has negative weights it is no mechanism. At a smaller rate, and with its worst columns left out, its
weights are positive and rows sum to nearly one; dividing rows by their sums costs of epsilon what the sums differ. At
half of epsilon that always fits, whatever the weights: there it is the exponential mechanism over the records, each
column released as the output that is cheapest for it.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Final

import numpy as np
from attrs import evolve

from privopt.arrays import Floats
from privopt.errors import SolverError, StoppedError
from privopt.execution.limits import ending_at
from privopt_metric_dp.solvers.instance import Instance, Solution, dual_bound, one_output
from privopt_metric_dp.solvers.path_graph import make_graph
from privopt_metric_dp.solvers.star import GRACE, Star, gradients, kernel_of, proof, star_trees
from privopt_metric_dp.solvers.symmetry import Symmetry

__all__ = ["LEAST", "known_at_once", "positive_weights", "solve_ones"]

SHARE: Final = 0.1
"""Of the time that is left, what this may take."""
PATIENCE: Final = 5.0
"""Seconds that it may take where there is no limit."""
A_SECOND: Final = 1_500_000
"""Records times outputs of which a bound from trees is evaluated in a second."""
LEAST: Final = 1e-4
"""Weights below this are dropped where rows are divided by their sums."""
HALVINGS: Final = 6
"""Steps of the search for the rate."""


def known_at_once(instance: Instance, symmetry: Symmetry, star: Star | None, deadline: float | None) -> Solution:
    """The best of one output for all and the calibrated star, with the best of two bounds.

    The bounds: every record at its cheapest output, and the star's prices, which need no positive weights.

    Args:
        instance: connected.
        symmetry: of the instance.
        star: of the instance; None where its kernel is singular.
        deadline: `time.monotonic` value; a share of the time until then is used, and hardly any once it has come.
    """
    began, answer = time.monotonic(), one_output(instance, "constant")
    if deadline is not None and began >= deadline:
        return evolve(answer, status="stopped")
    until = began + (PATIENCE if deadline is None else SHARE * (deadline - began))
    if star is None:
        kernel = kernel_of(make_graph(instance), symmetry)
    else:
        kernel = star.kernel
    z, rate = _calibrated(instance, kernel, until)
    loss = instance.loss(z)
    if loss < answer.objective:
        answer = evolve(answer, z=z, objective=loss, method="calibrated-star", details={"rate": rate})
    if star is not None and instance.cost.size <= A_SECOND * (until - time.monotonic()):
        with suppress(StoppedError), ending_at(until + GRACE):
            answer = _bounded(instance, symmetry, star, answer, until)
    return answer


def _bounded(instance: Instance, symmetry: Symmetry, star: Star, answer: Solution, until: float) -> Solution:
    """The same with the bound of the star's prices, where it is the better one."""
    trees = star_trees(star.graph, star.anchors)
    multipliers = proof(instance, symmetry, symmetry.average(star.prices), trees, deadline=until)
    bound, _ = dual_bound(instance, multipliers)
    if not bound > answer.lower_bound:
        return answer
    return evolve(answer, lower_bound=min(bound, answer.objective), multipliers=multipliers)


def _calibrated(instance: Instance, kernel: Floats, until: float) -> tuple[Floats, float]:
    """The mechanism, and its rate as a share of epsilon."""
    i, j = instance.pairs.T
    lengths = instance.lengths
    rate, weights = 0.5, np.ones(instance.records)
    low, high = 0.5, 1.0
    for step in range(HALVINGS + 1):
        if time.monotonic() >= until:
            break
        middle = 0.5 if step == 0 else (low + high) / 2
        rays = kernel.T**middle
        try:
            found = positive_weights(rays, until=until)
        except (SolverError, StoppedError):
            break
        sums = np.log(rays @ found)
        if step == 0 or middle + float((np.abs(sums[i] - sums[j]) / lengths).max(initial=0.0)) <= 1.0:
            low = rate = middle
            weights = found
        else:
            high = middle
    rows = kernel.T**rate * weights
    rows /= rows.sum(axis=1, keepdims=True)
    serves = (rows.T @ instance.cost).argmin(axis=1)
    z = np.zeros(instance.cost.shape)
    for column in np.flatnonzero(weights):
        z[:, serves[column]] += rows[:, column]
    return z, rate


def positive_weights(kernel: Floats, *, until: float | None = None) -> Floats:
    """x >= 0 with kernel x near 1: columns are dropped until the others' weights are positive.

    Args:
        kernel: (N, N) symmetric.
        until: `time.monotonic` value beyond which no further round is begun.

    Raises:
        SolverError: a kernel of some of the columns is singular.
        StoppedError: ``until`` came first.
    """
    x = np.zeros(len(kernel))
    used = np.arange(len(kernel))
    while len(used):
        if until is not None and time.monotonic() >= until:
            raise StoppedError("the time limit came before positive weights were found")
        found = solve_ones(kernel[np.ix_(used, used)])
        if (found > LEAST).all():
            x[used] = found
            return x
        used = used[found > LEAST]
    return np.full(len(kernel), 1.0 / len(kernel))


def solve_ones(kernel: Floats) -> Floats:
    """x with kernel x = 1, for a symmetric kernel: conjugate gradients while they converge fast, else a factor.

    Raises:
        SolverError: the kernel is singular.
    """
    found = gradients(kernel, np.ones(len(kernel)), steps=200, share=1e-13)
    if found is not None:
        return found
    try:
        direct = np.asarray(np.linalg.solve(kernel, np.ones(len(kernel))), dtype=np.float64)
        if not np.isfinite(direct).all():
            raise SolverError("the kernel is singular")
        return np.asarray(direct + np.linalg.solve(kernel, 1.0 - kernel @ direct))
    except np.linalg.LinAlgError:
        raise SolverError("the kernel is singular") from None
