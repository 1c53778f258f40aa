"""A small map of a release for notebooks: static SVG, drawn without a drawing library."""

from __future__ import annotations

import math
from html import escape
from typing import Any, Final

import numpy as np

from privopt.arrays import Floats
from privopt.run.verify import Opened
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricInstance

__all__ = ["small_map"]

SIDE: Final = 220.0
"""Longer side in pixels."""

DOTS: Final = 500
"""Records and outputs that are drawn, at most: the likeliest outputs, records evenly among all."""


def small_map(opened: Opened) -> str:
    """Where records lie (small dots) and where reports come (discs, their area how often); empty without a map."""
    release, problem = opened.release, opened.problem
    if not isinstance(release, MatrixRelease) or not isinstance(problem, MetricInstance):
        return ""
    records, outputs = problem.data.records, problem.data.outputs
    if records.on_map is None or outputs.on_map is None:
        return ""
    here, there = _flat(records.on_map, records.kind), _flat(outputs.on_map, records.kind)
    low = np.minimum(here.min(axis=0), there.min(axis=0))
    spread = np.maximum(here.max(axis=0), there.max(axis=0)) - low
    scale = SIDE / max(float(spread.max()), 1e-12)
    width, height = (float(side) * scale + 20.0 for side in spread)
    often = _often(release, problem)
    few = np.unique(np.linspace(0, len(here) - 1, min(len(here), DOTS)).astype(np.int64))
    likely = np.argsort(-often, kind="stable")[:DOTS]
    greatest = 2.0 + min(8.0, SIDE / math.sqrt(len(there)) / 2.0)
    parts = [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1.2" fill="currentColor" opacity="0.45"/>'
        for x, y in _pixels(here[few], low, scale, height).tolist()
    ]
    radii = greatest * np.sqrt(often[likely] / max(float(often.max()), 1e-300))
    parts += [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}" fill="#0b5cad" fill-opacity="0.4"/>'
        for (x, y), r in zip(_pixels(there[likely], low, scale, height).tolist(), radii.tolist(), strict=True)
        if r >= 0.3
    ]
    said = escape(f"{len(here):,} records (dots) and where reports come (discs: how often, under the prior)")
    return (
        f'<svg role="img" aria-label="{said}" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.1f} {height:.1f}"><title>{said}</title>{"".join(parts)}</svg>'
    )


def _often(release: MatrixRelease, problem: MetricInstance[Any]) -> Floats:
    """(K,) how often each output is released, under the prior of those who have a row."""
    prior = problem.data.prior[problem.data.records.numbers(release.records.tolist())]
    often: Floats = (prior / prior.sum()) @ release.probabilities
    return often


def _flat(coordinates: Floats, kind: str) -> Floats:
    """(N, 2) east and north, alike in scale; longitudes run on across 180 degrees where that is shorter."""
    if kind == "planar":
        return coordinates
    lat, lon = coordinates.T
    turned = np.where(lon < 0, lon + 360.0, lon)
    lon = turned if np.ptp(turned) < np.ptp(lon) else lon
    return np.column_stack([lon * math.cos(math.radians(float(lat.mean()))), lat])


def _pixels(places: Floats, low: Floats, scale: float, height: float) -> Floats:
    moved = (places - low) * scale + 10.0
    return np.column_stack([moved[:, 0], height - moved[:, 1]])
