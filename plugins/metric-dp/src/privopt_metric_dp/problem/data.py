"""Load and check the files of a metric problem and return their contents as arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, Self, TypeVar, cast

import numpy as np
from attrs import evolve, field, frozen

from privopt.arrays import Floats, Ints, read_only
from privopt.declare.schema import File
from privopt.declare.tables import Column, each_once, read_array, read_lines, read_table
from privopt.errors import Fault, InputError, RegistryError
from privopt_metric_dp.problem.declared import MetricPrivacy, MetricProblem, Places, RegionVertices, Spaces, rounding
from privopt_metric_dp.problem.loss_over_region import Spread
from privopt_metric_dp.problem.metric_data import MetricData
from privopt_metric_dp.problem.read_points import read_points
from privopt_metric_dp.problem.road_lengths import compare_lengths
from privopt_metric_dp.space.metrics import Metric
from privopt_metric_dp.space.pairs import check_neighbours, farthest
from privopt_metric_dp.space.places import Space, check_places, grid_points
from privopt_metric_dp.space.road_parts import JOIN_PARTS, describe_parts

__all__ = ["D", "MetricData", "MetricInstance", "load", "prior_of", "space_of"]

T = TypeVar("T")


class _Gather:
    """A collector for the faults found in independent steps, so that a single error can report all of them.

    Attributes:
        file: The name of the problem file, for error messages.
        faults: The faults found so far.
    """

    def __init__(self, file: str) -> None:
        """Create an empty collector for the problem file named ``file``."""
        self.file = file
        self.faults: list[Fault] = []

    def add_fault(self, where: str, got: str, expectation: str) -> None:
        """Record a fault for a key in the problem file.

        Args:
            where: The key, such as "utility.kind".
            got: A description of the actual value.
            expectation: A description of valid values.
        """
        self.faults.append(Fault(self.file, where, got, expectation))

    def run_step(self, step: Callable[[], T]) -> T | None:
        """Run a step and return its result. If it raises InputError, record the faults and return None."""
        try:
            return step()
        except InputError as error:
            self.faults.extend(error.faults)
            return None

    def stop_if_any(self) -> None:
        """Raise InputError with all recorded faults, if there are any."""
        if self.faults:
            # Steps that read the same file report the same faults, so duplicates are dropped.
            raise InputError(dict.fromkeys(self.faults))


def load(problem: MetricProblem, file: str) -> MetricData:
    """Load and check all files named by a metric problem.

    All independent steps are run before an error is raised, so that a single error can report many faults.

    Args:
        problem: The parsed problem file.
        file: The name of the problem file, for error messages.

    Raises:
        InputError: The files contain errors. All errors found are reported, although some may hide others.
    """
    gather = _Gather(file)
    _check_keys(problem, gather)
    # If the guarantee covers all points in a region (privacy.everywhere), `ground` holds that region and `records` are
    # its vertices, with the declared records before those that the region adds.
    spaces, declared_records, ground = _read_spaces(problem, gather)
    utility, records = problem.utility, declared_records if ground is None else ground.records
    prior = gather.run_step(lambda: prior_of(utility.prior, declared_records))
    spread = None if ground is None else gather.run_step(lambda: _spread_people(problem, ground))
    gather.stop_if_any()
    assert prior is not None  # gather has raised an error if it is missing
    metric = spaces.metric
    if ground is None and problem.distance.path_metric and problem.privacy.neighbours_within is None:
        # Every pair is required here, but the guarantee would say nothing about a pair at an infinite distance.
        gather.run_step(lambda: _check_connected(metric, records, file))
    warnings = gather.run_step(lambda: _compare_lengths(problem, declared_records))
    choose_count = None if problem.outputs is None else problem.outputs.choose
    if choose_count is not None and choose_count > len(records):
        gather.add_fault(
            "outputs.choose", f"{choose_count:,} of {len(records):,} records", f"a number up to {len(records):,}"
        )
    # Distances to outputs are known if the outputs are the records, or if the metric was created with separate outputs.
    crossed = spaces.own or not metric.own_outputs
    if not crossed and utility.measures_outputs:
        gather.add_fault(
            "distance.output_matrix", "nothing", "the distances to outputs from which the loss is computed"
        )
    # A loss read from a file has no values for the vertices that a region adds.
    if len(records) > len(declared_records) and not utility.measures_outputs:
        added_count = len(records) - len(declared_records)
        actual = f"{utility.kind}, losses of {len(declared_records)} records, with {added_count} added vertices"
        expectation = "a loss computed from distances, or a split_km and nodes that add no vertices"
        gather.add_fault("utility.kind", actual, expectation)
    unit = problem.distance.unit(records)
    if problem.records.unit not in (None, unit):
        actual = f"{problem.records.unit!r} with distances in {unit} (distance.kind {problem.distance.kind})"
        gather.add_fault("records.unit", actual, "distance.kind euclidean")
    loss_unit = utility.unit(unit)
    if utility.per_km is not None and loss_unit != "km":
        gather.add_fault("utility.per_km", f"a loss in {loss_unit}", "a loss in km")
    gather.stop_if_any()
    # `spread` is the distribution of people over a region. If it is None, people are only at the declared records, so
    # the vertices that a region adds have a prior of 0.
    prior = np.concatenate([prior, np.zeros(len(records) - len(declared_records))])

    def choose_rows(rows: Ints) -> MetricData:
        """Return the problem's data with the records at the indices ``rows`` as outputs."""
        # The outputs are now a subset of the records, so the metric must measure distances to that subset.
        outputs, metric = declared_records.select(rows), spaces.metric.towards(rows)
        return make_data(evolve(spaces, outputs=outputs, own=False, metric=metric))

    def make_data(spaces: Spaces) -> MetricData:
        """Return the problem's data for the records and outputs in ``spaces``.

        Losses are computed on first access, because not every command needs them. The same applies to the distances in
        the privacy constraints if the guarantee covers a region.
        """
        metric = spaces.metric
        return MetricData(
            records=records,
            outputs=spaces.outputs,
            metric=metric if ground is None else lambda: _make_edge_metric(problem, ground, spaces),
            epsilon=problem.privacy.epsilon,
            within=problem.privacy.neighbours_within,
            unit=unit,
            loss_unit=loss_unit,
            per_km=utility.per_km,
            prior=read_only(prior if spread is None else spread.vertex_masses(len(records))),
            cost=lambda: _compute_cost(problem, spaces, ground, spread),
            file=file,
            excess=lambda cost: _mean_errors(utility.excess(spaces, cost), cost, ground),
            shortfall=lambda cost: _mean_errors(utility.shortfall(spaces, cost), cost, ground),
            crossed=crossed,
            remap=utility.remap,
            ground=None if ground is None else metric,
            region=None if ground is None else ground.region,
            choose=choose_count,
            over=None if choose_count is None else choose_rows,
            along_streets=ground is None and utility.kind == "distance" and problem.distance.kind == "graph",
            way=problem.distance.way(records),
            warnings=warnings or (),
        )

    data = make_data(spaces)
    if data.within is not None:
        check_neighbours(metric, data.distances, data.within, file=file, unit=unit)
    return data


