"""The built-in kinds of loss. A problem file names one of them in ``[utility]``.

The loss is the distance from the record to the output, an entry of a cost matrix in a file, or the error in travel
distances.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, read_only, slices
from privopt.declare.schema import File, key
from privopt.declare.tables import Column, check_ids, duplicate_faults, read_array, read_table
from privopt.errors import Fault, Faults, InputError
from privopt.execution.compiled import jit
from privopt.numbers.distances import plural_unit
from privopt_metric_dp.problem.declared import LossKind, Spaces
from privopt_metric_dp.space.metrics import Metric
from privopt_metric_dp.space.places import MAX_COORDINATE, Space
from privopt_metric_dp.space.road_parts import JOIN_PARTS, describe_parts
from privopt_metric_dp.space.roads import Roads, read_roads

__all__ = ["CostMatrix", "DistanceLoss", "TravelCost", "normalise_weights", "travel_cost"]


def normalise_weights(weights: npt.ArrayLike, *, source: str = "utility.targets") -> Floats:
    """Divide the weights of targets by their sum.

    Args:
        weights: Array of shape (n_targets,) with non-negative weights, which are relative visit frequencies.
        source: The name of the targets in error messages.

    Raises:
        InputError: There are no weights, a weight is negative or not finite, or their sum is 0.
    """
    q = np.asarray(weights, dtype=np.float64).reshape(-1)
    invalid_rows = np.flatnonzero(~(np.isfinite(q) & (q >= 0)))
    Faults(
        Fault(source, f"target {r}", repr(float(q[r])), "a finite weight of at least 0") for r in invalid_rows
    ).check()
    if not q.max(initial=0.0) > 0:
        actual = "weights that sum to 0" if q.size else "no targets"
        raise InputError([Fault(source, "", actual, "a sum above 0")])
    q = q / q.max()  # so that the sum of very large weights stays finite
    return read_only(q / q.sum())


def travel_cost(
    from_records: npt.ArrayLike,
    from_outputs: npt.ArrayLike | None,
    weights: npt.ArrayLike,
    *,
    source: str = "utility.targets",
) -> Floats:
    """Return the expected error in the travel distance to a random target, for each record and output.

    The error is c_ik = sum_l q_l |tc_il - tc_kl|, where q_l is the probability of target l and tc_il is the travel
    distance from i to l (``privopt_metric_dp.space.roads.Roads.travel``).

    Args:
        from_records: Array of shape (N, T) with the travel distance from each record to each target, in km.
        from_outputs: Array of shape (K, T) with the travel distance from each output to each target, in km. Pass None
            or the same array as ``from_records`` if the outputs are the records.
        weights: Array of shape (T,) with non-negative weights on any scale. Targets with weight 0 may be unreachable.
        source: The name of the targets in error messages.

    Returns:
        Array of shape (N, K) with expected errors in km. If the outputs are the records, the array is exactly symmetric
        and its diagonal is zero.

    Raises:
        InputError: The weights are invalid, the shapes do not match, or a target with positive weight is unreachable.

    Notes:
        Each of the N K T terms takes 0.23 ns of CPU time, or half that if the outputs are the records. If N, K and T
        are all 1600, the total is 0.96 s, or 0.49 s if the outputs are the records. The arrays contain N K + (N + K) T
        numbers.
    """
    q = normalise_weights(weights, source=source)
    a = np.asarray(from_records, dtype=np.float64)
    is_square = from_outputs is None or from_outputs is from_records
    b = a if is_square else np.asarray(from_outputs, dtype=np.float64)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != len(q) or b.shape[1] != len(q):
        actual = f"travel of shapes {a.shape} and {b.shape} for {len(q)} weights"
        raise InputError([Fault(source, "", actual, "one column per target")])
    # Targets with weight 0 are left out, because they may be unreachable and 0 times an infinite distance would be NaN.
    has_weight = q > 0
    shares = np.ascontiguousarray(q[has_weight])
    tables = [np.ascontiguousarray(table[:, has_weight]) for table in (a, b)]
    faults = Faults()
    for role, table in (("record", tables[0]), ("output", tables[1])):
        for r, t in np.argwhere(~np.isfinite(table)).tolist():
            where = f"{role} {r}, target {int(np.flatnonzero(has_weight)[t])}"
            faults.add(source, where, "no path there", "a target within reach")
        if is_square:
            break
    faults.check()
    cost = np.zeros((len(a), len(b)))
    _sum_taxicab(tables[0], tables[1], shares, cost, is_square)
    if is_square:
        # The lower triangle is copied from the upper one to make the matrix symmetric bit for bit.
        lower = np.tril_indices(len(a), -1)
        cost[lower] = cost.T[lower]
    return read_only(cost)


@jit(fastmath={"reassoc"})
def _sum_taxicab(a: Any, b: Any, shares: Any, total: Any, upper: bool) -> None:  # pragma: no cover - compiled
    """Add sum_l q_l |a_il - b_kl| to total_ik, in tiles that fit in the cache.

    Differences are computed before they are multiplied by weights, because differences between integers are exact.

    Args:
        a: Array of shape (N, T) with the travel distances from records to targets.
        b: Array of shape (K, T) with the travel distances from outputs to targets.
        shares: Array of shape (T,) with the weights q.
        total: Array of shape (N, K) with the sums, modified in place.
        upper: Whether to skip tiles that lie entirely below the diagonal because the result is symmetric.
    """
    rows, width = a.shape
    columns = b.shape[0]
    for i0 in range(0, rows, 32):
        for k0 in range(i0 if upper else 0, columns, 32):
            for l0 in range(0, width, 512):
                weights = shares[l0 : l0 + 512]
                for i in range(i0, min(i0 + 32, rows)):
                    p = a[i, l0 : l0 + 512]
                    for k in range(k0, min(k0 + 32, columns)):
                        q = b[k, l0 : l0 + 512]
                        part = 0.0
                        # The loop starts from 0 on a slice, because only such loops are compiled to vector
                        # instructions.
                        for t in range(len(p)):
                            part += weights[t] * abs(p[t] - q[t])
                        total[i, k] += part


_LOSSES_AT_ONCE = 1 << 16  # a block of losses that stays in the processor's cache


@frozen(kw_only=True)
class DistanceLoss(LossKind):
    """A loss equal to the distance from the record to the output."""

    kind: ClassVar[str] = "distance"
    of_distances: ClassVar[bool] = True

    def cost(self, spaces: Spaces) -> Floats:
        """Return an array of shape (N, K) with the distances from records to outputs.

        Raises:
            InputError: Some record has no path to some output.
        """
        return _check_reachable(spaces.metric.to_outputs(), spaces, "distance.edges")

    def excess(self, spaces: Spaces, cost: Floats) -> Floats:
        """Return 0 for each record, because distances are rounded down and therefore never exceed the exact ones."""
        return np.zeros(len(cost))

    def shortfall(self, spaces: Spaces, cost: Floats) -> Floats:
        """Return an array of shape (N, K) with bounds on how much each distance was rounded down.

        Each bound is the difference between the metric's upper bound on the exact distance and the computed distance.
        """
        short = np.empty(cost.shape)
        for part in slices(len(cost), cost.shape[1], _LOSSES_AT_ONCE):
            short[part] = spaces.metric.upper_distances(cost[part]) - cost[part]
        return short

    def unit(self, distance: str) -> str:
        """Return the plural of the unit of distance."""
        return plural_unit(distance)


@frozen(kw_only=True)
class CostMatrix(LossKind):
    """A loss read from a file that contains a matrix."""

    kind: ClassVar[str] = "matrix"
    file: File = key(name="cost", help=".npy (N, K): loss of releasing output k for record i")

    def cost(self, spaces: Spaces) -> Floats:
        """Read the losses from the file as an array of shape (N, K).

        Raises:
            InputError: The array has the wrong shape or contains invalid numbers.
        """
        shape = (len(spaces.records), len(spaces.outputs))
        return read_array(self.file, shape, what="costs", maximum=MAX_COORDINATE).copy()

    def excess(self, spaces: Spaces, cost: Floats) -> Floats:
        """Return 0 for each record, because losses are rounded down and never exceed the exact values in the file."""
        return np.zeros(len(cost))

    def unit(self, distance: str) -> str:
        """Return a generic name, because a file of losses does not state their unit."""
        return "units of cost"

    @property
    def measures_outputs(self) -> bool:
        """Always False, because losses read from a file do not depend on distances to outputs."""
        return False


@frozen(kw_only=True)
class TravelCost(LossKind):
    """A loss equal to the expected error in the travel distance to a random target (LR-Geo, section 3).

    Attributes:
        edges: The file with the roads along which travel distances are measured. If None, the distance declared by the
            problem is used.
        directed: Whether the roads in ``edges`` are one-way.
        targets: The file with the targets and their weights. If None, all records are targets with equal weights.
    """

    kind: ClassVar[str] = "travel-cost"
    edges: File | None = key(None, help="CSV: from,to,km; default: the distance of [distance]")
    directed: bool = key(False, help="whether utility.edges are one-way")
    targets: File | None = key(None, help="CSV: id,weight; default: every record, equally")

    def cost(self, spaces: Spaces) -> Floats:
        """Return an array of shape (N, K) with the losses c_ik = sum_l q_l |tc_il - tc_kl| (see :func:`travel_cost`).

        Losses are in km if ``edges`` is given, and otherwise in the problem's unit of distance.

        Raises:
            InputError: A target is unknown, or cannot be reached from some record or output.
        """
        tables, weights, unit, where = self._travel_tables(spaces)
        cost = travel_cost(tables[0], tables[1] if len(tables) == 2 else None, weights)
        return _check_reachable(cost if unit is None else read_only(cost * float(unit)), spaces, where)

    def excess(self, spaces: Spaces, cost: Floats) -> Floats:
        """Return upper bounds on the rounding errors in each record's losses, as an array of shape (N,).

        A loss is a weighted sum of differences between path lengths. Differences between integer lengths are exact
        (:attr:`privopt_metric_dp.space.roads.Roads.integer_roads`). Other lengths have rounding errors, which matter
        most when the lengths are similar. Bounds on these errors are provided by the metric or the roads.

        Args:
            spaces: The N records and K outputs.
            cost: Array of shape (N, K) with the computed losses.
        """
        roads, targets, _ = self.travel_targets(spaces.records, spaces.metric)
        # Rounding changes the sum of T products by less than (T + 16) 2^-51 times the sum.
        summed = np.abs(cost).max(axis=1) * ((len(targets) + 16.0) * 2.0**-51)
        if roads is not None and roads.integer_roads is not None:
            # Paths are shorter than 2^50 units, and each declared length differs from its integer by a relative error
            # of at most 2^-100. The sum of these errors is far below 2^-39 units.
            return np.asarray(summed + 2.0**-39 * float(roads.integer_roads[1]))
        # Otherwise each path has an error of its own, the upper bound on its length minus the double, and the
        # difference between two lengths is rounded too.
        tables, weights, _, _ = self._travel_tables(spaces)
        has_weight, errors = weights > 0, []
        for table in tables:
            ways = table[:, has_weight]
            doubt = spaces.metric.upper_distances(ways) - ways if roads is None else ways * roads.doubt
            errors.append((doubt + 2.0**-52 * ways) @ weights[has_weight])
        # The error in the record's paths is added to the largest error in any output's paths. If there is only one
        # table, the outputs are the records. The last factor covers the rounding of these bounds.
        return np.asarray((summed + errors[0] + errors[-1].max()) * (1.0 + 2.0**-20))

    def _travel_tables(self, spaces: Spaces) -> tuple[list[Floats], Floats, Fraction | None, str]:
        """Compute the travel distances from records and outputs to all targets.

        Returns:
            A tuple of four values. The first is a list with the travel distances from records, of shape (N, T),
            followed by the travel distances from outputs, of shape (K, T), unless the outputs are the records. The
            second contains the weights of the targets, of shape (T,). The third is the length of the unit in km if
            distances are integer multiples of a unit, and None otherwise. The fourth is the key of the roads in the
            problem file, for error messages.

        Raises:
            InputError: A target is unknown, or cannot be reached from some record or output.
        """
        records, metric = spaces.records, spaces.metric
        roads, targets, weights = self.travel_targets(records, metric)
        # Without a targets file, only the declared records are targets, not the vertices that a region adds. The
        # weights of the declared records are scaled so that they sum to 1.
        if self.targets is None and spaces.listed is not None:
            targets, weights = targets[: spaces.listed], weights[: spaces.listed] * (len(records) / spaces.listed)
        where = "distance.edges" if self.edges is None else "utility.edges"
        unit = None
        if roads is not None:
            source = records.source if self.targets is None else self.targets.name
            # Integer lengths are used if all lengths are multiples of a common unit.
            roads, unit = roads.integer_roads or (roads, None)
            tables = [
                roads.travel(space.ids, targets.tolist(), sources=space.source, targets_source=source)
                for space in ((records,) if spaces.own else (records, spaces.outputs))
            ]
        else:
            positions = np.arange(len(targets))
            if self.targets is not None:
                ids = np.asarray(records.ids, dtype=np.str_)
                positions = check_ids(self.targets, targets, ids, "id", "the id of a record")
            # Distances are symmetric, so the targets' rows, transposed, are the distances from all records to them.
            tables = [metric.rows(positions).T]
            if not spaces.own:
                tables.append(metric.to_outputs(positions).T)
        # zip() is not strict because there is only one table if the outputs are the records.
        for space, table in zip((records, spaces.outputs), tables, strict=False):
            unreachable = np.argwhere(~np.isfinite(table) & (weights > 0))
            if unreachable.size:
                i, target = unreachable[0].tolist()
                actual = f"no path from {space.ids[i]} to target {targets[target]} ({len(unreachable)} such)"
                raise InputError([_unreachable_fault(spaces, where, actual, roads, [*records.ids, *targets.tolist()])])
        return tables, weights, unit, where

    def unit(self, distance: str) -> str:
        """Return "km" if ``utility.edges`` is given, and the plural of the unit of distance otherwise."""
        return plural_unit(distance) if self.edges is None else "km"

    @property
    def measures_outputs(self) -> bool:
        """Whether the loss depends on the problem's distances to outputs, i.e. whether ``edges`` is omitted."""
        return self.edges is None

    def faults(self) -> Iterator[tuple[str, str, str]]:
        """Yield a fault (key, actual, expected) if ``directed`` is True but ``edges`` is omitted."""
        if self.directed and self.edges is None:
            yield "directed", "true without utility.edges", "roads that can be one-way, in utility.edges"

    def travel_targets(self, records: Space, metric: Metric) -> tuple[Roads | None, NDArray[np.str_], Floats]:
        """Return the roads along which travel distances are measured, and the targets with their weights.

        Args:
            records: The records. If there is no targets file, all records are targets with equal weights.
            metric: The metric declared in ``[distance]``, whose roads are used if ``utility.edges`` is omitted.

        Returns:
            The roads, or None if neither the loss nor the distance is based on roads; an array of shape (T,) with the
            ids of the targets; and an array of shape (T,) with their weights, which sum to 1.
        """
        if self.targets is None:
            targets = np.asarray(records.ids, dtype=np.str_)
            shares = np.full(len(targets), 1.0 / len(targets))
        else:
            targets, shares = _read_targets(self.targets)
        if self.edges is not None:
            return read_roads(self.edges, directed=self.directed), targets, shares
        return getattr(metric, "roads", None), targets, shares


