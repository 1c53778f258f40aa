"""The report's body: locations, assignments, capacities against demand, cost over delta; for the owner the truth."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from privopt.arrays import Floats
from privopt.interfaces import Result
from privopt.interfaces.report_parts import Feature, Layer
from privopt.interfaces.reporting import Reporting
from privopt.report import (
    Section,
    drawing,
    figure_section,
    table,
    table_section,
    themed,
)
from privopt.report.charts import draw_losses
from privopt.report.theme import BAD, INK, LINE, MARK, MAX_VECTOR_MARKS, PALE, SOFT, WARM, axes_of
from privopt_fl_linear.problem import FLInstance
from privopt_fl_linear.reconnection import list_radii
from privopt_fl_linear.release import FLRelease
from privopt_fl_linear.site import cost_parts, sum_counts

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:
    Figure = Any

__all__ = ["FLReporting", "capacity_figure", "cost_over_delta", "plan_map"]

MAX_BARS: Final = 40
"""Facilities that the capacities' figure shows, the largest."""
MAX_ROWS: Final = 200
MAX_RECOMPUTED: Final = 10_000
"""Locations up to which the cost is computed again over all radii."""


@themed
def plan_map(release: FLRelease, problem: FLInstance) -> Figure:
    """Draw locations by what they reported, facilities by their capacity, and who is served by whom.

    Raises:
        ValueError: locations without coordinates.
    """
    if problem.data.coordinates is None:
        raise ValueError("locations without coordinates")
    names, places = problem.data.coordinates
    geographic = names != ("x", "y")
    places = places[:, ::-1] if geographic else places
    figure, axes = axes_of(7.6, 5.2)
    facility, opened = release.assignment.facility, release.assignment.opened
    if len(places) <= MAX_VECTOR_MARKS:
        from matplotlib.collections import LineCollection

        lines = [(places[v], places[h]) for v, h in enumerate(facility.tolist()) if h != v]
        axes.add_collection(LineCollection(lines, colors=SOFT, linewidths=0.9))
    x, y = places.T
    counts = release.counts
    sizes = np.full(len(places), 30.0)
    if counts is not None:
        sizes = 12 + 90 * np.clip(counts, 0, None) / max(1e-300, float(np.max(np.clip(counts, 0, None))))
    many = len(places) > MAX_VECTOR_MARKS
    axes.scatter(x, y, s=sizes, color=PALE, edgecolors=SOFT, linewidths=0.8, zorder=2, rasterized=many)
    large = 25 + 240 * release.capacities / max(1e-300, float(release.capacities.max()))
    axes.scatter(x[opened], y[opened], s=large, marker="s", color=MARK, alpha=0.85, zorder=3, rasterized=many)
    axes.scatter([], [], s=45, color=PALE, edgecolors=SOFT, linewidths=0.8, label="location")
    axes.scatter([], [], s=45, marker="s", color=MARK, alpha=0.85, label="facility")
    parallel = max(0.01, math.cos(math.radians(float(y.mean()))))  # a degree of longitude in degrees of latitude
    axes.set_aspect(1.0 / parallel if geographic else "equal")
    axes.margins(0.08)
    axes.set_xlabel("longitude (degrees)" if geographic else "x")
    axes.set_ylabel("latitude (degrees)" if geographic else "y")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


@themed
def capacity_figure(release: FLRelease, problem: FLInstance, demand: Floats | None = None) -> Figure:
    """Draw the capacity of each facility against its locations' reports, or the true ``demand``."""
    order = np.argsort(-release.capacities, kind="stable")[:MAX_BARS]
    names = problem.data.ids[release.assignment.opened][order].tolist()
    figure, axes = axes_of(7.6, 1.0 + 0.2 * len(order))
    rows = np.arange(len(order))
    axes.barh(rows, release.capacities[order], color=PALE, edgecolor=SOFT, linewidth=0.6, label="capacity")
    if demand is not None:
        axes.barh(rows, demand[order], height=0.45, color=WARM, label="true clients")
    elif release.counts is not None:
        noisy = sum_counts(release.assignment, release.counts)
        axes.barh(rows, np.maximum(noisy[order], 0.0), height=0.45, color=MARK, label="reported clients (noisy)")
    axes.set_yticks(rows, names, fontsize="small")
    axes.invert_yaxis()
    axes.set_xlabel("clients")
    figure.legend(loc="outside upper right", ncols=2)
    return figure


def costs_by_radius(problem: FLInstance, noisy: Floats) -> list[tuple[float, float, float]]:
    """Return (radius, capacity cost, connection cost) at the noisy counts, over the grid of radii."""
    site, server = problem.data.site, problem.server("reconnection")
    rows = []
    for choice in list_radii(site, site.connect(), server.rule, server.alpha):
        costs = server.prior_plan(noisy, choice.assignment, choice.delta, server.alpha).costs(site, noisy)
        rows.append((choice.delta, costs["capacity"], costs["connection"]))
    return rows