def _mean_errors(errors: Floats, cost: Floats, ground: RegionVertices | None) -> Floats:
    """Bound the errors in costs averaged over a region, given bounds on the errors in the costs at its vertices.

    Args:
        errors: Array of shape (N,) or (N, K) with bounds on the errors in the costs at the vertices.
        cost: Array of shape (N, K) with the costs.
        ground: The region with its vertices, or None for a problem without a region.

    Returns:
        ``errors`` unchanged if there is no region. Otherwise, an array of shape (N,) or (N, 1). Each of its entries is
        the largest of all given bounds plus 2^-40 times the record's largest cost, which covers the rounding errors in
        the averages.
    """
    return errors if ground is None else (rounding(cost) + errors.max()).reshape(-1, *[1] * (errors.ndim - 1))


def _read_spaces(problem: MetricProblem, gather: _Gather) -> tuple[Spaces, Space, RegionVertices | None]:
    """Read the records and outputs, and build the region if ``privacy.everywhere`` is set.

    Args:
        problem: The parsed problem file.
        gather: The collector that receives the faults.

    Returns:
        The records and outputs for which losses are computed; the declared records; and the region covered by the
        guarantee, or None if there is no region. If there is one, losses are computed for all of its vertices, starting
        with the declared records.

    Raises:
        InputError: The faults found so far make it impossible to continue. The error reports all of them.
    """
    distance, listed, file = problem.distance, problem.outputs, gather.file
    # Whether the outputs are the records. If outputs are to be chosen among the records, this is the case until then.
    has_own_outputs = listed is None or listed.choose is not None
    records = gather.run_step(lambda: space_of(problem.records, "records", file, ids_alone=distance.ids_alone))
    outputs = records
    if listed is not None and not has_own_outputs:
        # Records and outputs lie in the same plane, whose unit is declared with the records.
        listed = evolve(listed, unit=problem.records.unit)
        outputs = gather.run_step(lambda: space_of(listed, "outputs", file, ids_alone=distance.ids_alone))
    gather.stop_if_any()
    assert records is not None  # gather has raised an error if either is missing
    assert outputs is not None
    privacy, ground = problem.privacy, None
    if isinstance(privacy, MetricPrivacy) and privacy.everywhere:
        ground = gather.run_step(lambda: distance.ground(records, privacy.epsilon, privacy.split_km, file))
        gather.stop_if_any()
    vertices = records if ground is None else ground.records
    # Vertices that a region adds have rows in the matrix but are not outputs. Only the declared records are.
    has_own_outputs = has_own_outputs and len(vertices) == len(records)
    chosen_outputs = None if has_own_outputs else outputs
    metric = gather.run_step(
        lambda: distance.metric(records, chosen_outputs) if ground is None else ground.metric(chosen_outputs)
    )
    gather.stop_if_any()
    assert metric is not None
    spaces = Spaces(
        records=vertices, outputs=outputs, own=has_own_outputs, metric=metric, file=file, listed=len(records)
    )
    return spaces, records, ground


