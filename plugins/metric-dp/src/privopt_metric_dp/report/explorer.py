"""The interactive map in a report, showing the output probabilities of a record selected by the reader.

The page contains the matrix in compressed form, with one byte per entry. The script ``explorer.js`` unpacks and draws
it.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints, csr_array, slices
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
"""The maximum number of path lengths held in memory at a time."""

BLOCK_RECORDS = 500
"""The number of records whose shortest paths are computed together in a common part of the graph."""

CURVE_BITS = 16
"""The order of the Hilbert curve along which rows are sorted, i.e. the number of bits per coordinate."""

LENGTH_MARGIN = 1e-9
"""The relative amount by which path lengths and epsilon are increased. It exceeds the rounding errors in sums."""


def cell_around(places: Floats) -> tuple[float, float] | None:
    """Return the size of the cells in a regular grid, or None if the places do not form a complete grid.

    Args:
        places: Array of shape (N, 2) with x and y of the cell centres on the map.

    Returns:
        The width (along x) and the height (along y) of a cell, in the same units as ``places``. Also returns None for a
        single row or column, which does not determine both sizes.
    """
    # Coordinates are rounded to 1e-6 (a millimetre if they are in km), because projected coordinates in the same column
    # may differ in their last bits.
    sides = [np.unique(axis) for axis in places.round(6).T]
    if min(map(len, sides)) < 2 or len(np.unique(places.round(6), axis=0)) != len(places):
        return None
    steps = [np.diff(axis_values) for axis_values in sides]
    # The projected coordinates of a regular grid are only approximately evenly spaced, so steps may differ by 0.1 %.
    is_even = all(np.allclose(step, step[0], rtol=1e-3) for step in steps)
    is_complete = len(sides[0]) * len(sides[1]) == len(places)
    return (float(steps[0][0]), float(steps[1][0])) if is_even and is_complete else None


def lines_between(data: MetricData) -> Ints | None:
    """Return the pairs of records connected by a street or a side of a triangle, or None if there are neither.

    Returns:
        Array of shape (E, 2) with record indices.
    """
    if data.region is not None:
        return data.region.edges
    return data.metric.road_pairs if isinstance(data.metric, RoadMetric) else None


def hidden_among(release: MatrixRelease, result: Result, odds: Sequence[int]) -> Ints | None:
    """For each record and each limit on the odds, count the other records that a report hardly distinguishes from it.

    A report changes the odds between two records by a factor of at most exp(epsilon L), where L is the length of the
    shortest path between them along certified pairs. Another record is counted if this factor is within the limit.

    Args:
        release: The release, with its pairs and distances. If the guarantee covers a region, the pairs are the region's
            edges.
        result: The result, which contains the guarantee.
        odds: The limits on the factor by which odds change, in ascending order.

    Returns:
        Array of shape (N, len(odds)) with the counts, or None if the release does not guarantee metric DP.
    """
    guarantee = result.guarantee
    # `mark` is a label for a release that is not private, such as a seeded one, and None for a private release.
    if guarantee.kind != MetricDP.kind or guarantee.epsilon is None or result.mark:
        return None
    unit = float(guarantee.epsilon) * (1.0 + LENGTH_MARGIN)
    limits = np.array([math.log(factor) / unit for factor in odds])
    # Longer pairs cannot be part of a path within the largest limit.
    is_near = release.distances <= limits[-1]
    graph = edge_matrix(len(release.records), release.pairs[is_near], release.distances[is_near], both=True)
    return _count_near(graph, limits)


def _count_near(graph: csr_array, limits: Floats) -> Ints:
    """Count the other nodes within each of several distances from each node of a graph.

    Args:
        graph: A sparse matrix of shape (N, N) with the lengths of edges, in both directions.
        limits: The distances, in ascending order.

    Returns:
        Array of shape (N, len(limits)) with the counts.
    """
    from scipy.sparse.csgraph import dijkstra, reverse_cuthill_mckee

    counts = np.zeros((graph.shape[0], len(limits)), dtype=np.int64)
    # In this order, the nodes in a block are near each other, so few other nodes are within the largest limit of any of
    # them. The paths of the block need only the part of the graph between these nodes, so the work grows more slowly
    # than N squared.
    order = reverse_cuthill_mckee(graph, symmetric_mode=True)
    for start in range(0, len(order), BLOCK_RECORDS):
        block = order[start : start + BLOCK_RECORDS]
        reached = np.flatnonzero(np.isfinite(dijkstra(graph, indices=block, limit=limits[-1], min_only=True)))
        part, sources = graph[reached][:, reached], np.searchsorted(reached, block)
        for rows in slices(len(block), len(reached), BLOCK):
            # Lengths and epsilon are rounded up, so that no record is counted if the odds may change by more than the
            # limit.
            lengths = dijkstra(part, indices=sources[rows], limit=limits[-1]) * (1.0 + LENGTH_MARGIN)
            # 1 is subtracted for the record itself.
            counts[block[rows]] = np.stack([(lengths <= limit).sum(axis=1) for limit in limits], axis=1) - 1
    return counts


STEPS: Final = (255, 63, 31, 15)
"""The numbers of steps to try, in this order, when rounding probabilities.

