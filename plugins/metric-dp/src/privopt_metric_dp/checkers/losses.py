"""The prior of a problem and the cost of each output for each record.

``need`` raises RefusedError with code 2 if a release cannot be checked, for example because a key in its problem is
unknown to this checker.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from operator import sub
from typing import Any

from privopt.checker.exact import low, need, rational
from privopt.checker.files import Problem, is_line
from privopt_metric_dp.checkers.metric import Metric
from privopt_metric_dp.checkers.roads import read_roads, ways

__all__ = ["Column", "Losses", "read_losses"]

Column = Callable[[int], Sequence[Any]]
"""A function that takes the index of an output and returns a value for every record, such as the output's cost."""

KEYS = "kind prior cost edges directed targets"
"""The keys that ``[utility]`` may contain in any problem."""


@dataclass(frozen=True, kw_only=True)
class Losses:
    """The prior and the costs, which determine the expected loss of a mechanism.

    The loss of a matrix w of output probabilities is the sum over i, k of prior_i / whole * cost_ik * w_ik.

    Attributes:
        prior: The prior of each row as an integer weight.
        whole: The sum of the prior's weights, by which each weight is divided.
        column: A function that returns the cost of an output for every row, scaled by 2**256. These costs are never too
            high, and at most 2**-80 too low.
        unit: The unit of costs.
        measured: Whether costs are distances.
        given: Whether the problem file contains a prior.
        remap: Whether each output must be the best guess of an observer who sees it.
    """

    prior: list[int]
    whole: int
    column: Column
    unit: str
    measured: bool
    given: bool
    remap: bool


def _plural(unit: str) -> str:
    """Return the plural of a unit of distance.

    Lower-case words of at least four letters get an "s", unless they end in "h", "s", "x" or "z". In other units, "unit
    of" becomes "units of", and abbreviations such as "km" stay as they are.
    """
    return f"{unit}s" if re.fullmatch("[a-z]{3,}[a-gi-rt-wy]", unit) else unit.replace("unit of", "units of")


def read_losses(problem: Problem, metric: Metric) -> Losses:
    """Read the costs and the prior from ``[utility]``.

    Args:
        problem: The published problem.
        metric: The problem's metric, used to measure costs that are distances.

    Raises:
        RefusedError: The kind of loss or a key is not supported, or the prior is invalid.
    """
    table, records = problem.tables["utility"], metric.records.ids
    keys = f"{KEYS} remap" if type(table.get("remap")) is bool else KEYS
    in_km = table.get("kind") != "matrix" and (metric.unit == "km" or "edges" in table)
    # A price per km is allowed only for costs in km. If it is invalid, its key counts as unknown and is rejected.
    if in_km and _is_price(table.get("per_km")):
        keys += " per_km"
    kind, remap = (problem.table("utility", keys).get(key) for key in ("kind", "remap"))
    prior_by_id, prior_sum = _read_shares(problem, table.get("prior"), "p", records)
    is_known = prior_by_id.keys() == {*records} and kind in ("distance", "matrix", "travel-cost")
    need(
        is_known,
        f"problem: [utility]: expected kind distance, matrix or travel-cost, and a prior of the records, got {table}",
        2,
    )
    column, unit = metric.ends, _plural(metric.unit)
    if kind == "matrix":
        column, unit = _read_costs(problem, table["cost"], metric), "units of cost"
    elif kind == "travel-cost":
        column = _travel_costs(problem, metric)
        unit = "km" if "edges" in table else unit
    return Losses(
        # The vertices that a region adds have a prior of 0.
        prior=[prior_by_id.get(name, 0) for name in metric.points],
        whole=prior_sum,
        column=column,
        unit=unit,
        measured=kind == "distance",
        given="prior" in table,
        remap=remap is True,
    )


def _is_price(price: object) -> bool:
    """Return whether a value is a valid ``per_km`` table, which states what a kilometre costs and in which unit.

    The table does not affect any of the claims that are checked.
    """
    if not isinstance(price, dict) or price.keys() != {"cost", "unit"}:
        return False
    cost = price["cost"]
    number = type(cost) is int or (type(cost) is Decimal and cost.is_finite())
    # The upper limit keeps the cost in the range of doubles.
    return number and 0 < Fraction(cost) < 2**1023 and is_line(price["unit"])


