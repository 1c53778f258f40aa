"""The paper's experiments (section 7, Figures 1 to 7) from one command, as CSV and pictures.

    python plugins/fl-linear/experiments --out FOLDER [--quick] [--only fig2 fig7 ...] [--jobs N] [--data FILE]

Counts of instances and steps are the paper's; ``--quick`` cuts them and says so in every table (column ``quick``) and
title. Each instance is priced at every step of its figure, so that curves differ by the method alone. Both margins are
shown, and ``auto`` where the paper asks which delta to take (figures 5 and 7). ``failures`` counts overflows over
10,000 runs. The Chiang Mai file (Node,x,y,Evacuees) is no part of privopt: without ``--data`` figures 6 and 7 are
left out with a line that says so.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen

from fl_linear_paper.generate import Instance, matern, poisson
from fl_linear_paper.trials import KINDS, Setting, Trial, draw_noise
from privopt.execution import Executor, from_url
from privopt_fl_linear.metric import Plane
from privopt_fl_linear.server import Site

__all__ = ["main"]

COSTS = ((0.0, 0.2), (0.1, 0.3), (0.3, 0.5))
COLUMNS = ("figure", "series", "x", "method", "margin", "mean", "standard_error", "instances", "failures", "quick")
DELTAS: tuple[float | None, ...] = (None, *(round(0.01 * i, 2) for i in range(101)))


@frozen(kw_only=True)
class Plan:
    """How much is run: the paper's counts, or fewer.

    Attributes:
        quick: whether counts are cut.
        seed: of everything.
        executor: where instances run.
        data: the Chiang Mai file, or None.
        out: where tables and pictures go.
    """

    quick: bool
    seed: int
    executor: Executor
    data: Path | None
    out: Path

    def count(self, full: int, quick: int) -> int:
        """Instances to run."""
        return quick if self.quick else full

    def steps(self, values: Sequence[Any], every: int) -> list[Any]:
        """Steps of the x axis; thinned when quick."""
        return list(values[::every]) if self.quick else list(values)

    def run(self, function: Callable[..., Any], count: int, *settings: Any) -> Any:
        """Results of ``function(seed, *settings)`` for each instance, stacked."""
        seeds = np.random.SeedSequence(self.seed).generate_state(count)
        columns = [[s] * count for s in settings]
        return np.array(list(self.executor.map(function, seeds.tolist(), *columns)))


def site_of(instance: Instance) -> Site:
    """The public part of an instance."""
    return Site(metric=Plane(instance.points), cost=instance.cost, rank=np.arange(len(instance.points)))


def rows_of(figure: str, series: str, x: Any, method: str, margin: str, values: Any, failed: Any, quick: bool) -> Any:
    """Return one row of a table: mean and standard error over the instances."""
    values = np.asarray(values, dtype=float)
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
    return (figure, series, x, method, margin, float(values.mean()), error, len(values), int(np.sum(failed)), quick)


# --- one instance -------------------------------------------------------------------------------------


def _over_delta(seed: int, kind: str, costs: tuple[float, float], deltas: Sequence[float | None]) -> Any:
    rng = np.random.default_rng(seed)
    instance = matern(rng, costs=costs) if kind == "matern" else poisson(rng, costs=costs)
    trial = Trial.of(site_of(instance), deltas)
    setting = Setting()
    return trial.price(instance.clients, draw_noise(rng, len(instance.points), setting.epsilon), setting)


def _over_epsilon(seed: int, epsilons: Sequence[float]) -> Any:
    rng = np.random.default_rng(seed)
    instance = matern(rng)
    n = len(instance.points)
    trial = Trial.of(site_of(instance), (None, 0.2))
    priced = [
        trial.price(instance.clients, draw_noise(rng, n, epsilon), Setting(epsilon=epsilon)) for epsilon in epsilons
    ]
    return np.array(priced)


def _of_size(seed: int, n: int) -> Any:
    rng = np.random.default_rng([seed, n])
    instance = matern(rng, n=n)
    trial = Trial.of(site_of(instance), (None, 0.2))
    priced = trial.price(instance.clients, draw_noise(rng, len(instance.points), 0.1), Setting())
    return np.concatenate([priced.ravel(), [trial.optimum(instance.clients), instance.redrawn]])


def _over_means(seed: int, means: Sequence[int], deltas: Sequence[float | None]) -> Any:
    rng = np.random.default_rng(seed)
    instance = matern(rng)
    n = len(instance.points)
    trial, setting = Trial.of(site_of(instance), deltas), Setting()
    chooser, _ = trial.auto(setting)
    found = []
    for mean in means:
        counts, noise = np.full(n, mean), draw_noise(rng, n, setting.epsilon)
        priced = trial.price(counts, noise, setting)
        auto = trial.price_auto(chooser, counts, noise, setting)
        found.append(np.concatenate([priced.ravel(), auto]))
    return np.array(found)


def _in_town(seed: int, points: Any, clients: Any, deltas: Sequence[float | None]) -> Any:
    rng = np.random.default_rng(seed)
    n = len(points)
    site = Site(metric=Plane(points), cost=rng.uniform(0.1, 0.3, n), rank=np.arange(n))
    trial, setting = Trial.of(site, deltas), Setting()
    chooser, _ = trial.auto(setting)
    noise = draw_noise(rng, n, setting.epsilon)
    priced = trial.price(clients, noise, setting)
    return np.concatenate([priced.ravel(), trial.price_auto(chooser, clients, noise, setting)])


def _repeated(seed: int, draws: int) -> Any:
    rng = np.random.default_rng(seed)
    instance = matern(rng)
    n = len(instance.points)
    trial, setting = Trial.of(site_of(instance), (None, 0.2)), Setting()
    return np.mean([trial.price(instance.clients, draw_noise(rng, n, 0.1), setting) for _ in range(draws)], 0)


def _auto_failing(seed: int, draws: int, mean: int) -> Any:
    rng = np.random.default_rng([seed, mean])
    instance = matern(rng)
    n = len(instance.points)
    trial, setting = Trial.of(site_of(instance), (None,)), Setting()
    chooser, _ = trial.auto(setting)
    counts = np.full(n, mean)
    return np.mean([trial.price_auto(chooser, counts, draw_noise(rng, n, 0.1), setting)[1] for _ in range(draws)])


# --- figures ------------------------------------------------------------------------------------------


def _name(delta: float | None) -> str:
    return "laplace" if delta is None else "reconnection"


def _delta_rows(figure: str, series: str, priced: Any, deltas: Sequence[float | None], quick: bool) -> list[Any]:
    """Rows of a figure over delta; Laplace is the same at each."""
    rows = []
    for which, kind in enumerate(KINDS):
        for place, delta in enumerate(deltas):
            costs, failed = priced[:, place, which, 0], priced[:, place, which, 1]
            rows.append(
                rows_of(figure, series, "" if delta is None else delta, _name(delta), kind, costs, failed, quick)
            )
    return rows


def fig1(plan: Plan) -> list[Any]:
    """Example instances of the Matern process, by gamma: their points."""
    rows = []
    for gamma in (1.0, 2.0, 3.0):
        instance = matern(np.random.default_rng([plan.seed, int(gamma)]), gamma=gamma)
        rows += [("fig1", f"gamma {gamma:g}", x, "location", "", y, 0.0, 1, 0, plan.quick) for x, y in instance.points]
    return rows


def fig2(plan: Plan) -> list[Any]:
    """Normalised cost over delta, clustered instances, three intervals of facility costs; 1000 instances each."""
    deltas, rows = plan.steps(DELTAS, 5), []
    for costs in COSTS:
        priced = plan.run(_over_delta, plan.count(1000, 20), "matern", costs, deltas)
        rows += _delta_rows("fig2", f"f in [{costs[0]:g}, {costs[1]:g}]", priced, deltas, plan.quick)
    return rows


def fig3a(plan: Plan) -> list[Any]:
    """Normalised cost over delta, Poisson instances; 1000 of them."""
    deltas, rows = plan.steps(DELTAS, 5), []
    for costs in COSTS:
        priced = plan.run(_over_delta, plan.count(1000, 20), "poisson", costs, deltas)
        rows += _delta_rows("fig3a", f"f in [{costs[0]:g}, {costs[1]:g}]", priced, deltas, plan.quick)
    return rows


def fig3b(plan: Plan) -> list[Any]:
    """Normalised cost over the privacy budget, .01 to 1 by .001; 100 instances."""
    epsilons = plan.steps([round(0.01 + 0.001 * i, 3) for i in range(991)], 45)
    priced = plan.run(_over_epsilon, plan.count(100, 8), epsilons)
    return [
        rows_of("fig3b", "", epsilon, method, kind, priced[:, e, m, k, 0], priced[:, e, m, k, 1], plan.quick)
        for e, epsilon in enumerate(epsilons)
        for m, method in enumerate(("laplace", "reconnection"))
        for k, kind in enumerate(KINDS)
    ]


def fig4(plan: Plan) -> list[Any]:
    """Cost over the number of locations, 100 to 5000 by 100; 500 instances each. Not normalised."""
    rows: list[Any] = []
    for n in plan.steps(range(100, 5001, 100), 12):
        found = plan.run(_of_size, plan.count(500, 5), n)
        priced, optimum, redrawn = found[:, :-2].reshape(-1, 2, 2, 2), found[:, -2], found[:, -1]
        seen = optimum > 0
        rows.append(rows_of("fig4", f"{int(redrawn.sum())} redrawn", n, "optimal", "", optimum, 0, plan.quick))
        for m, method in enumerate(("laplace", "reconnection")):
            for k, kind in enumerate(KINDS):
                values = priced[seen, m, k, 0] * optimum[seen]
                rows.append(rows_of("fig4", "", n, method, kind, values, priced[seen, m, k, 1], plan.quick))
    return rows


def fig5(plan: Plan) -> list[Any]:
    """Normalised cost over the mean count, 1 to 100; 100 instances; also auto, and the best delta of a grid."""
    means = plan.steps(range(1, 101), 11)
    deltas = (None, 0.2, *(d for d in DELTAS[1:42] if d != 0.2)) if not plan.quick else (None, 0.2, *DELTAS[1:32:3])
    found = plan.run(_over_means, plan.count(100, 6), means, deltas)
    rows = []
    for place, mean in enumerate(means):
        priced = found[:, place, :-2].reshape(len(found), len(deltas), 2, 2)
        for k, kind in enumerate(KINDS):
            for m in (0, 1):
                values, failed = priced[:, m, k, 0], priced[:, m, k, 1]
                rows.append(rows_of("fig5", "", mean, _name(deltas[m]), kind, values, failed, plan.quick))
            best = int(np.argmin(priced[:, :, k, 0].mean(axis=0)))
            label = f"best: delta {deltas[best]}" if deltas[best] is not None else "best: laplace"
            values, failed = priced[:, best, k, 0], priced[:, best, k, 1]
            rows.append(rows_of("fig5", label, mean, "best", kind, values, failed, plan.quick))
        rows.append(rows_of("fig5", "", mean, "auto", "exact", found[:, place, -2], found[:, place, -1], plan.quick))
    return rows


def _town(plan: Plan) -> tuple[Any, Any] | None:
    if plan.data is None:
        return None
    with plan.data.open(encoding="utf-8") as stream:
        table = list(csv.DictReader(stream))
    points = np.array([[float(r["x"]), float(r["y"])] for r in table])
    points = (points - points.min(axis=0)) / np.ptp(points, axis=0)
    return points, np.array([int(r["Evacuees"]) for r in table])


def fig6(plan: Plan) -> list[Any]:
    """Chiang Mai's locations and clients, on the unit square."""
    town = _town(plan)
    if town is None:
        return []
    return [
        ("fig6", f"{b} clients", x, "location", "", y, 0.0, 1, 0, plan.quick) for (x, y), b in zip(*town, strict=True)
    ]


