"""The paper's experiments on generated collections: ``python plugins/photo-censor/experiments --out FOLDER``.

Tables 1 to 5 and Figures 1 to 3 as CSV and pictures, optimal beside greedy. As in the paper Table 2 and Figures 2 and
3 average over the collections that were exposed in the first place, Table 3 over all.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from attrs import define, evolve, field, frozen

from photo_censor_paper.generate import COLLECTIONS, LOCATIONS, World, collections
from privopt.errors import InfeasibleError, StoppedError
from privopt_photo_censor.greedy import greedy
from privopt_photo_censor.optimal import Plan, solve
from privopt_photo_censor.rank import protected_k
from privopt_photo_censor.scores import Album, Mask, Task

__all__ = ["PAPER", "Effort", "Tables", "main"]

BUDGETS: Final = (0.125, 0.25, 0.375, 0.5)
KINDS: Final = ("R-16", "R-32", "R-64", "R-128")

PAPER: Final[dict[str, dict[str, tuple[float | None, ...]]]] = {
    "table1": {
        "single": (0.20, 0.38, 59.58),
        "R-16": (0.97, 1.00, 0.06),
        "R-32": (0.99, 1.00, 0.01),
        "R-64": (1.00, 1.00, 0.00),
        "R-128": (1.00, 1.00, 0.00),
        "Albums": (0.20, 0.39, 53.51),
    },
    "table2": {
        "R-16": (0.32, 0.37, 0.45, 0.53),
        "R-32": (0.31, 0.43, 0.47, 0.59),
        "R-64": (0.31, 0.49, 0.48, 0.64),
        "R-128": (0.31, 0.53, 0.49, 0.68),
        "Albums": (0.21, 0.33, 0.31, 0.39),
    },
    "table3": {
        "R-16 optimal": (0.67, 3.00, 10.20, 29.12),
        "R-16 greedy": (0.46, 1.88, 6.22, 17.67),
        "R-32 optimal": (0.17, 1.14, 4.84, 17.49),
        "R-32 greedy": (0.07, 0.42, 1.90, 7.15),
        "R-64 optimal": (0.05, 0.57, 2.87, 10.20),
        "R-64 greedy": (0.02, 0.09, 0.57, 2.80),
        "R-128 optimal": (0.03, 0.38, 2.06, 8.07),
        "R-128 greedy": (0.01, 0.03, 0.21, 1.29),
        "Albums optimal": (77.09, 103.18, None, None),
        "Albums greedy": (70.78, 86.31, None, None),
    },
    "table4": {"R-16": (0.27, 0.10), "R-32": (0.32, 0.15), "R-64": (0.34, 0.19), "R-128": (0.33, 0.22)},
}
"""What the paper's tables say, in their columns' order."""


@frozen(kw_only=True)
class Effort:
    """How much is done.

    Attributes:
        counts: collections of each type.
        singles: single photos of Table 1.
        seconds: limit of one optimisation; what is unproved then is counted and reported.
        ranks: ranks of the retained photo in Figure 2, as shares of the collection.
        thetas: margins of Figure 3.
        figure_counts: collections of each type in Figures 2 and 3.
        figure_kinds: types in Figure 2.
    """

    counts: dict[str, int]
    singles: int = 4000
    seconds: float = 60.0
    ranks: tuple[float, ...] = (0.0, 0.125, 0.25, 0.375, 0.5, 0.75)
    thetas: tuple[float, ...] = (0.0, 0.1, 0.2, 0.4, 0.6, 0.8)
    figure_counts: int = 40
    figure_kinds: tuple[str, ...] = KINDS

    @classmethod
    def whole(cls) -> Effort:
        """At least 200 collections a size, 40 of R-128."""
        return cls(counts={"R-16": 200, "R-32": 200, "R-64": 200, "R-128": 40, "Albums": 400})

    @classmethod
    def quick(cls) -> Effort:
        """A minute, for tests: shows that everything runs, not what it finds."""
        return cls(
            counts={"R-16": 6, "R-32": 3, "R-64": 2, "R-128": 1, "Albums": 3},
            singles=200,
            seconds=2.0,
            ranks=(0.0, 0.5),
            thetas=(0.0, 0.4),
            figure_counts=2,
            figure_kinds=("R-16", "R-32"),
        )


@define(kw_only=True)
class Tables:
    """What has been measured, table by table, and how many optimisations stayed unproved."""

    out: Path
    effort: Effort
    seed: int = 0
    say: Callable[[str], None] = lambda line: None
    unproved: dict[str, int] = field(factory=dict)
    solved: dict[str, int] = field(factory=dict)

    def optimum(self, what: str, album: Album, task: Task) -> Plan:
        """Solve, and count what is not proved within the limit."""
        plan = solve(album, task, deadline=time.monotonic() + self.effort.seconds)
        self.solved[what] = self.solved.get(what, 0) + 1
        self.unproved[what] = self.unproved.get(what, 0) + (not plan.engine)
        return plan

    def write(self, name: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Write one table as CSV."""
        with (self.out / f"{name}.csv").open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(header)
            writer.writerows([f"{v:.4f}" if isinstance(v, float) else v for v in row] for row in rows)
        self.say(f"{name}.csv")

    def albums(self, kind: str) -> list[Album]:
        """The collections of one type."""
        return list(collections(kind, self.effort.counts[kind], self.seed))


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def _published(table: str, row: str) -> tuple[Any, ...]:
    return tuple("" if value is None else value for value in PAPER[table][row])


