"""The report's body and figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from privopt.report.page import Section, figure_section, table_section

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from privopt_lr_geo.problem import LRGeoProblem
    from privopt_lr_geo.release import LRGeoRelease

__all__ = ["figures", "sections"]

SHOWN = 200


def sections(problem: LRGeoProblem, release: LRGeoRelease, result: Mapping[str, Any]) -> list[Section]:
    """Users' losses, what is left open, convergence."""
    data = problem.data
    loss = np.einsum("ik,ik->i", release.probabilities, data.cost[problem.users])
    header = ("user", f"expected loss ({data.loss_unit})", "likeliest output", "its probability")
    likeliest = release.probabilities.argmax(axis=1)
    rows = [
        (
            str(release.records[m]),
            float(loss[m]),
            str(release.outputs[likeliest[m]]),
            float(release.probabilities[m, likeliest[m]]),
        )
        for m in range(min(SHOWN, len(loss)))
    ]
    lead = "What each user loses on average by its own row." + (
        f" The first {SHOWN} of {len(loss)}." if len(loss) > SHOWN else ""
    )
    made = [table_section("Users", header, rows, lead)]
    details = result.get("details", {})
    gv, population = details.get("gv"), details.get("population")
    if gv:
        lead = (
            "The guarantee holds inside each user's own matrix. An observer of several users compares rows of "
            "different matrices; these inequalities fail there (Equations 34 and 35 of the paper)."
        )
        facts = [(name.replace("_", " "), value) for name, value in gv.items()]
        made.append(table_section("Not covered: rows of different users", ("", "measured"), facts, lead))
    if population:
        lead = "Prior-weighted over every record, beside the exponential mechanism."
        facts = [(name.replace("_", " "), value) for name, value in population.items() if value is not None]
        made.append(table_section("Loss of the whole population", ("", f"loss ({data.loss_unit})"), facts, lead))
    drawn = figures(problem, release, result)
    if "convergence" in drawn:
        made.append(figure_section("Convergence", drawn["convergence"], "Bounds of the program, round by round."))
    if "row" in drawn:
        made.append(figure_section("Where one user's report falls", drawn["row"], f"User {release.records[0]}."))
    return made


def figures(problem: LRGeoProblem, release: LRGeoRelease, result: Mapping[str, Any]) -> dict[str, Figure]:
    """By file name."""
    from matplotlib.figure import Figure

    made: dict[str, Figure] = {}
    trajectory = [
        part
        for part in result.get("details", {}).get("trajectory") or []
        if all(isinstance(value, (int, float)) for value in part)
    ]
    if len(trajectory) > 1:
        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.subplots()
        seconds, lower, upper = np.array(trajectory).T
        axes.plot(seconds, lower, label="proved bound")
        axes.plot(seconds, upper, label="best found")
        axes.set(xlabel="seconds", ylabel="objective of CLR-Geo (scaled)")
        axes.legend()
        made["convergence"] = figure
    coordinates = problem.data.outputs.coordinates
    if coordinates is not None and coordinates.shape[1] == 2:
        figure = Figure(figsize=(7, 5), layout="constrained")
        axes = figure.subplots()
        geographic = problem.data.outputs.kind == "geographic"
        x, y = (coordinates[:, 1], coordinates[:, 0]) if geographic else coordinates.T
        shown = np.log10(np.maximum(release.probabilities[0], 1e-12))
        drawn = axes.scatter(x, y, c=shown, s=12, cmap="viridis")
        figure.colorbar(drawn, ax=axes, label="log10 probability")
        axes.set(xlabel="longitude" if geographic else "x (km)", ylabel="latitude" if geographic else "y (km)")
        made["row"] = figure
    return made