def fig7(plan: Plan) -> list[Any]:
    """Normalised cost over delta in Chiang Mai; 100 draws of the facility costs; also auto."""
    town = _town(plan)
    if town is None:
        return []
    deltas = plan.steps(DELTAS, 5)
    found = plan.run(_in_town, plan.count(100, 10), *town, deltas)
    rows = _delta_rows("fig7", "", found[:, :-2].reshape(len(found), len(deltas), 2, 2), deltas, plan.quick)
    return [*rows, rows_of("fig7", "", "", "auto", "exact", found[:, -2], found[:, -1], plan.quick)]


def failures(plan: Plan) -> list[Any]:
    """Overflows over 10,000 runs (1000 instances, 10 draws each; promised .1) and their mean cost; delta = .2, auto."""
    draws = 10
    found = plan.run(_repeated, plan.count(1000, 20), draws)
    rows = []
    for m, method in enumerate(("laplace", "reconnection")):
        for k, kind in enumerate(KINDS):
            costs, rates = found[:, m, k, 0], found[:, m, k, 1]
            rows.append(rows_of("failures", "normalised cost", "", method, kind, costs, draws * rates, plan.quick))
            rows.append(rows_of("failures", "failure rate", "", method, kind, rates, draws * rates, plan.quick))
    for mean in (1, 5, 20, 75):
        rates = plan.run(_auto_failing, plan.count(100, 4), 100, mean)
        rows.append(rows_of("failures", "failure rate", mean, "auto", "exact", rates, 100 * rates, plan.quick))
    return rows


