"""The profile of mechanisms over :class:`privopt_metric_dp.problem.declared.MetricProblem`, and its problems."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
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
from privopt_metric_dp.kit.spaces import MetricSpace, from_edges, from_points
from privopt_metric_dp.kit.strategies import SHAPES, costs, metric_spaces, priors
from privopt_metric_dp.problem.data import MetricInstance
from privopt_metric_dp.problem.declared import MetricProblem

__all__ = ["MetricCase", "default_profile", "metric_problems", "metric_profile"]

UTILITIES: Final = ("distance", "matrix", "travel-cost")
LENGTH_FACTOR: Final = 4
"""Lengths are multiplied by it, and epsilon divided: a power of two, so that no double is rounded."""

Tables = Mapping[str, Mapping[str, Any]]


@frozen(kw_only=True, eq=False)
class MetricCase:
    """A metric problem before it is written down.

    Attributes:
        space: the records, and after them the outputs where these are others.
        records: how many of the space's points are records.
        names: ids of the space's points; none where the file leaves them to privopt.
        epsilon: decimal text.
        within: ``privacy.neighbours_within``.
        utility: kind of loss.
        cost: (N, K) for kind matrix.
        prior: (N,), or none for uniform.
        targets: weights of the records as targets, for travel-cost, or none.
        extra: tables of the mechanism's own.
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
        """Id of each of the space's points."""
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
        """Return the case as a problem file and its files."""
        files: dict[str, bytes] = {}
        distance: dict[str, Any] = {"kind": self.space.kind}
        tables: dict[str, Any] = {"records": self._places_table(range(self.records), "points.csv", files)}
        if not self.own_outputs:
            tables["outputs"] = self._places_table(range(self.records, len(self.space)), "outputs.csv", files)
        if self.space.kind == "graph":
            rows = [(self.ids[tail], self.ids[head], length) for tail, head, length in self.space.edges]
            joined = {end for tail, head, _ in self.space.edges for end in (tail, head)}
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
        space = self.space
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


@st.composite
def metric_problems(
    draw: st.DrawFn,
    shapes: Sequence[str] = SHAPES,
    utilities: Sequence[str] = UTILITIES,
    budgets: Sequence[str] = ("1.0", "0.5", "2.0", "0.1", "0.3", "5.0"),
    every_pair: bool = False,
    extra: Callable[[MetricCase], Tables] | None = None,
) -> GeneratedProblem:
    """Draw metric problems of up to 5 records and outputs; ``facts["case"]`` is the :class:`MetricCase`.

    Args:
        draw: Hypothesis's own.
        shapes: of the metric space, see :func:`privopt_metric_dp.kit.strategies.metric_spaces`.
        utilities: kinds of loss.
        budgets: values of epsilon.
        every_pair: keep ``neighbours_within`` out, and spaces of several parts with it.
        extra: tables of the mechanism's own for a case, e.g. ``lambda case: {"acme": {"radius": 2.0}}``.
    """
    space = draw(metric_spaces(5, shapes))
    joined = bool(np.isfinite(space.distances).all())
    count = len(space)
    split = space.cells is None and joined and count > 1
    records = draw(st.integers(1, count).map(lambda n: count + 1 - n)) if split else count
    within = None
    # a limit that leaves no record a neighbour is bad input
    min_distance = min((d for d in space.distances[:records, :records].ravel().tolist() if 0 < d < np.inf), default=0.0)
    assume(joined or (min_distance > 0 and not every_pair))
    if not every_pair and space.lengths:
        slack = 1e-9 if space.coordinates else 0.0  # distances are those of the decimals, these of their doubles
        choices: list[float | None] = [d * (1.0 + slack) for d in reversed(space.lengths) if d >= min_distance]
        within = draw(st.sampled_from([None, *choices] if joined else choices))
    if not joined and within is None:
        within = 1.0
    kinds = [kind for kind in utilities if joined or kind == "matrix"]
    if not kinds:
        kinds = ["matrix"]
    utility = draw(st.sampled_from(kinds))
    case = MetricCase(
        space=space,
        records=records,
        epsilon=draw(st.sampled_from(budgets)),
        within=within,
        utility=utility,
        cost=draw(costs(records, count - records or records)) if utility == "matrix" else None,
        prior=draw(st.one_of(st.just(()), priors(records))),
        targets=draw(st.lists(st.integers(1, 3), min_size=records, max_size=records).map(tuple))
        if utility == "travel-cost" and draw(st.booleans())
        else (),
    )
    return evolve(case, extra=extra(case) if extra is not None else {}).problem()


