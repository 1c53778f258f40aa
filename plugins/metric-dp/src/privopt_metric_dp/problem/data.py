"""The contents of a metric problem's files, loaded once and checked: arrays that mechanisms work on."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, cast

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints, read_only
from privopt.errors import Fault, InputError, RegistryError
from privopt_metric_dp.problem.kinds import Ground, Spaces, rounding
from privopt_metric_dp.problem.loss_over_region import Spread
from privopt_metric_dp.problem.privacy_keys import MetricPrivacy
from privopt_metric_dp.problem.read_places import prior_of, space_of
from privopt_metric_dp.region.region import Region
from privopt_metric_dp.space.metrics import Metric
from privopt_metric_dp.space.pairs import (
    check_neighbours,
    farthest,
    needed_pairs,
    required_pairs,
)
from privopt_metric_dp.space.places import Space
from privopt_metric_dp.space.roads import RoadMetric

if TYPE_CHECKING:
    from privopt_metric_dp.problem.declared import MetricProblem
else:
    MetricProblem = Any


__all__ = ["D", "MetricData", "MetricInstance", "load", "space_of"]

T = TypeVar("T")

REDUCED: Final = 200_000
"""Required pairs up to which those that others imply are looked for: 2 s; of scattered points hardly any are."""


@frozen(kw_only=True, eq=False)
class MetricData:
    """Arrays of a metric problem. N records, K outputs, P required pairs.

    Attributes:
        records: the secrets.
        outputs: what may be released; the records themselves where the file has no [outputs].
        metric: distances that rows are held to; computed where asked for, never an N x N table by itself. Or what makes
            it, called once where it is first asked for.
        epsilon: exact, per ``unit``.
        within: greatest distance of a required pair; None for every pair.
        unit: of distance.
        loss_unit: of the cost.
        prior: (N,) probabilities; of a region's vertices, that they are drawn for somebody.
        cost: (N, K) loss of releasing output k for record i, in ``loss_unit``; of a region's vertex the mean over those
            for whom it is drawn. Or what computes it, called once where it is first asked for (it may raise an
            InputError then).
        file: name of the problem file, for faults.
        excess: how far a mean cost may lie above the one meant; made from what tells it of each record's costs.
        shortfall: how far each weighted cost may lie below the one meant; made likewise.
        crossed: whether distances from records to outputs are known (a matrix metric may lack them).
        remap: whether what is released is remapped to best guesses under the prior.
        ground: distances of [distance], where rows are held to others.
        region: what the guarantee speaks of where it holds between any two points; its vertices are the records then,
            those of the problem first.
        choose: how many of the records are to be outputs, where they are chosen by their use; ``outputs`` are then
            those that are, or all records before any are.
        over: gives the same problem with some records (K,), in order, for its outputs, where they are chosen.
        along_streets: whether losses are distances, and these ways along undirected streets.
        way: by which distance epsilon is, in words behind the unit.
    """

    records: Space
    outputs: Space
    _metric: Metric | Callable[[], Metric]
    epsilon: Fraction
    within: float | None
    unit: str
    loss_unit: str
    prior: Floats
    _cost: Floats | Callable[[], Floats]
    file: str = "problem"
    _excess: Callable[[Floats], Floats] | None = None
    _shortfall: Callable[[Floats], Floats] | None = None
    crossed: bool = True
    remap: bool = False
    ground: Metric | None = None
    region: Region | None = None
    choose: int | None = None
    over: Callable[[Ints], MetricData] | None = None
    along_streets: bool = False
    way: str = ""

    @property
    def distance(self) -> Metric:
        """Distances of [distance], which losses and figures speak of."""
        return self.metric if self.ground is None else self.ground

    @cached_property
    def metric(self) -> Metric:
        """Distances that rows are held to."""
        return self._metric if isinstance(self._metric, Metric) else self._metric()

    @cached_property
    def cost(self) -> Floats:
        """(N, K) loss of releasing output k for record i, in ``loss_unit``."""
        return read_only(self._cost() if callable(self._cost) else self._cost)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        return len(self.records), len(self.outputs)

    @cached_property
    def weighted(self) -> Floats:
        """(N, K) p_i c_ik."""
        return read_only(self.prior[:, None] * self.cost)

    @cached_property
    def excess(self) -> Floats:
        """(N,) by how much, at most, a record's costs in ``weighted`` exceed those that the files mean."""
        return read_only(self.prior * (self._excess or rounding)(self.cost) * (1.0 + 2.0**-40))

    def shortfall(self) -> Floats:
        """(N, K) or (N, 1) by how much, at most, ``weighted`` lies below what the files mean; not kept."""
        below = rounding(self.cost)[:, None] if self._shortfall is None else self._shortfall(self.cost)
        return np.asarray(self.prior[:, None] * below * (1.0 + 2.0**-40))

    def surely_required(self, pairs: Ints, distances: Floats) -> NDArray[np.bool_]:
        """(P,) which required pairs (P, 2) are so by their exact distances too, to the last bit of the limit."""
        return self.metric.surely_within(pairs, distances, np.inf if self.within is None else self.within)

    @cached_property
    def required(self) -> tuple[Ints, Floats]:
        """Required pairs (P, 2), i < j in order, and their distances (P,); those of a region's edges are enough."""
        if self.region is not None:
            edges = self.region.edges
            return edges, read_only(self.metric.between(edges[:, 0], edges[:, 1]))
        pairs, distances = required_pairs(self.metric, self.within)
        _check_both_ways(self.metric, pairs, distances, self.records)
        return read_only(pairs), read_only(distances)

    @property
    def most_pairs(self) -> int:
        """How many pairs are held at once at most, known before any is looked for where all are required."""
        if self.region is None and self.within is None:
            few, count = self.metric.implying(), len(self.records)
            return count * (count - 1) // 2 if few is None else len(few[0])
        return len(self.pairs)

    @property
    def pairs(self) -> Ints:
        """(P, 2) required pairs, i < j, in order."""
        return self.required[0]

    @property
    def distances(self) -> Floats:
        """(P,) distances of the required pairs."""
        return self.required[1]

    def between(self, pairs: Ints) -> Floats:
        """(P,) distances of any pairs (P, 2) of records; those that a certificate stands on are available."""
        pairs_known, distances = self.standing
        return distances if np.array_equal(pairs, pairs_known) else self.metric.between(pairs[:, 0], pairs[:, 1])

    def not_above(self, pairs: Ints, distances: Floats) -> Floats:
        """Take distances (P,) stated of any pairs (P, 2), or those computed where they are above the exact ones."""
        above = np.flatnonzero(distances > self.between(pairs))
        found = np.array(distances, dtype=np.float64)
        if above.size:
            found[above] = self.metric.not_above(pairs[above], found[above])
        return found

    @cached_property
    def needed(self) -> tuple[Ints, Floats]:
        """Required pairs (S, 2) that a model must hold, and their distances (S,): the others follow, exactly (G1).

        Over roads whose sums are exact no other pair is looked at, so that all N^2 of a city are never there.
        """
        pairs, distances = needed_pairs(self.metric, lambda: self.required, within=self.within)
        return read_only(pairs), read_only(distances)

    @cached_property
    def standing(self) -> tuple[Ints, Floats]:
        """Required pairs (S, 2) that imply the others, and their distances (S,): what a certificate stands on.

        All of them where finding out would take longer than checking them: many, and no roads that tell.
        """
        known = self.metric.implying(self.within) is not None
        return self.needed if known or len(self.pairs) <= REDUCED else self.required

    def with_outputs(self, rows: Ints) -> MetricData:
        """Take some records (K,), in order, for the outputs, where outputs are chosen; at this epsilon."""
        assert self.over is not None  # whoever chooses has looked
        return evolve(self.over(rows), epsilon=self.epsilon)

    @property
    def streets(self) -> tuple[list[tuple[int, int, Fraction]], int, Ints] | None:
        """Where losses are ways along undirected streets: these by the decimals meant, how many nodes, records' nodes.

        None where they are not, or where no decimals are known.
        """
        return self.metric.streets if self.along_streets and isinstance(self.metric, RoadMetric) else None

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
    spaces, vertices, ground = _spaces(problem, gather)
    utility, records = problem.utility, vertices if ground is None else ground.records
    prior = gather.attempt(lambda: prior_of(utility.prior, vertices))
    spread = None if ground is None else gather.attempt(lambda: _spread(problem, ground))
    gather.stop_if_any()
    assert prior is not None  # gather stops where it is missing
    metric = spaces.metric
    if ground is None and problem.distance.path_metric and problem.privacy.neighbours_within is None:
        gather.attempt(lambda: _connected(metric, records, file))
    chosen = None if problem.outputs is None else problem.outputs.choose
    if chosen is not None and chosen > len(records):
        gather.note("outputs.choose", f"{chosen:,} of {len(records):,} records", f"a number up to {len(records):,}")
    crossed = spaces.own or not metric.own_outputs
    if not crossed and utility.measures_outputs:
        gather.note("distance.output_matrix", "nothing", "the distances to outputs that the loss is made of")
    if len(records) > len(vertices) and not utility.measures_outputs:
        found = (
            f"{utility.kind}, losses of {len(vertices)} records, beside {len(records) - len(vertices)} added vertices"
        )
        wanted = "a loss made of distances, or a split_km and nodes that add none"
        gather.note("utility.kind", found, wanted)
    gather.stop_if_any()
    prior = np.concatenate([prior, np.zeros(len(records) - len(vertices))])
    unit = problem.distance.unit(records)

    def over(rows: Ints) -> MetricData:
        return of(evolve(spaces, outputs=vertices.some(rows), own=False, metric=spaces.metric.towards(rows)))

    def of(spaces: Spaces) -> MetricData:
        metric = spaces.metric
        return MetricData(
            records=records,
            outputs=spaces.outputs,
            metric=metric if ground is None else lambda: _held(problem, ground, spaces),
            epsilon=problem.privacy.epsilon,
            within=problem.privacy.neighbours_within,
            unit=unit,
            loss_unit=utility.unit(unit),
            prior=read_only(prior if spread is None else spread.hats(len(records))),
            cost=lambda: _cost(problem, spaces, ground, spread),
            file=file,
            excess=lambda cost: _off(utility.excess(spaces, cost), cost, ground),
            shortfall=lambda cost: _off(utility.shortfall(spaces, cost), cost, ground),
            crossed=crossed,
            remap=utility.remap,
            ground=None if ground is None else metric,
            region=None if ground is None else ground.region,
            choose=chosen,
            over=None if chosen is None else over,
            along_streets=ground is None and utility.kind == "distance" and problem.distance.kind == "graph",
            way=problem.distance.way(records),
        )

    data = of(spaces)
    if data.within is not None:
        check_neighbours(metric, data.distances, data.within, file=file, unit=unit)
    return data


