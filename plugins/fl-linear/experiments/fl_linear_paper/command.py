"""Figures 1 to 7 of the paper's section 7, and overflows over 10,000 runs.

Counts of instances and steps are the paper's, with --full as without; --quick cuts them and says so in every table
(column quick) and title. Each instance is priced at every step of its figure: curves differ by the method alone.
Both margins are shown, and auto where the paper asks which delta to take (figures 5 and 7). The Chiang Mai file
(Node,x,y,Evacuees) is no part of privopt: without --data figures 6 and 7 are left out with a line that says so.
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
KEY: Final = ("figure", "series", "x", "method", "margin")
VALUES: Final = ("mean", "standard_error", "instances", "failures", "quick")
COLUMNS: Final = (*KEY, *VALUES)
DELTAS: tuple[float | None, ...] = (None, *(round(0.01 * i, 2) for i in range(101)))


@frozen(kw_only=True)
class Plan:
    """How much is run: the paper's counts, or fewer.

    Attributes:
        quick: whether counts are cut.
        seed: of everything.
        jobs: worker processes.
        data: the Chiang Mai file, or None.
        out: where tables and pictures go.
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
        """Instances to run."""
        return quick if self.quick else full

    def steps(self, values: Sequence[Any], step: int) -> list[Any]:
        """Return steps of the x axis; thinned when quick."""
        return list(values[::step]) if self.quick else list(values)

    def run(self, function: Callable[..., Any], count: int, *settings: Any) -> Any:
        """Results of ``function(seed, *settings)`` for each instance, stacked."""
        seeds = np.random.SeedSequence(self.seed).generate_state(count)
        columns = [[s] * count for s in settings]
        with from_url(None, self.jobs) as executor:
            return np.array(list(executor.map(function, seeds.tolist(), *columns)))

    def row(self, method: str, margin: str, values: Any, failure_rates: Any, **columns: Any) -> Row:
        """One row of a table: mean and standard error over the instances."""
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
        """Return a row of a figure of places."""
        return {"x": x, "method": "location", "mean": y, "instances": 1, "quick": self.quick}


def _name(delta: float | None) -> str:
    return "laplace" if delta is None else "reconnection"


def _delta_rows(plan: Plan, priced: Any, deltas: Sequence[float | None]) -> list[Row]:
    """Rows of a figure over delta; Laplace is the same at each, its x empty."""
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
    """Draw example instances of the Matern process, by gamma: their points."""
    sheet = plan.sheet("fig1")
    for gamma in (1.0, 2.0, 3.0):
        instance = matern(np.random.default_rng([plan.seed, int(gamma)]), gamma=gamma)
        key = {"figure": "fig1", "series": f"gamma {gamma:g}"}
        sheet.once(key, lambda: [plan.point(x, y) for x, y in instance.points.tolist()])  # noqa: B023


def _over_delta(plan: Plan, name: str, process: str) -> None:
    deltas, sheet = plan.steps(DELTAS, 5), plan.sheet(name)
    for costs in COSTS:

        def make(costs: tuple[float, float] = costs) -> list[Row]:
            return _delta_rows(
                plan, plan.run(instances.over_delta, plan.count(1000, 20), process, costs, deltas), deltas
            )

        sheet.once({"figure": name, "series": f"f in [{costs[0]:g}, {costs[1]:g}]"}, make)


def fig2(plan: Plan) -> None:
    """Normalised cost over delta, clustered instances, three intervals of facility costs; 1000 instances each."""
    _over_delta(plan, "fig2", "matern")


def fig3a(plan: Plan) -> None:
    """Normalised cost over delta, Poisson instances; 1000 of them."""
    _over_delta(plan, "fig3a", "poisson")


