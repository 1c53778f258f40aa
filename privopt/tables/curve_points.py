"""The points of a curve: one mechanism at one epsilon; own matrices, measured once, along all of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from attrs import evolve, frozen

from privopt.arrays import Floats, Ints
from privopt.errors import Fault, InputError
from privopt.exact import certify, rounded
from privopt.interfaces import Objective
from privopt.metric.attack import bayes_error
from privopt.metric.losses import ExpectedLoss
from privopt.metric.matrix import MatrixRelease
from privopt.metric.problem import MetricInstance

__all__ = ["Own", "Point", "Ranked", "Status", "own_matrix", "own_points", "point_of"]

Status = Literal["optimal", "feasible", "infeasible", "stopped"]

ROW_SUM: Final = 1e-6
"""Rows of an own matrix may miss 1 by so much: what solvers leave."""


@frozen(kw_only=True)
class Point:
    """One mechanism at one epsilon. Figures are None where nothing was found.

    Attributes:
        mechanism: its name.
        epsilon: exact.
        loss: of a certified release.
        lower_bound: proved for every release with this promise.
        gap: relative, as in result.json.
        bayes_error: how often the best guess from one report is wrong, under the prior.
        error_p50, error_p95: quantiles of the distance from record to report, under the prior.
        seconds: that it took.
        status: "optimal" where the gap asked for is met, else "feasible"; "infeasible", "stopped".
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


@frozen(kw_only=True, eq=False)
class Ranked:
    """Distances from records to outputs in ascending order, for quantiles; None where they are not known."""

    order: Ints
    distances: Floats

    @classmethod
    def of(cls, problem: MetricInstance[Any]) -> Ranked | None:
        """Those of a problem."""
        if not problem.data.crossed:
            return None
        data = problem.data
        flat = (data.to_outputs if data.region is None else data.distance.to_outputs()).ravel()
        order = np.argsort(flat, kind="stable")
        return cls(order=order, distances=flat[order])

    def quantiles(self, mass: Floats, shares: Sequence[float]) -> list[float]:
        """Least distances within which so much of the mass (N, K) lies."""
        cumulated = np.cumsum(mass.ravel()[self.order])
        places = np.searchsorted(cumulated, np.asarray(shares) * cumulated[-1])
        return [float(self.distances[place]) for place in np.minimum(places, len(cumulated) - 1).tolist()]


def _rows_of(release: MatrixRelease, problem: MetricInstance[Any]) -> Ints:
    """The record of each row: all, or the senders alone."""
    place = {name: row for row, name in enumerate(problem.data.records.ids)}
    return np.array([place[name] for name in release.records.tolist()], dtype=np.int64)


def point_of(
    name: str,
    epsilon: Fraction,
    release: MatrixRelease,
    problem: MetricInstance[Any],
    loss: float,
    ranked: Ranked | None,
) -> Point:
    """A certified release as a point, its bound and status to come."""
    rows, prior = release.probabilities, problem.data.prior
    chosen = _rows_of(release, problem)
    prior = prior[chosen] / prior[chosen].sum()
    middle, most = None, None
    if ranked is not None:
        mass = np.zeros(problem.data.shape)
        mass[chosen] = prior[:, None] * rows
        middle, most = ranked.quantiles(mass, (0.5, 0.95))
    return Point(
        mechanism=name,
        epsilon=epsilon,
        loss=loss,
        bayes_error=bayes_error(rows, prior),
        error_p50=middle,
        error_p95=most,
        status="feasible",
    )


@frozen(kw_only=True, eq=False)
class Own:
    """A mechanism from elsewhere.

    Attributes:
        name: of its line: the file's.
        release: its weights, in the order of the problem's records and outputs.
        worst: the least epsilon that it keeps, rounded up; infinite where some ratio is.
        unit: of it.
    """

    name: str
    release: MatrixRelease
    worst: float
    unit: str

    @property
    def note(self) -> str:
        """From where on it has points, in a sentence."""
        if self.worst == np.inf:
            return f"{self.name} keeps no epsilon: some output is possible for one record and not for another"
        return f"{self.name} keeps epsilon {self.worst:.6g} {self.unit} and more, measured in exact arithmetic"


