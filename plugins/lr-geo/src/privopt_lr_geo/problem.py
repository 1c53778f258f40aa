"""LR-Geo's problem file (a metric problem file with users and radii) and the loaded problem."""

from __future__ import annotations

from collections import Counter
from difflib import get_close_matches
from typing import Literal, Self

import numpy as np
from attrs import evolve, frozen

from privopt.arrays import Ints, read_only
from privopt.declare import at_least, key, non_negative, positive
from privopt.errors import Fault, Faults, InputError
from privopt_metric_dp.problem.data import MetricData, MetricInstance, load
from privopt_metric_dp.problem.declared import MetricProblem
from privopt_metric_dp.problem.distance_kinds import Table
from privopt_metric_dp.problem.loss_kinds import TravelCost

__all__ = ["LRGeoInstance", "LRGeoOptions", "LRGeoProblem", "RandomUsers"]

PATH_TOLERANCE = 1e-9
"""The relative tolerance for rounding errors in sums of distances along a path."""


@frozen(kw_only=True)
class RandomUsers:
    """A value of the ``users`` key that selects random records as users, using a public seed.

    No record is selected twice.
    """

    random: int = key(help="how many", check=at_least(1))
    seed: int = key(0, help="of the draw, which is public", check=non_negative)


def _check_exponent(value: float) -> str | None:
    """Return None if ``value`` is a valid exponent f, and otherwise a description of valid exponents."""
    return None if 0 < value <= 1 else "a number above 0 and at most 1"


@frozen(kw_only=True)
class LRGeoOptions:
    """The ``[lr-geo]`` table of a problem file: the users, the radii, and how probabilities decrease with distance."""

    users: Literal["all"] | tuple[str, ...] | RandomUsers = key(
        help='cells for which rows are computed: a list of ids, "all", or { random = 10 }; public'
    )
    radius: float = key(help="Gamma: how far a user's own matrix reaches", unit="path distance", check=positive)
    obfuscation_radius: float = key(
        help="r_obf: beyond it probabilities fall no further", unit="units of distance", check=positive
    )
    exponential_beyond: float = key(
        help="r_exp: outputs beyond it follow the exponential form", unit="units of distance", check=non_negative
    )
    exponent: float = key(1.0, help="f of exp(-epsilon f d); 0.5 is the paper's", check=_check_exponent)
    reference_cell_km: float | None = key(
        None,
        help="cell of the paper's cost reference table (benders, full); default: exact costs",
        unit="km",
        check=positive,
    )


@frozen(kw_only=True)
class LRGeoProblem(MetricProblem):
    """The problem file of LR-Geo: a metric problem file with an additional ``[lr-geo]`` table."""

    lr_geo: LRGeoOptions = key(help="options of lr-geo", name="lr-geo")


@frozen(kw_only=True, eq=False)
class LRGeoInstance(MetricInstance[LRGeoProblem]):
    """A loaded LR-Geo problem, which is a metric problem with users.

    Attributes:
        users: (M,) The indices of the users' records, for which rows are released, in ascending order.
    """

    users: Ints

    @classmethod
    def of_one_user(cls, declared: LRGeoProblem, user: str, file: str = "problem") -> Self:
        """Load a problem for a single user, whose record is secret and therefore not quoted in error messages.

        Args:
            declared: The parsed problem file, which is public.
            user: The id of the user's record, which replaces the declared users.
            file: The name of the problem file, for error messages.

        Raises:
            InputError: The record is not on the map or has a prior of 0, or the problem itself is invalid.
        """
        of_one = evolve(declared, lr_geo=evolve(declared.lr_geo, users=(user,)))
        try:
            return cls.of(of_one, file)
        except InputError as error:
            raise InputError([_conceal_user(fault) for fault in error.faults]) from None

    @classmethod
    def of(cls, declared: LRGeoProblem, file: str = "problem") -> Self:
        """Load a problem, find its users on the map, and check the options against the map.

        Unlike in :meth:`of_one_user`, the users are public.

        Args:
            declared: The parsed problem file.
            file: The name of the problem file, for error messages.

        Raises:
            InputError: A file, the users, the radii or the options are invalid.
        """
        data, faults = load(declared, file), Faults()
        users = _find_users(declared.lr_geo.users, data, faults)
        _check_map(declared, data, faults)
        _check_users(declared.lr_geo, data, users, faults)
        faults.check()
        return cls(declared=declared, data=data, users=read_only(users))