def _off(off: Floats, cost: Floats, ground: Ground | None) -> Floats:
    """Return the errors of the records' costs; costs of a region's vertices are means, with the largest and 2^-40."""
    return off if ground is None else (rounding(cost) + off.max()).reshape(-1, *[1] * (off.ndim - 1))


def _spaces(problem: MetricProblem, gather: _Gather) -> tuple[Spaces, Space, Ground | None]:
    """Where losses are measured, the problem's own records, and the region around them where one is asked for."""
    distance, listed, file = problem.distance, problem.outputs, gather.file
    own = listed is None or listed.choose is not None
    records = gather.attempt(lambda: space_of(problem.records, "records", file, ids_alone=distance.ids_alone))
    outputs = records
    if listed is not None and not own:
        outputs = gather.attempt(lambda: space_of(listed, "outputs", file, ids_alone=distance.ids_alone))
    gather.stop_if_any()
    assert records is not None  # gather stops where either is missing
    assert outputs is not None
    privacy, ground = problem.privacy, None
    if isinstance(privacy, MetricPrivacy) and privacy.everywhere:
        ground = gather.attempt(lambda: distance.ground(records, privacy.epsilon, privacy.split_km, file))
        gather.stop_if_any()
    vertices = records if ground is None else ground.records
    own = own and len(vertices) == len(records)
    chosen_outputs = None if own else outputs
    metric = gather.attempt(
        lambda: distance.metric(records, chosen_outputs) if ground is None else ground.metric(chosen_outputs)
    )
    gather.stop_if_any()
    assert metric is not None
    spaces = Spaces(records=vertices, outputs=outputs, own=own, metric=metric, file=file, listed=len(records))
    return spaces, records, ground


