"""Losses of metric problems: the kinds of the table ``[utility]``, and their expectation over a release."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, read_only
from privopt.declare.schema import File, key
from privopt.declare.tables import Column, check_ids, duplicate_faults, read_array, read_table
from privopt.errors import Fault, InputError
from privopt.exact.sample import TOTAL
from privopt.execution.limits import check_end
from privopt.interfaces import UtilityLoss
from privopt.metric.cost import travel_cost
from privopt.metric.kinds import LossKind, Spaces
from privopt.metric.matrix import MatrixRelease
from privopt.metric.space.geometry import Metric
from privopt.metric.space.places import LARGEST, Space
from privopt.metric.space.roads import Roads, read_roads

if TYPE_CHECKING:
    from privopt.dsl import Model
    from privopt.metric.data import MetricData

__all__ = ["CostMatrix", "DistanceLoss", "ExpectedLoss", "TravelCost", "costs_of"]


@frozen(kw_only=True, eq=False)
class ExpectedLoss(UtilityLoss[MatrixRelease]):
    """Expected loss under the prior: sum over records i and outputs k of p_i c_ik z_ik.

    Attributes:
        weighted: (N, K) p_i c_ik, in ``unit``.
        unit: of the loss, e.g. ``"km"``.
        doubt: gives (N,) by how much at most each record's ``weighted`` exceed what the files mean, and (N, K) or
            (N, 1) by how much at most they lie below that; None where nobody knows.
    """

    weighted: Floats
    unit: str = field(default="")
    doubt: Callable[[], tuple[Floats, Floats]] | None = field(default=None)

    @classmethod
    def of(cls, data: MetricData) -> ExpectedLoss:
        """The loss that a metric problem asks for."""
        return cls(weighted=data.weighted, unit=data.loss_unit, doubt=lambda: (data.excess, data.shortfall()))

    def emit(self, model: Model, **symbols: Any) -> None:
        """Minimise it: ``symbols`` are ``z``, ``i``, ``k`` and the parameter ``c`` (weighted cost)."""
        from privopt.dsl import total

        z, i, k, c = (symbols[name] for name in ("z", "i", "k", "c"))
        model.minimize(total(c[i, k] * z[i, k], over=(i, k)))

    def evaluate(self, release: MatrixRelease) -> float:
        """Loss of the integers released, rows summed pairwise, then without rounding."""
        return self.expected(release.weights, [Fraction(TOTAL)] * len(release.records))

    def enclose(self, release: MatrixRelease) -> tuple[float, float] | None:
        """Rows sum to 1, so an excess of a record's costs counts once; sums and products lose less than 2^-45."""
        value = self.evaluate(release)
        if value is None or self.doubt is None:
            return None
        excess, shortfall = self.doubt()
        size = value if self.weighted.min() >= 0.0 else ExpectedLoss(weighted=np.abs(self.weighted)).evaluate(release)
        off = 2.0**-45 * size
        alike = shortfall.shape[1] == 1 < self.weighted.shape[1]
        less = float(shortfall.sum()) if alike else ExpectedLoss(weighted=shortfall).evaluate(release)
        low, high = value - (off + float(excess.sum())) * (1.0 + 2.0**-40), value + (off + less) * (1.0 + 2.0**-40)
        return math.nextafter(low, -math.inf), math.nextafter(high, math.inf)

    def expected(self, values: NDArray[Any], sums: Sequence[Fraction]) -> float:
        """Loss of a matrix whose rows (N, K), over their sums, are probabilities."""
        rows = []
        for row, weighted, total in zip(values, self.weighted, sums, strict=True):
            check_end()
            rows.append(float(np.sum(row.astype(np.float64) * weighted)) / float(total))
        return math.fsum(rows)


