"""What a metric problem's files hold, loaded once and checked: arrays that mechanisms work on."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.declare.schema import File
from privopt.declare.tables import Column, check_ids, duplicate_faults, read_array, read_lines, read_table
from privopt.errors import Fault, InputError
from privopt.metric.cost import distance_loss, travel_cost
from privopt.metric.space.geometry import EuclideanMetric, HaversineMetric, MatrixMetric, Metric, Space, grid_points
from privopt.metric.space.pairs import components, needed_pairs, required_pairs
from privopt.metric.space.places import LARGEST

if TYPE_CHECKING:
    from privopt.metric.problem import MetricProblem, Places
    from privopt.metric.space.roads import Roads

__all__ = ["MetricData", "load", "travel_ends"]

T = TypeVar("T")
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ONE: Final = 1e-6
"""How far the sum of a prior may lie from 1 before it is taken for a fault."""


@frozen(kw_only=True, eq=False)
class MetricData:
    """Arrays of a metric problem. N records, K outputs, P required pairs.

    Attributes:
        records: the secrets.
        outputs: what may be released; the records themselves where the file has no [outputs].
        metric: distances; computed where asked for, never an N x N table by itself.
        epsilon: exact, per ``unit``.
        within: greatest distance of a required pair; None for every pair.
        unit: of distance.
        loss_unit: of the cost.
        prior: (N,) probabilities.
        cost: (N, K) loss of releasing output k for record i, in ``loss_unit``.
        file: name of the problem file, for faults.
        crossed: whether distances from records to outputs are known (a matrix metric may lack them).
    """

    records: Space
    outputs: Space
    metric: Metric
    epsilon: Fraction
    within: float | None
    unit: str
    loss_unit: str
    prior: Floats
    cost: Floats
    file: str = "problem"
    crossed: bool = True

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        return len(self.records), len(self.outputs)

    @cached_property
    def weighted(self) -> Floats:
        """(N, K) p_i c_ik."""
        return _read_only(self.prior[:, None] * self.cost)

    @cached_property
    def required(self) -> tuple[Ints, Floats]:
        """Required pairs (P, 2), i < j in order, and their distances (P,)."""
        pairs, distances = required_pairs(self.metric, self.within)
        return _read_only(pairs), _read_only(distances)

    @property
    def pairs(self) -> Ints:
        """(P, 2) required pairs, i < j, in order."""
        return self.required[0]

    @property
    def distances(self) -> Floats:
        """(P,) distances of the required pairs."""
        return self.required[1]

    @cached_property
    def needed(self) -> NDArray[np.bool_]:
        """(P,) which required pairs a model must hold: the others follow from them, exactly (G1)."""
        return _read_only(needed_pairs(self.metric, self.pairs, self.distances, within=self.within))

    @cached_property
    def component(self) -> Ints:
        """(N,) number of the component of required pairs that each record is in."""
        return components(len(self.records), self.pairs)

    @cached_property
    def to_outputs(self) -> Floats:
        """(N, K) distances from records to outputs.

        Raises:
            InputError: a matrix metric without ``distance.output_matrix``.
        """
        if not self.crossed:
            wanted = "the distances from records to outputs, which this mechanism needs"
            raise InputError([Fault(self.file, "distance.output_matrix", "nothing", wanted)])
        return self.metric.to_outputs()


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array


class _Gather:
    """Collects the faults of steps that do not depend on one another."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.faults: list[Fault] = []

    def note(self, where: str, found: str, wanted: str) -> None:
        self.faults.append(Fault(self.file, where, found, wanted))

    def attempt(self, step: Callable[[], T]) -> T | None:
        try:
            return step()
        except InputError as error:
            self.faults.extend(error.faults)
            return None

    def stop_if_any(self) -> None:
        if self.faults:
            raise InputError(dict.fromkeys(self.faults))


