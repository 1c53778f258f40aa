"""The points of a curve: one mechanism at one epsilon; matrices of other programs are measured once for all."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from attrs import evolve, frozen

from privopt.arrays import Floats, slices
from privopt.declare.schema import File
from privopt.errors import Fault, InputError
from privopt.interfaces import Objective, UtilityLoss
from privopt_metric_dp.attacks.matrix_figures import bayes_error
from privopt_metric_dp.matrix.expected_loss import ExpectedLoss
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.mechanisms.given_matrix import GivenMatrix
from privopt_metric_dp.problem.data import MetricData, MetricInstance

__all__ = [
    "OF_RELEASE",
    "Point",
    "Status",
    "adversary_error",
    "describe_matrix",
    "own_matrices",
    "own_points",
    "point_of",
]

OF_RELEASE: Final = ("bayes_error", "error_p50", "error_p95", "epsilon_achieved", "adversary_error")
"""Figures of a point that its release has, whichever epsilon it stands at."""

BLOCK: Final = 1 << 24
"""Entries of a block of expected losses, at most."""

Status = Literal["optimal", "feasible", "infeasible", "stopped", "refused"]


@frozen(kw_only=True)
class Point:
    """One mechanism at one epsilon. Figures are None where nothing was found.

    Attributes:
        mechanism: its name.
        epsilon: exact.
        loss: of a certified release.
        lower_bound: proved for every release with this promise.
        gap: relative, as in result.json.
        bayes_error: how often an attacker's best guess from one report is wrong, under the prior.
        error_p50, error_p95: quantiles of the distance from record to report, under the prior.
        seconds: that it took.
        status: "optimal" where the gap asked for is met, else "feasible"; "infeasible", "stopped"; "refused" by a
            mechanism that cannot take the problem.
        epsilon_achieved: the least epsilon that the release keeps over the required pairs, exact and rounded up.
        adversary_error: expected loss of the attacker's best guess from one report under the prior, in the loss's own
            unit, among the outputs. None where the loss is not one of single reports.
    """

    mechanism: str
    epsilon: Fraction
    loss: float | None = None
    lower_bound: float | None = None
    gap: float | None = None
    bayes_error: float | None = None
    error_p50: float | None = None
    error_p95: float | None = None
    seconds: float = 0.0
    status: Status = "stopped"
    epsilon_achieved: float | None = None
    adversary_error: float | None = None


def point_of(
    name: str,
    epsilon: Fraction,
    release: MatrixRelease,
    problem: MetricInstance[Any],
    loss: UtilityLoss[MatrixRelease],
    achieved: float | None,
) -> Point:
    """Return a certified release as a point, its bound and status to come.

    Args:
        name, epsilon: of the point.
        release: certified, of the problem's records, or of some of them.
        problem: with its prior and distances.
        loss: by which the release, and the guesses of an attacker, are judged.
        achieved: the least epsilon that the release keeps.
    """
    rows, prior = release.probabilities, problem.data.prior
    chosen = problem.data.records.numbers(release.records.tolist())  # all, or the senders alone
    prior = prior[chosen] / prior[chosen].sum()
    mass = np.zeros(problem.data.shape)
    mass[chosen] = prior[:, None] * rows
    middle, most = _error_quantiles(problem.data, mass)
    return Point(
        mechanism=name,
        epsilon=epsilon,
        loss=loss.evaluate(release),
        bayes_error=bayes_error(rows, prior),
        error_p50=middle,
        error_p95=most,
        status="feasible",
        epsilon_achieved=achieved,
        adversary_error=adversary_error(rows, loss.weighted) if isinstance(loss, ExpectedLoss) else None,
    )


def _error_quantiles(data: MetricData, mass: Floats) -> Sequence[float | None]:
    """Return the distances from record to report that hold half and 95 % of the mass (N, K); None where not known."""
    if not data.crossed:
        return None, None
    distances = (data.to_outputs if data.region is None else data.distance.to_outputs()).ravel()
    order = np.argsort(distances, kind="stable")
    cumulated = np.cumsum(mass.ravel()[order])
    places = np.searchsorted(cumulated, np.array([0.5, 0.95]) * cumulated[-1])
    quantiles: list[float] = distances[order[np.minimum(places, len(order) - 1)]].tolist()
    return quantiles


def adversary_error(probabilities: Floats, weighted: Floats) -> float:
    """Return the expected loss of the best guess at the record behind one report (Shokri et al., S&P 2011).

    For output k an attacker who knows the prior guesses the output y with the least sum_i p_i z_ik c_iy. The result is
    at most the loss of the release, which takes each output for itself.

    Args:
        probabilities: (N, K) z.
        weighted: (N, K) p_i c_ik.

    Notes:
        N K^2 multiplications, in blocks.
    """
    used = np.flatnonzero(probabilities.any(axis=0))
    count = probabilities.shape[1]
    parts = [used[part] for part in slices(len(used), count, BLOCK)]
    return math.fsum(least for part in parts for least in (probabilities[:, part].T @ weighted).min(axis=1).tolist())


def own_matrices(paths: Sequence[Path], problem: MetricInstance[Any], taken: Collection[str]) -> list[Point]:
    """Read matrices and measure them at the problem's required pairs, each at the least epsilon that it keeps.

    Args:
        paths: each ``mechanism.npz`` or another of its form, or a ``.npy`` as ``certify`` takes it, records and outputs
            in the problem's order; measured unchanged, never repaired. A file given twice counts once.
        problem: whose records, pairs and loss they are held to.
        taken: names of the other lines. A matrix is called by its file's name where nothing else is, else by its path.
    """
    once = list(dict.fromkeys(paths))
    alike = Counter(path.stem for path in once)
    found: list[Point] = []
    for path in once:
        name = path.stem if alike[path.stem] == 1 and path.stem not in taken else str(path)
        while name in {*taken, *(own.mechanism for own in found)}:
            name += " (matrix)"
        found.append(_own_matrix(path, name, problem))
    return found


def _own_matrix(path: Path, name: str, problem: MetricInstance[Any]) -> Point:
    data = problem.data
    if data.region is not None:
        wanted = "a problem over records (own matrices are measured at pairs of them)"
        raise InputError([Fault(data.file, "privacy.everywhere", "true", wanted)])
    if path.suffix == ".npz":
        given = GivenMatrix.of(_in_order(MatrixRelease.load(path), problem, path.name), data.shape, path.name)
    else:
        given = GivenMatrix.read(File.read(path), data.shape)
    release = MatrixRelease.over(data, given.weights, along_paths=True)
    worst = given.measured(data).epsilon
    point = point_of(name, data.epsilon, release, problem, ExpectedLoss.of(data), worst)
    return evolve(point, loss=given.loss(data))  # of the numbers as they stand


def describe_matrix(matrix: Point, unit: str) -> str:
    """Say from which epsilon on a matrix has points, in a sentence."""
    if matrix.epsilon_achieved == math.inf:
        return f"{matrix.mechanism} keeps no epsilon: some output is possible for one record and not for another"
    least = f"{matrix.mechanism} keeps epsilon {matrix.epsilon_achieved:.6g} per {unit} and more"
    return f"{least}, measured in exact arithmetic"


def own_points(matrix: Point, epsilons: Sequence[Fraction], bounds: Sequence[float | None]) -> list[Point]:
    """Return points of one matrix at every epsilon: the same release if it satisfies it, "infeasible" below."""
    points = []
    for epsilon, bound in zip(epsilons, bounds, strict=True):
        point = evolve(matrix, epsilon=epsilon)
        if matrix.epsilon_achieved is None or not matrix.epsilon_achieved <= epsilon:
            point = Point(mechanism=point.mechanism, epsilon=epsilon, status="infeasible")
        elif bound is not None and point.loss is not None:
            least = min(bound, point.loss)
            point = evolve(point, lower_bound=least, gap=Objective.of(point.loss, least, unit="").gap)
        points.append(point)
    return points


def _in_order(read: MatrixRelease, problem: MetricInstance[Any], file: str) -> Any:
    wanted = problem.data.records.ids, problem.data.outputs.ids
    places = []
    for found, ids, what in zip((read.records, read.outputs), wanted, ("records", "outputs"), strict=True):
        at = {name: place for place, name in enumerate(found.tolist())}
        if len(at) != len(ids) or any(name not in at for name in ids):
            raise InputError([Fault(file, what, f"{len(at)} other {what}", f"the problem's {len(ids)} {what}")])
        places.append([at[name] for name in ids])
    return read.weights[np.ix_(*places)]