def _held(problem: MetricProblem, ground: Ground, spaces: Spaces) -> Metric:
    """Distances that the rows of a region's vertices are held to."""
    from privopt_metric_dp.region.street_metric import EdgeMetric

    outputs = None if spaces.own else spaces.outputs
    far = None if problem.outputs is None or problem.outputs.choose is not None else spaces.metric
    return EdgeMetric(ground.region, problem.privacy.epsilon, ground.records, outputs, far)


def _check_keys(problem: MetricProblem, gather: _Gather) -> None:
    """Keys that must stand together, and keys that mean nothing next to others."""
    distance, outputs = problem.distance, problem.outputs
    for name, found, wanted in distance.faults(own=outputs is None or outputs.choose is not None):
        gather.note(f"distance.{name}", found, wanted)
    for name, found, wanted in problem.utility.faults():
        gather.note(f"utility.{name}", found, wanted)
    privacy, utility = problem.privacy, problem.utility
    if utility.positions is not None:
        if not (isinstance(privacy, MetricPrivacy) and privacy.everywhere):
            gather.note("utility.positions", "positions without privacy.everywhere", "a prior, or everywhere = true")
        if utility.prior is not None:
            gather.note("utility.positions", "positions beside a prior", "one of the two: where people are")
    if outputs is not None and outputs.choose is not None and not utility.measures_outputs:
        wanted = "a loss that is worked out, as distance is; or no choose"
        gather.note("utility.kind", f"{utility.kind} beside outputs.choose", wanted)
    if isinstance(privacy, MetricPrivacy):
        if privacy.everywhere and privacy.neighbours_within is not None:
            wanted = "one of the two: at every point neighbours are as near as one likes"
            gather.note("privacy.neighbours_within", f"{privacy.neighbours_within!r} beside everywhere", wanted)
        if privacy.split_km is not None and not privacy.everywhere:
            gather.note("privacy.split_km", f"{privacy.split_km!r} without everywhere", "everywhere = true beside it")
    for table, places in (("records", problem.records), ("outputs", problem.outputs)):
        if places is not None and places.choose is None and places.given not in distance.places:
            found = f"{places.given} beside distance.kind {distance.kind}"
            gather.note(f"{table}.{places.given}", found, " or ".join(sorted(distance.places)))


