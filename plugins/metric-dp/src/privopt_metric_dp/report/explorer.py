"""The interactive map: choosing a record shows where its release falls."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any, Final

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints, slices
from privopt.interfaces import Result
from privopt.interfaces.reporting import Section
from privopt.numbers.graphs import edge_matrix
from privopt.report.page import script_json
from privopt_metric_dp.matrix.privacy import MetricDP
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.space.road_metric import RoadMetric

__all__ = ["ExplorerData", "cell_around", "explorer_section", "hidden_among", "lines_between"]

BLOCK = 1 << 22
"""Path lengths that are held at once."""

LENGTH_MARGIN = 1e-9
"""By which path lengths and epsilon are taken larger: more than sums of doubles can be off by."""


def cell_around(places: Floats) -> tuple[float, float] | None:
    """Return width and height of the cells whose centres the places are; None where the places form no even grid.

    Args:
        places: (N, 2), where they are drawn.
    """
    sides = [np.unique(axis) for axis in places.round(6).T]
    if min(map(len, sides)) < 2 or len(np.unique(places.round(6), axis=0)) != len(places):
        return None
    steps = [np.diff(axis_values) for axis_values in sides]
    is_even = all(np.allclose(step, step[0], rtol=1e-3) for step in steps)
    is_complete = len(sides[0]) * len(sides[1]) == len(places)
    return (float(steps[0][0]), float(steps[1][0])) if is_even and is_complete else None


def lines_between(data: MetricData) -> Ints | None:
    """Return (E, 2) numbers of records that a street or a side of a triangle joins; None without streets or mesh."""
    if data.region is not None:
        return data.region.edges
    return data.metric.joined if isinstance(data.metric, RoadMetric) else None


def hidden_among(release: MatrixRelease, result: Result, odds: Sequence[int]) -> Ints | None:
    """Count (N, len(odds)) other records between which and each one no report changes the odds by more than a factor.

    The odds of two records change by at most exp(epsilon d) along each pair that the certificate checks, hence by
    exp(epsilon L) along a path of length L.

    Args:
        release: its pairs at their distances, a region's edges among them.
        result: what it claims.
        odds: the factors, in order.

    Returns:
        None without a promise of metric DP.
    """
    guarantee = result.guarantee
    if guarantee.kind != MetricDP.kind or guarantee.epsilon is None or result.mark:
        return None
    from scipy.sparse.csgraph import dijkstra

    unit = float(guarantee.epsilon) * (1.0 + LENGTH_MARGIN)
    limits = [math.log(factor) / unit for factor in odds]
    is_near = release.distances <= limits[-1]
    count = len(release.records)
    graph = edge_matrix(count, release.pairs[is_near], release.distances[is_near], both=True)
    counts = np.zeros((count, len(limits)), dtype=np.int64)
    for rows in slices(count, count, BLOCK):
        lengths = dijkstra(graph, indices=np.arange(count)[rows], limit=limits[-1]) * (1.0 + LENGTH_MARGIN)
        counts[rows] = np.stack([(lengths <= limit).sum(axis=1) for limit in limits], axis=1) - 1
    return counts


STEPS: Final = (255, 63, 31, 15)
"""A probability is shown in so many steps: its share of the row's greatest, on a root scale, in one byte. Fewer steps
where the finer ones do not fit: rows of the exponential mechanism have no zeros, and compress badly."""

WANTED_BYTES: Final = 1_000_000
"""Bytes of shares, compressed and written out, up to which finer steps are taken: a page of 2,032 street nodes of Rome
(exponential, 3 per km) keeps 63 steps and stays below 1.5 MB."""

MOST_BYTES: Final = 3_000_000
"""Bytes of shares in the fewest steps that a page may hold."""

MAX_EXCESS_FACTOR: Final = 3.0
"""Beyond so many times that no fewer steps fit: 15 took .36 of the bytes of 255 (exponential, those 2,032 nodes)."""

MOST_ENTRIES: Final = 40_000_000
"""Entries that a browser is asked to unpack."""

ODDS: Final = (2, 3, 5, 10, 20)
"""Odds to 1, of which the reader picks one: within them two places may be mistaken for each other."""

ODDS_AT_FIRST: Final = 3


@frozen(kw_only=True, eq=False)
class ExplorerData:
    """What the map shows.

    Attributes:
        rows: (N,) ids of the records that can be chosen.
        outputs: (K,) ids of the outputs.
        probabilities: (N, K).
        places: (N, 2) where the records are drawn.
        output_places: (K, 2) where the outputs are drawn.
        axes: what the two axes are, in words.
        scale: name of the axes' unit for a scale bar; empty for none.
        facts: what to say of each record next to its likeliest outputs: name -> (N,) numbers.
        unit: of the facts.
        marked: for each record the outputs that get a dark rim, by number; None for none.
        marking: what a rim means.
        streets: (E, 2) numbers of records that a street, or a side of a triangle, joins; None without them.
        noun: what a record is called.
        descriptions: (N,) name or position of each record; empty where the ids say all.
        output_descriptions: (K,) of each output.
        cell: width and height of a cell around each output, in the axes' unit; None for dots.
        prior: (N,) of the records, for who could be mistaken for whom; None where that is not shown.
        hidden: (N, len(ODDS)) how many other records the promise keeps within each of the odds; None without a promise.
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
    noun: str = "record"
    descriptions: Sequence[str] = ()
    output_descriptions: Sequence[str] = ()
    cell: tuple[float, float] | None = None
    prior: Floats | None = None
    hidden: Ints | None = None