def fig3b(plan: Plan) -> None:
    """Normalised cost over the privacy budget, .01 to 1 by .001; 100 instances."""
    epsilons = plan.steps([round(0.01 + 0.001 * i, 3) for i in range(991)], 45)

    def make() -> list[Row]:
        priced = plan.run(instances.over_epsilon, plan.count(100, 8), epsilons)
        return [
            plan.row(method, kind, priced[:, e, m, k, 0], priced[:, e, m, k, 1], x=epsilon)
            for e, epsilon in enumerate(epsilons)
            for m, method in enumerate(("laplace", "reconnection"))
            for k, kind in enumerate(KINDS)
        ]

    plan.sheet("fig3b").once({"figure": "fig3b"}, make)


def fig4(plan: Plan) -> None:
    """Cost over the number of locations, 100 to 5000 by 100; 500 instances each. Not normalised."""
    sheet = plan.sheet("fig4")

    def make(n: int) -> list[Row]:
        results = plan.run(instances.of_size, plan.count(500, 5), n)
        priced, optimum, redrawn = results[:, :-2].reshape(-1, 2, 2, 2), results[:, -2], results[:, -1]
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
    """Normalised cost over the mean count, 1 to 100; 100 instances; also auto, and the best delta of a grid."""
    means = plan.steps(range(1, 101), 11)
    deltas = (None, 0.2, *(d for d in DELTAS[1:42] if d != 0.2)) if not plan.quick else (None, 0.2, *DELTAS[1:32:3])

    def mean_rows(results: Any, mean: int) -> list[Row]:
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
    if plan.data is None:
        say(f"{name}: left out, for there is no --data")
        return None
    with plan.data.open(encoding="utf-8") as stream:
        table = list(csv.DictReader(stream))
    points = np.array([[float(r["x"]), float(r["y"])] for r in table])
    points = (points - points.min(axis=0)) / np.ptp(points, axis=0)
    return points, np.array([int(r["Evacuees"]) for r in table])


def fig6(plan: Plan) -> None:
    """Chiang Mai's locations and clients, on the unit square."""
    town = _town(plan, "fig6")
    if town is not None:
        points, clients = town
        rows = [
            {**plan.point(x, y), "series": f"{b} clients"} for (x, y), b in zip(points.tolist(), clients, strict=True)
        ]
        plan.sheet("fig6").once({"figure": "fig6"}, lambda: rows)


def fig7(plan: Plan) -> None:
    """Normalised cost over delta in Chiang Mai; 100 draws of the facility costs; also auto."""
    town = _town(plan, "fig7")
    deltas = plan.steps(DELTAS, 5)
    if town is None:
        return

    def make() -> list[Row]:
        results = plan.run(instances.in_town, plan.count(100, 10), *town, deltas)
        rows = _delta_rows(plan, results[:, :-2].reshape(len(results), len(deltas), 2, 2), deltas)
        return [*rows, plan.row("auto", "exact", results[:, -2], results[:, -1])]

    plan.sheet("fig7").once({"figure": "fig7"}, make)


def failures(plan: Plan) -> None:
    """Overflows over 10,000 runs (1000 instances, 10 draws each; promised .1) and their mean cost; delta = .2, auto."""
    sheet, draws = plan.sheet("failures"), 10

    def make() -> list[Row]:
        results, rows = plan.run(instances.repeated, plan.count(1000, 20), draws), []
        for m, method in enumerate(("laplace", "reconnection")):
            for k, kind in enumerate(KINDS):
                costs, rates = results[:, m, k, 0], results[:, m, k, 1]
                rows.append(plan.row(method, kind, costs, draws * rates, series="normalised cost"))
                rows.append(plan.row(method, kind, rates, draws * rates, series="failure rate"))
        return rows

    def auto(mean: int) -> list[Row]:
        rates = plan.run(instances.auto_failing, plan.count(100, 4), 100, mean)
        return [plan.row("auto", "exact", rates, 100 * rates, series="failure rate")]

    sheet.once({"figure": "failures", "x": None}, make)
    for mean in (1, 5, 20, 75):
        sheet.once({"figure": "failures", "x": mean}, lambda: auto(mean))  # noqa: B023


def _plan(arguments: Namespace) -> Plan:
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