def _spread(problem: MetricProblem, ground: Ground) -> Spread | None:
    """Where people are, in a region; None where they stand on records, as often as a prior says."""
    from privopt_metric_dp.problem.loss_over_region import evenly, listed

    utility, epsilon = problem.utility, problem.privacy.epsilon
    if utility.prior is not None:
        return None
    if utility.positions is not None:
        return listed(ground.region, epsilon, ground.records, utility.positions)
    return evenly(ground.region, epsilon, ground.records)


def _cost(problem: MetricProblem, spaces: Spaces, ground: Ground | None, spread: Spread | None) -> Floats:
    """Return the loss of records, or of people around them, after checking its shape and that numbers are finite."""
    utility = problem.utility
    given = np.asarray(utility.cost(spaces))
    if given.dtype.kind not in "biuf":
        raise RegistryError(f"utility.kind {utility.kind}: cost() gives values of {given.dtype}, wanted real numbers")
    cost = np.asarray(given, dtype=np.float64).view()  # a table of distances is shared with its metric
    shape = (len(spaces.records), len(spaces.outputs))
    if cost.shape != shape:
        raise RegistryError(f"utility.kind {utility.kind}: cost() has shape {cost.shape}, wanted {shape}")
    if not np.isfinite(cost).all():
        i, k = np.argwhere(~np.isfinite(cost))[0].tolist()
        found = f"a loss of {cost[i, k]} for record {spaces.records.ids[i]} and output {spaces.outputs.ids[k]}"
        raise InputError([Fault(spaces.file, "utility.kind", found, "finite losses")])
    if ground is None or spread is None:
        return cost
    from privopt_metric_dp.problem.loss_over_region import expected_cost

    hats = spread.hats(len(spaces.records))[:, None]
    expected = expected_cost(spread, ground.region, utility, problem.distance, spaces, cost)
    return np.divide(expected, hats, out=np.zeros(shape), where=hats > 0)


