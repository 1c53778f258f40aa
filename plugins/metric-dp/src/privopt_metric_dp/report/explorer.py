"""The interactive map of a report, which shows the probabilities of the outputs of a record that the reader chooses.

The page has the matrix with one byte per entry, which ``explorer.js`` unpacks and draws.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints, slices
from privopt.interfaces import Result
from privopt.interfaces.reporting import Section
from privopt.numbers.graphs import edge_matrix
from privopt.report.templates import render
from privopt_metric_dp.matrix.privacy import MetricDP
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.space.road_metric import RoadMetric

__all__ = ["ExplorerData", "cell_around", "explorer_section", "hidden_among", "lines_between"]

BLOCK = 1 << 22
"""Number of path lengths that are in memory at a time."""

LENGTH_MARGIN = 1e-9
"""Relative margin by which path lengths and epsilon are increased, which exceeds the rounding errors of the sums."""


def cell_around(places: Floats) -> tuple[float, float] | None:
    """Return the width and height of the cells of a regular grid, or None if the places do not form a complete grid.

    Args:
        places: (N, 2) positions on the map, the centres of cells.
    """
    # Rounded, because projected coordinates of one column differ in the last bits.
    sides = [np.unique(axis) for axis in places.round(6).T]
    if min(map(len, sides)) < 2 or len(np.unique(places.round(6), axis=0)) != len(places):
        return None
    steps = [np.diff(axis_values) for axis_values in sides]
    is_even = all(np.allclose(step, step[0], rtol=1e-3) for step in steps)
    is_complete = len(sides[0]) * len(sides[1]) == len(places)
    return (float(steps[0][0]), float(steps[1][0])) if is_even and is_complete else None


def lines_between(data: MetricData) -> Ints | None:
    """Return the pairs of records that a street or a triangle's edge joins, shape (E, 2); None if there are none."""
    if data.region is not None:
        return data.region.edges
    return data.metric.road_pairs if isinstance(data.metric, RoadMetric) else None


def hidden_among(release: MatrixRelease, result: Result, odds: Sequence[int]) -> Ints | None:
    """Count, for each record, the other records against which no report changes the odds by more than given factors.

    A report changes the odds between the records of a certified pair by at most exp(epsilon d). If a path of length L
    joins two records, it changes their odds by at most exp(epsilon L).

    Args:
        release: The release, with its pairs and distances. For a region, the pairs are the region's edges.
        result: The result with the guarantee.
        odds: Factors by which odds may change, ascending.

    Returns:
        (N, len(odds)) numbers of records; None if the release does not guarantee metric DP.
    """
    guarantee = result.guarantee
    if guarantee.kind != MetricDP.kind or guarantee.epsilon is None or result.mark:
        return None
    from scipy.sparse.csgraph import dijkstra

    unit = float(guarantee.epsilon) * (1.0 + LENGTH_MARGIN)
    limits = [math.log(factor) / unit for factor in odds]
    # Longer pairs are on no path within the largest limit.
    is_near = release.distances <= limits[-1]
    count = len(release.records)
    graph = edge_matrix(count, release.pairs[is_near], release.distances[is_near], both=True)
    counts = np.zeros((count, len(limits)), dtype=np.int64)
    for rows in slices(count, count, BLOCK):
        # Lengths and epsilon are rounded up, so that no record is counted whose odds may change by more.
        lengths = dijkstra(graph, indices=np.arange(count)[rows], limit=limits[-1]) * (1.0 + LENGTH_MARGIN)
        # Less 1 for the record itself.
        counts[rows] = np.stack([(lengths <= limit).sum(axis=1) for limit in limits], axis=1) - 1
    return counts


STEPS: Final = (255, 63, 31, 15)
"""Numbers of steps to which probabilities may be rounded. A byte has a probability's share of the row's largest one, on
a square root scale. Fewer steps are used if the page would be too large: rows of the exponential mechanism have no
zeros and compress badly."""

WANTED_BYTES: Final = 1_000_000
"""Largest number of bytes of encoded shares, except with the fewest steps. Under this limit, a page of 2,032 street
nodes of Rome (exponential, 3 per km) has 63 steps and stays below 1.5 MB."""

MOST_BYTES: Final = 3_000_000
"""Largest number of bytes of encoded shares with the fewest steps; a matrix that needs more gets no map."""

MAX_EXCESS_FACTOR: Final = 3.0
"""If the encoded shares exceed this multiple of MOST_BYTES, fewer steps are not tried. For the 2,032 nodes of Rome, 15
steps took 0.36 of the bytes of 255 steps."""

MOST_ENTRIES: Final = 40_000_000
"""Largest number of entries that a browser must unpack."""

ODDS: Final = (2, 3, 5, 10, 20)
"""Odds to 1 that the reader can select. Places within the selected odds may be mistaken for each other."""

ODDS_AT_FIRST: Final = 3


