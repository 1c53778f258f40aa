"""Generated problems and test profiles for mechanisms on metric problems (``MetricProblem``)."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import attrs
import numpy as np
from attrs import evolve, field, frozen
from hypothesis import assume
from hypothesis import strategies as st
from numpy.typing import NDArray

from privopt.interfaces import Result
from privopt.registry import registry
from privopt.testing.problems import GeneratedProblem, Variant, csv_bytes, npy_bytes, to_toml
from privopt.testing.profile import Profile
from privopt_metric_dp.kit.reference import best_loss
from privopt_metric_dp.kit.spaces import MetricSpace, from_edges, from_points, grid
from privopt_metric_dp.kit.strategies import SHAPES, costs, metric_spaces, priors
from privopt_metric_dp.problem.data import MetricInstance
from privopt_metric_dp.problem.declared import MetricProblem

__all__ = ["MetricCase", "default_profile", "metric_problems", "metric_profile", "several_rounds"]

UTILITIES: Final = ("distance", "matrix", "travel-cost")
"""The kinds of loss in generated problems."""
LENGTH_FACTOR: Final = 4
"""The factor by which to multiply lengths and divide epsilon. Because it is a power of two, nothing is rounded."""

Tables = Mapping[str, Mapping[str, Any]]
"""Tables of a problem file: for each table name, a mapping from keys to values."""


@frozen(kw_only=True, eq=False)
class MetricCase:
    """The contents of a generated metric problem, which :meth:`problem` converts to a problem file.

    Attributes:
        space: The metric space. Its points are the records, followed by the outputs unless the outputs are the records.
        records: The number of records.
        names: The ids of all points in the space. Empty for default ids.
        epsilon: Epsilon as a decimal string.
        within: The value of ``privacy.neighbours_within``, or None if all pairs are required.
        utility: The kind of loss, which is one of :data:`UTILITIES`.
        cost: Array of shape (n_records, n_outputs) with the losses if ``utility`` is "matrix", or else None.
        prior: The prior probability of each record. Empty for a uniform prior.
        targets: The weight of each record as a target if ``utility`` is "travel-cost". Empty for equal weights.
        extra: Additional tables of the problem file, as required by the mechanism under test.
    """

    space: MetricSpace
    records: int
    names: tuple[str, ...] = ()
    epsilon: str
    within: float | None = None
    utility: str = "distance"
    cost: NDArray[np.float64] | None = None
    prior: tuple[float, ...] = ()
    targets: tuple[int, ...] = ()
    extra: Tables = field(factory=dict)

    @property
    def own_outputs(self) -> bool:
        """Whether the outputs are the records."""
        return self.records == len(self.space)

    @property
    def ids(self) -> list[str]:
        """The ids of all points in the space, which are the given names or the default ids for the kind of places.

        With a distance matrix, records and outputs are both numbered from 0 by default, so a record and an output may
        have the same id.
        """
        if self.names:
            return list(self.names)
        if self.space.cells is not None:
            rows, cols, _ = self.space.cells
            return [f"r{r}c{c}" for r in range(rows) for c in range(cols)]
        if self.space.kind == "matrix":
            outputs = len(self.space) - self.records
            return [str(n) for n in range(self.records)] + [str(n) for n in range(outputs)]
        return ["abcdefghijklmnop"[n] if n < self.records else f"out-{n}" for n in range(len(self.space))]

    def problem(self) -> GeneratedProblem:
        """Convert the case to a problem file and the contents of the files named in it."""
        files: dict[str, bytes] = {}
        distance: dict[str, Any] = {"kind": self.space.kind}
        tables: dict[str, Any] = {"records": self._places_table(range(self.records), "points.csv", files)}
        if not self.own_outputs:
            tables["outputs"] = self._places_table(range(self.records, len(self.space)), "outputs.csv", files)
        if self.space.kind == "graph":
            rows = [(self.ids[tail], self.ids[head], length) for tail, head, length in self.space.edges]
            joined = {end for tail, head, _ in self.space.edges for end in (tail, head)}
            # Every record must be a node of the road network. If it has no road, it gets one to a node that is not a
            # record.
            rows += [(self.ids[n], f"siding-{n}", 1.0) for n in range(len(self.space)) if n not in joined]
            distance["edges"] = "roads.csv"
            files["roads.csv"] = csv_bytes(["from", "to", "km"], rows)
        if self.space.kind == "matrix":
            n = self.records
            distance["matrix"] = "d.npy"
            files["d.npy"] = npy_bytes(self.space.distances[:n, :n])
            if not self.own_outputs:
                distance["output_matrix"] = "to-outputs.npy"
                files["to-outputs.npy"] = npy_bytes(self.space.distances[:n, n:])
        privacy: dict[str, Any] = {"epsilon": Decimal(self.epsilon)}
        if self.within is not None:
            privacy["neighbours_within"] = self.within
        tables |= {"distance": distance, "privacy": privacy, "utility": self._utility_table(files), **self.extra}
        return GeneratedProblem(toml=to_toml(tables), files=files, facts={"case": self})

    def _places_table(self, which: range, name: str, files: dict[str, bytes]) -> dict[str, Any]:
        """Return the ``[records]`` or ``[outputs]`` table, and add its file of points to ``files`` if it needs one.

        Args:
            which: The points to list, as indices in the space.
            name: The name for the file of points, if the table needs one.
            files: The contents of all files by name, to which the file of points is added.
        """
        space = self.space
        # Grids and distance matrices have default ids. Other ids require a file that lists them.
        if space.cells is not None and not self.names:
            rows, cols, cell_km = space.cells
            return {"grid": {"rows": rows, "cols": cols, "cell_km": cell_km}}
        if space.kind == "matrix" and not self.names:
            return {"count": len(which)}
        ids = self.ids
        if space.kind in ("matrix", "graph"):
            files[name] = csv_bytes(["id"], [[ids[n]] for n in which])
        else:
            header = ["id", "lat", "lon"] if space.kind == "haversine" else ["id", "x", "y"]
            files[name] = csv_bytes(header, [[ids[n], *space.coordinates[n]] for n in which])
        return {"points": name}

    def _utility_table(self, files: dict[str, bytes]) -> dict[str, Any]:
        """Return the ``[utility]`` table, and add the files named in it to ``files``.

        Args:
            files: The contents of all files by name, to which the costs, prior and targets are added.
        """
        utility: dict[str, Any] = {"kind": self.utility}
        ids = self.ids
        if self.cost is not None:
            utility["cost"] = "c.npy"
            files["c.npy"] = npy_bytes(self.cost)
        if self.prior:
            utility["prior"] = "prior.csv"
            files["prior.csv"] = csv_bytes(["id", "p"], [[ids[n], p] for n, p in enumerate(self.prior)])
        if self.targets:
            utility["targets"] = "targets.csv"
            files["targets.csv"] = csv_bytes(["id", "weight"], [[ids[n], w] for n, w in enumerate(self.targets)])
        return utility


@lru_cache
def _optional_priors(records: int) -> st.SearchStrategy[tuple[float, ...]]:
    """Return a strategy that draws a prior for the records, or an empty tuple for the uniform prior."""
    return st.one_of(st.just(()), priors(records))


@lru_cache
def _record_counts(points: int) -> st.SearchStrategy[int]:
    """Return a strategy that draws how many of a space's points are records. Examples shrink towards all of them."""
    return st.integers(1, points).map(lambda n: points + 1 - n)


