"""The user's side of the cost reference table: which circle to ask for, and costs from what comes back (Equation (27)).

Equation (27) bounds costs from above and (33) from below. Both are clipped by what the public roads say: no cost is
below 0, none above the travel from the one place to the other, and staying in place costs nothing. An output outside
the circle costs at most what one inside does and the travel from there on.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt.errors import Fault, InputError
from privopt_lr_geo.messages import Extract, Request
from privopt_lr_geo.problem import LRGeoInstance, LRGeoOptions
from privopt_lr_geo.reference import Cells, Places, ReferenceTable

__all__ = ["Estimates", "TableCosts", "circle_around", "costs_of", "estimates"]

ROUNDING_SHARE: Final = 1e-12
"""Relative room for the rounding of sums of doubles; that of single precision is taken care of by itself."""


@frozen(kw_only=True, eq=False)
class Estimates:
    """Costs of a user's records, not weighted by the prior.

    Attributes:
        upper: (n, K) at least the true ones; lower: (n, K) at most.
        share: of the (record, output) pairs that the circle covers.
        sent: bytes of the table inside the circle.
    """

    upper: Floats
    lower: Floats
    share: float = 1.0
    sent: int = 0


def circle_around(options: LRGeoOptions, centre: int) -> Request:
    """Return the circle to ask for: around a member of the LR set, so large that all that matters is inside.

    Proposition 4.3 with the truncation centred on each row: any member is within 2 Gamma of any other, and outputs
    within r_obf of that one.
    """
    return Request(centre=centre, radius=(2.0 * options.radius + options.obfuscation_radius) * (1.0 + 1e-9))


def estimates(places: Places, cells: Cells, records: Ints, extract: Extract) -> Estimates:
    """Return bounds on the costs of some records from the table inside a circle.

    Raises:
        InputError: no way joins a record and an output that the circle does not cover.
    """
    count = len(places.data.outputs)
    outputs = places.first_output + np.arange(count)
    travel = places.travel(records, outputs)
    place = np.full(len(cells.coordinates), -1, dtype=np.int64)
    place[extract.cells] = np.arange(len(extract.cells))
    i, k = place[cells.nearest[records]], place[cells.nearest[outputs]]
    rows, columns = np.flatnonzero(i >= 0), np.flatnonzero(k >= 0)
    inside = np.ix_(rows, columns)
    beta = extract.beta[np.ix_(i[rows], k[columns])]
    shift = cells.shift[records[rows], None] + cells.shift[outputs[columns]]
    upper, lower = travel * (1.0 + ROUNDING_SHARE), np.zeros_like(travel)
    most = np.nextafter(beta, np.float32(np.inf)).astype(np.float64) + shift
    least = np.nextafter(beta, np.float32(-np.inf)).astype(np.float64) - shift
    upper[inside] = np.minimum(upper[inside], most * (1.0 + ROUNDING_SHARE))
    lower[inside] = np.clip(least * (1.0 - ROUNDING_SHARE), 0.0, upper[inside])
    outside = np.flatnonzero(k < 0)
    if outside.size and columns.size:
        onward = places.travel(outputs[columns], outputs[outside])
        for row in rows.tolist():
            beyond = (upper[row, columns, None] + onward).min(axis=0) * (1.0 + ROUNDING_SHARE)
            upper[row, outside] = np.minimum(upper[row, outside], beyond)
    if not np.isfinite(upper).all():
        row, column = np.argwhere(~np.isfinite(upper))[0].tolist()
        data = places.data
        found = f"no way that joins {data.records.ids[records[row]]} and {data.outputs.ids[column]}, nor a circle"
        raise InputError([Fault(data.file, "lr-geo.reference_cell_km", found, "connected roads")])
    share = len(rows) * len(columns) / max(1, travel.size)
    return Estimates(upper=upper, lower=lower, share=share, sent=4 * extract.beta.size)


class TableCosts:
    """Where users have costs from with a table: a request goes to the server, an extract comes back.

    Raises:
        InputError: the problem has no travel between places, or the table is too large.
    """

    def __init__(self, problem: LRGeoInstance, cell_km: float) -> None:
        self.data, self.options = problem.data, problem.declared.lr_geo
        self.places = Places.from_problem(problem)
        self.cells = Cells.over(self.places, cell_km)
        self.table = ReferenceTable(problem, self.places, self.cells)
        self.made: list[Estimates] = []

    def of(self, records: Ints, centre: int) -> Estimates:
        """Return (n, K) of some records, by one request around a member of the LR set."""
        extract = self.table.circle(circle_around(self.options, centre))
        found = estimates(self.places, self.cells, records, extract)
        self.made.append(found)
        return found

    def details(self) -> dict[str, Any]:
        """Return sizes, shifts and the width of the bounds."""
        shift = self.cells.shift
        return {
            "reference": {
                "cells": len(self.cells.coordinates),
                "bytes_sent": max((part.sent for part in self.made), default=0),
                "covered": float(np.mean([part.share for part in self.made])) if self.made else 0.0,
                "shift": {"mean": float(shift.mean()), "greatest": float(shift.max()), "unit": self.data.loss_unit},
            }
        }


def costs_of(problem: LRGeoInstance) -> TableCosts | None:
    """Return the cost reference table, if the problem has one; None where users know costs exactly."""
    cell_km = problem.declared.lr_geo.reference_cell_km
    return None if cell_km is None else TableCosts(problem, cell_km)
