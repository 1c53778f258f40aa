"""The report of FL-Linear, with a map, capacities, costs by reconnection radius and, for the owner only, true costs."""

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
"""The maximum number of facilities in the capacity figure. If there are more, it shows the largest ones."""
MAX_RADIUS_SHARE: Final = 10.0
"""The largest radius that the cost figure marks as used, as a multiple of the grid's largest radius.

A larger radius is only stated in the legend.
"""
MAX_NAMED: Final = 12
"""The maximum number of facilities for which the map shows names."""
MAX_RECOMPUTED: Final = 10_000
"""The maximum number of locations for which costs are computed at every radius of the grid."""


@use_theme
def plan_map(release: FLRelease, problem: FLInstance, *, is_named: bool = True) -> Figure:
    """Draw a map of the locations (sized by their counts), facilities (sized by their capacities) and connections.

    Args:
        release: The plan, and the counts from which it was made.
        problem: The problem, whose locations must have coordinates.
        is_named: Whether to show the facilities' names if there are at most `MAX_NAMED`.
    """
    assert problem.data.coordinates is not None  # callers draw no map if there is only a matrix
    names, coordinates = problem.data.coordinates
    places, labels, latitude = orient_map(coordinates, "unit of the table" if names == ("x", "y") else "")
    figure, axes = axes_of(7.6)
    facility, opened = release.assignment.facility, release.assignment.opened
    # Lines lead from each location v to its facility, which is at location h.
    lines = [(places[v], places[h]) for v, h in enumerate(facility.tolist()) if h != v]
    # With very many locations, the lines would cover one another, so none are drawn.
    set_up_map(axes, labels, lines if len(places) <= MAX_VECTOR_MARKS else (), latitude=latitude)
    x, y = places.T
    # Dots at the edge of the map are not clipped, and very many dots are rasterised.
    style: dict[str, Any] = {"rasterized": len(places) > MAX_VECTOR_MARKS, "clip_on": False}
    reported = np.zeros(len(places)) if release.counts is None else np.maximum(release.counts, 0)
    # The dots' areas, in square points, grow with the counts. 1e-300 avoids a division by zero if all counts are 0.
    sizes = 12 + 90 * reported / max(1e-300, float(reported.max()))
    axes.scatter(x, y, s=sizes, color=PALE, edgecolors=SOFT, linewidths=0.8, zorder=2, **style)
    facility_sizes = 25 + 240 * release.capacities / max(1e-300, float(release.capacities.max()))
    axes.scatter(x[opened], y[opened], s=facility_sizes, marker="s", color=MARK, alpha=0.85, zorder=3, **style)
    if is_named and len(opened) <= MAX_NAMED:
        for name, place in zip(problem.data.ids[opened].tolist(), places[opened].tolist(), strict=True):
            axes.annotate(
                short_name(name), place, xytext=(0, 10), textcoords="offset points", ha="center", color=INK, zorder=4
            )
    # Empty scatter plots give the legend markers a fixed size.
    axes.scatter([], [], s=45, color=PALE, edgecolors=SOFT, linewidths=0.8, label="location")
    axes.scatter([], [], s=45, marker="s", color=MARK, alpha=0.85, label="facility")
    fit_height(figure, axes)
    add_legend(figure)
    return figure


@use_theme
def capacity_figure(release: FLRelease, problem: FLInstance) -> Figure:
    """Draw a bar chart of the facilities' capacities, with thinner bars inside them for the sums of the noisy counts.

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
        problem: The problem, whose settings determine the plan at each radius of the public grid.
        noisy: (n,) The noisy counts.
        delta: The radius that was used, in the metric's unit, or None to mark no radius.
    """
    site, server = problem.data.site, problem.make_server("reconnection")
    # For each radius, the plan that the server would make from these counts.
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
    # The grid is geometric but also contains 0, so the axis is logarithmic above the smallest positive radius and
    # linear below.
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
        problem: The problem, which provides the public data.
        release: The release, with noisy counts.
        result: The contents of result.json, with the costs of the release and of other plans.

    Returns:
        A list of (label, cost) pairs. The first pair is for this release, and the last for a plan without margins.
    """
    site, noisy = problem.data.site, release.counts
    # If both the prior's and the reports' plan were made, their costs are recorded. The release is one of the two.
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
    """Return a paragraph that explains the cost chart. If another plan with margins is cheaper, it also says why.

    Args:
        costs: The (label, cost) pairs from `_list_baselines`. The first is for this release, and the last for the plan
            without margins.
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
    """Return the report's table of facilities in descending order of capacity.

    Its columns are the number of locations served, the reported number of clients, the margin, the capacity and the
    cost of capacity for one client, followed by the largest possible capacity if capacities are bounded.

    Args:
        problem: The problem, which provides the ids and costs.
        release: The plan.
        noisy: (m,) The sum of the noisy counts at each facility, or None if counts are not published.
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
    """The report of FL-Linear, which shows a map, capacities, costs and, for the owner only, true costs."""

    def figures(self, problem: FLInstance, release: FLRelease, result: Result) -> dict[str, Figure]:
        """Return the figures of a release's report, keyed by file name without suffix.

        - ``map`` requires coordinates.
        - ``capacities`` is always included.
        - ``cost-beside`` requires counts.
        - ``cost-over-delta`` requires counts and at most `MAX_RECOMPUTED` locations. It also requires that serving
          every location from its cheapest facility is optimal.
        """
        figures = {}
        if problem.data.coordinates is not None:
            figures["map"] = plan_map(release, problem)
        figures["capacities"] = capacity_figure(release, problem)
        site = problem.data.site
        # The method "optimal" publishes no counts, so costs cannot be compared once its release has been read back.
        if release.counts is not None:
            baselines = _list_baselines(problem, release, result)
            figures["cost-beside"] = draw_losses(baselines, "cost at the noisy counts (units of cost)", None)
            if problem.is_nearest_best and site.size <= MAX_RECOMPUTED:
                delta = result.details.facts.get("delta")
                figures["cost-over-delta"] = cost_over_delta(problem, release.counts, delta)
        return figures

    def headline(self, problem: FLInstance, release: FLRelease, result: Result) -> str:
        """Return the report's summary: the plan, the probability that it suffices, and an attacker's best success rate.

        If the counts are not published, as for the method ``optimal``, only the plan is described.
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
        """Return the sections of the report, which show the map, capacities, facilities and costs.

        They use only public data and noisy counts. Sections whose figures need coordinates or counts are left out if
        these are not available.
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
            # On a telephone, names would cover locations.
            narrow = make_narrow(plan_map(release, problem, is_named=False))
            sections.append(figure_section("Who is served where", figures["map"], lead, narrow=narrow))
        # `noisy` is the number of reported clients per facility, and alpha the probability that some capacity is too
        # small.
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
        """Return a GIS layer with points for locations and lines for connections.

        The result is None if the locations have no coordinates. Coordinates are (x, y) or (lon, lat). All features have
        the same properties, as some file formats require.
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
        # The facility of location v is at location h.
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
        """Return the owner's section, which shows how the plan performs on the true counts.

        It contains the true number of clients, the true costs and the number of facilities that overflow. The values
        are read from ``truth.json``, which ``solve`` wrote to the folder ``private``. If there is no such file, the
        list is empty.

        Args:
            problem, result: The problem and its result, which are not used.
            release: The plan.
            private: The folder of secret results, which only the owner keeps.
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