FIGURES: dict[str, Callable[[Plan], list[Any]]] = {
    f.__name__: f for f in (fig1, fig2, fig3a, fig3b, fig4, fig5, fig6, fig7, failures)
}
AXES = {
    "fig2": ("delta", "normalised cost"),
    "fig3a": ("delta", "normalised cost"),
    "fig3b": ("epsilon", "normalised cost"),
    "fig4": ("locations expected", "cost"),
    "fig5": ("clients a location", "normalised cost"),
    "fig7": ("delta", "normalised cost"),
}


# --- tables and pictures -------------------------------------------------------------------------------


def write_table(path: Path, rows: Sequence[Any]) -> None:
    """Write one figure's CSV."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        out = csv.writer(stream, lineterminator="\n")
        out.writerow(COLUMNS)
        out.writerows(rows)


def draw(path: Path, figure: str, rows: Sequence[Any], quick: bool) -> None:
    """Draw one figure."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    series = list(dict.fromkeys(r[1] for r in rows)) if figure in ("fig1", "fig2", "fig3a") else [None]
    shown, axes = plt.subplots(1, len(series), figsize=(5.2 * len(series), 4.2), squeeze=False)
    for axis, name in zip(axes[0], series, strict=True):
        own = [r for r in rows if name is None or r[1] == name]
        if figure in ("fig1", "fig6"):
            axis.scatter([r[2] for r in own], [r[5] for r in own], s=4)
            axis.set_aspect("equal")
        else:
            _lines(axis, own)
            axis.set_xlabel(AXES[figure][0])
            axis.set_ylabel(AXES[figure][1])
            axis.legend(fontsize="small")
        axis.set_title(" ".join([figure, name or "", "(quick)" if quick else ""]).strip(), fontsize="small")
    shown.tight_layout()
    shown.savefig(path, dpi=120)
    plt.close(shown)


