"""The interactive map: choosing a record shows where its release falls."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any, Final

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt.interfaces.report_parts import Section
from privopt.report.page import script_json

__all__ = ["ExplorerData", "explorer"]


STEPS: Final = (255, 63, 15)
"""A probability is shown in so many steps: its share of the row's greatest, on a root scale, in one byte. Fewer steps
where the finer ones do not fit: rows of the exponential mechanism have no zeros, and compress badly."""

MOST_BYTES: Final = 3_000_000
"""Bytes of shares, compressed and written out, that a page may hold."""

MAX_EXCESS_FACTOR: Final = 3.0
"""Beyond so many times that no fewer steps fit: 15 took .5 of the bytes of 255 (exponential, 2,032 random points)."""

MOST_ENTRIES: Final = 40_000_000
"""Entries that a browser is asked to unpack."""


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
        streets: (E, 2) numbers of records that a street joins; None without streets.
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


def _packed(z: Floats) -> tuple[int, str] | None:
    """Return the shares in the finest steps that fit, and how many steps; None if none do."""
    if z.size > MOST_ENTRIES:
        return None
    roots = np.sqrt(z / z.max(axis=1, keepdims=True))
    for steps in STEPS:
        shares = np.asarray(np.rint(roots * steps), dtype=np.uint8)
        text = base64.b64encode(zlib.compress(shares.tobytes(), 6)).decode()
        if len(text) <= MOST_BYTES:
            return steps, text
        if len(text) > MAX_EXCESS_FACTOR * MOST_BYTES:
            return None
    return None


def _short(values: Floats, figures: int = 6) -> list[float]:
    return [float(f"{value:.{figures}g}") for value in values.ravel().tolist()]


def explorer(shown: ExplorerData, lead: str = "", title: str = "Where a release falls") -> Section | None:
    """Return the section, None of a matrix too large for the map; a page can hold one."""
    packed = _packed(shown.probabilities)
    if packed is None:
        return None
    content: dict[str, Any] = {
        "records": list(shown.rows),
        "outputs": list(shown.outputs),
        "places": _short(shown.places),
        "outputPlaces": _short(shown.output_places),
        "greatest": _short(shown.probabilities.max(axis=1)),
        "scale": shown.scale,
        "facts": {name: _short(values, 4) for name, values in shown.facts.items()},
        "unit": dict(shown.unit),
        "marked": None if shown.marked is None else [list(map(int, some)) for some in shown.marked],
        "streets": [] if shown.streets is None else shown.streets.ravel().tolist(),
        "steps": packed[0],
        "shares": packed[1],
    }
    text = script_json(content)
    middle = int(np.linalg.norm(shown.places - shown.places.mean(axis=0), axis=1).argmin())
    options = "".join(
        f'<option value="{place}"{" selected" if place == middle else ""}>{escape(name)}</option>'
        for place, name in enumerate(shown.rows)
    )
    script = files("privopt_metric_dp.report").joinpath("explorer.js").read_text("utf-8")
    rim = f" A rim marks {escape(shown.marking)}." if shown.marking else ""
    axes = f"{escape(shown.axes[0])} to the right, {escape(shown.axes[1])} upwards. " if shown.axes[0] else ""
    html = (
        '<p class="pick noprint"><label for="record">Record</label> '
        f'<select id="record" autocomplete="off">{options}</select> '
        '<button type="button" id="before">Previous</button> <button type="button" id="after">Next</button></p>'
        '<figure><canvas id="map" width="1000" height="600" role="img" '
        'aria-label="Map of the outputs, shaded by the probability of being released from the chosen record" '
        'aria-describedby="told"></canvas>'
        f"<figcaption>{axes}The fuller the colour, the likelier the output; the red ring is the chosen record.{rim}"
        "</figcaption></figure>"
        '<div id="told" class="told" aria-live="polite"></div>'
        "<noscript><p>The map needs scripts; the figures below do not.</p></noscript>"
        f'<script type="application/json" id="data">{text}</script><script>{script}</script>'
    )
    return Section(title=title, html=html, lead=lead)
