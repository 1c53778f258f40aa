"""The release of FL-Linear, which consists of the files ``connections.csv`` and ``capacities.csv``."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen

from privopt.arrays import Floats
from privopt.declare import File
from privopt.declare.columns import read_columns, write_columns
from privopt.declare.tables import Column, check_ids
from privopt.errors import Fault, InputError
from privopt.interfaces import NoisyCounts, Release
from privopt_fl_linear.location import compute_noise_budget
from privopt_fl_linear.plan import Plan
from privopt_fl_linear.problem import FLInstance
from privopt_fl_linear.site import Assignment

__all__ = ["FLRelease"]

CONNECTIONS, CAPACITIES = "connections.csv", "capacities.csv"


@frozen(kw_only=True, eq=False)
class FLRelease(Release):
    """The published plan, which specifies the facility serving each location and the capacity of each facility.

    Attributes:
        ids: (n,) The ids of the locations in ascending order.
        assignment: The facility that serves each location.
        capacities: (m,) The capacities of the open facilities, in clients and in the order of ``assignment.opened``.
        counts: (n,) The counts for which the plan's cost is computed. These are the noisy counts or, for the method
            ``optimal``, the true ones. None if they are not published.
        noise_engine: The name of the generator that drew the noise, or None if no noise was drawn in this run.
        plan: The server's plan, or None for a release that was read from files.
        epsilon: The privacy budget of the noise in each count. None unless the release was read from files and has
            noisy counts.
        scale: The exact scale of the noise, or None if no noise was drawn in this run.
    """

    ids: Any
    assignment: Assignment
    capacities: Floats
    counts: Any
    noise_engine: str | None = None
    plan: Plan | None = None
    epsilon: float | None = None
    scale: Fraction | None = None

    def channel(self) -> NoisyCounts | None:
        """Return a description of the Laplace noise in the reports, or None if the release's `epsilon` is None.

        The ``reach`` function of this description takes a probability and returns a number of clients. The absolute
        value of the noise exceeds this number with at most the given probability. The number is rounded up, and it is
        valid for discrete noise as well.
        """
        # P(|noise| > r) is exp(-epsilon r) for continuous noise, and less for discrete noise.
        epsilon = self.epsilon
        if epsilon is None:
            return None
        return NoisyCounts(
            inputs=self.ids.tolist(), reach=lambda probability: math.ceil(-math.log(probability) / epsilon)
        )

    def write(self, folder: Path) -> None:
        """Write the plan to a folder, as ``connections.csv`` (id, facility) and ``capacities.csv`` (id, capacity)."""
        opened = self.assignment.opened
        write_columns(folder / CONNECTIONS, {"id": self.ids, "facility": self.ids[self.assignment.facility]})
        # With discrete noise, capacities are whole numbers and are written as such.
        is_whole = np.array_equal(self.capacities, np.rint(self.capacities)) and self.capacities.max(initial=0) < 2**53
        capacities = self.capacities.astype(np.int64) if is_whole else self.capacities
        write_columns(folder / CAPACITIES, {"id": self.ids[opened], "capacity": capacities})

    @classmethod
    def read(cls, folder: Path, problem: FLInstance) -> FLRelease:
        """Read a release from the tables in its folder, and match it with the problem's locations.

        Raises:
            InputError: A table is missing or malformed, its locations differ from the problem's, or it is not sorted by
                id.
        """
        ids, expectation = problem.data.ids, "a location of the problem"
        links = read_columns(folder / CONNECTIONS, [Column(name="id", kind="id"), Column(name="facility", kind="id")])
        capacity_table = read_columns(
            folder / CAPACITIES, [Column(name="id", kind="id"), Column(name="capacity", least=0.0)]
        )
        facility = check_ids(
            File(name=CONNECTIONS, path=None),
            links["facility"].to_numpy().astype(np.str_),
            ids,
            "facility",
            expectation,
        )
        assignment = Assignment.from_facilities(facility)
        for name, table, expected_ids in (
            (CONNECTIONS, links, ids),
            (CAPACITIES, capacity_table, ids[assignment.opened]),
        ):
            # A different row order could carry a message about the secret counts.
            if table["id"].to_list() != expected_ids.tolist():
                row_name = "location" if name == CONNECTIONS else f"facility that {CONNECTIONS} uses"
                raise InputError([Fault(name, "column id", "other ids", f"a row for each {row_name}, sorted by id")])
        noisy = problem.data.noisy
        epsilon = None if noisy is None else float(compute_noise_budget(problem.declared.privacy.epsilon))
        capacities = capacity_table["capacity"].to_numpy()
        return cls(ids=ids, assignment=assignment, capacities=capacities, counts=noisy, epsilon=epsilon)