def _lines(axis: Any, rows: Sequence[Any]) -> None:
    for method, margin in dict.fromkeys((r[3], r[4]) for r in rows):
        own = [r for r in rows if (r[3], r[4]) == (method, margin)]
        label = f"{method}, {margin} margin" if margin else method
        if any(r[2] == "" for r in own):  # the same at every x
            axis.axhline(own[0][5], linestyle="--", linewidth=1, label=label)
        else:
            axis.plot([r[2] for r in own], [r[5] for r in own], label=label)
    if max(r[5] for r in rows) > 8 * min(r[5] for r in rows):
        axis.set_yscale("log")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiments; returns 0."""
    parser = argparse.ArgumentParser(prog="python plugins/fl-linear/experiments", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("fl-linear-experiments"), help="folder for CSV and pictures")
    parser.add_argument("--quick", action="store_true", help="fewer instances and steps; every table says so")
    parser.add_argument("--only", nargs="+", choices=list(FIGURES), help="these alone")
    parser.add_argument("--data", type=Path, help="Chiang Mai's CSV: Node,x,y,Evacuees")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    if given.quick:
        print("quick: counts of instances and steps are cut; the figures are rough", file=sys.stderr)
    with from_url(None, given.jobs) as executor:
        plan = Plan(quick=given.quick, seed=given.seed, executor=executor, data=given.data, out=given.out)
        for name in given.only or FIGURES:
            start = time.perf_counter()
            rows = FIGURES[name](plan)
            if not rows:
                print(f"{name}: left out, for there is no --data", file=sys.stderr)
                continue
            write_table(given.out / f"{name}.csv", rows)
            if name != "failures":
                draw(given.out / f"{name}.png", name, rows, given.quick)
            print(f"{name}: {len(rows)} rows, {time.perf_counter() - start:.1f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