def _make_edge_metric(problem: MetricProblem, ground: RegionVertices, spaces: Spaces) -> Metric:
    """Return the metric of shortest-path lengths along a region's edges, for the privacy constraints.

    Args:
        problem: The parsed problem file.
        ground: The region with its vertices.
        spaces: The vertices as records, the outputs, and the metric declared in ``[distance]``.
    """
    from privopt_metric_dp.region.street_metric import EdgeMetric

    outputs = None if spaces.own else spaces.outputs
    # If the problem lists outputs, [distance] measures the distances to them. Otherwise outputs are vertices.
    output_metric = None if problem.outputs is None or problem.outputs.choose is not None else spaces.metric
    return EdgeMetric(ground.region, problem.privacy.epsilon, ground.records, outputs, output_metric)


def _check_keys(problem: MetricProblem, gather: _Gather) -> None:
    """Record a fault for each key that contradicts another key or requires a key that is missing.

    No files are read.

    Args:
        problem: The parsed problem file.
        gather: The collector that receives the faults.
    """
    distance, outputs = problem.distance, problem.outputs
    for name, actual, expectation in distance.faults(own_outputs=outputs is None or outputs.choose is not None):
        gather.add_fault(f"distance.{name}", actual, expectation)
    for name, actual, expectation in problem.utility.faults():
        gather.add_fault(f"utility.{name}", actual, expectation)
    privacy, utility = problem.privacy, problem.utility
    if outputs is not None and outputs.choose is not None and not utility.measures_outputs:
        expectation = "a loss that is computed, such as distance, or no choose"
        gather.add_fault("utility.kind", f"{utility.kind} with outputs.choose", expectation)
    if isinstance(privacy, MetricPrivacy):
        if privacy.everywhere and privacy.neighbours_within is not None:
            expectation = "one of the two (everywhere, neighbours are arbitrarily close)"
            gather.add_fault("privacy.neighbours_within", f"{privacy.neighbours_within!r} with everywhere", expectation)
        if privacy.split_km is not None and not privacy.everywhere:
            gather.add_fault(
                "privacy.split_km", f"{privacy.split_km!r} without everywhere", "everywhere = true with it"
            )
    for table, places in (("records", problem.records), ("outputs", problem.outputs)):
        if places is not None and places.choose is None and places.given_key not in distance.places:
            actual = f"{places.given_key} with distance.kind {distance.kind}"
            gather.add_fault(f"{table}.{places.given_key}", actual, " or ".join(sorted(distance.places)))


