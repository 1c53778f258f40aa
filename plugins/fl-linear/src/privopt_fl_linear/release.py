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
from privopt.declare.columns import read_columns, write_columns
from privopt.declare.tables import Column, check_ids
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
        links = read_columns(folder / CONNECTIONS, [Column(name="id", kind="id"), Column(name="facility", kind="id")])
        made = read_columns(folder / CAPACITIES, [Column(name="id", kind="id"), Column(name="capacity", least=0.0)])
        facility = check_ids(
            File(name=CONNECTIONS, path=None), links["facility"].to_numpy().astype(np.str_), ids, "facility", known
        )
        assignment = Assignment.from_facilities(facility)
        for name, table, wanted in ((CONNECTIONS, links, ids), (CAPACITIES, made, ids[assignment.opened])):
            if table["id"].to_list() != wanted.tolist():  # another order may say something
                each = "location" if name == CONNECTIONS else f"facility that {CONNECTIONS} uses"
                raise InputError([Fault(name, "column id", "other ids", f"a row for each {each}, sorted by id")])
        noisy = problem.data.noisy
        epsilon = None if noisy is None else float(spent(problem.declared.privacy.epsilon))
        capacities = made["capacity"].to_numpy()
        return cls(ids=ids, assignment=assignment, capacities=capacities, counts=noisy, epsilon=epsilon)