Each byte contains the ratio of a probability to the largest one in its row, on a square-root scale. Fewer steps are
used if the page would otherwise be too large. This is the case for the exponential mechanism, whose rows contain no
zeros and compress badly.
"""

WANTED_BYTES: Final = 1_000_000
"""The largest size of the encoded matrix in bytes, unless the smallest number of steps is used.

With this limit, a page for 2,032 street nodes in Rome (exponential mechanism, 3 per km) uses 63 steps and stays below
1.5 MB."""

MOST_BYTES: Final = 3_000_000
"""The largest size of the encoded matrix in bytes with the smallest number of steps. Larger matrices have no map."""

MAX_EXCESS_FACTOR: Final = 3.0
"""The multiple of MOST_BYTES above which an encoded matrix is abandoned without trying fewer steps.

For 2,032 street nodes in Rome, 15 steps took up 0.36 times as many bytes as 255 steps."""

MOST_ENTRIES: Final = 40_000_000
"""The maximum number of matrix entries that a browser is asked to unpack."""

ODDS: Final = (2, 3, 5, 10, 20)
"""The odds (to 1) from which the reader can choose. Places within the chosen odds can be mistaken for each other."""

ODDS_AT_FIRST: Final = 3
"""The odds (to 1) that are selected initially."""


@frozen(kw_only=True, eq=False)
class ExplorerData:
    """The content of the interactive map.

    Attributes:
        rows: The ids of the N records that can be selected.
        outputs: The ids of the K outputs.
        probabilities: Array of shape (N, K) with the output probabilities.
        places: Array of shape (N, 2) with the positions of the records on the map.
        output_places: Array of shape (K, 2) with the positions of the outputs on the map.
        axes: The labels of the two axes.
        scale: The unit of the axes, for a scale bar. If it is empty, no bar is shown.
        facts: Arrays of shape (N,) with statistics about the records, keyed by name. The selected record's values are
            shown next to its most likely outputs.
        unit: The unit of each array in ``facts``, keyed by name.
        marked: The indices of the outputs to outline for each record. If None, no outputs are outlined.
        marking: The meaning of an outline.
        streets: Array of shape (E, 2) with the pairs of records connected by a street or by an edge of the
            triangulation, or None if there are none.
        streets_join_outputs: Whether ``streets`` contains pairs of outputs rather than records. This is the case if
            only some of the records can be selected.
        noun: The noun for a record, such as "place".
        descriptions: The name or position of each record. It is empty if ids suffice.
        output_descriptions: The name or position of each output. It is empty if ids suffice.
        cell: The width and height of the cell around each output, in the same units as the axes. If None, outputs are
            drawn as dots.
        prior: Array of shape (N,) with the prior of each record, used to show which records could be mistaken for each
            other. If None, this is not shown.
        hidden: A function that returns the counts from :func:`hidden_among` for the limits in :data:`ODDS`. It is only
            called if the map is small enough for the page.
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
    hidden: Callable[[], Ints | None] = lambda: None


