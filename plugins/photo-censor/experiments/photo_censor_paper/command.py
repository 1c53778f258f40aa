"""Reproduce Tables 1 to 5 and Figures 1 to 3 of the paper on generated collections, with the optimum next to greedy.

As in the paper, Table 2 and Figures 2 and 3 average over the collections whose place is exposed before any deletion,
and Table 3 over all collections.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from attrs import evolve, field, frozen

from experiments import pictures as drawing
from experiments.command import Study
from experiments.tables import Row, Sheet
from photo_censor_paper.generate import COLLECTIONS, LOCATIONS, World, collections
from photo_censor_paper.pictures import PICTURES, before_and_after
from photo_censor_paper.published import published_row
from privopt.arrays import Bools
from privopt.errors import InfeasibleError, StoppedError
from privopt.execution.clock import limit
from privopt_photo_censor.album import Album, Task
from privopt_photo_censor.rank import protected_k
from privopt_photo_censor.solver.baselines import greedy
from privopt_photo_censor.solver.optimal import Plan, solve

__all__ = ["STUDY", "Effort", "Tables", "main"]

BUDGETS: Final = (0.125, 0.25, 0.375, 0.5)
"""Deletion budgets of Table 3, as shares of a collection."""
KINDS: Final = ("R-16", "R-32", "R-64", "R-128")


@frozen(kw_only=True)
class Effort:
    """The numbers of collections and settings that are tried.

    Attributes:
        counts: Number of collections of each type.
        singles: Number of single photos in Table 1.
        seconds: Time limit of one optimisation in seconds. Optimisations that are not proved then are counted.
        ranks: Ranks of the retained photo in Figure 2, as shares of the collection.
        thetas: Margins of Figure 3.
        figure_counts: Number of collections of each type in Figures 2 and 3.
        figure_kinds: Types of collections in Figure 2.
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
        """Return the effort of a usual run: 200 collections of each size, 40 of R-128 and 400 albums."""
        return cls(counts={"R-16": 200, "R-32": 200, "R-64": 200, "R-128": 40, "Albums": 400})

    @classmethod
    def quick(cls) -> Effort:
        """Return the effort of a test that takes a minute. Its averages are too rough to compare with the paper's."""
        return cls(
            counts={"R-16": 6, "R-32": 3, "R-64": 2, "R-128": 1, "Albums": 3},
            singles=200,
            seconds=2.0,
            ranks=(0.0, 0.5),
            thetas=(0.0, 0.4),
            figure_counts=2,
            figure_kinds=("R-16", "R-32"),
        )


@frozen(kw_only=True)
class Tables:
    """The tables of a run, and the numbers of its optimisations that were not proved.

    Attributes:
        out: Folder of the tables and pictures.
        effort: The numbers of collections and settings.
        seed: Seed of the generated collections.
        proofs: The table with the number of optimisations of each part, and how many of them were not proved in time.
    """

    out: Path
    effort: Effort
    seed: int = 0
    proofs: Sheet = field(init=False)
    _counted: dict[str, list[bool]] = field(factory=dict, init=False)

    @proofs.default
    def _open_proofs(self) -> Sheet:
        return Sheet(self.out / "proofs.csv", ("what",), ("solved", "unproved_within_limit"))

    def optimum(self, part: str, album: Album, task: Task) -> Plan:
        """Return the optimal plan of an album, and count whether it was proved within the time limit.

        Args:
            part: Name under which the optimisation is counted in proofs.csv.
            album: The scores.
            task: A top-k or a deletion budget.
        """
        with limit(self.effort.seconds):
            plan = solve(album, task)
        self._counted.setdefault(part, []).append(bool(plan.proved))
        return plan

    def once(self, sheet: Sheet, key: Row, make: Callable[[], Iterable[Row]]) -> None:
        """Add the rows of a key to a table unless it has them, after the numbers of their optimisations to proofs.csv.

        Args:
            sheet: The table.
            key: The columns that identify the rows.
            make: Computes the rows, without the columns of the key.
        """

        def make_and_count() -> list[Row]:
            """Compute the rows, and write how many of their optimisations were proved."""
            self._counted.clear()
            rows = list(make())
            for part, is_proved in self._counted.items():
                proof_counts = {"solved": len(is_proved), "unproved_within_limit": is_proved.count(False)}
                self.proofs.once({"what": part}, lambda: [proof_counts])  # noqa: B023
            return rows

        sheet.once(key, make_and_count)

    def sheet(self, name: str, key: Sequence[str], values: Sequence[str], paper: Sequence[str] = ()) -> Sheet:
        """Return a table that grows row by row.

        Args:
            name: Name of the file without ``.csv``.
            key: Columns that identify a row.
            values: The other columns.
            paper: Those of ``values`` that the paper states too. Its values get columns that begin with ``paper_``.
        """
        return Sheet(self.out / f"{name}.csv", key, [*values, *(f"paper_{n}" for n in paper)])

    def albums(self, kind: str) -> list[Album]:
        """Return the collections of one type."""
        return list(collections(kind, self.effort.counts[kind], self.seed))


