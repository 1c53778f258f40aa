"""What the experiments measure beside trials: bounds by round (Figure 6), and matched rows of the table (Figure 13)."""

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
REGION: Final = 3.0
"""Side of the square, in km, whose cells make the table: 900 of them at 0.1 km, as in section 4.7."""


def matches(beta: Floats, uploaded: Floats, reach_below: float, reach_above: float) -> NDArray[np.int64]:
    """For each uploaded coefficient the number of table rows with a value in [c - below, c + above].

    >>> matches(np.array([1.0, 2.0, 4.0]), np.array([2.5]), 1.0, 0.0).tolist()
    [1]

    Args:
        beta: (R,) the table's values, ascending.
        uploaded: (U,) coefficients.
        below, above: how far the value may lie from the coefficient.
    """
    last = np.searchsorted(beta, uploaded + reach_above, side="right")
    return np.asarray(last - np.searchsorted(beta, uploaded - reach_below, side="left"), dtype=np.int64)


def match_rows(workshop: Workshop, settings: Settings, side_km: float, matrices: int) -> dict[str, Any]:
    """Rows of the table, over every cell of a square amid the map, that uploaded coefficients may come from.

    The server knows that a shift is at most half a cell's diagonal. The paper looks that far to both sides of a
    coefficient; by Equation (27) the value lies below it, by at most two shifts. Coefficients of places that a road
    leads away from their cell are left out, as the server's reckoning forgets them.

    Args:
        workshop: the map.
        settings: radii.
        side: of a cell, km.
        matrices: cost matrices uploaded, each of one user's places inside the square.
    """
    problem = workshop.load(LRGeo(), settings)
    places = Places.from_problem(problem)
    corner, step = grid_of(places, side_km)
    last = np.rint((places.coordinates.max(axis=0) - corner) / step).astype(np.int64)
    index = np.stack(np.meshgrid(*(np.arange(end + 1) for end in last), indexing="ij"), axis=-1).reshape(-1, 2)
    cells = Cells.around(places, corner + index * step)
    middle = np.median(places.coordinates, axis=0)
    centre = int(np.argmin(places.straight_km(cells.coordinates, np.broadcast_to(middle, cells.coordinates.shape))))
    offset = cells.coordinates - cells.coordinates[centre]
    if places.is_geographic:
        offset = np.radians(offset) * EARTH_RADIUS_KM * np.array([1.0, np.cos(np.radians(middle[0]))])
    half = REGION / 2 * (1 - 1e-9)
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
    """Round, seconds, lower and upper bound (km a report) of Benders from the exponential form alone.

    Args:
        workshop: the map.
        settings: users, radii, epsilon.
        seconds: limit on the clock.
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