def _check_reachable(cost: Floats, spaces: Spaces, where: str) -> Floats:
    """Check that all losses are finite, and return them unchanged.

    Args:
        cost: Array of shape (N, K) with the losses.
        spaces: The records and outputs, whose ids appear in the error message.
        where: The key for the roads in the problem file, for the error message.

    Raises:
        InputError: A loss is infinite because there is no path between some record and some output.
    """
    if not np.isfinite(cost).all():
        i, k = np.argwhere(~np.isfinite(cost))[0].tolist()
        actual = f"no path from {spaces.records.ids[i]} to output {spaces.outputs.ids[k]}"
        roads = getattr(spaces.metric, "roads", None)
        raise InputError([_unreachable_fault(spaces, where, actual, roads, [*spaces.records.ids, *spaces.outputs.ids])])
    return cost


def _unreachable_fault(spaces: Spaces, where: str, actual: str, roads: Roads | None, ids: Sequence[str]) -> Fault:
    """Return a fault that reports an infinite loss and names the places that are not connected.

    Args:
        spaces: The records and outputs, with the name of the problem file.
        where: The key for the roads in the problem file.
        actual: A description of the missing path.
        roads: The roads, or None if the distance is not based on roads.
        ids: The ids of all nodes that must be connected.
    """
    if roads is None:  # a distance of another kind, without roads to name
        return Fault(spaces.file, where, actual, "finite distances")
    remedy = "omit these places, or set utility.directed = false" if roads.directed else JOIN_PARTS
    return Fault(spaces.file, where, f"{actual}; {describe_parts(roads, ids)}", f"connected roads ({remedy})")


def _read_targets(file: File) -> tuple[NDArray[np.str_], Floats]:
    """Read the targets of a travel cost from a CSV file with the columns ``id`` and ``weight``.

    Returns:
        An array of shape (T,) with the ids, and an array of shape (T,) with the weights, divided by their sum.

    Raises:
        InputError: The file contains errors, an id occurs twice, or the sum of the weights is 0 or infinite.
    """
    table = read_table(file, [Column(name="id", kind="id"), Column(name="weight", least=0.0)])
    faults = duplicate_faults(file.name, table["id"])
    total = float(table["weight"].sum())
    if not 0 < total < np.inf:
        faults.append(Fault(file.name, "column weight", f"a sum of {total:g}", "a finite sum above 0"))
    if faults:
        raise InputError(faults)
    return table["id"], table["weight"] / total