@st.composite
def metric_problems(
    draw: st.DrawFn,
    shapes: Sequence[str] = SHAPES,
    utilities: Sequence[str] = UTILITIES,
    budgets: Sequence[str] = ("1.0", "0.5", "2.0", "0.1", "0.3", "5.0"),
    every_pair: bool = False,
    extra: Callable[[MetricCase], Tables] | None = None,
) -> GeneratedProblem:
    """Draw a metric problem on a space of at most 5 points, with its :class:`MetricCase` in ``facts["case"]``.

    Args:
        draw: The function supplied by Hypothesis to draw values.
        shapes: The shapes of metric spaces to draw (see :func:`privopt_metric_dp.kit.strategies.metric_spaces`).
        utilities: The kinds of loss to draw. In a disconnected space, the loss is always "matrix".
        budgets: The values of epsilon to draw, as decimal strings.
        every_pair: Whether to leave ``neighbours_within`` unset, so that all pairs are required and the space must be
            connected.
        extra: A function that takes a case and returns the tables required by the mechanism under test, such as
            ``lambda case: {"acme": {"radius": 2.0}}``.
    """
    space = draw(metric_spaces(5, shapes))
    joined = bool(np.isfinite(space.distances).all())
    count = len(space)
    # In connected spaces other than grids, the outputs may differ from the records, which are then the first points.
    # Examples shrink to `count` records, which are also the outputs.
    split = space.cells is None and joined and count > 1
    records = draw(_record_counts(count)) if split else count
    within = None
    # A limit below the smallest distance is an input error, because no record would have a neighbour.
    min_distance = min((d for d in space.distances[:records, :records].ravel().tolist() if 0 < d < np.inf), default=0.0)
    assume(joined or (min_distance > 0 and not every_pair))
    if not every_pair and space.lengths:
        # Coordinates are written as decimals, whose exact distances may slightly exceed these doubles.
        slack = 1e-9 if space.coordinates else 0.0
        choices: list[float | None] = [d * (1.0 + slack) for d in reversed(space.lengths) if d >= min_distance]
        within = draw(st.sampled_from([None, *choices] if joined else choices))
    if not joined and within is None:
        within = 1.0  # a disconnected space needs a limit, because a pair without a path cannot be required
    kinds = [kind for kind in utilities if joined or kind == "matrix"]
    if not kinds:
        kinds = ["matrix"]
    utility = draw(st.sampled_from(kinds))
    # The points after the records are the outputs. If there are none, the records are the outputs.
    outputs = count - records or records
    case = MetricCase(
        space=space,
        records=records,
        epsilon=draw(st.sampled_from(budgets)),
        within=within,
        utility=utility,
        cost=draw(costs(records, outputs)) if utility == "matrix" else None,
        prior=draw(_optional_priors(records)),
        targets=draw(st.lists(st.integers(1, 3), min_size=records, max_size=records).map(tuple))
        if utility == "travel-cost" and draw(st.booleans())
        else (),
    )
    return evolve(case, extra=extra(case) if extra is not None else {}).problem()