def _mean(values: Sequence[float]) -> float:
    """Return the mean of some values, or NaN if there are none."""
    return float(np.mean(values)) if len(values) else float("nan")


def table_1(tables: Tables) -> None:
    """Write Table 1: the classifier's accuracy for single photos and for collections, and the mean protected k."""
    names = ["top1", "top5", "protected_k"]
    sheet = tables.sheet("table1", ["type"], ["count", *names], names)

    def make(kind: str) -> list[Row]:
        """Return the row of one type of collection, with the paper's values."""
        single = kind == "single"
        albums = collections(kind, tables.effort.singles, tables.seed) if single else tables.albums(kind)
        protected_counts = np.array([protected_k(album) for album in albums])
        # The true place is among the k best guesses if fewer than k places rank at or above it.
        row = {
            "top1": float((protected_counts < 1).mean()),
            "top5": float((protected_counts < 5).mean()),
            "protected_k": float(protected_counts.mean()),
        }
        return [{"count": len(protected_counts), **row, **published_row("table1", kind, names)}]

    for kind in ("single", *COLLECTIONS):
        tables.once(sheet, {"type": kind}, lambda: make(kind))  # noqa: B023


def table_2(tables: Tables) -> None:
    """Write Table 2: the share of photos deleted for top-1 and top-5 privacy.

    It averages over the collections whose place is among the 1 or 5 best guesses before any deletion.
    """
    names = ["top1_optimal", "top1_greedy", "top5_optimal", "top5_greedy"]
    sheet = tables.sheet("table2", ["type"], names, names)

    def make(kind: str) -> list[Row]:
        """Return the row of one type of collection, with the paper's values."""
        cells: list[float] = []
        for k in (1, 5):
            exposed_albums = [album for album in tables.albums(kind) if protected_k(album) < k]
            best, base = [], []
            for album in exposed_albums:
                pair = _pair(tables, f"table2 {kind} top-{k}", album, Task(top_k=k))
                if pair is not None:
                    best.append(pair[0].deleted_count / album.photos)
                    base.append(pair[1].deleted_count / album.photos)
            cells += [_mean(best), _mean(base)]
        return [{**dict(zip(names, cells, strict=True)), **published_row("table2", kind, names)}]

    for kind in COLLECTIONS:
        tables.once(sheet, {"type": kind}, lambda: make(kind))  # noqa: B023


def _pair(tables: Tables, part: str, album: Album, task: Task) -> tuple[Plan, Plan] | None:
    """Return the optimal and the greedy plan of an album, or None if it cannot be protected or time ran out.

    Args:
        tables: Counts the optimisation.
        part: Name under which the optimisation is counted.
        album: The scores.
        task: A top-k or a deletion budget.
    """
    try:
        return tables.optimum(part, album, task), _greedy_or_all(album, task)
    except (InfeasibleError, StoppedError):
        return None