def _order_by_nearest(places: Floats) -> Ints:
    """Return (N,) the places in an order in which each is followed by the nearest one that is left."""
    order, is_left = np.zeros(len(places), dtype=np.int64), np.ones(len(places), dtype=np.bool_)
    for step in range(1, len(places)):
        is_left[order[step - 1]] = False
        squared_distances = ((places - places[order[step - 1]]) ** 2).sum(axis=1)
        order[step] = np.where(is_left, squared_distances, np.inf).argmin()
    return order


def _pack_shares(z: Floats, rows: Ints, columns: Ints) -> tuple[int, str] | None:
    """Return the shares in the finest steps that fit, and how many steps; None if none do.

    Rows and columns are in the orders given, and each row is its difference from the one before, modulo 256: rows of
    places near each other are alike.
    """
    if z.size > MOST_ENTRIES:
        return None
    roots = np.sqrt(z / z.max(axis=1, keepdims=True))[rows][:, columns]
    for steps in STEPS:
        shares = np.asarray(np.rint(roots * steps), dtype=np.uint8)
        shares[1:] -= shares[:-1].copy()
        text = base64.b64encode(zlib.compress(shares.tobytes(), 6)).decode()
        if len(text) <= (MOST_BYTES if steps == STEPS[-1] else WANTED_BYTES):
            return steps, text
        if len(text) > MAX_EXCESS_FACTOR * MOST_BYTES:
            return None
    return None


def _round_figures(values: Floats, figures: int = 6) -> list[float]:
    return [float(f"{value:.{figures}g}") for value in values.ravel().tolist()]


def explorer_section(data: ExplorerData, lead: str = "", title: str = "Where a release falls") -> Section | None:
    """Return the section, None of a matrix too large for the map; a page can hold one."""
    rows, columns = _order_by_nearest(data.places), _order_by_nearest(data.output_places)
    packed = _pack_shares(data.probabilities, rows, columns)
    if packed is None:
        return None
    has_own_outputs = np.array_equal(data.places, data.output_places)
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
        "facts": {name: _round_figures(values, 4) for name, values in data.facts.items()},
        "unit": dict(data.unit),
        "marked": None if data.marked is None else [list(map(int, numbers)) for numbers in data.marked],
        "streets": [] if data.streets is None else data.streets.ravel().tolist(),
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
    script = files("privopt_metric_dp.report").joinpath("explorer.js").read_text("utf-8")
    rim = f" A rim marks {escape(data.marking)}." if data.marking else ""
    axes = f"{escape(data.axes[0])} to the right, {escape(data.axes[1])} upwards. " if data.axes[0] else ""
    html = (
        f"{_controls_html(data)}"
        '<figure><canvas id="map" tabindex="0" role="application" aria-roledescription="map" '
        'aria-label="Map of the outputs, shaded by the probability of being released from the chosen record" '
        'aria-describedby="told keys"></canvas>'
        '<p class="legend"><span id="least"></span><i></i><span id="most"></span> '
        f'<span id="legend"></span></p><figcaption>{axes}The red ring is the chosen {escape(data.noun)}.{rim} '
        '<span id="keys" class="noprint">On the map: + and - zoom, arrows move, Esc shows all; so do two fingers, and '
        "the wheel after a click.</span></figcaption></figure>"
        '<div id="told" class="told" aria-live="polite"></div>'
        "<noscript><p>The map needs scripts; the figures below do not.</p></noscript>"
        f'<script type="application/json" id="data">{script_json(content)}</script><script>{script}</script>'
    )
    return Section(title=title, html=html, lead=lead)


def _controls_html(data: ExplorerData) -> str:
    """Return what chooses the record, what the map shows and which part of it."""
    noun, no_autocomplete = escape(data.noun), 'autocomplete="off"'
    layers = ""
    if data.prior is not None:
        odds = "".join(f"<option{' selected' * (value == ODDS_AT_FIRST)} value={value}>{value} to 1" for value in ODDS)
        layers = (
            f'<label>Show <select id="layer" {no_autocomplete}><option value="falls">where its report falls'
            f'<option value="mistaken">who could be mistaken for it</select></label> <label>within odds of '
            f'<select id="odds" {no_autocomplete}>{odds}</select></label> '
        )
    return (
        f'<p class="pick noprint"><label>Find <input type="search" id="find" {no_autocomplete} spellcheck="false" '
        f'aria-describedby="found" placeholder="id, name or position"></label> '
        f'<label>{noun.capitalize()} <select id="record" {no_autocomplete}></select></label> '
        '<span><button type="button" id="before">Previous</button> '
        '<button type="button" id="after">Next</button></span> '
        f'<span id="found" class="soft" role="status"></span></p><p class="pick noprint">{layers}'
        '<span><button type="button" id="nearer" aria-label="Zoom in">+</button> '
        '<button type="button" id="farther" aria-label="Zoom out">\u2212</button> '
        '<button type="button" id="whole">Whole map</button></span></p>'
    )