def load(problem: MetricProblem, file: str) -> MetricData:
    """Load and check everything that a metric problem names.

    Raises:
        InputError: every fault found, those that hide behind others excepted.
    """
    gather = _Gather(file)
    _check_keys(problem, gather)
    records = gather.attempt(lambda: _space(problem.records, "records", file, problem.distance.kind))
    outputs: Space | None = records
    if problem.outputs is not None:
        chosen = problem.outputs
        outputs = gather.attempt(lambda: _space(chosen, "outputs", file, problem.distance.kind))
    gather.stop_if_any()
    assert records is not None  # gather stops where either is missing
    assert outputs is not None
    own = problem.outputs is None
    metric = gather.attempt(lambda: _metric(problem, records, None if own else outputs, file))
    prior = gather.attempt(lambda: _prior(problem.utility.prior, records))
    gather.stop_if_any()
    assert metric is not None
    assert prior is not None
    if problem.distance.kind == "graph" and problem.privacy.neighbours_within is None:
        gather.attempt(lambda: _connected(metric, records, file))
        gather.stop_if_any()
    crossed = own or not metric.own_outputs
    if not crossed and problem.utility.kind != "matrix" and problem.utility.edges is None:
        gather.note("distance.output_matrix", "nothing", "the distances to outputs that the loss is made of")
        gather.stop_if_any()
    cost = gather.attempt(lambda: _cost(problem, records, outputs, metric, file))
    gather.stop_if_any()
    assert cost is not None
    plain = problem.distance.kind == "matrix" or records.kind == "vector"
    unit = "unit of distance" if plain else "km"
    if problem.utility.kind == "matrix":
        loss_unit = "units of cost"
    elif problem.utility.kind == "travel-cost" and problem.utility.edges is not None:
        loss_unit = "km"
    else:
        loss_unit = "units of distance" if plain else "km"
    return MetricData(
        records=records,
        outputs=outputs,
        metric=metric,
        epsilon=problem.privacy.epsilon,
        within=problem.privacy.neighbours_within,
        unit=unit,
        loss_unit=loss_unit,
        prior=_read_only(prior),
        cost=_read_only(cost),
        file=file,
        crossed=crossed,
    )


def _check_keys(problem: MetricProblem, gather: _Gather) -> None:
    """Keys that must stand together, and keys that mean nothing beside others."""
    kind, utility = problem.distance.kind, problem.utility
    for name, belongs in (("edges", "graph"), ("matrix", "matrix"), ("output_matrix", "matrix")):
        given = getattr(problem.distance, name) is not None
        if given and kind != belongs:
            gather.note(f"distance.{name}", f"a file beside kind {kind}", f"kind {belongs}, or no such key")
        if not given and kind == belongs and name != "output_matrix":
            gather.note(f"distance.{name}", "nothing", f"a file, as kind {kind} needs")
    if problem.distance.output_matrix is not None and problem.outputs is None:
        gather.note("distance.output_matrix", "a file without [outputs]", "[outputs], or no such key")
    for name, belongs in (("cost", "matrix"), ("edges", "travel-cost"), ("targets", "travel-cost")):
        if getattr(utility, name) is not None and utility.kind != belongs:
            gather.note(f"utility.{name}", f"a file beside kind {utility.kind}", f"kind {belongs}, or no such key")
    if utility.kind == "matrix" and utility.cost is None:
        gather.note("utility.cost", "nothing", "a file, as kind matrix needs")
    if utility.directed and utility.edges is None:
        gather.note("utility.directed", "true without utility.edges", "roads that can be one-way, in utility.edges")
    for table, places in (("records", problem.records), ("outputs", problem.outputs)):
        if places is not None and places.count is not None and kind != "matrix":
            gather.note(f"{table}.count", f"a count beside distance.kind {kind}", "places, or distance.kind matrix")
        if places is not None and kind == "graph" and places.vectors is not None:
            gather.note(f"{table}.vectors", "vectors beside distance.kind graph", "points, whose ids are road nodes")