def own_matrix(path: Path, problem: MetricInstance[Any], taken: Collection[str]) -> Own:
    """Read a matrix and measure it at the problem's required pairs.

    Args:
        path: ``mechanism.npz`` or another of its form, or a ``.npy`` of probabilities (N, K), records and outputs in
            the problem's order; probabilities are rounded to integers of 63 bits as they stand, never mended.
        problem: whose records, pairs and loss it is held to.
        taken: names of the other lines.

    Raises:
        InputError: no such file, or not a matrix of these records and outputs.
    """
    data = problem.data
    if data.region is not None:
        wanted = "a problem over records: own matrices are measured at pairs of them"
        raise InputError([Fault(data.file, "privacy.everywhere", "true", wanted)])
    if path.suffix == ".npz":
        read = MatrixRelease.load(path)
        weights = _in_order(read, problem, path.name)
    else:
        weights = rounded(_probabilities(path, problem.data.shape))
    pairs, distances = data.standing
    release = MatrixRelease(
        weights=weights,
        records=np.asarray(data.records.ids, dtype=np.str_),
        outputs=np.asarray(data.outputs.ids, dtype=np.str_),
        pairs=pairs,
        distances=distances,
    )
    measured = certify(release.weights, pairs, distances, data.epsilon)
    name = path.stem if path.stem not in taken else str(path)
    return Own(name=name, release=release, worst=measured.worst, unit=f"per {data.unit}")


def own_points(
    own: Own, problem: MetricInstance[Any], epsilons: Sequence[Fraction], bounds: Sequence[float | None]
) -> list[Point]:
    """The same release at every epsilon that it keeps; "infeasible" below."""
    loss = ExpectedLoss.of(problem.data).evaluate(own.release)
    kept = point_of(own.name, epsilons[0], own.release, problem, loss, Ranked.of(problem))
    points = []
    for epsilon, bound in zip(epsilons, bounds, strict=True):
        point = evolve(kept, epsilon=epsilon)
        if not own.worst <= epsilon:
            point = Point(mechanism=own.name, epsilon=epsilon, status="infeasible")
        elif bound is not None:
            point = evolve(point, lower_bound=min(bound, loss), gap=Objective.of(loss, min(bound, loss), unit="").gap)
        points.append(point)
    return points


def _in_order(read: MatrixRelease, problem: MetricInstance[Any], file: str) -> Any:
    wanted = problem.data.records.ids, problem.data.outputs.ids
    places = []
    for found, ids, what in zip((read.records, read.outputs), wanted, ("records", "outputs"), strict=True):
        at = {name: place for place, name in enumerate(found.tolist())}
        if len(at) != len(ids) or any(name not in at for name in ids):
            raise InputError([Fault(file, what, f"{len(at)} others", f"the problem's {len(ids)} {what}")])
        places.append([at[name] for name in ids])
    return read.weights[np.ix_(*places)]


def _probabilities(path: Path, shape: tuple[int, int]) -> Floats:
    wanted = f"a .npy of probabilities, {shape[0]} records by {shape[1]} outputs"
    try:
        z = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError([Fault(path.name, "", str(error), wanted)]) from error
    if not isinstance(z, np.ndarray) or z.shape != shape or z.dtype.kind not in "fiu":
        found = f"{z.dtype} of shape {z.shape}" if isinstance(z, np.ndarray) else "several arrays"
        raise InputError([Fault(path.name, "", found, wanted)])
    z = z.astype(np.float64)
    with np.errstate(invalid="ignore"):
        wrong = ~(np.abs(z.sum(axis=1) - 1) <= ROW_SUM) | ~(z >= 0).all(axis=1)
    if wrong.any():
        row = int(wrong.argmax())
        found = f"row {row} with sum {z[row].sum():.9g} and least entry {z[row].min():.3g}"
        raise InputError([Fault(path.name, "", found, "rows of probabilities that sum to 1")])
    return z
