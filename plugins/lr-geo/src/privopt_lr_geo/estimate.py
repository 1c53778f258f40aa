"""The user's side of the cost reference table: the circle to request, and the cost bounds that follow from the answer.

The server's table contains the expected costs between cells of a public grid (:mod:`privopt_lr_geo.reference`). Users
do not know the targets of travel, so they derive bounds on their costs from the part of the table inside a circle.

Equation (27) of Qiu et al., PoPETs 2025, bounds costs from above, and Equation (33) from below. Public knowledge
tightens both bounds, because a cost is non-negative and at most the travel distance between the record and the output.
The cost of an output outside the circle is at most the cost of an output inside it plus the travel distance between the
two outputs.
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

__all__ = ["Estimates", "TableCosts", "circle_around", "costs_of", "estimate_costs"]

ROUNDING_SHARE: Final = 1e-12
"""A relative bound on rounding errors in sums of doubles. Rounding to single precision is accounted for separately."""


@frozen(kw_only=True, eq=False)
class Estimates:
    """Bounds on the cost of each output for each record in a user's LR set, not weighted by the prior.

    Attributes:
        upper: (n, K) The upper bounds in km.
        lower: (n, K) The lower bounds in km.
        covered_share: The share of record-output pairs for which the cells of both places lie inside the requested
            circle.
        sent_bytes: The size, in bytes, of the table extract sent by the server.
    """

    upper: Floats
    lower: Floats
    covered_share: float = 1.0
    sent_bytes: int = 0


def circle_around(options: LRGeoOptions, centre: int) -> Request:
    """Return a request for the circle with radius 2 Gamma + r_obf around a record in the user's LR set.

    By Proposition 4.3, the circle covers all relevant matrix entries. Any two records in the LR set are within 2 Gamma
    of each other, and the relevant outputs for a record are within r_obf of it.

    Args:
        options: The ``[lr-geo]`` table, whose ``radius`` is Gamma and whose ``obfuscation_radius`` is r_obf.
        centre: The index of the record at the centre.
    """
    # The factor 1 + 1e-9 keeps places at exactly this distance inside despite rounding errors.
    return Request(centre=centre, radius=(2.0 * options.radius + options.obfuscation_radius) * (1.0 + 1e-9))


def estimate_costs(places: Places, cells: Cells, records: Ints, extract: Extract) -> Estimates:
    """Bound the costs for the given records, using an extract of the cost reference table.

    Args:
        places: The public places.
        cells: The cells of the public grid.
        records: (n,) The indices of the records in a user's LR set.
        extract: The part of the table for the cells inside the requested circle.

    Raises:
        InputError: The cost of an output for a record cannot be bounded, because no road connects the two and the
            circle does not cover both.
    """
    count = len(places.data.outputs)
    outputs = places.first_output + np.arange(count)
    travel = places.travel(records, outputs)
    positions = np.full(len(cells.coordinates), -1, dtype=np.int64)
    positions[extract.cells] = np.arange(len(extract.cells))
    # The extract's row for each record and its column for each output, or -1 if the circle does not cover the cell.
    i, k = positions[cells.nearest[records]], positions[cells.nearest[outputs]]
    rows, columns = np.flatnonzero(i >= 0), np.flatnonzero(k >= 0)
    is_covered = np.ix_(rows, columns)
    beta = extract.beta[np.ix_(i[rows], k[columns])]
    # By Lemmas B.1 and B.2, a cost differs from the table's entry by at most the travel from both places to their
    # cells.
    shift = cells.shift[records[rows], None] + cells.shift[outputs[columns]]
    # Start from what is public: a cost is at least 0 and at most the travel between both places.
    upper, lower = travel * (1.0 + ROUNDING_SHARE), np.zeros_like(travel)
    # The table was rounded to single precision, so an exact value lies between the two adjacent numbers. The factors
    # below cover rounding errors in doubles.
    max_costs = np.nextafter(beta, np.float32(np.inf)).astype(np.float64) + shift
    min_costs = np.nextafter(beta, np.float32(-np.inf)).astype(np.float64) - shift
    upper[is_covered] = np.minimum(upper[is_covered], max_costs * (1.0 + ROUNDING_SHARE))
    lower[is_covered] = np.clip(min_costs * (1.0 - ROUNDING_SHARE), 0.0, upper[is_covered])
    # An output outside the circle costs at most as much as one inside, plus the travel between the two.
    outer_columns = np.flatnonzero(k < 0)
    if outer_columns.size and columns.size:
        onward = places.travel(outputs[columns], outputs[outer_columns])
        # Rows are processed one at a time, because an array over all rows, columns and outer columns may not fit into
        # memory.
        for row in rows.tolist():
            detour_costs = (upper[row, columns, None] + onward).min(axis=0) * (1.0 + ROUNDING_SHARE)
            upper[row, outer_columns] = np.minimum(upper[row, outer_columns], detour_costs)
    if not np.isfinite(upper).all():
        row, column = np.argwhere(~np.isfinite(upper))[0].tolist()
        data = places.data
        actual = (
            f"no path between {data.records.ids[records[row]]} and {data.outputs.ids[column]}, and no circle that "
            "covers both"
        )
        raise InputError([Fault(data.file, "lr-geo.reference_cell_km", actual, "connected roads")])
    covered_share = len(rows) * len(columns) / max(1, travel.size)
    return Estimates(upper=upper, lower=lower, covered_share=covered_share, sent_bytes=4 * extract.beta.size)


class TableCosts:
    """Bounds on the users' costs, obtained by querying the server's cost reference table on their behalf.

    Attributes:
        data, options: The map, and the ``[lr-geo]`` table of the problem file.
        places, cells: The public places and the cells of the public grid.
        table: The server's table.
        all_estimates: The bounds obtained from each request so far.
    """

    def __init__(self, problem: LRGeoInstance, cell_km: float) -> None:
        """Lay a grid over the map, and create the server's cost reference table.

        Args:
            problem: The problem, whose loss must be a travel cost.
            cell_km: The side length of a cell in km.
        """
        self.data, self.options = problem.data, problem.declared.lr_geo
        self.places = Places.from_problem(problem)
        self.cells = Cells.over(self.places, cell_km)
        self.table = ReferenceTable(problem, self.places, self.cells)
        self.all_estimates: list[Estimates] = []

    def of(self, records: Ints, centre: int) -> Estimates:
        """Bound the costs for the given records with a single request to the server.

        Args:
            records: (n,) The indices of the records in a user's LR set.
            centre: The index of the record at the centre of the requested circle, which must be one of ``records``.

        Raises:
            InputError: The extract would be too large, or a cost cannot be bounded.
        """
        extract = self.table.circle(circle_around(self.options, centre))
        bounds = estimate_costs(self.places, self.cells, records, extract)
        self.all_estimates.append(bounds)
        return bounds

    def details(self) -> dict[str, Any]:
        """Return statistics about the requests so far, for result.json.

        The statistics are the number of cells, the size of the largest extract, the mean covered share, and the mean
        and maximum shift. A shift is the travel distance between a place and its nearest cell.
        """
        shift = self.cells.shift
        return {
            "reference": {
                "cells": len(self.cells.coordinates),
                "bytes_sent": max((part.sent_bytes for part in self.all_estimates), default=0),
                "covered": float(np.mean([part.covered_share for part in self.all_estimates]))
                if self.all_estimates
                else 0.0,
                "shift": {"mean": float(shift.mean()), "greatest": float(shift.max()), "unit": self.data.loss_unit},
            }
        }


def costs_of(problem: LRGeoInstance) -> TableCosts | None:
    """Return the table that users query to bound their costs, or None if the problem file does not configure one."""
    cell_km = problem.declared.lr_geo.reference_cell_km
    return None if cell_km is None else TableCosts(problem, cell_km)