# --- the same problem, said otherwise ----------------------------------------------------------------


def _case_of(problem: GeneratedProblem) -> MetricCase | None:
    case = problem.facts.get("case")
    return case if isinstance(case, MetricCase) else None


def _without_cells(space: MetricSpace) -> MetricSpace:
    """Without the grid's own way of naming its cells."""
    return evolve(space, cells=None, shape="points") if space.cells is not None else space


def _relabel(problem: GeneratedProblem, chance: random.Random) -> Variant | None:
    case = _case_of(problem)
    if case is None:
        return None
    numbers = chance.sample(range(100, 1000), len(case.space))
    names = tuple(f"place {number}" for number in numbers)
    changed = evolve(case, space=_without_cells(case.space), names=names)
    return Variant(problem=changed.problem(), change="every id was replaced by another")


def _reorder(problem: GeneratedProblem, chance: random.Random) -> Variant | None:
    case = _case_of(problem)
    if case is None or len(case.space) < 2:
        return None
    n, total = case.records, len(case.space)
    order = chance.sample(range(n), n) + chance.sample(range(n, total), total - n)
    space = _without_cells(case.space)
    new_index = {old: new for new, old in enumerate(order)}
    moved = evolve(
        space,
        distances=space.distances[np.ix_(order, order)],
        coordinates=tuple(space.coordinates[p] for p in order) if space.coordinates else (),
        edges=tuple((new_index[start], new_index[end], length) for start, end, length in space.edges),
    )
    outputs = order if case.own_outputs else [p - n for p in order[n:]]
    ids = case.ids
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
    def rescale(problem: GeneratedProblem, chance: random.Random) -> Variant | None:
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
        return Variant(problem=changed, factor=1.0 if case.utility == "matrix" else float(LENGTH_FACTOR), change=change)

    return rescale


def _halve_epsilon(problem: GeneratedProblem) -> GeneratedProblem | None:
    epsilon = problem.get("privacy.epsilon")
    return None if epsilon is None else problem.with_key("privacy.epsilon", Decimal(str(epsilon)) / 2)


def _stricter_where_own_distance(problem: GeneratedProblem) -> GeneratedProblem | None:
    return _halve_epsilon(problem) if problem.get("utility.kind") == "distance" else None


TINY_DISTANCE: Final = 1e-12
"""A ``privacy.neighbours_within`` that no two places a millimetre apart are within, in any unit of length."""


def _without_neighbours(problem: GeneratedProblem) -> GeneratedProblem | None:
    return problem.with_key("privacy.neighbours_within", TINY_DISTANCE)


def _best_known(problem: MetricInstance[Any], result: Result) -> float | None:
    """Return the loss of the certified release of the kit's own linear program; None for other losses or notions."""
    is_own_loss = result.objective.unit == problem.data.loss_unit
    return (
        best_loss(problem.data)
        if is_own_loss and registry().kind("notion", result.guarantee.kind).load().odds
        else None
    )


def metric_profile(
    *,
    problems: st.SearchStrategy[GeneratedProblem] | None = None,
    extra: Callable[[MetricCase], Tables] | None = None,
    lengths: Sequence[str] = (),
    monotone: str = "always",
    **others: Any,
) -> Profile:
    """Return the default profile, changed where a mechanism over MetricProblem needs it.

    Args:
        problems: another strategy, usually ``metric_problems(...)`` with some arguments.
        extra: tables of the mechanism's own, by case; for the default strategy only.
        lengths: keys of those tables that are lengths (``"acme.radius"``): the check `units` scales them too.
        monotone: whether the loss cannot rise with epsilon: ``"always"`` (an optimal mechanism), ``"distance"``
            (only where the loss is the distance itself) or ``"never"``.
        others: further fields of :class:`Profile`.
    """
    stricter = {"always": _halve_epsilon, "distance": _stricter_where_own_distance, "never": None}[monotone]
    fields: dict[str, Any] = {
        "problems": metric_problems(extra=extra) if problems is None else problems,
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


def default_profile(problem_class: type) -> Profile | None:
    """Return the profile of a problem class that adds no required key to MetricProblem's; None for others."""
    if not issubclass(problem_class, MetricProblem):
        return None
    base_fields = {attribute.name for attribute in attrs.fields(MetricProblem)}
    if any(a.default is attrs.NOTHING and a.init and a.name not in base_fields for a in attrs.fields(problem_class)):
        return None
    return metric_profile()
