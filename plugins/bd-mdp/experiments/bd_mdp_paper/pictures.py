"""The paper's figures as PNG files, drawn from the CSV files alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bd_mdp_paper.kinds import PAPER
from bd_mdp_paper.losses import Losses
from bd_mdp_paper.runs import METHODS, Cell, Runs
from bd_mdp_paper.sizes import Sizes
from experiments.pictures import COLOURS, curve, dress, numbers, panels, save
from experiments.tables import read_rows
from privopt_bd_mdp.problem import PARTITIONS

__all__ = ["blocks", "convergence", "growth", "losses", "maps", "races", "subsets"]


def _panels(columns: int) -> tuple[Any, Any]:
    return panels(columns, width=2.7, height=2.2)


def growth(runs: Runs, folder: Path, records: Sequence[int], epsilon: float, limit: float) -> None:
    """Fig. 6: seconds and rounds against the number of records."""
    figure, axes = _panels(2)
    for kind, colour in zip(PAPER, COLOURS, strict=False):
        rows = [
            row
            for n in records
            for row in runs.main.where(
                kind=kind, records=n, outputs=n, method="benders", seed=0, epsilon=f"{epsilon:g}", limit=f"{limit:g}"
            )
        ]
        x = numbers(rows, "records")
        axes[0, 0].plot(x, numbers(rows, "seconds"), "o-", color=colour, label=kind, markersize=3)
        axes[0, 1].plot(x, numbers(rows, "rounds"), "o-", color=colour, label=kind, markersize=3)
    dress(axes[0, 0], "Fig. 6(a)", "records", "seconds", yscale="log")
    dress(axes[0, 1], "Fig. 6(b)", "records", "rounds")
    save(figure, folder / "fig-06.png")


def losses(sheet: Losses, folder: Path) -> None:
    """Fig. 7: the loss beside the exponential mechanism's."""
    kinds = [kind for kind in PAPER if sheet.sheet.where(kind=kind)]
    if not kinds:
        return
    figure, axes = _panels(len(kinds))
    for kind, ax in zip(kinds, axes[0], strict=True):
        for column, colour in (("benders", COLOURS[0]), ("exponential", COLOURS[1])):
            curve(ax, sheet.sheet.where(kind=kind), "epsilon", column, color=colour, label=column)
        dress(ax, kind, "epsilon", "expected loss", yscale="log")
    save(figure, folder / "fig-07.png")


def blocks(runs: Runs, folder: Path, cells: Sequence[Cell]) -> None:
    """Fig. 8 and 9: rounds until a block is feasible; Fig. 10 and 11: seconds in blocks and master by partitioner."""
    kinds = list(dict.fromkeys(cell.kind for cell in cells))
    for name, column, label in (("08", "records_inside", "internal records"), ("09", "boundary_records", "boundary")):
        figure, axes = _panels(len(kinds))
        for kind, ax in zip(kinds, axes[0], strict=True):
            rows = [row for cell in cells if cell.kind == kind for row in runs.blocks.where(**cell.key)]
            rows = [row for row in rows if int(row["rounds_to_feasible"])]
            x, y = numbers(rows, column), numbers(rows, "rounds_to_feasible")
            ax.plot(x, y, "o", color=COLOURS[0], markersize=3)
            several = len(set(x)) > 1 and len(set(y)) > 1
            dress(ax, f"{kind}, r = {np.corrcoef(x, y)[0, 1]:.2f}" if several else kind, label, "rounds to feasible")
        save(figure, folder / f"fig-{name}.png")
    for name, sheet, title in (("10", runs.blocks, "a block, mean of its rounds"), ("11", runs.masters, "the master")):
        figure, axes = _panels(len(kinds))
        for kind, ax in zip(kinds, axes[0], strict=True):
            kind_cells = [cell for cell in cells if cell.kind == kind]
            names = [cell.partition for cell in kind_cells]
            seconds_by_cell = [np.maximum(numbers(sheet.where(**cell.key), "seconds"), 1e-5) for cell in kind_cells]
            drawn_series = [(n, values) for n, values in zip(names, seconds_by_cell, strict=True) if values.size]
            if drawn_series:
                ax.boxplot(
                    [values for _, values in drawn_series], tick_labels=[n.replace("-", "\n") for n, _ in drawn_series]
                )
                ax.set_yscale("log")
            dress(ax, f"{kind}: {title}", "", "seconds")
            ax.tick_params(axis="x", labelsize=5)
        save(figure, folder / f"fig-{name}.png")


