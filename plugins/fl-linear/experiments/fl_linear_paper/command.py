"""Reproduce Figures 1 to 7 of the paper's section 7, and count overflows over 10,000 runs.

The numbers of instances and steps are the paper's, with and without --full. --quick reduces them, which every table
(column quick) and every title states. Each instance is priced at every step of its figure, so curves differ only by the
method. Both margins are shown, and delta = "auto" in the figures in which the paper asks which delta to take (5 and 7).
The file of Chiang Mai (Node,x,y,Evacuees) is no part of privopt. Without --data Figures 6 and 7 are left out, with a
line that says so.
"""

from __future__ import annotations

import csv
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from attrs import frozen

from experiments import pictures as drawing
from experiments.command import Study, say
from experiments.tables import Row, Sheet
from fl_linear_paper import instances
from fl_linear_paper.generate import matern
from fl_linear_paper.pictures import PICTURES
from fl_linear_paper.trials import KINDS
from privopt.execution import from_url

__all__ = ["COLUMNS", "STUDY", "main"]

COSTS = ((0.0, 0.2), (0.1, 0.3), (0.3, 0.5))
"""Intervals of the facility costs."""
KEY: Final = ("figure", "series", "x", "method", "margin")
VALUES: Final = ("mean", "standard_error", "instances", "failures", "quick")
COLUMNS: Final = (*KEY, *VALUES)
"""Columns of every table: those that identify a row, and its values over the instances."""
DELTAS: tuple[float | None, ...] = (None, *(round(0.01 * i, 2) for i in range(101)))
"""Reconnection radii from 0 to 1. None stands for Algorithm 2 (``laplace``)."""


@frozen(kw_only=True)
class Plan:
    """The size of a run: the paper's numbers of instances and steps, or fewer.

    Attributes:
        quick: Whether the numbers are reduced.
        seed: Seed of all instances.
        jobs: Number of worker processes.
        data: The file of Chiang Mai, or None.
        out: Folder of tables and pictures.
    """

    quick: bool
    seed: int
    jobs: int
    data: Path | None
    out: Path

    def sheet(self, name: str) -> Sheet:
        """Return the table of a figure."""
        return Sheet(self.out / f"{name}.csv", KEY, VALUES)

    def count(self, full: int, quick: int) -> int:
        """Return the number of instances to run, ``full`` or ``quick``."""
        return quick if self.quick else full

    def steps(self, values: Sequence[Any], step: int) -> list[Any]:
        """Return the values of the horizontal axis, in a quick run only every ``step``-th one."""
        return list(values[::step]) if self.quick else list(values)

    def run(self, function: Callable[..., Any], count: int, *settings: Any) -> Any:
        """Run ``function(seed, *settings)`` for several seeds in the worker processes, and return the results stacked.

        Args:
            function: Computes one instance.
            count: Number of instances. Each has its own seed.
            settings: Further arguments, the same for all instances.
        """
        seeds = np.random.SeedSequence(self.seed).generate_state(count)
        columns = [[s] * count for s in settings]
        with from_url(None, self.jobs) as executor:
            return np.array(list(executor.map(function, seeds.tolist(), *columns)))

    def row(self, method: str, margin: str, values: Any, failure_rates: Any, **columns: Any) -> Row:
        """Return a row of a table: the mean of some values and its standard error over the instances.

        Args:
            method: Name of the method.
            margin: Kind of margin; empty if the method has none.
            values: One value for each instance.
            failure_rates: Whether each instance overflowed, or the number of its overflows.
            columns: Further columns of the row.
        """
        values = np.asarray(values, dtype=float)
        error = float(values.std(ddof=1)) / len(values) ** 0.5 if len(values) > 1 else 0.0
        return {
            "method": method,
            "margin": margin,
            "mean": float(values.mean()),
            "standard_error": error,
            "instances": len(values),
            "failures": int(np.sum(failure_rates)),
            "quick": self.quick,
            **columns,
        }

    def point(self, x: float, y: float) -> Row:
        """Return a row of a figure of places, with the coordinates in the columns x and mean."""
        return {"x": x, "method": "location", "mean": y, "instances": 1, "quick": self.quick}


def _name(delta: float | None) -> str:
    """Return the name of the method with a reconnection radius, or without one (None)."""
    return "laplace" if delta is None else "reconnection"


def _delta_rows(plan: Plan, priced: Any, deltas: Sequence[float | None]) -> list[Row]:
    """Return the rows of a figure over delta. Those of ``laplace``, which has no delta, have an empty x.

    Args:
        plan: The size of the run.
        priced: (instances, deltas, margins, 2) costs and overflows, see :meth:`fl_linear_paper.trials.Trial.price`.
        deltas: The reconnection radii; None for ``laplace``.
    """
    return [
        plan.row(
            _name(delta),
            kind,
            priced[:, delta_number, margin_number, 0],
            priced[:, delta_number, margin_number, 1],
            x=delta,
        )
        for margin_number, kind in enumerate(KINDS)
        for delta_number, delta in enumerate(deltas)
    ]


