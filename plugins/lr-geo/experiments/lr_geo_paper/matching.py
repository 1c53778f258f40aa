"""Measure what trials do not: bounds by round (Figure 6), and table rows that match a coefficient (Figure 13)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lr_geo_paper.cities import Settings
from lr_geo_paper.star_start import star_start
from lr_geo_paper.trials import Workshop
from privopt.execution.clock import Clock, clock
from privopt.interfaces import SolveContext
from privopt.numbers.distances import EARTH_RADIUS_KM
from privopt_lr_geo import server
from privopt_lr_geo.central import clients_of
from privopt_lr_geo.mechanism import LRGeo
from privopt_lr_geo.messages import Terms
from privopt_lr_geo.reference import Cells, Places, ReferenceTable, grid_of

__all__ = ["COLUMNS", "bounds_by_round", "match_rows", "matches"]

Floats = NDArray[np.float64]

COLUMNS: Final = ("rows", "coefficients", "as_printed", "as_printed_sd", "true_interval", "true_interval_sd", "reach")
"""Columns of Figure 13's table, see :func:`match_rows`."""
REGION: Final = 3.0
"""Side length in km of the square whose cells make the table: 900 cells of 0.1 km, as in section 4.7."""


def matches(beta: Floats, uploaded: Floats, reach_below: float, reach_above: float) -> NDArray[np.int64]:
    """Return the number of table rows whose value is in [c - reach_below, c + reach_above], for each coefficient c.

    >>> matches(np.array([1.0, 2.0, 4.0]), np.array([2.5]), 1.0, 0.0).tolist()
    [1]

    Args:
        beta: (R,) values of the table, ascending.
        uploaded: (U,) uploaded coefficients.
        reach_below, reach_above: How far the value may be below and above the coefficient.
    """
    last = np.searchsorted(beta, uploaded + reach_above, side="right")
    return np.asarray(last - np.searchsorted(beta, uploaded - reach_below, side="left"), dtype=np.int64)


def match_rows(workshop: Workshop, settings: Settings, side_km: float, matrices: int) -> dict[str, Any]:
    """Count the rows of the table from which uploaded coefficients may come, over the cells of a square in the map.

    The server knows that a shift is at most half a cell's diagonal. The paper searches that far on both sides of a
    coefficient. By Equation (27) the value is below the coefficient, by at most two shifts. Places from which
    the way to their cell is longer than the cell's side are left out, because the server's estimate ignores roads.

    Args:
        workshop: The map.
        settings: The radii.
        side_km: Side length of a cell in km.
        matrices: Number of uploaded cost matrices, each of one user's places inside the square.

    Returns:
        The values of :data:`COLUMNS`: numbers of rows and of coefficients, means and standard deviations over the
        matrices of the mean number of matching rows in the paper's interval and in that of Equation (27), and half a
        cell's diagonal in km.
    """
    problem = workshop.load(LRGeo(), settings)
    places = Places.from_problem(problem)
    corner, step = grid_of(places, side_km)
    last = np.rint((places.coordinates.max(axis=0) - corner) / step).astype(np.int64)
    # The numbers (row, column) of all cells of the grid.
    index = np.stack(np.meshgrid(*(np.arange(end + 1) for end in last), indexing="ij"), axis=-1).reshape(-1, 2)
    cells = Cells.around(places, corner + index * step)
    middle = np.median(places.coordinates, axis=0)
    centre = int(np.argmin(places.straight_km(cells.coordinates, np.broadcast_to(middle, cells.coordinates.shape))))
    offset = cells.coordinates - cells.coordinates[centre]
    if places.is_geographic:
        # Offsets in degrees become km; a degree of longitude is shorter by the cosine of the latitude.
        offset = np.radians(offset) * EARTH_RADIUS_KM * np.array([1.0, np.cos(np.radians(middle[0]))])
    # The factor leaves out cells at the edge, where rounding would decide.
    half = REGION / 2 * (1 - 1e-9)
    # Shifted by half a cell, so that the square has an even number of cells on each side.
    inside_cells = np.flatnonzero((np.abs(offset + side_km / 2) <= half).all(axis=1))
    extract = ReferenceTable(problem, places, cells).rows(inside_cells)
    user_records = np.flatnonzero(np.isin(cells.nearest, inside_cells) & (cells.shift <= side_km))
    beta, row = extract.beta.astype(np.float64), np.searchsorted(inside_cells, cells.nearest[user_records])
    uploaded = beta[np.ix_(row, row)] + cells.shift[user_records, None] + cells.shift[user_records]
    values = np.sort(beta, axis=None)
    reach, chance = side_km / np.sqrt(2.0), np.random.default_rng(0)
    distances = problem.data.metric.between(user_records[:, None], user_records[None, :])
    printed, true, count = [], [], 0
    for _ in range(matrices):
        user = int(chance.integers(len(user_records)))
        near_records = np.flatnonzero(distances[user] <= settings.obfuscation_radius)
        coefficients = uploaded[np.ix_(near_records, near_records)][~np.eye(len(near_records), dtype=bool)]
        if not len(coefficients):
            continue
        count += len(coefficients)
        printed.append(matches(values, coefficients, reach, reach).mean())
        true.append(matches(values, coefficients, 2 * reach, 0.0).mean())
    figures = (len(beta) ** 2, count, np.mean(printed), np.std(printed), np.mean(true), np.std(true), reach)
    return dict(zip(COLUMNS, (float(value) for value in figures), strict=True))


def bounds_by_round(workshop: Workshop, settings: Settings, seconds: float) -> list[dict[str, float]]:
    """Solve by Benders decomposition from the exponential form, and return the bounds of each round.

    Args:
        workshop: The map.
        settings: Users, radii and epsilon.
        seconds: Time limit on the clock.

    Returns:
        For each round its number, its seconds since the start, and the lower and upper bounds in km per report.
    """
    problem = workshop.load(LRGeo(), settings)
    data, options = problem.data, problem.declared.lr_geo
    clients = clients_of(problem, 0)
    weight = float(sum(data.prior[client.around.records].sum() for client in clients))
    terms = Terms(
        epsilon=float(data.epsilon),
        within=data.within,
        obfuscation_radius=options.obfuscation_radius,
        exponent=options.exponent,
    )
    context = SolveContext(method="benders", gap=1e-2, search_time=Clock(seconds, clock()))
    packages = [client.package for client in clients]
    solution = server.solve(packages, terms, context, start=star_start(packages, terms))
    return [
        {"round": number, "seconds": seconds_at, "lower": max(0.0, low) / weight, "upper": high / weight}
        for number, (seconds_at, low, high) in enumerate(solution.details["trajectory"])
    ]