def table_1(tables: Tables) -> None:
    """Accuracy of single photos and of collections, and the mean protected k."""
    rows = []
    for kind in ("single", *COLLECTIONS):
        drawn = collections(kind, tables.effort.singles, tables.seed) if kind == "single" else tables.albums(kind)
        above = np.array([protected_k(album) for album in drawn])
        found = (float((above < 1).mean()), float((above < 5).mean()), float(above.mean()))
        rows.append((kind, len(above), *found, *_published("table1", kind)))
    names = ("top1", "top5", "protected_k")
    tables.write("table1", ["type", "count", *names, *(f"paper_{n}" for n in names)], rows)


def table_2(tables: Tables) -> None:
    """Fraction deleted for top-1 and top-5 privacy, of the collections exposed in that sense."""
    rows = []
    for kind in COLLECTIONS:
        cells: list[float] = []
        for k in (1, 5):
            exposed = [album for album in tables.albums(kind) if protected_k(album) < k]
            best, base = [], []
            for album in exposed:
                pair = _pair(tables, f"table2 {kind} top-{k}", album, Task(top_k=k))
                if pair is not None:
                    best.append(pair[0].deleted / album.photos)
                    base.append(pair[1].deleted / album.photos)
            cells += [_mean(best), _mean(base)]
        rows.append((kind, *cells, *_published("table2", kind)))
    names = ("top1_optimal", "top1_greedy", "top5_optimal", "top5_greedy")
    tables.write("table2", ["type", *names, *(f"paper_{n}" for n in names)], rows)


def _pair(tables: Tables, what: str, album: Album, task: Task) -> tuple[Plan, Plan] | None:
    """Optimal and greedy on one collection; None where it cannot be protected by deleting less than all."""
    try:
        return tables.optimum(what, album, task), _greedy_or_all(album, task)
    except (InfeasibleError, StoppedError):
        return None


def _greedy_or_all(album: Album, task: Task) -> Plan:
    """Greedy; where it runs out it has deleted everything."""
    return greedy(evolve(album, keep_at_least=0), task)


