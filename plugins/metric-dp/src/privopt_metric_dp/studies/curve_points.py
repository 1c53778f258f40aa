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

from privopt.arrays import Floats, Ints, slices
from privopt.declare.schema import File
from privopt.errors import Fault, InputError
from privopt.interfaces import Objective, UtilityLoss
from privopt_metric_dp.attacks.matrix_figures import bayes_error
from privopt_metric_dp.matrix.expected_loss import ExpectedLoss
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.mechanisms.given_matrix import GivenMatrix
from privopt_metric_dp.problem.data import MetricInstance

__all__ = [
    "OF_RELEASE",
    "Own",
    "Point",
    "RankedDistances",
    "Status",
    "adversary_error",
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


@frozen(kw_only=True, eq=False)
class RankedDistances:
    """Distances from records to outputs in ascending order, for quantiles; None where they are not known."""

    order: Ints
    distances: Floats

    @classmethod
    def of(cls, problem: MetricInstance[Any]) -> RankedDistances | None:
        """Return the ranked outputs of a problem."""
        if not problem.data.crossed:
            return None
        data = problem.data
        flat = (data.to_outputs if data.region is None else data.distance.to_outputs()).ravel()
        order = np.argsort(flat, kind="stable")
        return cls(order=order, distances=flat[order])

    def quantiles(self, mass: Floats, shares: Sequence[float]) -> list[float]:
        """Return the least distances that hold the given shares of the mass (N, K)."""
        cumulated = np.cumsum(mass.ravel()[self.order])
        places = np.searchsorted(cumulated, np.asarray(shares) * cumulated[-1])
        return [float(self.distances[place]) for place in np.minimum(places, len(cumulated) - 1).tolist()]


def point_of(
    name: str,
    epsilon: Fraction,
    release: MatrixRelease,
    problem: MetricInstance[Any],
    loss: UtilityLoss[MatrixRelease],
    achieved: float | None,
    ranked: RankedDistances | None,
) -> Point:
    """Return a certified release as a point, its bound and status to come.

    Args:
        name, epsilon: of the point.
        release: certified, of the problem's records, or of some of them.
        problem: with its prior and distances.
        loss: by which the release, and the guesses of an attacker, are judged.
        achieved: the least epsilon that the release keeps.
        ranked: of the problem.
    """
    rows, prior = release.probabilities, problem.data.prior
    chosen = problem.data.records.numbers(release.records.tolist())  # all, or the senders alone
    prior = prior[chosen] / prior[chosen].sum()
    middle, most = None, None
    if ranked is not None:
        mass = np.zeros(problem.data.shape)
        mass[chosen] = prior[:, None] * rows
        middle, most = ranked.quantiles(mass, (0.5, 0.95))
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


@frozen(kw_only=True, eq=False)
class Own:
    """A mechanism from elsewhere.

    Attributes:
        point: it, at any epsilon that it keeps.
        worst: the least epsilon that it keeps, rounded up; infinite where some ratio is.
        note: from where on it has points, in a sentence.
    """

    point: Point
    worst: float
    note: str


def own_matrices(paths: Sequence[Path], problem: MetricInstance[Any], taken: Collection[str]) -> list[Own]:
    """Read matrices and measure them at the problem's required pairs.

    Args:
        paths: each ``mechanism.npz`` or another of its form, or a ``.npy`` as ``certify`` takes it, records and outputs
            in the problem's order; measured unchanged, never repaired. A file given twice counts once.
        problem: whose records, pairs and loss they are held to.
        taken: names of the other lines. A matrix is called by its file's name where nothing else is, else by its path.
    """
    once = list(dict.fromkeys(paths))
    alike = Counter(path.stem for path in once)
    found: list[Own] = []
    for path in once:
        name = path.stem if alike[path.stem] == 1 and path.stem not in taken else str(path)
        while name in {*taken, *(own.point.mechanism for own in found)}:
            name += " (matrix)"
        found.append(_own_matrix(path, name, problem))
    return found


def _own_matrix(path: Path, name: str, problem: MetricInstance[Any]) -> Own:
    data = problem.data
    if data.region is not None:
        wanted = "a problem over records (own matrices are measured at pairs of them)"
        raise InputError([Fault(data.file, "privacy.everywhere", "true", wanted)])
    if path.suffix == ".npz":
        given = GivenMatrix.of(_in_order(MatrixRelease.load(path), problem, path.name), data.shape, path.name)
    else:
        given = GivenMatrix.read(File.read(path), data.shape)
    worst = given.measured(data).epsilon
    note = f"{name} keeps epsilon {worst:.6g} per {data.unit} and more, measured in exact arithmetic"
    if worst == np.inf:
        note = f"{name} keeps no epsilon: some output is possible for one record and not for another"
    release = MatrixRelease.over(data, given.weights, along_paths=True)
    point = point_of(name, data.epsilon, release, problem, ExpectedLoss.of(data), worst, RankedDistances.of(problem))
    point = evolve(point, loss=given.loss(data))  # of the numbers as they stand
    return Own(point=point, worst=worst, note=note)


def own_points(matrix: Own, epsilons: Sequence[Fraction], bounds: Sequence[float | None]) -> list[Point]:
    """Return points of one matrix at every epsilon: the same release if it satisfies it, "infeasible" below."""
    points = []
    for epsilon, bound in zip(epsilons, bounds, strict=True):
        point = evolve(matrix.point, epsilon=epsilon)
        if not matrix.worst <= epsilon:
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