def _read_shares(problem: Problem, file: object, name: str, ids: list[str]) -> tuple[dict[str, int], int]:
    """Read weights from a file, and scale them to integers.

    Args:
        problem: The published problem.
        file: The name of a file with the columns "id" and ``name``, or None to give every record the same weight.
        name: The column with the weights: "p" for a prior, which must sum to 1, or "weight" for targets.
        ids: The ids of all records.

    Returns:
        The integer weights by id, and their sum.

    Raises:
        RefusedError: An id is repeated, a weight is negative, or a prior does not sum to 1.
    """
    cells = {"id": ids, name: ["1"] * len(ids)} if file is None else problem.columns(file)
    share_by_id = dict(zip(cells["id"], map(rational, cells[name]), strict=True))
    total = Fraction(sum(share_by_id.values()))
    is_valid = len(share_by_id) == len(cells["id"]) and min(share_by_id.values()) >= 0
    # As in `solve`, a prior's sum may differ slightly from 1 because decimals are rounded. The prior is divided by its
    # sum.
    whole_is_one = name != "p" or not file or abs(float(total) - 1) <= 1e-6
    need(
        is_valid and whole_is_one,
        f"problem/{file}: column {name}: expected weights of at least 0, one per id{' and with sum 1' * (name == 'p')}",
        2,
    )
    # Over a common denominator, shares are integers, so sums over the prior are exact.
    shared = math.lcm(*{value.denominator for value in share_by_id.values()})
    return {key: int(value * shared) for key, value in share_by_id.items()}, int(total * shared)


def _read_costs(problem: Problem, file: object, metric: Metric) -> Column:
    """Read a file with a cost for each record (row) and output (column).

    Returns:
        A function that takes the index of an output and returns its column, scaled by 2**256 and rounded down.
    """
    cost = problem.array(file, len(metric.records.ids), len(metric.outputs.ids)).rows
    return lambda k: [low(Fraction(row[k])) for row in cost]


def _travel_costs(problem: Problem, metric: Metric) -> Column:
    """Return a function that computes travel costs from the distances of records and outputs to the targets.

    The cost of an output for a record is the sum of q_t |d(record, t) - d(output, t)| over all targets t, where q_t is
    the weight of target t divided by the sum of weights. The largest possible error of such a difference is subtracted,
    so that costs are never too high.

    Args:
        problem: The published problem.
        metric: The problem's metric, used to measure the distance d unless ``[utility]`` names a file with other roads.

    Returns:
        A function that takes the index of an output and returns its cost for every record, scaled by 2**256.
    """
    table = problem.tables["utility"]
    targets, total = _read_shares(problem, table.get("targets"), "weight", metric.records.ids)
    travel = metric.roads
    if "edges" in table:
        one_way = table.get("directed") is True
        travel = ways(read_roads(problem, table["edges"]), one_way=one_way)
    index_by_id = {name: i for i, name in enumerate(metric.records.ids)}

    def weigh_travel(distances_from: Column, starts: list[str]) -> list[list[int]]:
        """Return the distance from each start to each target, multiplied by the target's weight.

        Args:
            distances_from: A function that takes the index of a start and returns its distances to all records. It is
                used only if distances are not measured along roads.
            starts: The ids of the starts, which are used to find paths along roads.
        """
        rows: Iterator[Sequence[Any]]
        if travel is None:
            rows = ([distances_from(i)[index_by_id[t]] for t in targets] for i in range(len(starts)))
        else:
            # Each search yields the distances to one target, so the result is transposed.
            rows = iter(zip(*(travel(t, starts) for t in targets), strict=True))
        # Targets with a weight of 0 do not affect the cost.
        return [[q * x for q, x in zip(targets.values(), row, strict=True) if q] for row in rows]

    record_travel = weigh_travel(metric.own, metric.points)
    output_travel = weigh_travel(metric.ends, metric.outputs.ids)

    def column(k: int) -> list[int]:
        """Return the cost of output k for every record, scaled by 2**256."""
        # Both distances in a difference may be too short by `room`.
        spare = 2 * metric.room
        # The weights are integers with the sum `total`, so there is only one division, which rounds down.
        costs = (sum(map(abs, map(sub, from_record, output_travel[k]))) for from_record in record_travel)
        return [max(0, cost // total - spare) for cost in costs]

    return column