def _spread_people(problem: MetricProblem, ground: RegionVertices) -> Spread | None:
    """Return the uniform distribution of people over a region, or None if the problem has a prior over its records.

    The distribution is uniform in area or in street length. A uniform distribution over the vertices would depend on
    how the region is divided.
    """
    from privopt_metric_dp.problem.loss_over_region import spread_evenly

    if problem.utility.prior is not None:
        return None
    return spread_evenly(ground.region, problem.privacy.epsilon, ground.records)


def _compute_cost(
    problem: MetricProblem, spaces: Spaces, ground: RegionVertices | None, spread: Spread | None
) -> Floats:
    """Compute the loss of each output for each record.

    If the guarantee covers a region, the records are its vertices. The mechanism then snaps each person to a random
    vertex of the street or triangle in which they are located. If people are spread over the region, the loss at a
    vertex is the average over the people snapped to it.

    Args:
        problem: The parsed problem file, which declares the kind of loss.
        spaces: The N records and K outputs.
        ground: The region whose points the guarantee covers, or None if it covers only the records.
        spread: The distribution of people over the region, or None if there is a prior over the records.

    Returns:
        Array of shape (N, K) with the loss of releasing output k for record i.

    Raises:
        RegistryError: The kind of loss did not return real numbers in this shape.
        InputError: A loss is not finite.
    """
    utility = problem.utility
    raw_cost = np.asarray(utility.cost(spaces))
    if raw_cost.dtype.kind not in "biuf":
        raise RegistryError(f"utility.kind {utility.kind}: cost() must return real numbers, got {raw_cost.dtype}")
    # A kind of loss from another package may return anything, so the type, shape and finiteness are checked here for
    # all kinds. The view matters to `MetricData.cost`, which makes its array read-only. It copies a view of a writeable
    # array, so a plugin's own array stays writeable, but it shares the metric's own table, which is read-only already.
    cost = np.asarray(raw_cost, dtype=np.float64).view()
    shape = (len(spaces.records), len(spaces.outputs))
    if cost.shape != shape:
        raise RegistryError(f"utility.kind {utility.kind}: cost() must have shape {shape}, got {cost.shape}")
    if not np.isfinite(cost).all():
        i, k = np.argwhere(~np.isfinite(cost))[0].tolist()
        actual = f"a loss of {cost[i, k]} for record {spaces.records.ids[i]} and output {spaces.outputs.ids[k]}"
        raise InputError([Fault(spaces.file, "utility.kind", actual, "finite losses")])
    if ground is None or spread is None:
        return cost
    from privopt_metric_dp.problem.loss_over_region import expected_cost

    vertex_masses = spread.vertex_masses(len(spaces.records))[:, None]
    # expected_cost() multiplies the losses by each vertex's probability. `MetricData.weighted` multiplies them by it
    # again, as the prior, so they are divided by it here. Vertices with probability 0 get a loss of 0.
    expected = expected_cost(spread, ground.region, utility, problem.distance, spaces, cost)
    return np.divide(expected, vertex_masses, out=np.zeros(shape), where=vertex_masses > 0)


