"""Body of a metric mechanism's report: a map to explore, losses, worst pairs, baselines, convergence."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from privopt.report import figures
from privopt.report.page import Section, figure_section, table_section

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from privopt.matrix import MatrixRelease
    from privopt.problem.data import MetricData

__all__ = ["metric_figures", "metric_sections"]

SHOWN: Final = 2_000
"""Records and outputs that the explorable map can hold; beyond it the figures alone are shown."""

STEPS: Final = 255
"""A probability is shown in steps: its share of the row's greatest, on a root scale, in one byte."""


def metric_figures(release: MatrixRelease, data: MetricData, result: Mapping[str, Any]) -> dict[str, Figure]:
    """The report's figures by file name."""
    made = {
        "loss-map": figures.loss_map(release, data),
        "privacy-spent": figures.spent_by_distance(release, data),
        "release-from-one-record": figures.spread_from(release, data, str(release.records[len(release.records) // 2])),
    }
    trajectory = result.get("details", {}).get("trajectory") or []
    if len(trajectory) > 1:
        made["convergence"] = figures.convergence(trajectory, data.loss_unit)
    return made


def metric_sections(release: MatrixRelease, data: MetricData, result: Mapping[str, Any]) -> list[Section]:
    """The body of the report."""
    made = metric_figures(release, data, result)
    sections = []
    if max(release.weights.shape) <= SHOWN:
        sections.append(_explorer(release, data))
    else:
        lead = f"One of {len(release.records):,} records; too many for a map to explore."
        sections.append(figure_section("Where a release falls", made["release-from-one-record"], lead))
    lead = "What each place's own people lose on average."
    sections.append(figure_section("Loss over the map", made["loss-map"], lead))
    lead = "Every point is a required pair; none lies above the line, which is what the certificate proves."
    sections.append(figure_section("Privacy spent", made["privacy-spent"], lead))
    sections.append(_worst_pairs(release, data))
    sections.append(_baselines(data, result))
    if "convergence" in made:
        sections.append(figure_section("Convergence", made["convergence"], "The truth lies between the two lines."))
    return sections


def _worst_pairs(release: MatrixRelease, data: MetricData) -> Section:
    """Pairs that an attacker can tell apart best, by total variation."""
    z = release.probabilities
    apart = np.flatnonzero(release.distances > 0)
    chosen = apart[:: max(1, apart.size // 20_000)]
    i, j = release.pairs[chosen].T
    variation = np.concatenate(
        [np.abs(z[i[s : s + 512]] - z[j[s : s + 512]]).sum(axis=1) / 2 for s in range(0, len(chosen), 512)]
        or [np.zeros(0)]
    )
    order = np.argsort(-variation / np.maximum(release.distances[chosen], 1e-300))[:10]
    rows = [
        (
            str(release.records[i[n]]),
            str(release.records[j[n]]),
            float(release.distances[chosen[n]]),
            float(variation[n]),
            float(math.tanh(float(data.epsilon) * release.distances[chosen[n]] / 2)),
        )
        for n in order.tolist()
    ]
    lead = (
        "Advantage: how much more often than by chance an attacker who must choose between the two is right. "
        "The last column is the most that the guarantee could allow at that distance."
    )
    header = ("record", "record", f"distance ({data.unit})", "advantage", "most allowed")
    return table_section("Pairs told apart best for their distance", header, rows, lead)


def _baselines(data: MetricData, result: Mapping[str, Any]) -> Section:
    """The loss beside mechanisms that need no solver."""
    rows: list[tuple[Any, ...]] = [("this release", result["objective"]["value"], "")]
    if result["objective"]["lower_bound"] is not None:
        rows.append(("proved bound", result["objective"]["lower_bound"], "no mechanism with this guarantee is below"))
    if data.crossed and data.cost.size <= 4_000_000:
        crossed = data.to_outputs
        scores = np.exp(-float(data.epsilon) / 2 * (crossed - crossed.min(axis=1, keepdims=True)))
        plain = float((data.weighted * scores / scores.sum(axis=1, keepdims=True)).sum())
        rows.append(("exponential mechanism", plain, "probabilities proportional to exp(-epsilon d / 2)"))
    best = float((data.prior @ data.cost).min())
    rows.append(("one output for everybody", best, "no information released at all"))
    return table_section("Beside the baselines", ("mechanism", f"loss ({data.loss_unit})", "remark"), rows)


def _explorer(release: MatrixRelease, data: MetricData) -> Section:
    """A map where choosing a record shows where its release falls."""
    places, x, y = figures.plane(data.records.coordinates, data.records.kind, len(data.records))
    if data.outputs is data.records:
        outputs = places
    else:
        first, second = data.records.coordinates, data.outputs.coordinates
        together = None if first is None or second is None else np.concatenate([first, second])
        count = len(data.records) + len(data.outputs)
        placed, x, y = figures.plane(together, data.records.kind, count)
        places, outputs = placed[: len(data.records)], placed[len(data.records) :]
    z = release.probabilities
    greatest = z.max(axis=1)
    shares = np.rint(np.sqrt(z / greatest[:, None]) * STEPS).astype(np.uint8)
    loss = np.einsum("ik,ik->i", z, data.cost)
    content = {
        "records": release.records.tolist(),
        "outputs": release.outputs.tolist(),
        "places": np.round(places, 6).tolist(),
        "outputPlaces": np.round(outputs, 6).tolist(),
        "greatest": [float(f"{value:.6g}") for value in greatest],
        "loss": [float(f"{value:.6g}") for value in loss],
        "unit": data.loss_unit,
        "shares": base64.b64encode(shares.tobytes()).decode(),
    }
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    options = "".join(
        f'<option value="{place}">{escape(str(name))}</option>' for place, name in enumerate(release.records.tolist())
    )
    script = files("privopt.report").joinpath("explorer.js").read_text("utf-8")
    html = (
        '<p class="noprint"><label for="record">Record </label><select id="record">'
        f"{options}</select></p>"
        '<figure><canvas id="map" width="900" height="640" role="img" style="max-width:100%" '
        'aria-label="Map of the outputs, shaded by the probability of being released from the chosen record" '
        'aria-describedby="told"></canvas>'
        f"<figcaption>{escape(x)}, {escape(y)}. Darker: more likely. The ring is the chosen record."
        "</figcaption></figure>"
        '<div id="told" aria-live="polite"></div>'
        f'<script type="application/json" id="data">{text}</script><script>{script}</script>'
    )
    lead = "Choose a record, by the list or by a click on the map, to see where its release falls."
    return Section(title="Where a release falls", html=html, lead=lead)
