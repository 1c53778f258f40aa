"""What FL-Linear publishes: ``connections.csv`` and ``capacities.csv``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen

from privopt.arrays import Floats
from privopt.declare import File
from privopt.declare.tables import Column, check_ids, duplicate_faults, read_table
from privopt.errors import Fault, InputError
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
        """Counts with Laplace noise; its reach is rounded up to a whole number, so that it covers discrete noise."""
        epsilon = self.epsilon
        if epsilon is None:
            return None
        there = self.ids[self.assignment.facility >= 0]
        return NoisyCounts(inputs=there.tolist(), reach=lambda share: math.ceil(-math.log(share) / epsilon))

    def write(self, folder: Path) -> None:
        """Write both tables."""
        import polars as pl

        served = self.assignment.facility >= 0
        facility = self.ids[self.assignment.facility[served]]
        pl.DataFrame({"id": self.ids[served], "facility": facility}).write_csv(folder / CONNECTIONS)
        opened = self.ids[self.assignment.opened]
        pl.DataFrame({"id": opened, "capacity": self.capacities}).write_csv(folder / CAPACITIES)

    def facts(self) -> Mapping[str, Any]:
        """Sizes, and capacities in all."""
        return {
            "locations": int((self.assignment.facility >= 0).sum()),
            "facilities": len(self.assignment.opened),
            "capacity in all": float(self.capacities.sum()),
            "greatest capacity": float(self.capacities.max()),
            "noise drawn by": self.drawn or "somebody else, or nobody",
        }

    @classmethod
    def read(cls, folder: Path, problem: FLInstance) -> FLRelease:
        """Read both tables back and match them with the problem's locations.

        Raises:
            InputError: a table is missing, of another form, or speaks of other locations.
        """
        ids = problem.data.ids
        links = File(name=CONNECTIONS, path=folder / CONNECTIONS)
        sizes = File(name=CAPACITIES, path=folder / CAPACITIES)
        found = read_table(links, [Column(name="id", kind="id"), Column(name="facility", kind="id")])
        made = read_table(sizes, [Column(name="id", kind="id"), Column(name="capacity", least=0.0)])
        faults = duplicate_faults(CONNECTIONS, found["id"]) + duplicate_faults(CAPACITIES, made["id"])
        if faults:
            raise InputError(faults)
        places = check_ids(links, found["id"], ids, "id", "a location of the problem")
        there = problem.data.site.senders
        other = np.setxor1d(there, places)
        if other.size:
            row = "a row" if other[0] in places else "no row"
            wanted = "a row for each location that sends a count, and no other"
            raise InputError([Fault(CONNECTIONS, "", f"{row} for {ids[other[0]]}", wanted)])
        facility = np.full(len(ids), -1, dtype=np.int64)
        facility[places] = check_ids(links, found["facility"], ids, "facility", "a location of the problem")
        assignment = Assignment.from_facilities(facility)
        opened = check_ids(sizes, made["id"], ids, "id", "a location of the problem")
        order = np.argsort(opened)
        if not np.array_equal(opened[order], assignment.opened):
            raise InputError([Fault(CAPACITIES, "", "other facilities", f"those that {CONNECTIONS} uses, each once")])
        for name, rows in ((CONNECTIONS, places), (CAPACITIES, opened)):
            if (np.diff(rows) < 0).any():  # an order that may say something
                raise InputError([Fault(name, "", "rows in another order", "rows sorted by id")])
        return cls(
            ids=ids,
            assignment=assignment,
            capacities=made["capacity"][order],
            counts=problem.data.noisy,
            epsilon=noise_of(problem),
        )


def noise_of(problem: FLInstance) -> float | None:
    """Epsilon that each count's noise was drawn for; None where no noisy counts are published."""
    return None if problem.data.noisy is None else float(spent(problem.declared.privacy.epsilon))