def fig1(plan: Plan) -> None:
    """Write Figure 1: the points of an example of the Matern process for each gamma."""
    sheet = plan.sheet("fig1")
    for gamma in (1.0, 2.0, 3.0):
        instance = matern(np.random.default_rng([plan.seed, int(gamma)]), gamma=gamma)
        key = {"figure": "fig1", "series": f"gamma {gamma:g}"}
        sheet.once(key, lambda: [plan.point(x, y) for x, y in instance.points.tolist()])  # noqa: B023


def _over_delta(plan: Plan, name: str, process: str) -> None:
    """Write a figure of the normalised cost over delta, for each interval of facility costs.

    Args:
        plan: The size of the run.
        name: Name of the figure.
        process: ``"matern"`` or ``"poisson"``, the process that generates the locations.
    """
    deltas, sheet = plan.steps(DELTAS, 5), plan.sheet(name)
    for costs in COSTS:

        def make(costs: tuple[float, float] = costs) -> list[Row]:
            """Return the rows for one interval of facility costs."""
            return _delta_rows(
                plan, plan.run(instances.over_delta, plan.count(1000, 20), process, costs, deltas), deltas
            )

        sheet.once({"figure": name, "series": f"f in [{costs[0]:g}, {costs[1]:g}]"}, make)


def fig2(plan: Plan) -> None:
    """Write Figure 2: the normalised cost over delta of 1000 clustered instances for each interval of costs."""
    _over_delta(plan, "fig2", "matern")


def fig3a(plan: Plan) -> None:
    """Write Figure 3a: the normalised cost over delta of 1000 Poisson instances for each interval of costs."""
    _over_delta(plan, "fig3a", "poisson")


def fig3b(plan: Plan) -> None:
    """Write Figure 3b: the normalised cost of 100 instances over epsilon, from 0.01 to 1 in steps of 0.001."""
    epsilons = plan.steps([round(0.01 + 0.001 * i, 3) for i in range(991)], 45)

    def make() -> list[Row]:
        """Return a row for each epsilon, method and margin."""
        priced = plan.run(instances.over_epsilon, plan.count(100, 8), epsilons)
        return [
            plan.row(method, kind, priced[:, e, m, k, 0], priced[:, e, m, k, 1], x=epsilon)
            for e, epsilon in enumerate(epsilons)
            for m, method in enumerate(("laplace", "reconnection"))
            for k, kind in enumerate(KINDS)
        ]

    plan.sheet("fig3b").once({"figure": "fig3b"}, make)


def fig4(plan: Plan) -> None:
    """Write Figure 4: the cost of 500 instances over the expected number of locations, 100 to 5000. Not normalised."""
    sheet = plan.sheet("fig4")

    def make(n: int) -> list[Row]:
        """Return the rows of the optimum, and of each method and margin, for n expected locations."""
        results = plan.run(instances.of_size, plan.count(500, 5), n)
        # The last two numbers of an instance are the optimum and how often it was drawn again.
        priced, optimum, redrawn = results[:, :-2].reshape(-1, 2, 2, 2), results[:, -2], results[:, -1]
        # Without clients nothing costs anything, and the normalised cost is not defined.
        has_cost = optimum > 0
        rows = [plan.row("optimal", "", optimum, 0, series=f"{int(redrawn.sum())} redrawn")]
        for m, method in enumerate(("laplace", "reconnection")):
            for k, kind in enumerate(KINDS):
                rows.append(
                    plan.row(method, kind, priced[has_cost, m, k, 0] * optimum[has_cost], priced[has_cost, m, k, 1])
                )
        return rows

    for n in plan.steps(range(100, 5001, 100), 12):
        sheet.once({"figure": "fig4", "x": n}, lambda: make(n))  # noqa: B023


def fig5(plan: Plan) -> None:
    """Write Figure 5: the normalised cost of 100 instances over the mean count, 1 to 100.

    The methods are ``laplace``, ``reconnection`` with delta 0.2, the delta of a grid with the lowest mean cost, and
    delta = "auto".
    """
    means = plan.steps(range(1, 101), 11)
    # `laplace` and the paper's delta of 0.2 come first; the rows below use their positions 0 and 1.
    deltas = (None, 0.2, *(d for d in DELTAS[1:42] if d != 0.2)) if not plan.quick else (None, 0.2, *DELTAS[1:32:3])

    def mean_rows(results: Any, mean: int) -> list[Row]:
        """Return the rows of one mean count, from the results (instances, numbers) at it."""
        # The last two numbers of an instance are the cost and the overflow of "auto".
        priced, rows = results[:, :-2].reshape(len(results), len(deltas), 2, 2), []
        for k, kind in enumerate(KINDS):
            rows += [plan.row(_name(deltas[m]), kind, priced[:, m, k, 0], priced[:, m, k, 1], x=mean) for m in (0, 1)]
            best = int(np.argmin(priced[:, :, k, 0].mean(axis=0)))
            series = "best: laplace" if deltas[best] is None else f"best: delta {deltas[best]}"
            rows.append(plan.row("best", kind, priced[:, best, k, 0], priced[:, best, k, 1], x=mean, series=series))
        return [*rows, plan.row("auto", "exact", results[:, -2], results[:, -1], x=mean)]

    def make() -> list[Row]:
        results = plan.run(instances.over_means, plan.count(100, 6), means, deltas)
        return [row for mean_number, mean in enumerate(means) for row in mean_rows(results[:, mean_number], mean)]

    plan.sheet("fig5").once({"figure": "fig5"}, make)