def _greedy_or_all(album: Album, task: Task) -> Plan:
    """Return the greedy plan. It may delete all photos, which always protects the place."""
    return greedy(evolve(album, keep_at_least=0), task)


def tables_3_and_4(tables: Tables) -> None:
    """Write Table 3 (the protected k by deletion budget) and Table 4 (the deletions that a larger budget takes back).

    Both average over all collections.
    """
    names, change_columns = [f"{budget:.1%}" for budget in BUDGETS], ["12.5_to_25", "25_to_50"]
    sheet = tables.sheet("table3", ["type", "method"], names, names)
    change_sheet = tables.sheet("table4", ["type"], change_columns, change_columns)

    def make(kind: str) -> list[Row]:
        """Add the row of one type to Table 4, and return its two rows of Table 3 (optimal and greedy)."""
        # The paper has no larger budgets for albums.
        budgets = BUDGETS[:2] if kind == "Albums" else BUDGETS
        best, base, taken_back = _by_budget(tables, kind, budgets)
        if taken_back is not None:
            row = {
                **dict(zip(change_columns, map(_mean, taken_back), strict=True)),
                **published_row("table4", kind, change_columns),
            }
            change_sheet.once({"type": kind}, lambda: [row])
        return [
            {
                "method": name,
                **dict(zip(names, map(_mean, values), strict=False)),
                **published_row("table3", f"{kind} {name}", names),
            }
            for name, values in (("optimal", best), ("greedy", base))
        ]

    for kind in COLLECTIONS:
        tables.once(sheet, {"type": kind}, lambda: make(kind))  # noqa: B023


def _by_budget(
    tables: Tables, kind: str, budgets: Sequence[float]
) -> tuple[list[list[float]], list[list[float]], list[list[float]] | None]:
    """Solve all collections of a type under several deletion budgets.

    Args:
        tables: The collections, and the count of optimisations.
        kind: The type of collections.
        budgets: The budgets, as shares of a collection.

    Returns:
        The protected k of the optimum by budget and collection; the same of greedy; and for the steps from 12.5 to 25 %
        and from 25 to 50 % the share of the photos deleted under the smaller budget that the larger one retains. The
        last is None unless all four budgets are tried.
    """
    best: list[list[float]] = [[] for _ in budgets]
    base: list[list[float]] = [[] for _ in budgets]
    taken_back: list[list[float]] = [[], []]
    for album in tables.albums(kind):
        retained: list[Bools] = []
        for index, budget in enumerate(budgets):
            task = Task(budget=int(budget * album.photos))
            plan = tables.optimum(f"table3 {kind} {budget:.1%}", album, task)
            retained.append(plan.retained)
            best[index].append(plan.protected)
            base[index].append(greedy(album, task).protected)
        if len(budgets) == 4:
            # Positions of 12.5 and 25 %, and of 25 and 50 %, in BUDGETS.
            for index, (smaller, larger) in enumerate(((0, 1), (1, 3))):
                is_deleted = ~retained[smaller]
                if is_deleted.any():
                    taken_back[index].append(float((is_deleted & retained[larger]).sum() / is_deleted.sum()))
    return best, base, taken_back if len(budgets) == 4 else None