@themed
def cost_over_delta(rows: Sequence[tuple[float, float, float]], delta: float | None) -> Figure:
    """Draw costs by radius (:func:`costs_by_radius`); ``delta``, where known, is marked."""
    radii, capacity, connection = np.array(rows).T
    figure, axes = axes_of(7.6, 3.8)
    axes.plot(radii, capacity + connection, color=INK, marker="o", markersize=3, label="total")
    axes.plot(radii, capacity, color=MARK, marker="o", markersize=3, label="capacity, margins included")
    axes.plot(radii, connection, color=WARM, marker="o", markersize=3, label="connection")
    if delta is not None:
        axes.axvline(delta, color=BAD, linestyle="--", linewidth=1.3, label=f"delta used: {delta:.4g}")
    least = radii[radii > 0].min() if (radii > 0).any() else 1.0
    axes.set_xscale("symlog", linthresh=least)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("reconnection radius delta (0: no one is reconnected)")
    axes.set_ylabel("cost at the noisy counts")
    axes.grid(axis="y", color=LINE, linewidth=0.6)
    figure.legend(loc="outside upper right", ncols=4)
    return figure


def _baselines(problem: FLInstance, release: FLRelease, result: Result) -> list[tuple[str, float]]:
    """Return the cost of this release and of other plans at the same noisy counts."""
    site, noisy = problem.data.site, release.counts
    rows = [(f"this release ({result.method})", float(result.objective.value))]
    if noisy is None:
        return rows
    base = release.assignment
    if problem.nearest:
        base, server = site.connect(), problem.server("laplace")
        alone = server.prior_plan(noisy, base, 0.0, server.alpha)
        rows.append(("without reconnection", alone.costs(site, noisy)["total"]))
    plans = (result.details.told.get("plans") or {}).get("cost") or {}
    if len(plans) > 1:
        rows += [(f"facilities chosen by the {name}", float(cost)) for name, cost in plans.items()]
    bare = np.maximum(sum_counts(base, noisy), 0.0)
    rows.append(("without margins (not safe)", cost_parts(site, base, bare, noisy)["total"]))
    return rows


def _delta(result: Result) -> float | None:
    found = result.details.facts.get("delta")
    return float(found) if isinstance(found, (int, float)) else None


def _facility_table(problem: FLInstance, release: FLRelease, noisy: Floats | None) -> Section:
    opened, sizes = release.assignment.opened, release.assignment.sizes
    order = np.argsort(-release.capacities, kind="stable")[:MAX_ROWS].tolist()
    header = ["facility", "locations", "capacity", "cost of one client"]
    rows: list[list[Any]] = [
        [
            problem.data.label(int(opened[s])),
            int(sizes[s]),
            float(release.capacities[s]),
            float(problem.data.site.cost[opened[s]]),
        ]
        for s in order
    ]
    bound = problem.data.site.capacity
    if bound is not None:
        header.append("bound of capacity")
        for row, s in zip(rows, order, strict=True):
            row.append(float(bound[opened[s]]) if math.isfinite(bound[opened[s]]) else "none")
    if noisy is not None:
        header[2:2] = ["reported", "margin"]
        for row, s in zip(rows, order, strict=True):
            row[2:2] = [float(noisy[s]), float(release.capacities[s] - noisy[s])]
    lead = f"The {MAX_ROWS} largest of {len(opened)}." if len(opened) > MAX_ROWS else ""
    return table_section("Facilities", header, rows, lead)