def _town(plan: Plan, name: str) -> tuple[Any, Any] | None:
    """Read Chiang Mai's locations and clients, or return None with a line of progress if there is no file.

    Args:
        plan: The run, with the file.
        name: Name of the figure, for the line.

    Returns:
        (n, 2) locations, scaled to the unit square, and (n,) clients.
    """
    if plan.data is None:
        say(f"{name}: left out, for there is no --data")
        return None
    with plan.data.open(encoding="utf-8") as stream:
        table = list(csv.DictReader(stream))
    points = np.array([[float(r["x"]), float(r["y"])] for r in table])
    points = (points - points.min(axis=0)) / np.ptp(points, axis=0)
    return points, np.array([int(r["Evacuees"]) for r in table])


def fig6(plan: Plan) -> None:
    """Write Figure 6: Chiang Mai's locations and clients, on the unit square."""
    town = _town(plan, "fig6")
    if town is not None:
        points, clients = town
        rows = [
            {**plan.point(x, y), "series": f"{b} clients"} for (x, y), b in zip(points.tolist(), clients, strict=True)
        ]
        plan.sheet("fig6").once({"figure": "fig6"}, lambda: rows)


def fig7(plan: Plan) -> None:
    """Write Figure 7: the normalised cost over delta in Chiang Mai, for 100 draws of the facility costs, and "auto"."""
    town = _town(plan, "fig7")
    deltas = plan.steps(DELTAS, 5)
    if town is None:
        return

    def make() -> list[Row]:
        """Return the rows over delta, and that of "auto"."""
        results = plan.run(instances.in_town, plan.count(100, 10), *town, deltas)
        rows = _delta_rows(plan, results[:, :-2].reshape(len(results), len(deltas), 2, 2), deltas)
        return [*rows, plan.row("auto", "exact", results[:, -2], results[:, -1])]

    plan.sheet("fig7").once({"figure": "fig7"}, make)


def failures(plan: Plan) -> None:
    """Count overflows over 10,000 runs (1000 instances with 10 draws of the noise each), and compute their mean cost.

    The promised probability of an overflow is 0.1. The methods are ``laplace``, ``reconnection`` with delta 0.2 and,
    for several mean counts, "auto".
    """
    sheet, draws = plan.sheet("failures"), 10

    def make() -> list[Row]:
        """Return the cost and the failure rate of each method and margin."""
        results, rows = plan.run(instances.repeated, plan.count(1000, 20), draws), []
        for m, method in enumerate(("laplace", "reconnection")):
            for k, kind in enumerate(KINDS):
                costs, rates = results[:, m, k, 0], results[:, m, k, 1]
                rows.append(plan.row(method, kind, costs, draws * rates, series="normalised cost"))
                rows.append(plan.row(method, kind, rates, draws * rates, series="failure rate"))
        return rows

    def auto(mean: int) -> list[Row]:
        """Return the failure rate of "auto" at one mean count, over 100 draws for each instance."""
        rates = plan.run(instances.auto_failing, plan.count(100, 4), 100, mean)
        return [plan.row("auto", "exact", rates, 100 * rates, series="failure rate")]

    sheet.once({"figure": "failures", "x": None}, make)
    for mean in (1, 5, 20, 75):
        sheet.once({"figure": "failures", "x": mean}, lambda: auto(mean))  # noqa: B023


def _plan(arguments: Namespace) -> Plan:
    """Return the plan for the options of the command line."""
    if arguments.size == "quick":
        say("quick: counts of instances and steps are cut; the figures are rough")
    return Plan(
        quick=arguments.size == "quick",
        seed=arguments.seed,
        jobs=arguments.jobs,
        data=arguments.data,
        out=arguments.out,
    )


def _options(parser: ArgumentParser) -> None:
    """Add the options of this study to the parser of the command line."""
    parser.add_argument("--data", type=Path, help="Chiang Mai's CSV: Node,x,y,Evacuees")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("--seed", type=int, default=1)


STUDY: Final = Study(
    plugin="fl-linear",
    about=__doc__ or "",
    parts={f.__name__: f for f in (fig1, fig2, fig3a, fig3b, fig4, fig5, fig6, fig7, failures)},
    plan=_plan,
    draw=lambda plan: drawing.draw(plan.out, PICTURES),
    options=_options,
    fixed=("size", "seed"),
)
main: Final = STUDY.run