def _compare_lengths(problem: MetricProblem, records: Space) -> tuple[str, ...]:
    """Return warnings about road lengths that are implausible given the records' positions."""
    edges = (getattr(problem.distance, "edges", None), getattr(problem.utility, "edges", None))
    # The dictionary is keyed by the files' contents, so that a file named by both distance and loss is compared only
    # once.
    files = {file.contents: file for file in edges if isinstance(file, File)}
    return tuple(warning for file in files.values() for warning in compare_lengths(file, records))


def _check_connected(metric: Metric, records: Space, file: str) -> None:
    """Check that all records are connected by roads, so that the distance between any two of them is finite.

    Args:
        metric: The distances between the records along roads.
        records: The records, whose ids appear in the error message.
        file: The name of the problem file, for the error message.

    Raises:
        InputError: Some records are not connected.
    """
    if np.isfinite(metric.rows(np.array([0]))[0]).all():
        return
    roads = getattr(metric, "roads", None)
    actual = f"no path from {records.ids[0]} to every other record"
    if roads is not None:
        actual = f"roads in several parts: {describe_parts(roads, records.ids)}"
    raise InputError([Fault(file, "distance.edges", actual, f"connected roads ({JOIN_PARTS})")])


SUM_TOLERANCE: Final = 1e-6
"""The largest accepted difference between 1 and the sum of the prior probabilities."""


def space_of(places: Places, table: str, file: str, *, ids_alone: bool) -> Space:
    """Return the ids and coordinates of the places declared in ``[records]`` or ``[outputs]``.

    Args:
        places: The parsed table.
        table: The name of the table, "records" or "outputs", for error messages.
        file: The name of the problem file, for error messages.
        ids_alone: Whether points without coordinates are accepted.

    Raises:
        InputError: A file contains errors, a declared size is invalid, or ``unit`` is set although the places have no
            planar coordinates.
        DoesNotHoldError: A release is being verified, and the problem declares more places than the release contains
            (see :func:`check_places`).
    """
    if places.unit is not None:
        space = space_of(evolve(places, unit=None), table, file, ids_alone=ids_alone)
        if space.kind != "planar":
            raise InputError([Fault(file, f"{table}.unit", f"{places.unit!r} beside {space.kind} places", "x and y")])
        return evolve(space, unit=places.unit)
    if places.grid is not None:
        grid = places.grid
        return grid_points(grid.rows, grid.cols, grid.cell_km, grid.south_west, source=file, key=f"{table}.grid")
    if places.points is not None:
        return read_points(places.points, places.columns, ids_alone=ids_alone)
    if places.mesh is not None:
        from privopt_metric_dp.region.geojson import mesh_over

        mesh = places.mesh
        return mesh_over(mesh.region, mesh.side_km, planar=mesh.planar, file=file, key=f"{table}.mesh.side_km")
    if places.vectors is not None:
        vectors = read_array(places.vectors, (None, None), what="vectors")
        if 0 in vectors.shape:
            raise InputError([Fault(places.vectors.name, "", f"an array of shape {vectors.shape}", "vectors")])
        ids = np.arange(len(vectors)).astype(np.str_) if places.ids is None else read_lines(places.ids)
        if places.ids is not None and len(ids) != len(vectors):
            raise InputError([Fault(places.ids.name, "", f"{len(ids)} ids", f"{len(vectors)}, one for each vector")])
        return Space(ids=ids.tolist(), coordinates=vectors, kind="vector", source=places.vectors.name)
    # The only remaining key is `count`, which declares ids without coordinates. The count is checked before the ids are
    # created.
    check_places(places.count or 0, f"{file}: {table}.count")
    return Space(ids=[str(number) for number in range(places.count or 0)], kind="plain", source=file)


