"""Run a method on a map for one row of a table, and measure its time, its cost and its privacy.

All methods are measured in the same way: by the mean over the same users of the true cost of the row from which each
user reports. Seconds are those of building, solving and repairing. Loading files and certifying are not counted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from attrs import evolve, frozen

from lr_geo_paper.bounds import cost_bounds
from lr_geo_paper.cities import AIR, Settings
from privopt.declare import load_problem
from privopt.errors import ModelError, SolverError, StoppedError
from privopt.execution.clock import Clock, clock
from privopt.interfaces import Mechanism, SolveContext
from privopt.registry import registry
from privopt_lr_geo.central import clients_of
from privopt_lr_geo.estimate import costs_of
from privopt_lr_geo.measures import across_users
from privopt_lr_geo.mechanism import LRGeo
from privopt_lr_geo.problem import LRGeoInstance
from privopt_metric_dp.attacks import matrix_figures as attack

__all__ = ["METHODS", "Method", "Workshop", "trial"]

Make = Callable[[Settings, Path], Path]
"""Writes the problem file of a map into a folder, and returns its path."""


@frozen(kw_only=True)
class Method:
    """A method that the tables compare.

    Attributes:
        mechanism, method: Names as on privopt's command line. None for the mechanism's default method.
        gap: Relative gap at which the method stops.
        everywhere: Whether every pair is required (LR-Geo-F).
        air: Whether distances are by air.
    """

    mechanism: str
    method: str | None = None
    gap: float = 1e-4
    everywhere: bool = False
    air: bool = False


METHODS: Final[Mapping[str, Method]] = {
    "LR-Geo": Method(mechanism="lr-geo", method="benders", gap=1e-2),
    "LR-Geo full": Method(mechanism="lr-geo", method="full"),
    "LR-Geo exact": Method(mechanism="lr-geo", method="exact", gap=1e-2),
    "LR-Geo-F": Method(mechanism="lr-geo", method="benders", gap=1e-2, everywhere=True),
    "LP": Method(mechanism="optimal-lp"),
    "LP, simplex": Method(mechanism="optimal-lp", method="full"),
    "ConstOPT": Method(mechanism="const-opt"),
    "Laplace": Method(mechanism="planar-laplace", air=True),
    "ExpMech": Method(mechanism="exponential"),
}


P = TypeVar("P")


class Workshop:
    """Loads problems on one map, each once.

    Args:
        folder: Folder in which problem files are written.
        make: Writes the problem file for settings. If the map has roads, it also writes one with distances by air.
    """

    def __init__(self, folder: Path, make: Make) -> None:
        self.folder, self.make = folder, make
        self._loaded: dict[tuple[type, Settings, bool], Any] = {}

    def load(self, mechanism: Mechanism[P, Any], settings: Settings, air: bool = False) -> P:
        """Return the problem for a mechanism.

        Args:
            mechanism: The mechanism, which determines the class of the problem.
            settings: Users, radii and epsilon.
            air: Whether to use distances by air, if the map has a file with them.
        """
        kind = mechanism.problem_class
        key = (kind, settings, air)
        if key not in self._loaded:
            path = self.make(settings, self.folder)
            air_file = path.parent / AIR
            problem: Any = load_problem(
                kind, air_file if air and air_file.is_file() else path, ignore=["lr-geo", "const-opt"]
            )
            self._loaded[key] = mechanism.load(problem, path.name)
        instance: P = self._loaded[key]
        return instance


def trial(
    workshop: Workshop, name: str, settings: Settings, limit: float, *, bounds: bool = False, stretch: float = 1.0
) -> dict[str, Any]:
    """Run a method within a time limit, and return its row of a table.

    Args:
        workshop: The map.
        name: Name of the method in :data:`METHODS`.
        settings: Users, radii and epsilon.
        limit: Time limit in processor seconds.
        bounds: Whether to compute the bounds of Theorems 4.6 and 4.7.
        stretch: Seconds on the clock for each processor second, above 1 on a shared machine.

    Returns:
        ``seconds``, ``cpu`` (seconds of all threads), ``limited`` (whether a limit ended the method above the requested
        gap), and the entries of :func:`_judge_outcome`. With ``bounds`` also ``lower``, ``value``, ``upper`` and
        ``ratio`` over users' whole matrices. If there was no complete result in time, the row has only ``seconds``,
        ``"> limit"``. If no solver can handle the numbers, ``seconds`` is ``"no answer"``, and ``limited`` says why.
    """
    method_spec = METHODS[name]
    settings = evolve(settings, within=None) if method_spec.everywhere else settings
    users = workshop.load(LRGeo(), settings)
    mechanism = registry().get(method_spec.mechanism).load()
    problem = users if method_spec.mechanism == "lr-geo" else workshop.load(mechanism, settings, method_spec.air)
    problem.data.required, problem.data.needed, problem.data.weighted  # noqa: B018  (loading is not counted)
    method = method_spec.method or registry().get(method_spec.mechanism).method(None).name
    start_seconds, start_cpu = time.monotonic(), time.process_time()
    context = SolveContext(
        method=method, solver="highs", gap=method_spec.gap, search_time=Clock(stretch * limit, clock()), seed=0
    )
    try:
        outcome: Any = mechanism.solve(problem, context)
    except StoppedError:
        return {"seconds": f"> {min(limit, time.process_time() - start_cpu):.3g}"}
    except (ModelError, SolverError) as error:
        return {"seconds": "no answer", "limited": str(error)[:200]}
    seconds, cpu = time.monotonic() - start_seconds, time.process_time() - start_cpu
    # LR-Geo returns a fallback if time runs out, which `limited` marks; other mechanisms count as unfinished.
    if method_spec.mechanism != "lr-geo" and (outcome.stopped or cpu > limit):
        return {"seconds": f"> {min(limit, cpu):.3g}"}
    row = {
        "seconds": seconds,
        "cpu": cpu,
        "limited": outcome.stopped,
        **_judge_outcome(users, outcome),
    }
    if bounds and outcome.release.matrices is not None:
        costs = costs_of(problem)
        between = cost_bounds(
            problem, clients_of(problem, 0, costs), costs, outcome.release.matrices, seconds=stretch * limit
        )
        if between is not None:
            row |= {key: between[key] for key in ("lower", "upper", "value")}
            row["ratio"] = between["approximation_ratio"]
    return row


def _judge_outcome(users: LRGeoInstance, outcome: Any) -> dict[str, Any]:
    """Measure the rows from which the users report.

    Args:
        users: The problem with its users and true costs.
        outcome: The outcome of the method. Its release has a row for each user, or for each record of the map.

    Returns:
        ``cost``, the mean true cost of the users' rows; ``epsilon``, the least one that holds between all of them;
        ``gv_ratio`` and ``gv_error`` (Equations (34) and (35)), 0 for a release of a single certified matrix; and for
        users' own matrices ``lr_set``, the mean number of records in an LR set.
    """
    user_numbers, release = users.users, outcome.release
    own_weights = release.weights if len(release.weights) == len(user_numbers) else release.weights[user_numbers]
    # Integer weights of a row sum to 2**63.
    z = own_weights.astype(np.float64) / 2.0**63
    record_costs = np.einsum("ik,ik->i", z, users.data.cost[user_numbers])
    blocks = attack.pair_blocks(
        len(user_numbers), lambda i, j: users.data.metric.between(user_numbers[i], user_numbers[j])
    )
    row = {
        "cost": math.fsum(record_costs.tolist()) / len(record_costs),
        "epsilon": attack.achieved_epsilon(z, blocks),
        "gv_ratio": 0.0,
        "gv_error": 0.0,
    }
    matrices = getattr(outcome.release, "matrices", None)
    if matrices:
        gv = across_users(users.data, outcome.release)
        row |= {"gv_ratio": gv["ratio"], "gv_error": gv["error"]}
        row["lr_set"] = float(np.mean([len(matrix.records) for matrix in matrices.values()]))
    return row