def subsets(sizes: Sizes, folder: Path, counts: Sequence[int]) -> None:
    """Fig. 12: mean sizes of blocks and of the master's components against the number of subsets."""
    kinds = [kind for kind in PAPER if sizes.sheet.where(kind=kind)]
    figure, axes = _panels(len(kinds))
    for kind, ax in zip(kinds, axes[0], strict=True):
        for measure, colour in (("block_mean", COLOURS[0]), ("component_mean", COLOURS[1])):
            for pairs, line in (("all", "--"), ("reduced", "-")):
                rows = sizes.sheet.where(kind=kind, pairs=pairs, partition="distance-vector")
                rows = [row for row in rows if int(row["subsets"]) in counts]
                label = f"{measure.split('_')[0]}, {pairs} pairs"
                curve(ax, rows, "subsets", measure, bars=False, style=line, color=colour, label=label)
        dress(ax, kind, "subsets M", "records, mean", legend=kind == kinds[0])
    save(figure, folder / "fig-12.png")


def maps(source: Path, folder: Path, records: int, count: int) -> None:
    """Fig. 13 to 16: the subsets of each partitioner."""
    for number, kind in enumerate(PAPER, 13):
        rows = read_rows(source / "partitions" / f"{kind}-{records}-{count}.csv")
        if not rows:
            continue
        x, y = numbers(rows, "x"), numbers(rows, "y")
        figure, axes = _panels(len(PARTITIONS))
        for name, ax in zip(PARTITIONS, axes[0], strict=True):
            ax.scatter(x, y, c=numbers(rows, name) % 20, cmap="tab20", s=4, linewidths=0)
            dress(ax, f"{kind}: {name}", xticks=[], yticks=[])
        save(figure, folder / f"fig-{number}.png")


def _trajectory(source: Path, cell: Cell) -> tuple[Any, Any, Any] | None:
    rows = read_rows(source / "trajectories" / f"{cell.slug}.csv")
    if not rows:
        return None
    lower = numbers(rows, "lower")
    return numbers(rows, "seconds"), np.where(np.isfinite(lower), lower, np.nan), numbers(rows, "upper")


def convergence(source: Path, folder: Path, cells: Sequence[Cell]) -> None:
    """Fig. 17 to 20: bounds by round from a cold start, partitioner by partitioner."""
    for number, kind in enumerate(PAPER, 17):
        kind_cells = [cell for cell in cells if cell.kind == kind]
        if not kind_cells:
            continue
        figure, axes = _panels(len(kind_cells))
        for cell, ax in zip(kind_cells, axes[0], strict=True):
            trajectory = _trajectory(source, cell)
            if trajectory is not None:
                _, lower, upper = trajectory
                ax.plot(upper, color=COLOURS[1], label="upper")
                ax.plot(lower, color=COLOURS[0], label="lower")
                ax.set_ylim(0.0, 1.5 * float(np.nanmin(upper)) or None)
            dress(ax, f"{kind}: {cell.partition}", "rounds", "loss")
        save(figure, folder / f"fig-{number}.png")


def races(source: Path, folder: Path, cells: Sequence[Cell]) -> None:
    """Draw the gap over time of the ways to start, on one instance each."""
    kinds = list(dict.fromkeys((cell.kind, cell.records, cell.epsilon) for cell in cells))
    if not kinds:
        return
    figure, axes = _panels(len(kinds))
    for key, ax in zip(kinds, axes[0], strict=True):
        for cell in cells:
            trajectory = _trajectory(source, cell) if (cell.kind, cell.records, cell.epsilon) == key else None
            if trajectory is None:
                continue
            seconds, lower, upper = trajectory
            gap = np.maximum(100 * (upper - lower) / np.maximum(np.abs(upper), 1e-300), 1e-4)
            colour = COLOURS[list(METHODS).index(cell.method)]
            ax.plot(np.maximum(seconds, 1e-3), gap, ".-", color=colour, label=cell.method, markersize=3)
        ax.axhline(1.0, color=COLOURS[5], linewidth=0.6, linestyle=":")
        dress(ax, f"{key[0]}, {key[1]} records, epsilon {key[2]:g}", "seconds", "gap, %", xscale="log", yscale="log")
    save(figure, folder / "convergence.png")