@frozen(kw_only=True, eq=False)
class ExplorerData:
    """The content of the interactive map.

    Attributes:
        rows: (N,) ids of the records that can be chosen.
        outputs: (K,) ids of the outputs.
        probabilities: (N, K) matrix.
        places: (N, 2) positions of the records on the map.
        output_places: (K, 2) positions of the outputs on the map.
        axes: Names of the two axes.
        scale: Name of the axes' unit for a scale bar; "" for no bar.
        facts: Numbers by name, (N,) each, which are shown for the chosen record next to its likeliest outputs.
        unit: Unit of each fact, by name.
        marked: For each record, the numbers of the outputs that get a dark rim; None for no rims.
        marking: Meaning of a rim.
        streets: (E, 2) pairs of records that a street or a triangle's edge joins; None if there are none.
        streets_join_outputs: Whether ``streets`` has pairs of outputs instead, because only some records have rows.
        noun: Noun for a record.
        descriptions: (N,) name or position of each record; empty if ids suffice.
        output_descriptions: (K,) name or position of each output; empty if ids suffice.
        cell: Width and height of the cell around each output, in the axes' unit; None for dots.
        prior: (N,) prior of the records, to show which records could be mistaken for each other; None to omit this.
        hidden: (N, len(ODDS)) numbers of records from :func:`hidden_among`; None without a guarantee of metric DP.
    """

    rows: Sequence[str]
    outputs: Sequence[str]
    probabilities: Floats
    places: Floats
    output_places: Floats
    axes: tuple[str, str]
    scale: str = ""
    facts: Mapping[str, Floats]
    unit: Mapping[str, str]
    marked: Sequence[Sequence[int]] | None = None
    marking: str = ""
    streets: Ints | None = None
    streets_join_outputs: bool = False
    noun: str = "record"
    descriptions: Sequence[str] = ()
    output_descriptions: Sequence[str] = ()
    cell: tuple[float, float] | None = None
    prior: Floats | None = None
    hidden: Ints | None = None


def _order_by_nearest(places: Floats) -> Ints:
    """Return an order of the places, shape (N,), in which each place is followed by the nearest one not yet listed."""
    # A greedy tour: rows of places that are near each other are similar, which compresses well.
    order, is_left = np.zeros(len(places), dtype=np.int64), np.ones(len(places), dtype=np.bool_)
    for step in range(1, len(places)):
        is_left[order[step - 1]] = False
        squared_distances = ((places - places[order[step - 1]]) ** 2).sum(axis=1)
        order[step] = np.where(is_left, squared_distances, np.inf).argmin()
    return order


def _pack_shares(z: Floats, rows: Ints, columns: Ints) -> tuple[int, str] | None:
    """Encode the matrix with the largest number of steps for which it is small enough.

    Args:
        z: (N, K) probabilities.
        rows, columns: Orders (N,) and (K,) in which rows and columns are written.

    Returns:
        The number of steps, and the compressed shares in base 64; None if no number of steps fits.
    """
    if z.size > MOST_ENTRIES:
        return None
    # On a square root scale small probabilities remain visible in few steps.
    roots = np.sqrt(z / z.max(axis=1, keepdims=True))[rows][:, columns]
    for steps in STEPS:
        shares = np.asarray(np.rint(roots * steps), dtype=np.uint8)
        # Rows of neighbouring places are similar, so their differences (modulo 256) compress better than the rows.
        shares[1:] -= shares[:-1].copy()
        text = base64.b64encode(zlib.compress(shares.tobytes(), 6)).decode()
        if len(text) <= (MOST_BYTES if steps == STEPS[-1] else WANTED_BYTES):
            return steps, text
        if len(text) > MAX_EXCESS_FACTOR * MOST_BYTES:
            return None
    return None


def _round_figures(values: Floats, figures: int = 6) -> list[float]:
    """Return the numbers of an array as a flat list, rounded to significant figures so that the page is smaller."""
    return [float(f"{value:.{figures}g}") for value in values.ravel().tolist()]


def explorer_section(data: ExplorerData, lead: str = "", title: str = "Where a release falls") -> Section | None:
    """Return the section with the interactive map, or None if the matrix is too large.

    A page can have only one such section.

    Args:
        data: The content of the map.
        lead: Sentence below the title.
        title: Title of the section.
    """
    # The page gets both orders, and restores the matrix from them.
    rows, columns = _order_by_nearest(data.places), _order_by_nearest(data.output_places)
    packed = _pack_shares(data.probabilities, rows, columns)
    if packed is None:
        return None
    has_own_outputs = np.array_equal(data.places, data.output_places)
    # The names of these fields are those that `explorer.js` reads. "first" is the record that is shown at first,
    # the one nearest to the middle of the map.
    content: dict[str, Any] = {
        "records": list(data.rows),
        "outputs": list(data.outputs),
        "descriptions": list(data.descriptions),
        "outputDescriptions": [] if has_own_outputs else list(data.output_descriptions),
        "places": _round_figures(data.places),
        "outputPlaces": None if has_own_outputs else _round_figures(data.output_places),
        "first": int(np.linalg.norm(data.places - data.places.mean(axis=0), axis=1).argmin()),
        "greatest": _round_figures(data.probabilities.max(axis=1)),
        "scale": data.scale,
        "facts": {name: _round_figures(values, 3) for name, values in data.facts.items()},
        "unit": dict(data.unit),
        "marked": None if data.marked is None else [list(map(int, numbers)) for numbers in data.marked],
        "streets": [] if data.streets is None else data.streets.ravel().tolist(),
        "streetsJoinOutputs": data.streets_join_outputs,
        "cell": data.cell,
        "noun": data.noun,
        "prior": None if data.prior is None else _round_figures(data.prior),
        "odds": ODDS,
        "hidden": None if data.hidden is None else data.hidden.tolist(),
        "rowOrder": rows.tolist(),
        "columnOrder": None if has_own_outputs else columns.tolist(),
        "steps": packed[0],
        "shares": packed[1],
    }
    html = render(
        "privopt_metric_dp.report/explorer.html", data=data, content=content, odds=ODDS, odds_at_first=ODDS_AT_FIRST
    )
    return Section(title=title, html=html, lead=lead)