# --- equivalent forms of the same problem ------------------------------------------------------------


def _case_of(problem: GeneratedProblem) -> MetricCase | None:
    """Return the case from which the kit generated a problem, or None if the kit did not generate it."""
    case = problem.facts.get("case")
    return case if isinstance(case, MetricCase) else None


def _without_cells(space: MetricSpace) -> MetricSpace:
    """Replace a grid with points at the centres of its cells, which can have any ids."""
    return evolve(space, cells=None, shape="points") if space.cells is not None else space


def _relabel(problem: GeneratedProblem, chance: random.Random) -> Variant | None:
    """Give all places in a problem new random ids. This must not change the loss.

    Args:
        problem: The problem to change.
        chance: The random number generator used to draw the ids.

    Returns:
        The variant, or None if the conformance kit did not generate the problem.
    """
    case = _case_of(problem)
    if case is None:
        return None
    numbers = chance.sample(range(100, 1000), len(case.space))
    # The new ids are in a different order, which exposes a mechanism that depends on the order of ids.
    names = tuple(f"place {number}" for number in numbers)
    changed = evolve(case, space=_without_cells(case.space), names=names)
    return Variant(problem=changed.problem(), change="every id was replaced by another")


def _reorder(problem: GeneratedProblem, chance: random.Random) -> Variant | None:
    """Shuffle the records and outputs of a problem. This must not change the loss.

    Args:
        problem: The problem to shuffle.
        chance: The random number generator used to draw the order.

    Returns:
        The shuffled variant, or None for problems that the conformance kit did not generate and for problems with a
        single place.
    """
    case = _case_of(problem)
    if case is None or len(case.space) < 2:
        return None
    n, total = case.records, len(case.space)
    # Records must still precede outputs in the space.
    order = chance.sample(range(n), n) + chance.sample(range(n, total), total - n)
    space = _without_cells(case.space)
    # `order` contains the old indices in the new order, but edges need the new index for each old one.
    new_index = {old: new for new, old in enumerate(order)}
    moved = evolve(
        space,
        distances=space.distances[np.ix_(order, order)],
        coordinates=tuple(space.coordinates[p] for p in order) if space.coordinates else (),
        edges=tuple((new_index[start], new_index[end], length) for start, end, length in space.edges),
    )
    # The columns of the cost matrix are outputs, so point p of the space has the column p - n.
    outputs = order if case.own_outputs else [p - n for p in order[n:]]
    ids = case.ids
    # Ids move with their places, unless both records and outputs have the default ids 0, 1, ... of a distance matrix.
    names = tuple(ids[p] for p in order) if case.own_outputs or len(set(ids)) == total else ()
    changed = evolve(
        case,
        space=moved,
        names=names,
        cost=None if case.cost is None else case.cost[np.ix_(order[:n], outputs)],
        prior=tuple(case.prior[p] for p in order[:n]) if case.prior else (),
        targets=tuple(case.targets[p] for p in order[:n]) if case.targets else (),
    )
    order_text = ", ".join(map(str, order))
    return Variant(problem=changed.problem(), change=f"records and outputs were put in the order {order_text} (from 0)")