def table_5(tables: Tables) -> None:
    """Write Table 5: the example of Observation 1, in which greedy deletes N photos in vain and the optimum is 2."""
    sheet = tables.sheet("table5", ["N"], ["photos", "greedy", "optimal"])
    third, epsilon = 1.0 / 3.0, 0.1
    a = (third - epsilon) ** 2 * (third - 2 * epsilon) / (2 * (third + epsilon) ** 2)

    def make() -> Iterable[Row]:
        """Yield a row for each number N of photos that favour no place."""
        for uniform in (1, 4, 16, 64, 256):
            # (photos, places) probabilities; the true place is the last one.
            p = np.array(
                [[third] * 3] * uniform
                + [
                    [a, 2 * third + epsilon - a, third - epsilon],
                    [2 * third + epsilon - a, a, third - epsilon],
                    [third + epsilon, third + epsilon, third - 2 * epsilon],
                ]
            )
            album = Album(scores=np.log(p), true=2)
            best = tables.optimum("table5", album, Task(top_k=2)).deleted_count
            yield {
                "N": uniform,
                "photos": album.photos,
                "greedy": greedy(album, Task(top_k=2)).deleted_count,
                "optimal": best,
            }

    tables.once(sheet, {}, make)


def figure_2(tables: Tables) -> None:
    """Write Figure 2: how often a place can be hidden although one photo must stay, and the share of photos deleted.

    The retained photo has a given rank among the photos by their true-location score S_it, the highest first.
    """
    values = ["success", "removed_of_successes", "removed_without"]
    sheet = tables.sheet("figure2", ["type", "k", "rank_of_retained"], values)

    def make(kind: str, k: int) -> Iterable[Row]:
        """Yield a row for each rank of the retained photo, for one type of collection and one k."""
        albums, photos = tables.albums(kind)[: tables.effort.figure_counts], int(kind[2:])
        exposed_albums = [album for album in albums if protected_k(album) < k]
        part = f"figure2 {kind} top-{k}"
        # The shares of deleted photos if no photo must stay, to compare with.
        free = [tables.optimum(part, album, Task(top_k=k)).deleted_count / album.photos for album in exposed_albums]
        for rank_share in tables.effort.ranks:
            rank = min(int(rank_share * photos), photos - 1)
            removed = []
            for album in exposed_albums:
                is_retained = np.zeros(album.photos, dtype=np.bool_)
                is_retained[np.argsort(-album.scores[:, album.true], kind="stable")[rank]] = True
                try:
                    plan = tables.optimum(part, evolve(album, keep=is_retained), Task(top_k=k))
                except (InfeasibleError, StoppedError):
                    continue
                removed.append(plan.deleted_count / album.photos)
            success = len(removed) / len(exposed_albums) if exposed_albums else float("nan")
            results = (success, _mean(removed), _mean(free))
            yield {"rank_of_retained": rank + 1, **dict(zip(values, results, strict=True))}

    for kind in tables.effort.figure_kinds:
        for k in (1, 5):
            tables.once(sheet, {"type": kind, "k": k}, lambda: make(kind, k))  # noqa: B023


def figure_3(tables: Tables) -> None:
    """Write Figure 3 (black-box protection): plans made with a proxy's scores, judged by another classifier's scores.

    The proxy's scores get the margin theta. A plan succeeds if the other classifier's scores protect k places.
    """
    sheet = tables.sheet("figure3", ["type", "k", "theta"], ["success", "removed"])
    rng, difference = np.random.default_rng([tables.seed, 3]), 0.15
    kind = "R-128" if "R-128" in tables.effort.figure_kinds else tables.effort.figure_kinds[-1]
    pairs = []
    for _ in range(tables.effort.figure_counts):
        world = World.draw(rng)
        proxy, judge = world.other(rng, difference), world.other(rng, difference)
        location = int(rng.integers(LOCATIONS))
        photos = world.photos(rng, location, int(kind[2:]))
        pairs.append(tuple(Album(scores=w.scores(photos), true=location) for w in (proxy, judge)))

    def make(k: int) -> Iterable[Row]:
        """Yield a row for each margin, over the collections that the judging classifier locates."""
        exposed_pairs = [pair for pair in pairs if protected_k(pair[1]) < k]
        for theta in tables.effort.thetas:
            wins, removed = [], []
            for proxy_album, judge_album in exposed_pairs:
                task = Task(top_k=k)
                plan = tables.optimum(f"figure3 top-{k}", evolve(proxy_album, margin=theta, keep_at_least=0), task)
                wins.append(protected_k(judge_album, plan.retained) >= k)
                removed.append(plan.deleted_count / judge_album.photos)
            yield {"theta": theta, "success": _mean(wins), "removed": _mean(removed)}

    for k in (1, 5):
        tables.once(sheet, {"type": kind, "k": k}, lambda: make(k))  # noqa: B023


