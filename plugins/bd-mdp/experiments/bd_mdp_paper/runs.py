"""One run of one method on one instance, as rows of the sheets."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import define, field, frozen

from bd_mdp_paper.kinds import Kinds
from experiments.command import say
from experiments.tables import Row, Sheet, write_rows
from privopt.errors import PrivoptError, UsageError
from privopt.execution.clock import Clock, clock
from privopt.interfaces import SolveContext
from privopt_bd_mdp.model import PMO
from privopt_bd_mdp.problem import Decomposition
from privopt_bd_mdp.solver import decompose
from privopt_metric_dp.solvers.instance import Instance

__all__ = ["METHODS", "Cell", "Runs"]

GAP: Final = 1e-2

METHODS: Final[dict[str, dict[str, Any]]] = {
    "cold": {"start": "cold"},
    "star": {"start": "star"},
    "benders": {},
}
"""Benders alone from a cold start (the paper's method) and from the star; the default."""

OTHERS: Final = ("auto", "simplex", "interior-point")
"""What optimal-lp takes, and HiGHS on the whole model."""

KEY: Final = ("kind", "seed", "records", "outputs", "epsilon", "method", "partition", "subsets", "limit")
VALUES: Final = (
    "status",
    "rounds",
    "found_by",
    "seconds",
    "cpu_seconds",
    "shown",
    "gap",
    "loss",
    "lower_bound",
    "boundary",
    "blocks",
    "largest_block",
    "master_seconds",
    "block_seconds",
)


@frozen(kw_only=True)
class Cell:
    """What is run: the key of a row."""

    kind: str
    records: int
    epsilon: float
    method: str
    limit: float
    seed: int = 0
    outputs: int | None = None
    partition: str = "minimum-boundary"
    subsets: int = 4

    @property
    def key(self) -> dict[str, Any]:
        """As the sheet has it; methods without a partition have none."""
        parted = self.method in METHODS
        return {
            "kind": self.kind,
            "seed": self.seed,
            "records": self.records,
            "outputs": self.outputs or self.records,
            "epsilon": f"{self.epsilon:g}",
            "method": self.method,
            "partition": self.partition if parted else "",
            "subsets": self.subsets if parted else "",
            "limit": f"{self.limit:g}",
        }

    @property
    def slug(self) -> str:
        """A file name."""
        return "-".join(str(part) for part in self.key.values() if part != "").replace(" ", "-")


@define(eq=False)
class Runs:
    """The sheets of all runs in a folder.

    Attributes:
        kinds: sources.
        folder: of the CSV files.
        main: a row a run. blocks: a row a block of runs with Benders rounds. masters: a row a round.
    """

    kinds: Kinds
    folder: Path
    main: Sheet = field(init=False)
    blocks: Sheet = field(init=False)
    masters: Sheet = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.main = Sheet(self.folder / "runs.csv", KEY, VALUES)
        value_columns = ("records_inside", "boundary_records", "rounds_to_feasible", "seconds")
        self.blocks = Sheet(self.folder / "blocks.csv", (*KEY, "block"), value_columns)
        self.masters = Sheet(self.folder / "masters.csv", (*KEY, "round"), ("seconds",))

    def do(self, cell: Cell) -> None:
        """Run a cell that is not in the sheet yet, and keep it."""
        if self.main.has(**cell.key):
            return
        instance = self.kinds.make(cell.kind, cell.records, cell.seed).instance(cell.epsilon, cell.outputs, cell.seed)
        start_cpu_seconds = time.process_time()
        if cell.method in METHODS:
            row = self._benders(cell, instance)
        elif cell.method in OTHERS:
            row = _by_auto(cell, instance) if cell.method == "auto" else _by_highs(cell, instance)
        else:
            raise UsageError(f"method {cell.method!r}; expected one of {', '.join([*METHODS, *OTHERS])}")
        row["cpu_seconds"] = f"{time.process_time() - start_cpu_seconds:.2f}"
        seconds_text = row["seconds"] if row["status"] == "optimal" else f"> {cell.limit:g}"
        self.main.add({**cell.key, **row, "shown": seconds_text})
        say(", ".join(f"{name} {value}" for name, value in {**cell.key, **row}.items() if value != ""))

    def _benders(self, cell: Cell, instance: Instance) -> dict[str, Any]:
        start_seconds = time.monotonic()
        context = SolveContext(method="benders", solver="highs", gap=GAP, search_time=Clock(cell.limit, clock()))
        decomposition = Decomposition(partition=cell.partition, subsets=cell.subsets, **METHODS[cell.method])  # type: ignore[arg-type]
        try:
            solution = decompose(instance, decomposition, context)
        except PrivoptError as error:
            return {"status": f"failed: {error}", "seconds": f"{time.monotonic() - start_seconds:.2f}"}
        seconds, parts = time.monotonic() - start_seconds, solution.details["parts"]
        self._keep_trajectory(cell, solution.trajectory)
        self.blocks.once(cell.key, lambda: _blocks(parts))
        self.masters.once(cell.key, lambda: _masters(parts))
        return {
            "status": solution.status,
            "rounds": sum(part["rounds"] for part in parts),
            "found_by": solution.method,
            "seconds": f"{seconds:.2f}",
            "gap": f"{solution.gap:.3g}",
            "loss": solution.objective,
            "lower_bound": solution.lower_bound,
            "boundary": sum(part["boundary"] for part in parts),
            "blocks": sum(part["blocks"] for part in parts),
            "largest_block": max((part["largest_block"] for part in parts), default=0),
            "master_seconds": f"{sum(part.get('master_seconds', 0.0) for part in parts):.3f}",
            "block_seconds": f"{sum(part.get('block_seconds', 0.0) for part in parts):.3f}",
        }

    def _keep_trajectory(self, cell: Cell, trajectory: Any) -> None:
        rows = (
            {"step": step, "seconds": f"{t:.4f}", "lower": low, "upper": high}
            for step, (t, low, high) in enumerate(trajectory)
        )
        write_rows(self.folder / "trajectories" / f"{cell.slug}.csv", ("step", "seconds", "lower", "upper"), rows)


def _blocks(parts: Sequence[dict[str, Any]]) -> Iterator[Row]:
    """Yield a row a block of the parts of an instance that had Benders rounds."""
    columns = ("block_sizes", "block_boundaries", "rounds_to_feasible_by_block", "seconds_by_block")
    for number, part in enumerate(parts):
        if "seconds_by_block" not in part:
            continue
        rows = zip(*(part[column] for column in columns), strict=True)
        for block, (inside_count, around, first, seconds) in enumerate(rows):
            yield {
                "block": f"{number}.{block}",
                "records_inside": inside_count,
                "boundary_records": around,
                "rounds_to_feasible": first,
                "seconds": f"{seconds / max(part['rounds'], 1):.5f}",
            }


def _masters(parts: Sequence[dict[str, Any]]) -> Iterator[Row]:
    """Yield a row a round of the master."""
    for number, part in enumerate(parts):
        if "seconds_by_block" in part:
            for turn, seconds in enumerate(part["master_seconds_by_round"], 1):
                yield {"round": f"{number}.{turn}", "seconds": f"{seconds:.5f}"}


def _by_auto(cell: Cell, instance: Instance) -> dict[str, Any]:
    from privopt_metric_dp.solvers.auto import solve

    start_seconds = time.monotonic()
    try:
        answer = solve(instance, gap=GAP, search_time=Clock(cell.limit, clock()))
    except PrivoptError as error:
        return {"status": f"failed: {error}", "seconds": f"{time.monotonic() - start_seconds:.2f}"}
    return {
        "status": answer.status,
        "seconds": f"{time.monotonic() - start_seconds:.2f}",
        "gap": f"{answer.gap:.3g}",
        "loss": answer.objective,
        "lower_bound": answer.lower_bound,
    }


def _by_highs(cell: Cell, instance: Instance) -> dict[str, Any]:
    from privopt.backends import get

    start_seconds = time.monotonic()
    highs_method = "ipm" if cell.method == "interior-point" else "simplex"
    try:
        form = PMO.of(instance).form
        remaining_seconds = cell.limit - (time.monotonic() - start_seconds)
        answer = (
            get("highs").solve(form, time_limit=remaining_seconds, method=highs_method)
            if remaining_seconds > 0
            else None
        )
    except PrivoptError as error:
        return {"status": f"failed: {error}", "seconds": f"{time.monotonic() - start_seconds:.2f}"}
    is_optimal = answer is not None and answer.outcome.value == "optimal"
    return {
        "status": "optimal" if is_optimal else "stopped",
        "seconds": f"{time.monotonic() - start_seconds:.2f}",
        "loss": answer.objective if answer is not None and answer.objective is not None else "",
    }