def tables_3_and_4(tables: Tables) -> None:
    """Protected k under deletion budgets, of all collections; and how many deletions a larger budget takes back."""
    rows, changed = [], []
    for kind in COLLECTIONS:
        budgets = BUDGETS[:2] if kind == "Albums" else BUDGETS
        best: list[list[float]] = [[] for _ in budgets]
        base: list[list[float]] = [[] for _ in budgets]
        back: list[list[float]] = [[], []]
        for album in tables.albums(kind):
            kept: list[Mask] = []
            for place, share in enumerate(budgets):
                task = Task(budget=int(share * album.photos))
                plan = tables.optimum(f"table3 {kind} {share:.1%}", album, task)
                kept.append(plan.kept)
                best[place].append(plan.protected)
                base[place].append(greedy(album, task).protected)
            if len(budgets) == 4:
                for place, (less, more) in enumerate(((0, 1), (1, 3))):
                    gone = ~kept[less]
                    if gone.any():
                        back[place].append(float((gone & kept[more]).sum() / gone.sum()))
        for name, values in (("optimal", best), ("greedy", base)):
            means = [_mean(v) for v in values] + [""] * (4 - len(values))
            rows.append((kind, name, *means, *_published("table3", f"{kind} {name}")))
        if len(budgets) == 4:
            changed.append((kind, *map(_mean, back), *_published("table4", kind)))
    names = [f"{share:.1%}" for share in BUDGETS]
    tables.write("table3", ["type", "method", *names, *(f"paper_{n}" for n in names)], rows)
    header = ["type", "12.5_to_25", "25_to_50", "paper_12.5_to_25", "paper_25_to_50"]
    tables.write("table4", header, changed)


def table_5(tables: Tables, epsilon: float = 0.1) -> None:
    """Observation 1: greedy deletes N photos in vain, the optimum is 2."""
    rows = []
    third = 1.0 / 3.0
    a = (third - epsilon) ** 2 * (third - 2 * epsilon) / (2 * (third + epsilon) ** 2)
    for uniform in (1, 4, 16, 64, 256):
        p = np.array(
            [[third] * 3] * uniform
            + [
                [a, 2 * third + epsilon - a, third - epsilon],
                [2 * third + epsilon - a, a, third - epsilon],
                [third + epsilon, third + epsilon, third - 2 * epsilon],
            ]
        )
        album = Album(scores=np.log(p), true=2)
        best = tables.optimum("table5", album, Task(top_k=2))
        rows.append((uniform, album.photos, greedy(album, Task(top_k=2)).deleted, best.deleted))
    tables.write("table5", ["N", "photos", "greedy", "optimal"], rows)


def figure_2(tables: Tables) -> list[tuple[Any, ...]]:
    """Retaining the photo of a given rank by S_it: success and fraction removed."""
    rows: list[tuple[Any, ...]] = []
    for kind in tables.effort.figure_kinds:
        drawn = tables.albums(kind)[: tables.effort.figure_counts]
        for k in (1, 5):
            exposed = [album for album in drawn if protected_k(album) < k]
            what = f"figure2 {kind} top-{k}"
            free = [tables.optimum(what, album, Task(top_k=k)).deleted / album.photos for album in exposed]
            for share in tables.effort.ranks:
                place = min(int(share * int(kind[2:])), int(kind[2:]) - 1)
                removed = []
                for album in exposed:
                    keep = np.zeros(album.photos, dtype=np.bool_)
                    keep[np.argsort(-album.scores[:, album.true], kind="stable")[place]] = True
                    try:
                        plan = tables.optimum(what, evolve(album, keep=keep), Task(top_k=k))
                    except (InfeasibleError, StoppedError):
                        continue
                    removed.append(plan.deleted / album.photos)
                success = len(removed) / len(exposed) if exposed else float("nan")
                rows.append((kind, k, place + 1, success, _mean(removed), _mean(free)))
    header = ["type", "k", "rank_of_retained", "success", "removed_of_successes", "removed_without"]
    tables.write("figure2", header, rows)
    return rows