class FLReporting(Reporting[FLInstance, FLRelease]):
    """Map, capacities against demand, costs; for the owner the true clients and costs."""

    def figures(self, problem: FLInstance, release: FLRelease, result: Result) -> dict[str, Figure]:
        """Return the report's figures by file name."""
        made = {}
        if problem.data.coordinates is not None:
            made["map"] = plan_map(release, problem)
        made["capacities"] = capacity_figure(release, problem)
        site = problem.data.site
        if release.counts is not None:
            made["cost-beside"] = themed(draw_losses)(
                _baselines(problem, release, result), "cost at the noisy counts", None
            )
            if problem.nearest and site.size <= MAX_RECOMPUTED:
                made["cost-over-delta"] = cost_over_delta(costs_by_radius(problem, release.counts), _delta(result))
        return made

    def report(self, problem: FLInstance, release: FLRelease, result: Result) -> list[Section]:
        """Map, capacities, costs: from public data and the noisy counts alone."""
        drawn = self.figures(problem, release, result)
        site, opened = problem.data.site, release.assignment.opened
        made = []
        if "map" in drawn:
            lead = (
                f"{site.size} locations are served by {len(opened)} facilities. Circles grow with the clients "
                "reported, squares with the capacity; a line joins a location to the facility that serves it."
            )
            made.append(figure_section("Who is served where", drawn["map"], lead))
        noisy = None if release.counts is None else sum_counts(release.assignment, release.counts)
        alpha = problem.declared.privacy.failure_probability
        lead = (
            "Capacities by facility."
            if noisy is None
            else (
                "Capacity is what the locations reported, noise included, and a margin against noise that hid clients: "
                f"with probability {1 - alpha:g} no facility has fewer places than clients."
            )
        )
        if result.details.facts.get("chosen_by_noise"):
            lead += (
                " The noisy counts chose the facilities and who is served where; the margins hold for any choice that "
                "they could have made."
            )
        if site.capacity is not None and noisy is not None:
            lead += (
                " The probability is that of one collection of counts: each further one, where a plan of the first did "
                "not fit say, fails as often again."
            )
        if len(opened) > MAX_BARS:
            lead += f" The {MAX_BARS} largest of {len(opened)} are drawn."
        made.append(figure_section("Capacities against demand", drawn["capacities"], lead))
        made.append(_facility_table(problem, release, noisy))
        if "cost-beside" in drawn:
            lead = "Capacity cost plus connection cost, all at the noisy counts; shorter is better."
            made.append(figure_section("Cost next to the alternatives", drawn["cost-beside"], lead))
        if "cost-over-delta" in drawn:
            lead = (
                "Fewer facilities share one margin among more locations, but send clients farther: delta is how far a "
                "location may be reconnected."
            )
            made.append(figure_section("Cost over delta", drawn["cost-over-delta"], lead))
        return made

    def geo(self, problem: FLInstance, release: FLRelease, result: Result) -> Layer | None:
        """Return locations as points, connections as lines; None without coordinates."""
        known, site = problem.data.coordinates, problem.data.site
        if known is None:
            return None
        names, values = known
        places = [(float(x), float(y)) for x, y in (values if names == ("x", "y") else values[:, ::-1]).tolist()]
        facility, opened = release.assignment.facility.tolist(), release.assignment.opened.tolist()
        capacity = dict(zip(opened, release.capacities.tolist(), strict=True))
        away = site.metric.between(np.arange(site.size), release.assignment.facility)
        ids = [str(name) for name in problem.data.ids]

        def facts(place: int, kind: str) -> dict[str, Any]:
            point = kind != "connection"
            return {
                "id": ids[place],
                "kind": kind,
                "facility": ids[facility[place]],
                "distance": float(away[place]),
                "reported_clients": float(release.counts[place]) if point and release.counts is not None else None,
                "capacity": capacity.get(place) if point else None,
                "facility_cost": float(site.cost[place]) if point else None,
            }

        features = [
            Feature(path=(place,), properties=facts(v, "facility" if v in capacity else "location"))
            for v, place in enumerate(places)
        ]
        features += [
            Feature(path=(places[v], places[h]), properties=facts(v, "connection"))
            for v, h in enumerate(facility)
            if h != v
        ]
        planar = names == ("x", "y")
        return Layer(
            kind="planar" if planar else "geographic", features=features, unit="unit of x and y" if planar else ""
        )

    def report_truth(self, problem: FLInstance, release: FLRelease, result: Result, private: Path) -> list[Section]:
        """Return true clients against what was built; nothing where ``private`` has no true counts."""
        import polars as pl

        path = private / "problem" / problem.declared.locations.points.name
        if not path.is_file():
            return []
        source = pl.read_csv(path, schema_overrides={"id": pl.String}, glob=False)
        if "clients" not in source.columns:
            return []
        by_id = dict(zip(source["id"].str.strip_chars().to_list(), source["clients"].to_list(), strict=True))
        clients = np.array([float(by_id[str(name)]) for name in problem.data.ids])
        demand = sum_counts(release.assignment, clients)
        over = np.flatnonzero(demand > release.capacities)
        said = "No facility overflows." if not over.size else f"{over.size} of {len(demand)} facilities overflow."
        drawn = drawing("True clients against capacity", capacity_figure(release, problem, demand))
        made = [Section(title="The truth: clients and capacities", lead=said, html=drawn)]
        file = private / "truth.json"
        truth = json.loads(file.read_text("utf-8")) if file.is_file() else {}
        rows: list[tuple[str, Any]] = [("clients", truth.get("clients"))]
        rows += [(f"true cost: {name}", value) for name, value in (truth.get("cost") or {}).items()]
        rows += [
            ("optimum without privacy", truth.get("optimum")),
            ("true cost / optimum", truth.get("normalised_cost")),
        ]
        known = [row for row in rows if row[1] is not None]
        made.append(Section(title="The truth: costs", html=table("True costs", ("what", "value"), known)))
        return made