def costs_of(loss: UtilityLoss[MatrixRelease], data: MetricData) -> MetricData | None:
    """A problem's data with the costs that a mechanism's own loss judges by, for figures; None where it has none.

    Costs of records of probability 0, which an expected loss does not tell, are 0.
    """
    if not isinstance(loss, ExpectedLoss):
        return None
    if loss.weighted is data.weighted and loss.unit == data.loss_unit:
        return data
    prior = data.prior[:, None]
    cost = np.divide(loss.weighted, prior, out=np.zeros(data.shape), where=prior > 0)
    return evolve(data, cost=read_only(cost), loss_unit=loss.unit)


@frozen(kw_only=True)
class DistanceLoss(LossKind):
    """The distance from record to output."""

    kind: ClassVar[str] = "distance"
    of_distances: ClassVar[bool] = True

    def cost(self, spaces: Spaces) -> Floats:
        """(N, K) distances.

        Raises:
            InputError: an output that some record cannot reach.
        """
        return _reached(spaces.metric.to_outputs(), spaces, "distance.edges")

    def excess(self, spaces: Spaces, cost: Floats) -> Floats:
        """(N,) nothing: distances are rounded down."""
        return np.zeros(len(cost))

    def shortfall(self, spaces: Spaces, cost: Floats) -> Floats:
        """(N, K) by how much distances are."""
        return np.asarray(spaces.metric.no_less(cost) - cost)

    def unit(self, distance: str) -> str:
        """The unit of the distance."""
        return _plural(distance)


@frozen(kw_only=True)
class CostMatrix(LossKind):
    """Losses read from a file."""

    kind: ClassVar[str] = "matrix"
    file: File = key(name="cost", help=".npy (N, K): loss of releasing output k for record i")

    def cost(self, spaces: Spaces) -> Floats:
        """(N, K) as the file has them.

        Raises:
            InputError: another shape, or numbers that will not do.
        """
        shape = (len(spaces.records), len(spaces.outputs))
        return read_array(self.file, shape, what="costs", most=LARGEST).copy()

    def excess(self, spaces: Spaces, cost: Floats) -> Floats:
        """(N,) nothing: what is no double is rounded down."""
        return np.zeros(len(cost))

    def unit(self, distance: str) -> str:
        """A file of losses has no named unit."""
        return "units of cost"

    @property
    def measures_outputs(self) -> bool:
        """It does not: the file has every loss."""
        return False


