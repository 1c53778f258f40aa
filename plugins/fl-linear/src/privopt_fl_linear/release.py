"""The release of FL-Linear: ``connections.csv`` and ``capacities.csv``."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen

from privopt.arrays import Floats
from privopt.declare import File
from privopt.declare.columns import write_columns
from privopt.declare.tables import Column, check_ids, duplicate_faults, read_table
from privopt.errors import Fault, Faults, InputError
from privopt.interfaces import NoisyCounts, Release
from privopt_fl_linear.location import spent
from privopt_fl_linear.plan import Plan
from privopt_fl_linear.problem import FLInstance
from privopt_fl_linear.site import Assignment

__all__ = ["FLRelease"]

CONNECTIONS, CAPACITIES = "connections.csv", "capacities.csv"


@frozen(kw_only=True, eq=False)
class FLRelease(Release):
    """Connections and capacities.

    Attributes:
        ids: (n,) ids of the locations, ascending.
        assignment: who is served by whom.
        capacities: (m,) of the opened facilities, in ``assignment.opened``'s order.
        counts: (n,) what the objective is at: noisy counts (true ones under ``optimal``); None where not published.
        drawn: how the noise was drawn, in words; None where it was drawn elsewhere.
        plan: what the server chose; None when read back.
        epsilon: of the noise of each count; None where the counts are true ones.
        scale: that the noise was drawn at, exactly; None where it was drawn elsewhere, or when read back.
    """

    ids: Any
    assignment: Assignment
    capacities: Floats
    counts: Any
    drawn: str | None = None
    plan: Plan | None = None
    epsilon: float | None = None
    scale: Fraction | None = None

    def channel(self) -> NoisyCounts | None:
        """Return counts with Laplace noise; its reach, rounded up to a whole number, covers discrete noise."""
        epsilon = self.epsilon
        if epsilon is None:
            return None
        return NoisyCounts(inputs=self.ids.tolist(), reach=lambda share: math.ceil(-math.log(share) / epsilon))

    def write(self, folder: Path) -> None:
        """Write both tables."""
        opened = self.assignment.opened
        write_columns(folder / CONNECTIONS, {"id": self.ids, "facility": self.ids[self.assignment.facility]})
        write_columns(folder / CAPACITIES, {"id": self.ids[opened], "capacity": self.capacities})

    @classmethod
    def read(cls, folder: Path, problem: FLInstance) -> FLRelease:
        """Read both tables back and match them with the problem's locations.

        Raises:
            InputError: a table is missing, of another form, or speaks of other locations.
        """
        ids, known = problem.data.ids, "a location of the problem"
        links, sizes = (File(name=name, path=folder / name) for name in (CONNECTIONS, CAPACITIES))
        found = read_table(links, [Column(name="id", kind="id"), Column(name="facility", kind="id")])
        made = read_table(sizes, [Column(name="id", kind="id"), Column(name="capacity", least=0.0)])
        Faults(duplicate_faults(CONNECTIONS, found["id"]) + duplicate_faults(CAPACITIES, made["id"])).check()
        places = check_ids(links, found["id"], ids, "id", known)
        missing = np.setdiff1d(np.arange(len(ids)), places)
        if missing.size:
            raise InputError([Fault(CONNECTIONS, "", f"no row for {ids[missing[0]]}", "a row for each location")])
        facility = np.empty(len(ids), dtype=np.int64)
        facility[places] = check_ids(links, found["facility"], ids, "facility", known)
        assignment = Assignment.from_facilities(facility)
        opened = check_ids(sizes, made["id"], ids, "id", known)
        for name, rows in ((CONNECTIONS, places), (CAPACITIES, opened)):
            if (np.diff(rows) < 0).any():  # an order that may say something
                raise InputError([Fault(name, "", "rows in another order", "rows sorted by id")])
        if not np.array_equal(opened, assignment.opened):
            raise InputError([Fault(CAPACITIES, "", "other facilities", f"those that {CONNECTIONS} uses, each once")])
        noisy = problem.data.noisy
        epsilon = None if noisy is None else float(spent(problem.declared.privacy.epsilon))
        return cls(ids=ids, assignment=assignment, capacities=made["capacity"], counts=noisy, epsilon=epsilon)