def _in_other_units(lengths: Sequence[str]) -> Callable[[GeneratedProblem, random.Random], Variant | None]:
    """Return a function that multiplies all lengths in a problem, and divides epsilon, by ``LENGTH_FACTOR``.

    This does not change the guarantee, which depends only on the product of epsilon and distance. Losses that are
    lengths grow by the same factor.

    Args:
        lengths: The keys in the mechanism's tables whose values are lengths, such as "acme.radius".
    """

    def rescale(problem: GeneratedProblem, chance: random.Random) -> Variant | None:
        """Rescale a problem, or return None if its distances cannot be scaled or it was not generated by the kit.

        Distances on the globe cannot be scaled, because the radius of the earth is fixed. ``chance`` is not used.
        """
        case = _case_of(problem)
        if case is None or case.space.kind == "haversine":
            return None
        space = case.space
        if space.kind == "graph":
            scaled = from_edges(len(space), [(a, b, LENGTH_FACTOR * d) for a, b, d in space.edges], space.shape)
        elif space.kind == "matrix":
            scaled = evolve(space, distances=space.distances * LENGTH_FACTOR)
        else:
            scaled = from_points([(LENGTH_FACTOR * x, LENGTH_FACTOR * y) for x, y in space.coordinates], "euclidean")
            if space.cells is not None:
                rows, cols, cell_km = space.cells
                scaled = evolve(scaled, cells=(rows, cols, LENGTH_FACTOR * cell_km))
        changed = evolve(
            case,
            space=scaled,
            epsilon=str(Decimal(case.epsilon) / LENGTH_FACTOR),
            within=None if case.within is None else case.within * LENGTH_FACTOR,
        ).problem()
        for key in lengths:
            value = changed.get(key)
            if value is not None:
                changed = changed.with_key(key, float(value) * LENGTH_FACTOR)
        change = f"all lengths were multiplied by {LENGTH_FACTOR} and epsilon divided by {LENGTH_FACTOR}"
        # A matrix of losses does not change. All other losses grow with the lengths.
        return Variant(problem=changed, factor=1.0 if case.utility == "matrix" else float(LENGTH_FACTOR), change=change)

    return rescale


def _halve_epsilon(problem: GeneratedProblem) -> GeneratedProblem | None:
    """Halve a problem's epsilon, which cannot decrease the optimal loss. Return None if the problem has no epsilon."""
    epsilon = problem.get("privacy.epsilon")
    return None if epsilon is None else problem.with_key("privacy.epsilon", Decimal(str(epsilon)) / 2)


def _halve_epsilon_of_distance_loss(problem: GeneratedProblem) -> GeneratedProblem | None:
    """Halve a problem's epsilon if its loss is the distance. Return None for other kinds of loss."""
    return _halve_epsilon(problem) if problem.get("utility.kind") == "distance" else None