def _space(places: Places, table: str, file: str, kind: str) -> Space:
    if places.grid is not None:
        grid = places.grid
        return grid_points(grid.rows, grid.cols, grid.cell_km, grid.south_west, source=file, key=f"{table}.grid")
    if places.points is not None:
        return _points(places.points, kind)
    if places.vectors is not None:
        vectors = read_array(places.vectors, (None, None), what="vectors")
        if 0 in vectors.shape:
            raise InputError([Fault(places.vectors.name, "", f"an array of shape {vectors.shape}", "vectors")])
        ids = np.arange(len(vectors)).astype(np.str_) if places.ids is None else read_lines(places.ids)
        if places.ids is not None and len(ids) != len(vectors):
            raise InputError([Fault(places.ids.name, "", f"{len(ids)} ids", f"{len(vectors)}, one for each vector")])
        return Space(ids=ids.tolist(), coordinates=vectors, kind="vector", source=places.vectors.name)
    return Space(ids=[str(number) for number in range(places.count or 0)], kind="plain", source=file)


def _points(points: File, kind: str) -> Space:
    columns = [Column(name="id", kind="id")]
    columns += [Column(name=name, optional=True, unit="degrees") for name in ("lat", "lon")]
    columns += [Column(name=name, optional=True, unit="km") for name in ("x", "y")]
    alone = [] if kind in ("graph", "matrix") else [("lat", "lon"), ("x", "y")]
    table = read_table(points, columns, any_of=alone)
    again = duplicate_faults(points.name, table["id"])
    if again:
        raise InputError(again)
    if "lat" in table and "lon" in table:
        coordinates: Floats | None = np.column_stack([table["lat"], table["lon"]])
        found = "geographic"
    elif "x" in table and "y" in table:
        coordinates, found = np.column_stack([table["x"], table["y"]]), "planar"
    else:
        coordinates, found = None, "plain"
    return Space(ids=table["id"].tolist(), coordinates=coordinates, kind=found, source=points.name)  # type: ignore[arg-type]


def _metric(problem: MetricProblem, records: Space, outputs: Space | None, file: str) -> Metric:
    distance = problem.distance
    if distance.kind == "euclidean":
        return EuclideanMetric(records, outputs)
    if distance.kind == "haversine":
        return HaversineMetric(records, outputs)
    if distance.kind == "graph":
        from privopt.metric.space.roads import RoadMetric

        assert distance.edges is not None  # _check_keys
        return RoadMetric(_roads(distance.edges, directed=False), records, outputs)
    assert distance.matrix is not None  # _check_keys
    count = len(records)
    table = read_array(distance.matrix, (count, count), what="distances", least=0.0)
    crossed = None
    if distance.output_matrix is not None and outputs is not None:
        shape = (count, len(outputs))
        crossed = read_array(distance.output_matrix, shape, what="distances to outputs", least=0.0)
    source = distance.matrix.name
    return MatrixMetric(table, crossed, source=source, output_source=getattr(distance.output_matrix, "name", source))


def _roads(edges: File, *, directed: bool) -> Roads:
    from privopt.metric.space.roads import Roads

    columns = [Column(name="from", kind="id"), Column(name="to", kind="id"), Column(name="km", least=0.0, unit="km")]
    table = read_table(edges, columns)
    return Roads(table["from"], table["to"], table["km"], directed=directed, source=edges.name)


def _connected(metric: Metric, records: Space, file: str) -> None:
    reach = metric.rows(np.array([0]))[0]
    lost = np.flatnonzero(~np.isfinite(reach))
    if lost.size:
        some = ", ".join(records.ids[place] for place in lost[:3].tolist())
        found = f"roads that do not join {lost.size} of {len(records)} records to {records.ids[0]} ({some}, ...)"
        raise InputError([Fault(file, "distance.edges", found, "connected roads, or privacy.neighbours_within")])