def figure_1(tables: Tables) -> None:
    """Write Figure 1: a collection of 16 photos in which greedy deletes many more photos than the optimum for top-5."""
    guesses = [f"guess_{n}" for n in range(1, 6)]
    sheet = tables.sheet("figure1", ["photos"], ["deleted", "rank_of_true", *guesses])

    def make() -> Iterable[Row]:
        """Draw the picture, and yield a row for all photos and for those that each method retains."""
        world, album, masks = _example(tables)
        drawing.save(before_and_after(world, album, masks), tables.out / "figure1.png")
        for name, mask in masks.items():
            order = np.argsort(-album.scores[mask].sum(axis=0), kind="stable")[:5].tolist()
            row = {"deleted": int((~mask).sum()), "rank_of_true": protected_k(album, mask) + 1}
            yield {"photos": name, **row, **dict(zip(guesses, order, strict=True))}

    tables.once(sheet, {}, make)


def _example(tables: Tables) -> tuple[World, Album, dict[str, Bools]]:
    """Return the collection, of several, in which greedy deletes the most photos beyond the optimum.

    Returns:
        The locations, the album, and the masks of all photos and of those that each method retains, by name.

    Raises:
        StoppedError: No collection has both plans.
    """
    rng = np.random.default_rng([tables.seed, 1])
    best: tuple[int, World, Album, dict[str, Bools]] | None = None
    for _ in range(max(3, tables.effort.figure_counts)):
        world = World.draw(rng)
        location = int(rng.integers(LOCATIONS))
        album = Album(scores=world.scores(world.photos(rng, location, 16)), true=location)
        # An album whose place is not the best guess anyway is taken only if there is no other.
        if protected_k(album) > 0 and best is not None:
            continue
        pair = _pair(tables, "figure1", album, Task(top_k=5))
        if pair is None:
            continue
        ahead = pair[1].deleted_count - pair[0].deleted_count
        if best is None or ahead > best[0]:
            everything = np.ones(album.photos, dtype=np.bool_)
            best = (
                ahead,
                world,
                album,
                {"all photos": everything, "greedy": pair[1].retained, "optimal": pair[0].retained},
            )
    if best is None:
        raise StoppedError("no example for Figure 1 among so few collections")
    return best[1:]


def _plan(arguments: Namespace) -> Tables:
    """Return the tables and the effort for the options of the command line."""
    effort = Effort.quick() if arguments.size == "quick" else Effort.whole()
    if arguments.scale != 1.0:
        counts = {kind: max(1, round(n * arguments.scale)) for kind, n in effort.counts.items()}
        effort = evolve(effort, counts=counts, figure_counts=max(1, round(effort.figure_counts * arguments.scale)))
    return Tables(out=arguments.out, effort=effort, seed=arguments.seed)


def _options(parser: ArgumentParser) -> None:
    """Add the options of this study to the parser of the command line."""
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the numbers of collections")


PARTS: Final[dict[str, Callable[[Tables], Any]]] = {
    "table1": table_1,
    "table5": table_5,
    "figure1": figure_1,
    "table2": table_2,
    "table3": tables_3_and_4,
    "figure2": figure_2,
    "figure3": figure_3,
}

STUDY: Final = Study(
    plugin="photo-censor",
    about=__doc__ or "",
    parts=PARTS,
    plan=_plan,
    draw=lambda tables: drawing.draw(tables.out, PICTURES),
    options=_options,
    fixed=("size", "seed", "scale"),
)
main: Final = STUDY.run