def _order_along_curve(places: Floats) -> Ints:
    """Return the indices of places in the order of a Hilbert curve (Hilbert 1891), as an array of shape (N,).

    Consecutive places in this order are close together, so their rows are similar and compress well.
    """
    side = 1 << CURVE_BITS
    shifted = places - places.min(axis=0)
    # Both axes have the same scale, so that places that are near each other on the curve are so on the map, too.
    x, y = np.minimum(shifted / max(float(shifted.max()), 1e-300) * side, side - 1).astype(np.int64).T
    number = np.zeros(len(places), dtype=np.int64)
    # The loop goes from the largest quadrants to the smallest. The curve visits four quadrants in the order (0, 0), (0,
    # 1), (1, 1), (1, 0). It is mirrored at one diagonal in the first quadrant and at the other diagonal in the last.
    for bit in reversed(range(CURVE_BITS)):
        right, upper = x >> bit & 1, y >> bit & 1
        number += (3 * right ^ upper) << 2 * bit
        is_last = (upper == 0) & (right == 1)
        x, y = np.where(is_last, side - 1 - x, x), np.where(is_last, side - 1 - y, y)
        x, y = np.where(upper == 0, y, x), np.where(upper == 0, x, y)
    return np.argsort(number, kind="stable")


def _pack_shares(z: Floats, rows: Ints, columns: Ints) -> tuple[int, str] | None:
    """Quantise a matrix, compress it, and encode the result as a string.

    The number of quantisation steps is the largest one in ``STEPS`` for which the string is short enough.

    Args:
        z: Array of shape (N, K) with the probabilities.
        rows: Array of shape (N,) with the row indices in the order in which rows are written.
        columns: Array of shape (K,) with the column indices in the order in which columns are written.

    Returns:
        The number of steps and the compressed matrix as a base64 string. None if the string is too long for every
        number of steps, or if it is so long that fewer steps are not expected to help enough (``MAX_EXCESS_FACTOR``).
    """
    # On a square root scale, small probabilities are visible even with few steps.
    roots = np.sqrt(z / z.max(axis=1, keepdims=True))[rows][:, columns]
    for steps in STEPS:
        shares = np.asarray(np.rint(roots * steps), dtype=np.uint8)
        # Consecutive rows are similar, so their differences (modulo 256) compress better than the rows.
        shares[1:] -= shares[:-1].copy()
        text = base64.b64encode(zlib.compress(shares.tobytes(), 6)).decode()
        if len(text) <= (MOST_BYTES if steps == STEPS[-1] else WANTED_BYTES):
            return steps, text
        if len(text) > MAX_EXCESS_FACTOR * MOST_BYTES:
            return None
    return None


def _round_figures(values: Floats, figures: int = 6) -> list[float]:
    """Round the values of an array to ``figures`` significant digits to save space, and return them as a flat list."""
    return [float(f"{value:.{figures}g}") for value in values.ravel().tolist()]


def explorer_section(data: ExplorerData, lead: str = "", title: str = "Where a report falls") -> Section | None:
    """Return a section with the interactive map, or None if the matrix is too large.

    A page can contain only one section of this kind.

    Args:
        data: The content of the map.
        lead: The sentence below the title.
        title: The title of the section.
    """
    if data.probabilities.size > MOST_ENTRIES:
        return None
    # The page contains both orders and uses them to restore the matrix.
    rows, columns = _order_along_curve(data.places), _order_along_curve(data.output_places)
    packed = _pack_shares(data.probabilities, rows, columns)
    if packed is None:
        return None
    hidden = data.hidden()
    has_own_outputs = np.array_equal(data.places, data.output_places)
    # `explorer.js` reads the fields by these names. "first" is the record that is shown initially, which is the one
    # nearest to the middle of the map.
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
        "hidden": None if hidden is None else hidden.tolist(),
        "rowOrder": rows.tolist(),
        "columnOrder": None if has_own_outputs else columns.tolist(),
        "steps": packed[0],
        "shares": packed[1],
    }
    html = render(
        "privopt_metric_dp.report/explorer.html", data=data, content=content, odds=ODDS, odds_at_first=ODDS_AT_FIRST
    )
    return Section(title=title, html=html, lead=lead)