def _conceal_user(fault: Fault) -> Fault:
    """Return a fault that does not reveal the user's record, rewording the given fault if necessary."""
    if fault.where == "lr-geo.users":
        return Fault("user", "", "another id", "the id of a record of the map")
    # _check_users reports a prior of 0 with the record's id.
    if fault.where == "utility.prior" and "user" in fault.actual:
        return evolve(fault, actual="a prior of 0 on the user's cell")
    return fault


def _find_users(declared_users: str | tuple[str, ...] | RandomUsers, data: MetricData, faults: Faults) -> Ints:
    """Return the indices of the users' records in ascending order.

    Args:
        declared_users: The value of the ``users`` key: "all", a tuple of ids, or a number of random records.
        data: The map on which the users are looked up.
        faults: The collection to which faults are added, for example for users that are unknown or listed twice.

    Returns:
        An array of shape (M,).
    """
    count, file, where = len(data.records), data.file, "lr-geo.users"
    if isinstance(declared_users, RandomUsers):
        if declared_users.random > count:
            faults.add(file, f"{where}.random", str(declared_users.random), f"at most the {count} records there are")
        # The users are the first entries of a random permutation, so a larger number of users includes those of a
        # smaller number with the same seed.
        return np.sort(np.random.default_rng(declared_users.seed).permutation(count)[: declared_users.random]).astype(
            np.int64
        )
    if isinstance(declared_users, str):
        return np.arange(count)
    if not declared_users:
        faults.add(file, where, "an empty list", "at least one record's id")
    rows_by_id = {name: row for row, name in enumerate(data.records.ids)}
    for name, times in Counter(declared_users).items():
        if name not in rows_by_id:
            hint = "".join(f" ({suggestion!r}?)" for suggestion in get_close_matches(name, rows_by_id, n=1))
            faults.add(file, where, f"{name!r}, which is not on the map", f"the id of a record{hint}")
        if times > 1:
            faults.add(file, where, f"{name!r} more than once", "each user once")
    return np.unique(np.array([rows_by_id[name] for name in declared_users if name in rows_by_id], dtype=np.int64))


def _check_users(options: LRGeoOptions, data: MetricData, users: Ints, faults: Faults) -> None:
    """Check that every user's record has a positive prior or, for a region, that all vertices are users.

    Args:
        options: The ``[lr-geo]`` table.
        data: The map with its prior and region.
        users: (M,) The indices of the users' records.
        faults: The collection to which faults are added.
    """
    everybody = options.users == "all"
    if data.region is not None:
        if not everybody:
            expectation = (
                '"all" (whoever stands at a point computes the rows of the vertices around it, whichever they are)'
            )
            faults.add(data.file, "lr-geo.users", "some users with privacy.everywhere", expectation)
        return
    # A row for a place with a prior of 0 has no weight in the objective, so the solver could choose any row.
    absent = users[data.prior[users] == 0]
    # If all records are users, one example is enough.
    for user in absent[: 1 if everybody else None].tolist():
        name = data.records.ids[user]
        faults.add(data.file, "utility.prior", f"a prior of 0 on the user's cell {name!r}", "a prior above 0")


def _check_map(problem: LRGeoProblem, data: MetricData, faults: Faults) -> None:
    """Check the options against the map and the loss.

    Args:
        problem: The parsed problem file.
        data: The map against which the options are checked.
        faults: The collection to which faults are added.
    """
    options, file = problem.lr_geo, data.file
    if options.exponential_beyond > options.obfuscation_radius:
        expectation = f"at most obfuscation_radius, {options.obfuscation_radius:g}"
        faults.add(file, "lr-geo.exponential_beyond", f"{options.exponential_beyond:g}", expectation)
    min_distance = float(data.distances[data.distances > 0].min(initial=np.inf))
    # With a smaller radius, every LR set would contain the user alone, and nothing would be protected.
    if np.isfinite(min_distance) and options.radius * (1 + PATH_TOLERANCE) < min_distance:
        expectation = f"at least {min_distance:.6g}, the least distance between two records"
        faults.add(file, "lr-geo.radius", f"{options.radius:g}", expectation)
    # The reference table contains travel costs and connects places to cells by straight lines, which requires
    # coordinates.
    if options.reference_cell_km is not None:
        where = "lr-geo.reference_cell_km"
        if not isinstance(problem.utility, TravelCost):
            faults.add(file, where, f"a key with utility.kind {problem.utility.kind}", "travel-cost")
        lacks_coordinates = any(space.kind not in ("planar", "geographic") for space in (data.records, data.outputs))
        if lacks_coordinates or isinstance(problem.distance, Table):
            faults.add(file, where, "places without coordinates", "points or a grid, and no table")
    if data.remap:
        expectation = "false (users compute their own rows from what the server publishes, which is not remapped)"
        faults.add(file, "utility.remap", "true", expectation)