def figure_3(tables: Tables, apart: float = 0.15) -> list[tuple[Any, ...]]:
    """Black box: planned on a proxy's scores with margin theta, judged by another classifier's."""
    rng = np.random.default_rng([tables.seed, 3])
    kind = "R-128" if "R-128" in tables.effort.figure_kinds else tables.effort.figure_kinds[-1]
    pairs = []
    for _ in range(tables.effort.figure_counts):
        world = World.draw(rng)
        proxy, judge = world.other(rng, apart), world.other(rng, apart)
        location = int(rng.integers(LOCATIONS))
        photos = world.photos(rng, location, int(kind[2:]))
        pairs.append(tuple(Album(scores=w.scores(photos), true=location) for w in (proxy, judge)))
    rows: list[tuple[Any, ...]] = []
    for k in (1, 5):
        exposed = [pair for pair in pairs if protected_k(pair[1]) < k]
        for theta in tables.effort.thetas:
            wins, removed = [], []
            for proxy_album, judge_album in exposed:
                task = Task(top_k=k)
                plan = tables.optimum(f"figure3 top-{k}", evolve(proxy_album, margin=theta, keep_at_least=0), task)
                wins.append(protected_k(judge_album, plan.kept) >= k)
                removed.append(plan.deleted / judge_album.photos)
            rows.append((kind, k, theta, _mean(wins), _mean(removed)))
    tables.write("figure3", ["type", "k", "theta", "success", "removed"], rows)
    return rows


def figure_1(tables: Tables) -> tuple[World, Album, dict[str, Mask]]:
    """One R-16 collection where greedy deletes many more photos than the optimum for top-5."""
    rng = np.random.default_rng([tables.seed, 1])
    best: tuple[int, World, Album, dict[str, Mask]] | None = None
    for _ in range(max(3, tables.effort.figure_counts)):
        world = World.draw(rng)
        location = int(rng.integers(LOCATIONS))
        album = Album(scores=world.scores(world.photos(rng, location, 16)), true=location)
        if protected_k(album) > 0 and best is not None:
            continue
        pair = _pair(tables, "figure1", album, Task(top_k=5))
        if pair is None:
            continue
        ahead = pair[1].deleted - pair[0].deleted
        if best is None or ahead > best[0]:
            everything = np.ones(album.photos, dtype=np.bool_)
            best = ahead, world, album, {"all photos": everything, "greedy": pair[1].kept, "optimal": pair[0].kept}
    if best is None:
        raise StoppedError("no example for Figure 1 among so few collections")
    _, world, album, kept = best
    rows = []
    for name, mask in kept.items():
        scores = album.scores[mask].sum(axis=0)
        order = np.argsort(-scores, kind="stable")[:5]
        rows.append((name, int((~mask).sum()), protected_k(album, mask) + 1, *order.tolist()))
    tables.write("figure1", ["photos", "deleted", "rank_of_true", *(f"guess_{n}" for n in range(1, 6))], rows)
    return world, album, kept


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything."""
    parser = argparse.ArgumentParser(prog="python plugins/photo-censor/experiments", description=main.__doc__)
    parser.add_argument("--out", type=Path, default=Path("photo-censor-experiments"), help="folder to write")
    parser.add_argument("--quick", action="store_true", help="a minute's worth, to see that it runs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the numbers of collections")
    chosen = parser.parse_args(arguments)
    effort = Effort.quick() if chosen.quick else Effort.whole()
    if chosen.scale != 1.0:
        counts = {kind: max(1, round(n * chosen.scale)) for kind, n in effort.counts.items()}
        effort = evolve(effort, counts=counts, figure_counts=max(1, round(effort.figure_counts * chosen.scale)))
    chosen.out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - start:7.1f} s  {line}", file=sys.stderr)

    tables = Tables(out=chosen.out, effort=effort, seed=chosen.seed, say=say)
    from photo_censor_paper.pictures import draw_figure_1, draw_figure_2, draw_figure_3, draw_table_3

    table_1(tables)
    table_5(tables)
    draw_figure_1(chosen.out, *figure_1(tables))
    table_2(tables)
    tables_3_and_4(tables)
    draw_table_3(chosen.out)
    draw_figure_2(chosen.out, figure_2(tables))
    draw_figure_3(chosen.out, figure_3(tables))
    counted = ((what, number, tables.unproved[what]) for what, number in tables.solved.items())
    tables.write("proofs", ["what", "solved", "unproved_within_limit"], counted)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