def _check_both_ways(metric: Metric, pairs: Ints, distances: Floats, records: Space) -> None:
    """Hold a third party's distances to what a promise at them means: the same real number there and back."""
    if type(metric).between.__module__.startswith("privopt_metric_dp."):  # the same double by how it is computed
        return
    back = np.asarray(metric.between(pairs[:, 1], pairs[:, 0]))
    if back.dtype.kind not in "iuf" or distances.dtype.kind not in "iuf":
        raise RegistryError(f"{type(metric).__name__}.between() gives values of {back.dtype}, wanted real numbers")
    off = np.flatnonzero(back != distances)
    if off.size:
        i, j = (records.ids[place] for place in pairs[off[0]].tolist())
        found = f"{distances[off[0]]} from record {i} to {j} and {back[off[0]]} back"
        raise RegistryError(f"{type(metric).__name__}.between(): there and back differ: {found}, wanted one distance")


def _connected(metric: Metric, records: Space, file: str) -> None:
    lost = np.flatnonzero(~np.isfinite(metric.rows(np.array([0]))[0]))
    if lost.size:
        some = ", ".join(records.ids[place] for place in lost[:3].tolist())
        found = f"roads that do not join {lost.size} of {len(records)} records to {records.ids[0]} ({some}, ...)"
        raise InputError([Fault(file, "distance.edges", found, "connected roads, or privacy.neighbours_within")])


D = TypeVar("D")
"""What a problem file declares: a :class:`MetricProblem`, or a class of a mechanism's own that its ``load`` reads."""


@frozen(kw_only=True, eq=False)
class MetricInstance(Generic[D]):
    """A metric problem that metric mechanisms work on.

    Attributes:
        declared: what the problem file says; a :class:`MetricProblem`, a mechanism's own subclass with further keys, or
            a class of its own whose data the mechanism's ``load`` makes.
        data: what its files hold, as arrays; with outputs that are chosen (:attr:`MetricData.over`) of those.
    """

    declared: D
    _data: MetricData
    _chosen: list[MetricData] = field(factory=list, init=False, repr=False)

    @property
    def data(self) -> MetricData:
        """What its files hold; where outputs are chosen, over those that are, or else that lie far apart."""
        if self._data.choose is None:
            return self._data
        if not self._chosen:
            self.choose(farthest(self._data.metric, self._data.choose))
        return self._chosen[0]

    @property
    def whole(self) -> MetricData:
        """The same with all records for its outputs, where outputs are chosen."""
        return self._data

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        return len(self._data.records), self._data.choose or len(self._data.outputs)

    def choose(self, rows: Ints) -> None:
        """Take some records (K,), in order, for the outputs from now on, where they are chosen."""
        self._chosen[:] = [self._data.with_outputs(rows)]

    @classmethod
    def of(cls, declared: D, file: str = "problem") -> Self:
        """Load and check what a problem's files hold.

        Args:
            declared: the problem, a :class:`MetricProblem`.
            file: its name, for faults.

        Raises:
            InputError: every fault found.
        """
        return cls(declared=declared, data=load(cast("MetricProblem", declared), file))

    def alike(self) -> tuple[Ints, Floats]:
        """Return the pairs of records that a release must keep alike, for the conformance kit.

        Returns:
            (P, 2) numbers of records, and (P,) distances.
        """
        return self.data.pairs, self.data.distances

    @property
    def apart(self) -> bool:
        """Whether any two records lie at a distance above 0, for the conformance kit."""
        count = len(self.data.records)
        return bool((self.data.metric.table()[:count, :count] > 0).any())