def prior_of(prior: File | None, records: Space) -> Floats:
    """Read the prior probabilities of the records, or return a uniform prior.

    Args:
        prior: A CSV file with the columns ``id`` and ``p``, or None for a uniform prior.
        records: The N records.

    Returns:
        Array of shape (N,) with the probabilities, divided by their sum.

    Raises:
        InputError: The file contains errors, or the sum of the probabilities differs from 1 by more than
            ``SUM_TOLERANCE``.
    """
    count = len(records)
    if prior is None:
        return np.full(count, 1.0 / count)
    table = read_table(prior, [Column(name="id", kind="id"), Column(name="p", least=0.0, unit="probability")])
    result = np.zeros(count)
    result[each_once(prior, table["id"], records.ids)] = table["p"]
    if abs((total := float(result.sum())) - 1.0) > SUM_TOLERANCE:
        raise InputError([Fault(prior.name, "column p", f"a sum of {total:.9g}", "probabilities that sum to 1")])
    return result / total  # within the tolerance, the sum may differ from 1


D = TypeVar("D")
"""The class of a parsed problem file: :class:`MetricProblem` or another class supported by a mechanism's ``load``."""


@frozen(kw_only=True, eq=False)
class MetricInstance(Generic[D]):
    """A parsed metric problem together with the contents of its files.

    Attributes:
        declared: The parsed problem file. It is a :class:`MetricProblem`, a subclass with additional keys for a
            mechanism, or another class supported by a mechanism's own ``load``.
        _data: The contents of the files as arrays, with all possible outputs.
        _chosen: A list that is empty until outputs are chosen, and then contains the data for the chosen outputs.
    """

    declared: D
    _data: MetricData
    _chosen: list[MetricData] = field(factory=list, init=False, repr=False)

    @property
    def data(self) -> MetricData:
        """The contents of the files as arrays, restricted to the chosen outputs if the problem chooses outputs.

        Until outputs are chosen, records that are far apart are used as outputs.
        """
        if self._data.choose is None:
            return self._data
        if not self._chosen:
            # Records that are far apart serve as outputs before the choice, so that checks that need some outputs can
            # run.
            self.choose(farthest(self._data.metric, self._data.choose))
        return self._chosen[0]

    @property
    def whole(self) -> MetricData:
        """The contents of the files as arrays, with all possible outputs.

        If the problem chooses its outputs from the records, all records are possible outputs.
        """
        return self._data

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of records and outputs, (N, K), which are known even before outputs are chosen."""
        return len(self._data.records), self._data.choose or len(self._data.outputs)

    def choose(self, rows: Ints) -> None:
        """Use the records at the indices ``rows``, which must be in ascending order, as the outputs."""
        self._chosen[:] = [self._data.with_outputs(rows)]

    @classmethod
    def of(cls, declared: D, file: str = "problem") -> Self:
        """Load and check the files named by a problem.

        Args:
            declared: The parsed problem file, which must be a :class:`MetricProblem`.
            file: The name of the problem file, for error messages.

        Raises:
            InputError: The files contain errors. All errors found are reported, although some may hide others.
        """
        # cast() is for the type checker. Mechanisms with another class D have their own `load` and do not call this
        # method.
        return cls(declared=declared, data=load(cast("MetricProblem", declared), file))

    def alike(self) -> tuple[Ints, Floats]:
        """Return the record pairs covered by the guarantee and their distances, for the conformance kit.

        Returns:
            An array of shape (P, 2) with record indices, and an array of shape (P,) with distances.
        """
        return self.data.pairs, self.data.distances

    @property
    def apart(self) -> bool:
        """Whether at least two records are at a positive distance from each other, for the conformance kit."""
        count = len(self.data.records)
        return bool((self.data.metric.table()[:count, :count] > 0).any())
