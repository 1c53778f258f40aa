"""The cost of reporting each output for each record.

``need`` refuses a release with code 2 if it cannot be checked, for example because a key in its problem is not known.
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
"""A function that takes an output's index and returns the output's costs at all records."""

KEYS = "kind prior cost edges directed targets"
"""The keys in ``[utility]`` that every problem may contain."""


@dataclass(frozen=True, kw_only=True)
class Losses:
    """Prior and costs. The loss from probabilities w is the sum over i, k of prior_i / whole * cost_ik * w_ik.

    Attributes:
        prior: The integer weight of each row.
        whole: The prior's denominator, which is the sum of the weights.
        column: A function that returns an output's costs at all rows, which are at most 2**-80 too low.
        unit: The unit of costs.
        measured: Whether costs are distances.
        given: Whether the problem contains a prior.
        remap: Whether each output must be an observer's best guess of the record.
    """

    prior: list[int]
    whole: int
    column: Column
    unit: str
    measured: bool
    given: bool
    remap: bool


def _plural(unit: str) -> str:
    """Return a distance unit's plural. Words with at least 4 letters get an s, unless they end in h, s, x or z."""
    return f"{unit}s" if re.fullmatch("[a-z]{3,}[a-gi-rt-wy]", unit) else unit.replace("unit of", "units of")


def read_losses(problem: Problem, metric: Metric) -> Losses:
    """Read the problem's costs and prior from ``[utility]``.

    Args:
        problem: The published problem.
        metric: The problem's metric, for losses that are distances.

    Raises:
        RefusedError: This checker does not support the kind of loss or a key.
    """
    table, records = problem.tables["utility"], metric.records.ids
    keys = f"{KEYS} remap" if type(table.get("remap")) is bool else KEYS
    in_km = table.get("kind") != "matrix" and (metric.unit == "km" or "edges" in table)
    # The price of a km applies only to costs in km. Unless it is valid, its key remains unknown and is refused.
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
        # Vertices that a region adds have a prior of 0.
        prior=[prior_by_id.get(name, 0) for name in metric.points],
        whole=prior_sum,
        column=column,
        unit=unit,
        measured=kind == "distance",
        given="prior" in table,
        remap=remap is True,
    )


def _is_price(price: object) -> bool:
    """Return whether a value is a valid ``per_km`` table. No claim depends on this table."""
    if not isinstance(price, dict) or price.keys() != {"cost", "unit"}:
        return False
    cost = price["cost"]
    number = type(cost) is int or (type(cost) is Decimal and cost.is_finite())
    # The upper limit keeps the cost within the range of doubles.
    return number and 0 < Fraction(cost) < 2**1023 and is_line(price["unit"])


def _read_shares(problem: Problem, file: object, name: str, ids: list[str]) -> tuple[dict[str, int], int]:
    """Return integer weights by id, and their sum. Weights are equal if there is no file.

    Args:
        problem: The published problem.
        file: The name of a table with the columns "id" and ``name``, or None for equal weights.
        name: The column with the weights: "p" for a prior, which must sum to 1, or "weight" for targets.
        ids: The records' ids.

    Raises:
        RefusedError: An id is repeated, a weight is negative, or a prior does not sum to 1.
    """
    cells = {"id": ids, name: ["1"] * len(ids)} if file is None else problem.columns(file)
    share_by_id = dict(zip(cells["id"], map(rational, cells[name]), strict=True))
    total = Fraction(sum(share_by_id.values()))
    is_valid = len(share_by_id) == len(cells["id"]) and min(share_by_id.values()) >= 0
    # As in `solve`, a prior's sum may differ from 1 because its decimals are rounded. The prior is divided by the sum.
    whole_is_one = name != "p" or not file or abs(float(total) - 1) <= 1e-6
    need(
        is_valid and whole_is_one,
        f"problem/{file}: column {name}: expected weights of at least 0, one per id{' and with sum 1' * (name == 'p')}",
        2,
    )
    # Shares over a common denominator are integers, so sums over the prior stay exact.
    shared = math.lcm(*{value.denominator for value in share_by_id.values()})
    return {key: int(value * shared) for key, value in share_by_id.items()}, int(total * shared)


def _read_costs(problem: Problem, file: object, metric: Metric) -> Column:
    """Return a function that returns an output's column in a cost file (N, K), in 2**-256ths, rounded down."""
    cost = problem.array(file, len(metric.records.ids), len(metric.outputs.ids)).rows
    return lambda k: [low(Fraction(row[k])) for row in cost]


def _travel_costs(problem: Problem, metric: Metric) -> Column:
    """Return the travel costs: the sum over targets t of q_t |path record to t - path output to t|.

    Costs are reduced by the possible error in both path lengths, so that they are never too high.

    Args:
        problem: The published problem.
        metric: The problem's metric. Travel follows its roads, unless ``[utility]`` names other roads.

    Returns:
        A function that returns an output's costs at all records, in 2**-256ths.
    """
    table = problem.tables["utility"]
    targets, total = _read_shares(problem, table.get("targets"), "weight", metric.records.ids)
    travel = metric.roads
    if "edges" in table:
        one_way = table.get("directed") is True
        travel = ways(read_roads(problem, table["edges"]), one_way=one_way)
    index_by_id = {name: i for i, name in enumerate(metric.records.ids)}

    def weigh_travel(distances_from: Column, starts: list[str]) -> list[list[int]]:
        """Return, for each start, the path lengths to all targets times the targets' weights.

        Args:
            distances_from: A function that takes a start's index and returns the distances from it to all records. It
                is used if there are no roads.
            starts: The starts' ids, for searches along roads.
        """
        rows: Iterator[Sequence[Any]]
        if travel is None:
            rows = ([distances_from(i)[index_by_id[t]] for t in targets] for i in range(len(starts)))
        else:
            # One search for each target gives a column. Transposed, the columns become the starts' rows.
            rows = iter(zip(*(travel(t, starts) for t in targets), strict=True))
        # Targets with weight 0 cost nothing.
        return [[q * x for q, x in zip(targets.values(), row, strict=True) if q] for row in rows]

    record_travel = weigh_travel(metric.own, metric.points)
    output_travel = weigh_travel(metric.ends, metric.outputs.ids)

    def column(k: int) -> list[int]:
        """Return output k's costs at all records, in 2**-256ths."""
        # Both path lengths in a difference may be too short by `room`.
        spare = 2 * metric.room
        # Weights are integers whose sum is `total`, so there is only one division, which rounds down.
        costs = (sum(map(abs, map(sub, from_record, output_travel[k]))) for from_record in record_travel)
        return [max(0, cost // total - spare) for cost in costs]

    return column
