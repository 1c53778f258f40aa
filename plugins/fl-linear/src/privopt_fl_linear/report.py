"""Report of FL-Linear: a map, capacities and demand, costs by reconnection radius and, for the owner, true costs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from privopt.arrays import Figure, Floats
from privopt.declare.notebook import format_digits
from privopt.errors import number_of
from privopt.interfaces import Result
from privopt.interfaces.notions import LocalDP
from privopt.interfaces.reporting import Feature, Layer, Reporting
from privopt.report import Section, figure_section, table_section, use_theme
from privopt.report.charts import draw_losses, fit_height, orient_map, rows_of, set_up_map, short_name
from privopt.report.theme import BAD, INK, LINE, MARK, MAX_VECTOR_MARKS, PALE, SOFT, add_legend, axes_of, make_narrow
from privopt_fl_linear.problem import FLInstance
from privopt_fl_linear.reconnection import list_radii
from privopt_fl_linear.release import FLRelease
from privopt_fl_linear.site import cost_parts, sum_counts

__all__ = ["FLReporting", "plan_map"]

MAX_BARS: Final = 40
"""Maximum number of facilities in the figure of capacities. If there are more, it shows the largest ones."""
MAX_RADIUS_SHARE: Final = 10.0
"""The figure of costs draws a line at the radius that was used if it is at most this multiple of the largest radius of
the grid. Otherwise only its legend states the radius."""
MAX_NAMED: Final = 12
"""Maximum number of facilities for which the map shows names."""
MAX_RECOMPUTED: Final = 10_000
"""Maximum number of locations for which costs are computed at every radius of the grid."""


@use_theme
def plan_map(release: FLRelease, problem: FLInstance, *, is_named: bool = True) -> Figure:
    """Draw a map of the locations (sized by their counts), facilities (sized by their capacities) and connections.

    Args:
        release: The plan, and the counts from which it was made.
        problem: The problem. Its locations must have coordinates.
        is_named: Whether the map shows the facilities' names if there are at most `MAX_NAMED`.
    """
    assert problem.data.coordinates is not None  # a matrix has no map, and the caller checks for it
    names, coordinates = problem.data.coordinates
    places, labels, latitude = orient_map(coordinates, "unit of the table" if names == ("x", "y") else "")
    figure, axes = axes_of(7.6)
    facility, opened = release.assignment.facility, release.assignment.opened
    # From each location v to its facility, which is at location h.
    lines = [(places[v], places[h]) for v, h in enumerate(facility.tolist()) if h != v]
    # With more locations the lines would cover one another, so none are drawn.
    set_up_map(axes, labels, lines if len(places) <= MAX_VECTOR_MARKS else (), latitude=latitude)
    x, y = places.T
    # Dots at the edge of the map are not clipped, and very many dots are rasterized.
    style: dict[str, Any] = {"rasterized": len(places) > MAX_VECTOR_MARKS, "clip_on": False}
    reported = np.zeros(len(places)) if release.counts is None else np.maximum(release.counts, 0)
    # Areas in square points grow with the counts. 1e-300 avoids a division by zero if all are 0.
    sizes = 12 + 90 * reported / max(1e-300, float(reported.max()))
    axes.scatter(x, y, s=sizes, color=PALE, edgecolors=SOFT, linewidths=0.8, zorder=2, **style)
    facility_sizes = 25 + 240 * release.capacities / max(1e-300, float(release.capacities.max()))
    axes.scatter(x[opened], y[opened], s=facility_sizes, marker="s", color=MARK, alpha=0.85, zorder=3, **style)
    if is_named and len(opened) <= MAX_NAMED:
        for name, place in zip(problem.data.ids[opened].tolist(), places[opened].tolist(), strict=True):
            axes.annotate(
                short_name(name), place, xytext=(0, 10), textcoords="offset points", ha="center", color=INK, zorder=4
            )
    # Empty scatter plots give the legend markers of a fixed size.
    axes.scatter([], [], s=45, color=PALE, edgecolors=SOFT, linewidths=0.8, label="location")
    axes.scatter([], [], s=45, marker="s", color=MARK, alpha=0.85, label="facility")
    fit_height(figure, axes)
    add_legend(figure)
    return figure


@use_theme
def capacity_figure(release: FLRelease, problem: FLInstance) -> Figure:
    """Draw a bar chart of the facilities' capacities, with the sums of their noisy counts as thinner bars inside.

    Only the `MAX_BARS` largest facilities are shown.
    """
    order = np.argsort(-release.capacities, kind="stable")[:MAX_BARS]
    names = problem.data.ids[release.assignment.opened][order].tolist()
    figure, axes, rows = rows_of(names, "clients", row=0.24)
    axes.barh(rows, release.capacities[order], color=PALE, edgecolor=SOFT, linewidth=0.6, label="capacity")
    if release.counts is not None:
        noisy = sum_counts(release.assignment, release.counts)
        axes.barh(rows, np.maximum(noisy[order], 0.0), height=0.45, color=MARK, label="reported clients (noisy)")
    add_legend(figure)
    return figure


@use_theme
def cost_over_delta(problem: FLInstance, noisy: Floats, delta: float | None) -> Figure:
    """Plot the costs at the noisy counts against the reconnection radius, and mark the radius that was used.

    Args:
        problem: The problem. Its settings determine the plan at each radius of the public grid.
        noisy: (n,) The noisy counts.
        delta: The radius that was used, in the unit of the metric. None if no radius was chosen.
    """
    site, server = problem.data.site, problem.make_server("reconnection")
    # A plan for each radius, as the server would make it at these counts.
    choices = list_radii(site, site.connect(), server.rule, server.alpha)
    plans = [server.prior_plan(noisy, choice.assignment, choice.delta, server.alpha) for choice in choices]
    costs, radii = [plan.costs(site, noisy) for plan in plans], np.array([choice.delta for choice in choices])
    capacity, connection = (np.array([plan_costs[name] for plan_costs in costs]) for name in ("capacity", "connection"))
    figure, axes = axes_of(7.6, 3.8)
    names = ("capacity, margins included", "connection", "total")
    for name, cost, marker in zip(names, (capacity, connection, capacity + connection), "oDs", strict=True):
        axes.plot(radii, cost, marker=marker, markersize=4, mfc="none", label=name)
    if delta is not None and delta <= MAX_RADIUS_SHARE * radii.max():
        axes.axvline(delta, color=BAD, linestyle="--", linewidth=1.3, label=f"delta used: {delta:.3g}")
    elif delta is not None:
        axes.plot([], [], color=BAD, linestyle="--", linewidth=1.3, label=f"delta used: {delta:.3g}, right of these")
    min_radius = radii[radii > 0].min() if (radii > 0).any() else 1.0
    # The grid is geometric but also contains 0, so the axis is logarithmic above the smallest radius and linear below.
    axes.set_xscale("symlog", linthresh=min_radius)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("reconnection radius delta (units of distance; 0: no one is reconnected)")
    axes.set_ylabel("cost at the noisy counts (units of cost)")
    axes.grid(axis="y", color=LINE, linewidth=0.6)
    add_legend(figure)
    return figure


def _list_baselines(problem: FLInstance, release: FLRelease, result: Result) -> list[tuple[str, float]]:
    """Return the costs of this release and of alternative plans at the same noisy counts, for a bar chart.

    Args:
        problem: The problem, with the public data.
        release: The release, with the noisy counts.
        result: The result from result.json, with the release's cost and the costs of other plans.

    Returns:
        Pairs (label, cost). This release comes first, and a plan without margins last.
    """
    site, noisy = problem.data.site, release.counts
    # If both kinds of plan ("prior", "reports") were made, their costs are recorded. The release is one of them.
    plans = result.details.told.get("plans") or {}
    plan_costs, chosen = plans.get("cost") or {}, plans.get("chosen")
    plan_names = {name: f"facilities chosen by the {name}" for name in plan_costs}
    rows = [(f"this release ({plan_names.get(chosen, result.method)})", float(result.objective.value))]
    base = release.assignment
    if problem.is_nearest_best:
        base, server = site.connect(), problem.make_server("laplace")
        unconnected_plan = server.prior_plan(noisy, base, 0.0, server.alpha)
        rows.append(("without reconnection", unconnected_plan.costs(site, noisy)["total"]))
    rows += [(plan_names[name], float(cost)) for name, cost in plan_costs.items() if name != chosen]
    bare_capacities = np.maximum(sum_counts(base, noisy), 0.0)
    rows.append(("without margins (not safe)", cost_parts(site, base, bare_capacities, noisy)["total"]))
    return rows


def _compare_costs(costs: Sequence[tuple[str, float]]) -> str:
    """Return a paragraph that explains the cost chart and, if another plan with margins costs less, says why.

    Args:
        costs: Pairs (label, cost) as from `_list_baselines`: this release first, and the plan without margins last.
    """
    lead = (
        "Capacity cost plus connection cost at the noisy counts. To serve one client at a distance of 1 costs 1, and a "
        "place costs what the table of sites says. A shorter bar is a cheaper plan."
    )
    (_, cost), *others, _ = costs
    name, cheaper_cost = min(others, key=lambda row: row[1], default=("", math.inf))
    if cheaper_cost < cost:
        lead += (
            f" This release costs {100 * (cost / cheaper_cost - 1):.2g}\u00a0% more than the plan {name}, because the "
            "noisy counts chose its plan: its margins must suffice for every plan that they could have chosen."
        )
    return f"{lead} Without margins a plan costs least, but some facility is likely too small for the true counts."


def _facility_table(problem: FLInstance, release: FLRelease, noisy: Floats | None) -> Section:
    """Make the report's table of facilities, the largest first: locations served, clients, margin, capacity and cost.

    Args:
        problem: The problem, with the ids and costs.
        release: The plan.
        noisy: (m,) The sum of the noisy counts at each facility. None if counts are not published.
    """
    opened, site = release.assignment.opened, problem.data.site
    order = np.argsort(-release.capacities, kind="stable")
    columns: dict[str, list[Any]] = {
        "facility": problem.data.ids[opened[order]].tolist(),
        "locations": release.assignment.sizes[order].tolist(),
    }
    if noisy is not None:
        columns |= {
            "reported clients": noisy[order].tolist(),
            "margin (clients)": (release.capacities - noisy)[order].tolist(),
        }
    columns["capacity (clients)"] = release.capacities[order].tolist()
    columns["cost of a place (units of cost)"] = site.cost[opened[order]].tolist()
    if site.capacity is not None:
        bounds = site.capacity[opened[order]].tolist()
        columns["largest possible capacity (clients)"] = [bound if math.isfinite(bound) else "none" for bound in bounds]
    lead = "The largest first. capacities.csv has these facilities, connections.csv who is served where."
    return table_section("Facilities", [*columns], list(zip(*columns.values(), strict=True)), lead)


class FLReporting(Reporting[FLInstance, FLRelease]):
    """The report of FL-Linear: a map, capacities and demand, costs and, for the owner only, the true costs."""

    def figures(self, problem: FLInstance, release: FLRelease, result: Result) -> dict[str, Figure]:
        """Return the figures of a release's report, keyed by file name without a suffix.

        The keys are ``map`` (only with coordinates), ``capacities``, ``cost-beside`` and ``cost-over-delta`` (both only
        with counts).
        """
        figures = {}
        if problem.data.coordinates is not None:
            figures["map"] = plan_map(release, problem)
        figures["capacities"] = capacity_figure(release, problem)
        site = problem.data.site
        # Method "optimal" publishes no counts, so a release that was read back cannot compare costs.
        if release.counts is not None:
            baselines = _list_baselines(problem, release, result)
            figures["cost-beside"] = draw_losses(baselines, "cost at the noisy counts (units of cost)", None)
            if problem.is_nearest_best and site.size <= MAX_RECOMPUTED:
                delta = result.details.facts.get("delta")
                figures["cost-over-delta"] = cost_over_delta(problem, release.counts, delta)
        return figures

    def headline(self, problem: FLInstance, release: FLRelease, result: Result) -> str:
        """Return the report's summary: the plan, the probability that it suffices, and an attacker's best success rate.

        For method ``optimal``, whose counts are not published, only the plan is described.
        """
        site, opened, room = problem.data.site, len(release.assignment.opened), float(release.capacities.sum())
        plan = (
            f"{number_of(opened, 'facility')} with room for about {format_digits(room)} clients "
            f"{'serves' if opened == 1 else 'serve'} {number_of(site.size, 'location')}."
        )
        if release.counts is None:
            return plan
        sure = 100 * (1 - problem.declared.privacy.failure_probability)
        attack = LocalDP.describe_attack(result.guarantee)
        safety = (
            f"The plan was made from noisy counts and public data alone; with {sure:.3g}\u00a0% probability every "
            "facility is large enough for the true ones."
        )
        return f"{plan} {safety} {attack}"

    def report(self, problem: FLInstance, release: FLRelease, result: Result) -> list[Section]:
        """Return the sections of the report: map, capacities, facilities and costs.

        The sections use only public data and the noisy counts. A section whose figure cannot be drawn (without
        coordinates or counts) is left out.
        """
        figures = self.figures(problem, release, result)
        site, opened = problem.data.site, release.assignment.opened
        sections = []
        if "map" in figures:
            lead = (
                f"{number_of(site.size, 'location')} served by {number_of(len(opened), 'facility')}. Circles grow with "
                "the clients reported, squares with the capacity; a line joins a location to the facility that serves "
                "it."
            )
            # On a telephone the names would cover locations.
            narrow = make_narrow(plan_map(release, problem, is_named=False))
            sections.append(figure_section("Who is served where", figures["map"], lead, narrow=narrow))
        # The reported clients of each facility, and alpha, the probability that some capacity is too small.
        noisy = None if release.counts is None else sum_counts(release.assignment, release.counts)
        alpha = problem.declared.privacy.failure_probability
        lead = "Capacities by facility."
        if noisy is not None:
            lead = (
                "Capacity is the reported (noisy) demand plus a safety margin. With "
                f"{100 * (1 - alpha):.3g}\u00a0% probability every facility has enough places."
            )
        if result.details.facts.get("chosen_by_noise"):
            lead += (
                " The noisy counts chose the facilities and who is served where; the margins hold for any choice that "
                "they could have made."
            )
        if site.capacity is not None and noisy is not None:
            lead += (
                " The probability is that of a single collection of counts. If counts are collected again because no "
                "plan fitted the first ones, each further collection adds the same risk of too small a capacity."
            )
        if len(opened) > MAX_BARS:
            lead += f" The {MAX_BARS} largest of {len(opened)} are drawn."
        sections.append(figure_section("Capacities against demand", figures["capacities"], lead))
        sections.append(_facility_table(problem, release, noisy))
        if "cost-beside" in figures:
            lead = _compare_costs(_list_baselines(problem, release, result))
            sections.append(figure_section("Cost next to the alternatives", figures["cost-beside"], lead))
        if "cost-over-delta" in figures:
            lead = (
                "Facilities up to 2 delta apart are merged. Fewer facilities need fewer safety margins, but clients "
                "travel farther."
            )
            sections.append(figure_section("Cost over delta", figures["cost-over-delta"], lead))
        return sections

    def geo(self, problem: FLInstance, release: FLRelease, result: Result) -> Layer | None:
        """Return a GIS layer with locations as points and connections as lines, or None if there are no coordinates.

        Coordinates are (x, y) or (lon, lat). All features have the same properties, because some file formats require
        this.
        """
        coordinates, site = problem.data.coordinates, problem.data.site
        if coordinates is None:
            return None
        names, values = coordinates
        planar, served = names == ("x", "y"), release.assignment
        places = [(float(x), float(y)) for x, y in (values if planar else values[:, ::-1]).tolist()]
        capacity = dict(zip(served.opened.tolist(), release.capacities.tolist(), strict=True))
        distances = site.metric.distances_between(np.arange(site.size), served.facility)
        nothing = {"reported_clients": None, "capacity": None, "facility_cost": None}
        points, lines = [], []
        # Location v is served by the facility at location h.
        for v, h in enumerate(served.facility.tolist()):
            connection = {
                "id": str(problem.data.ids[v]),
                "facility": str(problem.data.ids[h]),
                "distance": float(distances[v]),
            }
            kind = "facility" if v in capacity else "location"
            facts = {
                "reported_clients": None if release.counts is None else float(release.counts[v]),
                "capacity": capacity.get(v),
                "facility_cost": float(site.cost[v]),
            }
            points.append(Feature(path=(places[v],), properties={**connection, "kind": kind, **facts}))
            if h != v:
                lines.append(
                    Feature(path=(places[v], places[h]), properties={**connection, "kind": "connection", **nothing})
                )
        unit = "unit of x and y" if planar else ""
        return Layer(kind="planar" if planar else "geographic", features=points + lines, unit=unit)

    def report_truth(self, problem: FLInstance, release: FLRelease, result: Result, private: Path) -> list[Section]:
        """Return the section for the owner: the true number of clients, true costs, and how many facilities overflow.

        The values are read from ``truth.json``, which ``solve`` wrote into the folder ``private``. The list is empty if
        that file is missing.

        Args:
            problem, result: The problem and its result. They are not used.
            release: The plan.
            private: The folder of secret results, which the owner keeps.
        """
        file = private / "truth.json"
        if not file.is_file():
            return []
        truth = json.loads(file.read_text("utf-8"))
        overflow_count, facilities = len(truth.get("overflow") or ()), len(release.assignment.opened)
        rows: list[tuple[str, Any]] = [
            ("clients", truth.get("clients")),
            *((f"true cost: {name}", value) for name, value in (truth.get("cost") or {}).items()),
            ("optimum without privacy", truth.get("optimum")),
            ("true cost / optimum", truth.get("normalised_cost")),
            ("facilities that overflow", f"{overflow_count} of {facilities}"),
        ]
        return [table_section("The truth", ("what", "value"), [row for row in rows if row[1] is not None])]