def _prior(prior: File | None, records: Space) -> Floats:
    count = len(records)
    if prior is None:
        return np.full(count, 1.0 / count)
    table = read_table(prior, [Column(name="id", kind="id"), Column(name="p", least=0.0, unit="probability")])
    faults = duplicate_faults(prior.name, table["id"])
    if faults:
        raise InputError(faults)
    place = check_ids(prior, table["id"], np.asarray(records.ids, dtype=np.str_), "id", "the id of a record")
    result = np.zeros(count)
    result[place] = table["p"]
    missing = np.setdiff1d(np.arange(count), place)
    if missing.size:
        found = f"no row for {missing.size} records ({records.ids[missing[0]]}, ...)"
        raise InputError([Fault(prior.name, "", found, "one row for each record")])
    total = float(result.sum())
    if abs(total - 1.0) > ONE:
        raise InputError([Fault(prior.name, "column p", f"a sum of {total:.9g}", "probabilities that sum to 1")])
    return result / total


def _targets(targets: File | None) -> tuple[NDArray[np.str_], Floats] | None:
    if targets is None:
        return None
    table = read_table(targets, [Column(name="id", kind="id"), Column(name="weight", least=0.0)])
    faults = duplicate_faults(targets.name, table["id"])
    total = float(table["weight"].sum())
    if not 0 < total < np.inf:
        faults.append(Fault(targets.name, "column weight", f"a sum of {total:g}", "a finite sum above 0"))
    if faults:
        raise InputError(faults)
    return table["id"], table["weight"] / total


def _cost(problem: MetricProblem, records: Space, outputs: Space, metric: Metric, file: str) -> Floats:
    utility = problem.utility
    if utility.kind == "matrix":
        assert utility.cost is not None  # _check_keys
        return read_array(utility.cost, (len(records), len(outputs)), what="costs", most=LARGEST).copy()
    if utility.kind == "distance":
        cost = distance_loss(metric)
    else:
        cost = _travel(problem, records, outputs, metric, file)
    if not np.isfinite(cost).all():
        i, k = np.argwhere(~np.isfinite(cost))[0].tolist()
        found = f"no way that joins record {records.ids[i]}, output {outputs.ids[k]} and the targets"
        key = "utility.edges" if utility.edges is not None else "distance.edges"
        raise InputError([Fault(file, key, found, "connected roads")])
    return cost


def travel_ends(
    problem: MetricProblem, records: Space, metric: Metric
) -> tuple[Roads | None, NDArray[np.str_], Floats]:
    """What travel costs are made of: roads (None: the distance itself), ids of targets, and their shares."""
    utility = problem.utility
    ids = np.asarray(records.ids, dtype=np.str_)
    named = _targets(utility.targets)
    targets, weights = named if named is not None else (ids, np.full(len(ids), 1.0 / len(ids)))
    if utility.edges is not None:
        return _roads(utility.edges, directed=utility.directed), targets, weights
    return getattr(metric, "roads", None), targets, weights


def _travel(problem: MetricProblem, records: Space, outputs: Space, metric: Metric, file: str) -> Floats:
    """Expected error in travel distance to a random target (LR-Geo section 3, mathematics G3)."""
    utility = problem.utility
    ids = np.asarray(records.ids, dtype=np.str_)
    roads, targets, weights = travel_ends(problem, records, metric)
    if roads is not None:
        source = utility.targets.name if utility.targets is not None else records.source
        tables = [
            roads.travel(space.ids, targets.tolist(), sources=space.source, targets_source=source)
            for space in ((records,) if problem.outputs is None else (records, outputs))
        ]
    else:
        place = np.arange(len(ids))
        if utility.targets is not None:
            place = check_ids(utility.targets, targets, ids, "id", "the id of a record")
        tables = [metric.rows(place).T]
        if problem.outputs is not None:
            tables.append(metric.to_outputs(place).T)
    for space, table in zip((records, outputs), tables, strict=False):
        lost = np.argwhere(~np.isfinite(table) & (weights > 0))
        if lost.size:
            start, target = space.ids[lost[0, 0]], targets[lost[0, 1]]
            key = "utility.edges" if utility.edges is not None else "distance.edges"
            found = f"no way from {start} to target {target} ({len(lost)} such)"
            raise InputError([Fault(file, key, found, "roads that lead to every target")])
    return travel_cost(tables[0], tables[1] if len(tables) == 2 else None, weights)