@frozen(kw_only=True)
class TravelCost(LossKind):
    """Expected error in the travel distance to a random target (LR-Geo, section 3)."""

    kind: ClassVar[str] = "travel-cost"
    edges: File | None = key(None, help="CSV: from,to,km; left out: the distance of [distance]")
    directed: bool = key(False, help="whether utility.edges are one-way")
    targets: File | None = key(None, help="CSV: id,weight; left out: every record, equally")

    def cost(self, spaces: Spaces) -> Floats:
        """c_ik = sum_l q_l |tc_il - tc_kl| over targets l with shares q, in km or the unit of distance.

        Raises:
            InputError: unknown targets, or targets that some record or output cannot reach.
        """
        tables, weights, unit, where = self._travel(spaces)
        cost = travel_cost(tables[0], tables[1] if len(tables) == 2 else None, weights)
        return _reached(cost if unit is None else read_only(cost * float(unit)), spaces, where)

    def excess(self, spaces: Spaces, cost: Floats) -> Floats:
        """(N,) what rounding can have added to the differences of ways, and to their sum.

        Ways in whole numbers have exact differences (:attr:`privopt.metric.space.roads.Roads.counted`). Others are off
        by what their metric says, of which a difference keeps the most where ways are long and alike.
        """
        roads, targets, _ = self.ends(spaces.records, spaces.metric)
        summed = np.abs(cost).max(axis=1) * ((len(targets) + 16.0) * 2.0**-51)
        if roads is not None and roads.counted is not None:
            return np.asarray(summed + 2.0**-39 * float(roads.counted[1]))  # ways of less than 2^50, each off by 2^-100
        tables, weights, _, _ = self._travel(spaces)
        used, off = weights > 0, []
        for table in tables:
            ways = table[:, used]
            doubt = spaces.metric.no_less(ways) - ways if roads is None else ways * roads.doubt
            off.append((doubt + 2.0**-52 * ways) @ weights[used])
        return np.asarray((summed + off[0] + off[-1].max()) * (1.0 + 2.0**-20))

    def _travel(self, spaces: Spaces) -> tuple[list[Floats], Floats, Fraction | None, str]:
        """Ways from records, and from outputs that are others, to targets; shares; the unit of ways that are counted.

        Raises:
            InputError: see :meth:`cost`.
        """
        records, metric = spaces.records, spaces.metric
        roads, targets, weights = self.ends(records, metric)
        if self.targets is None and spaces.listed is not None:
            targets, weights = targets[: spaces.listed], weights[: spaces.listed] * (len(records) / spaces.listed)
        where = "distance.edges" if self.edges is None else "utility.edges"
        unit = None
        if roads is not None:
            source = records.source if self.targets is None else self.targets.name
            roads, unit = roads.counted or (roads, None)
            tables = [
                roads.travel(space.ids, targets.tolist(), sources=space.source, targets_source=source)
                for space in ((records,) if spaces.own else (records, spaces.outputs))
            ]
        else:
            place = np.arange(len(targets))
            if self.targets is not None:
                known = np.asarray(records.ids, dtype=np.str_)
                place = check_ids(self.targets, targets, known, "id", "the id of a record")
            tables = [metric.rows(place).T]
            if not spaces.own:
                tables.append(metric.to_outputs(place).T)
        for space, table in zip((records, spaces.outputs), tables, strict=False):
            lost = np.argwhere(~np.isfinite(table) & (weights > 0))
            if lost.size:
                start, target = space.ids[lost[0, 0]], targets[lost[0, 1]]
                found = f"no way from {start} to target {target} ({len(lost)} such)"
                raise InputError([Fault(spaces.file, where, found, "roads that lead to every target")])
        return tables, weights, unit, where

    def unit(self, distance: str) -> str:
        """Kilometres along roads, else the unit of distance."""
        return _plural(distance) if self.edges is None else "km"

    @property
    def measures_outputs(self) -> bool:
        """Only where there are no roads of its own."""
        return self.edges is None

    def faults(self) -> Iterator[tuple[str, str, str]]:
        """One-way roads that are not given."""
        if self.directed and self.edges is None:
            yield "directed", "true without utility.edges", "roads that can be one-way, in utility.edges"

    def ends(self, records: Space, metric: Metric) -> tuple[Roads | None, NDArray[np.str_], Floats]:
        """What the cost is made of: roads (None: the distance itself), ids of targets, and their shares."""
        if self.targets is None:
            targets = np.asarray(records.ids, dtype=np.str_)
            shares = np.full(len(targets), 1.0 / len(targets))
        else:
            targets, shares = _targets(self.targets)
        if self.edges is not None:
            return read_roads(self.edges, directed=self.directed), targets, shares
        return getattr(metric, "roads", None), targets, shares


def _plural(unit: str) -> str:
    return "units of distance" if unit == "unit of distance" else unit


def _reached(cost: Floats, spaces: Spaces, where: str) -> Floats:
    if not np.isfinite(cost).all():
        i, k = np.argwhere(~np.isfinite(cost))[0].tolist()
        found = f"no way that joins record {spaces.records.ids[i]}, output {spaces.outputs.ids[k]} and the targets"
        raise InputError([Fault(spaces.file, where, found, "connected roads")])
    return cost


def _targets(file: File) -> tuple[NDArray[np.str_], Floats]:
    table = read_table(file, [Column(name="id", kind="id"), Column(name="weight", least=0.0)])
    faults = duplicate_faults(file.name, table["id"])
    total = float(table["weight"].sum())
    if not 0 < total < np.inf:
        faults.append(Fault(file.name, "column weight", f"a sum of {total:g}", "a finite sum above 0"))
    if faults:
        raise InputError(faults)
    return table["id"], table["weight"] / total