TINY_DISTANCE: Final = 1e-12
"""A value of ``privacy.neighbours_within`` below every positive distance in generated problems."""


def _without_neighbours(problem: GeneratedProblem) -> GeneratedProblem | None:
    """Make a problem invalid by setting ``neighbours_within`` below every positive distance."""
    return problem.with_key("privacy.neighbours_within", TINY_DISTANCE)


def _best_known(problem: MetricInstance[Any], result: Result) -> float | None:
    """Return the loss of a mechanism certified by the kit itself. No valid lower bound exceeds this loss.

    Args:
        problem: The loaded problem.
        result: The result of the mechanism under test.

    Returns:
        The loss, or None if the result states its loss in another unit or its privacy notion does not bound ratios of
        probabilities.
    """
    # A mechanism may have a loss of its own, such as a count. The kit's linear program has the constraints of metric
    # DP, so the notion must bound odds (ratios of probabilities).
    has_loss_unit = result.objective.unit == problem.data.loss_unit
    return (
        best_loss(problem.data)
        if has_loss_unit and registry().kind("notion", result.guarantee.kind).load().odds
        else None
    )


def several_rounds(extra: Callable[[MetricCase], Tables] | None = None) -> GeneratedProblem:
    """Return a fixed problem with an asymmetric prior, for which iterative methods need several iterations.

    Args:
        extra: A function that takes the case and returns the tables required by the mechanism under test.
    """
    case = MetricCase(
        space=grid(2, 4, 0.7), records=8, epsilon="1.5", prior=(0.3, 0.05, 0.2, 0.05, 0.1, 0.15, 0.1, 0.05)
    )
    return evolve(case, extra=extra(case) if extra is not None else {}).problem()


def metric_profile(
    *,
    problems: st.SearchStrategy[GeneratedProblem] | None = None,
    extra: Callable[[MetricCase], Tables] | None = None,
    lengths: Sequence[str] = (),
    monotone: str = "always",
    **others: Any,
) -> Profile:
    """Return the kit's profile for metric problems, adapted to a particular mechanism.

    Args:
        problems: The strategy for problems, which is usually ``metric_problems(...)`` with some arguments. If None, the
            default strategy is used.
        extra: A function that takes a case and returns the tables required by the mechanism. It is used only by the
            default strategy.
        lengths: The keys in the mechanism's tables whose values are lengths, such as ``"acme.radius"``. The ``units``
            check scales them together with all distances.
        monotone: When to check that a larger epsilon does not increase the loss: ``"always"`` (for optimal mechanisms),
            ``"distance"`` (only if the loss is the distance) or ``"never"``.
        others: Values for other fields of :class:`Profile`, which replace the defaults.
    """
    # The function that makes a problem stricter, so that the losses before and after can be compared.
    stricter = {"always": _halve_epsilon, "distance": _halve_epsilon_of_distance_loss, "never": None}[monotone]
    fields: dict[str, Any] = {
        "problems": metric_problems(extra=extra) if problems is None else problems,
        "examples": () if problems is not None else (several_rounds(extra),),
        "stricter": stricter,
        "nothing_near": _without_neighbours,
        "best_known": _best_known,
        "variants": {"relabelling": _relabel, "reordering": _reorder, "units": _in_other_units(lengths)},
        **others,
    }
    if monotone == "never":
        reason = "the loss may rise with epsilon, as the profile says"
        fields["skip"] = {"loss-monotone": reason, **fields.get("skip", {})}
    return Profile(**fields)


@lru_cache  # so that all methods of a mechanism have the same profile and problems
def default_profile(problem_class: type) -> Profile | None:
    """Return the default profile for a problem class, or None if the plugin that defines the class must provide one.

    There is no default profile for a subclass of MetricProblem with additional required keys, or for a class that is
    not a subclass of MetricProblem.
    """
    if not issubclass(problem_class, MetricProblem):
        return None
    base_fields = {attribute.name for attribute in attrs.fields(MetricProblem)}
    # The kit cannot make up values for a required key, so a plugin with such a key must define a profile.
    if any(a.default is attrs.NOTHING and a.init and a.name not in base_fields for a in attrs.fields(problem_class)):
        return None
    return metric_profile()
