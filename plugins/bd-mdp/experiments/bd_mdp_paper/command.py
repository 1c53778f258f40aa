"""Tables 1 to 4 and Figures 6 to 20 of the paper."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import evolve, frozen

from bd_mdp_paper import pictures
from bd_mdp_paper.kinds import CODE, PAPER, Kinds
from bd_mdp_paper.losses import Losses
from bd_mdp_paper.runs import METHODS, Cell, Runs
from bd_mdp_paper.sizes import Sizes
from bd_mdp_paper.tables import size_tables, time_tables
from experiments.command import Study, say
from privopt_bd_mdp.problem import PARTITIONS

__all__ = ["STUDY", "Plan", "main"]


@frozen(kw_only=True)
class Plan:
    """How much is run.

    Attributes:
        records: of an instance. outputs: fewer outputs, drawn at random.
        instances: of each kind, for Tables 1 to 4. subsets: M of Tables 1 and 2; counts: M of Fig. 12.
        blocks: subsets that the mechanism itself is given.
        limit: seconds a run.
        small: records of the instances on which Benders alone is followed, and their subsets.
        sizes: records of Fig. 6.
        losses: epsilons of Fig. 7.
        epsilons: of the runs: the paper's, and the hard one.
    """

    records: int = 500
    outputs: int = 100
    instances: int = 10
    subsets: int = 25
    counts: Sequence[int] = tuple(range(25, 35))
    blocks: int = 4
    limit: float = 120.0
    small: tuple[int, int] = (24, 3)
    sizes: Sequence[int] = (500, 600, 700, 800, 900, 1000)
    losses: Sequence[float] = (2.0, 4.0, 6.0, 8.0, 10.0)
    epsilons: Sequence[float] = (10.0, 1.0)


QUICK: Final = Plan(
    records=16,
    outputs=4,
    instances=2,
    subsets=3,
    counts=(2, 3),
    blocks=2,
    limit=4.0,
    small=(8, 2),
    sizes=(12, 16),
    losses=(1.0, 2.0),
)


@frozen(kw_only=True)
class Experiments:
    """The parts, each of which may be run by itself; what stands in the sheets is not run again."""

    plan: Plan
    kinds: Kinds
    folder: Path
    runs: Runs
    sizes: Sizes
    losses: Losses

    @classmethod
    def of(cls, arguments: Namespace) -> Experiments:
        """Return the settings that the options ask for."""
        plan = QUICK if arguments.size == "quick" else Plan()
        if arguments.size == "full":
            plan = evolve(plan, limit=3600.0)
        plan = evolve(plan, limit=arguments.limit or plan.limit, instances=arguments.instances or plan.instances)
        kinds, folder = Kinds.found(arguments.data, arguments.texts, arguments.vectors), arguments.out
        for missing in sorted({*PAPER, "rome500", "helsinki"} - set(kinds.names)):
            say(f"no source for {missing}: left out")
        return cls(
            plan=plan,
            kinds=kinds,
            folder=folder,
            runs=Runs(kinds, folder),
            sizes=Sizes(kinds, folder),
            losses=Losses(kinds, folder),
        )

    @property
    def paper(self) -> list[str]:
        """The paper's kinds that there are sources for."""
        return [kind for kind in PAPER if kind in self.kinds.names]

    def cell(self, kind: str, epsilon: float, method: str, **changes: Any) -> Cell:
        """Return a cell at the plan's sizes."""
        plan = self.plan
        base = Cell(
            kind=kind, records=plan.records, epsilon=epsilon, method=method, limit=plan.limit, subsets=plan.blocks
        )
        return evolve(base, **changes)

    def small(self) -> list[Cell]:
        """Benders alone by partitioner, on small instances."""
        records, subsets = self.plan.small
        return [
            self.cell(kind, self.plan.epsilons[-1], "cold", partition=name, records=records, subsets=subsets)
            for kind in self.paper
            for name in PARTITIONS
        ]

    def racing(self) -> list[Cell]:
        """Return the ways to begin, on the small grid and on the whole one."""
        records, subsets = self.plan.small
        hard = self.plan.epsilons[-1]
        little = [
            self.cell(kind, hard, method, records=records, subsets=subsets)
            for kind in ("grid", "synthetic")
            for method in METHODS
        ]
        return [*little, *(self.cell("grid", hard, method) for method in METHODS)]

    def partitions(self) -> None:
        """Tables 1 and 2, Fig. 12 to 16."""
        for kind in self.paper:
            for seed in range(self.plan.instances):
                self.sizes.do(kind, self.plan.records, seed, self.plan.subsets)
            for count in self.plan.counts:
                self.sizes.do(kind, self.plan.records, 0, count, names=("distance-vector",))
            self.sizes.map(kind, self.plan.records, self.plan.subsets)
        self.sizes.do(CODE, self.plan.records, 0, self.plan.subsets)
        for kind in set(self.kinds.names) - set(PAPER):
            self.sizes.do(kind, self.plan.records, 0, self.plan.subsets)

    def starts(self) -> None:
        """One instance of every kind, outputs and epsilons: from the star and cold, beside optimal-lp's `auto`."""
        for method in ("benders", "auto"):
            for epsilon in self.plan.epsilons:
                for outputs in (self.plan.outputs, None):
                    for kind in self.kinds.names:
                        self.runs.do(self.cell(kind, epsilon, method, outputs=outputs))

    def begun(self) -> None:
        """Run Benders alone, from the star and from a cold start."""
        for method in ("star", "cold"):
            for epsilon in self.plan.epsilons:
                for outputs in (None, self.plan.outputs):
                    for kind in self.paper:
                        self.runs.do(self.cell(kind, epsilon, method, outputs=outputs))

    def times(self) -> None:
        """Tables 3 and 4: the default on every instance, and the general solvers on one."""
        for kind in self.paper:
            for seed in range(self.plan.instances):
                self.runs.do(self.cell(kind, self.plan.epsilons[0], "benders", seed=seed))
        for kind in self.paper:
            for method in ("simplex", "interior-point"):
                self.runs.do(self.cell(kind, self.plan.epsilons[0], method))

    def alone(self) -> None:
        """Fig. 8 to 11 and 17 to 20: Benders alone on small instances; the race of the ways to begin."""
        for cell in (*self.small(), *self.racing()):
            self.runs.do(cell)

    def growth(self) -> None:
        """Fig. 6, and the largest size at the hard epsilon."""
        for records in self.plan.sizes:
            for kind in self.paper:
                self.runs.do(self.cell(kind, self.plan.epsilons[0], "benders", records=records))
        for kind in self.paper:
            for method in ("benders", "auto"):
                self.runs.do(self.cell(kind, self.plan.epsilons[-1], method, records=self.plan.sizes[-1]))

    def loss(self) -> None:
        """Fig. 7."""
        for kind in self.paper:
            for epsilon in self.plan.losses:
                self.losses.do(kind, self.plan.records, epsilon, self.plan.limit)

    def draw(self) -> None:
        """Tables and pictures from the sheets."""
        plan, folder = self.plan, self.folder
        images = folder / "figures"
        size_tables(self.sizes, folder, (*self.kinds.names, CODE), plan.subsets)
        time_tables(self.runs, folder, self.kinds.names, plan.records)
        pictures.growth(self.runs, images, plan.sizes, plan.epsilons[0], plan.limit)
        pictures.losses(self.losses, images)
        pictures.blocks(self.runs, images, self.small())
        pictures.subsets(self.sizes, images, plan.counts)
        pictures.maps(folder, images, plan.records, plan.subsets)
        pictures.convergence(folder, images, self.small())
        pictures.races(folder, images, self.racing())


def _options(parser: ArgumentParser) -> None:
    data_folder = os.environ.get("PRIVOPT_DATA")
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(data_folder) if data_folder else None,
        help="folder of public data sets (PRIVOPT_DATA)",
    )
    parser.add_argument("--texts", type=Path, help="folder of .txt files that word vectors are trained on")
    parser.add_argument("--vectors", type=Path, help="word vectors in word2vec's or GloVe's text form instead of them")
    parser.add_argument("--limit", type=float, help="seconds for each run (120; --full 3600)")
    parser.add_argument("--instances", type=int, help="of each kind; default 10")


PARTS: Final[dict[str, Callable[[Experiments], None]]] = {
    "partitions": Experiments.partitions,
    "starts": Experiments.starts,
    "begun": Experiments.begun,
    "alone": Experiments.alone,
    "growth": Experiments.growth,
    "loss": Experiments.loss,
    "times": Experiments.times,
}

STUDY: Final = Study(
    plugin="bd-mdp",
    about=__doc__ or "",
    parts=PARTS,
    plan=Experiments.of,
    draw=Experiments.draw,
    options=_options,
    fixed=(),  # every row names its size and its limit
)
main: Final = STUDY.run
