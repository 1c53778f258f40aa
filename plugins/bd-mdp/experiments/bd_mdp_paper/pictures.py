"""The paper's figures as PNG files, drawn from the CSV files alone."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from bd_mdp_paper.kinds import PAPER
from bd_mdp_paper.losses import Losses
from bd_mdp_paper.runs import METHODS, Cell, Runs
from bd_mdp_paper.sizes import Sizes
from privopt_bd_mdp.problem import PARTITIONS

__all__ = ["blocks", "convergence", "growth", "losses", "maps", "races", "subsets"]

COLOURS: Final = ("#1b6ca8", "#d1495b", "#3a7d44", "#b8860b", "#6a4c93", "#4a4a4a")
INCHES: Final = (2.7, 2.2)


def _figure(columns: int, rows: int = 1) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(INCHES[0] * columns, INCHES[1] * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _save(figure: Any, folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{name}.png", dpi=100, metadata={"Software": None})


def _numbers(rows: Sequence[Mapping[str, str]], column: str) -> Any:
    return np.array([float(row[column]) if row[column] else np.nan for row in rows])


def _dress(axes: Any, title: str, x: str, y: str) -> None:
    axes.set_title(title, fontsize=8)
    axes.set_xlabel(x, fontsize=7)
    axes.set_ylabel(y, fontsize=7)
    axes.tick_params(which="both", labelsize=6)


def _legend(axes: Any) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=6)


def growth(runs: Runs, folder: Path, records: Sequence[int], epsilon: float, limit: float) -> None:
    """Fig. 6: seconds and rounds against the number of records."""
    figure, axes = _figure(2)
    for kind, colour in zip(PAPER, COLOURS, strict=False):
        rows = [
            row
            for n in records
            for row in runs.main.where(
                kind=kind, records=n, outputs=n, method="benders", seed=0, epsilon=f"{epsilon:g}", limit=f"{limit:g}"
            )
        ]
        x = _numbers(rows, "records")
        axes[0, 0].plot(x, _numbers(rows, "seconds"), "o-", color=colour, label=kind, markersize=3)
        turns = _numbers(rows, "rounds") + _numbers(rows, "steps")
        axes[0, 1].plot(x, turns, "o-", color=colour, label=kind, markersize=3)
    _dress(axes[0, 0], "Fig. 6(a)", "records", "seconds")
    _dress(axes[0, 1], "Fig. 6(b)", "records", "steps and rounds")
    axes[0, 0].set_yscale("log")
    axes[0, 0].legend(fontsize=6)
    _save(figure, folder, "fig-06")


def losses(sheet: Losses, folder: Path) -> None:
    """Fig. 7: the loss beside the exponential mechanism's."""
    kinds = [kind for kind in PAPER if sheet.sheet.where(kind=kind)]
    if not kinds:
        return
    figure, axes = _figure(len(kinds))
    for kind, ax in zip(kinds, axes[0], strict=True):
        rows = sorted(sheet.sheet.where(kind=kind), key=lambda row: float(row["epsilon"]))
        for column, colour in (("benders", COLOURS[0]), ("exponential", COLOURS[1])):
            ax.plot(_numbers(rows, "epsilon"), _numbers(rows, column), "o-", color=colour, label=column, markersize=3)
        _dress(ax, kind, "epsilon", "expected loss")
        ax.set_yscale("log")
    axes[0, 0].legend(fontsize=6)
    _save(figure, folder, "fig-07")


def blocks(runs: Runs, folder: Path, cells: Sequence[Cell]) -> None:
    """Fig. 8 and 9: rounds until a block is feasible; Fig. 10 and 11: seconds in blocks and master by partitioner."""
    kinds = list(dict.fromkeys(cell.kind for cell in cells))
    for name, column, label in (("08", "records_inside", "internal records"), ("09", "boundary_records", "boundary")):
        figure, axes = _figure(len(kinds))
        for kind, ax in zip(kinds, axes[0], strict=True):
            rows = [row for cell in cells if cell.kind == kind for row in runs.blocks.where(**cell.key)]
            rows = [row for row in rows if int(row["rounds_to_feasible"])]
            x, y = _numbers(rows, column), _numbers(rows, "rounds_to_feasible")
            ax.plot(x, y, "o", color=COLOURS[0], markersize=3)
            several = len(set(x)) > 1 and len(set(y)) > 1
            _dress(ax, f"{kind}, r = {np.corrcoef(x, y)[0, 1]:.2f}" if several else kind, label, "rounds to feasible")
        _save(figure, folder, f"fig-{name}")
    for name, sheet, title in (("10", runs.blocks, "a block, mean of its rounds"), ("11", runs.masters, "the master")):
        figure, axes = _figure(len(kinds))
        for kind, ax in zip(kinds, axes[0], strict=True):
            own = [cell for cell in cells if cell.kind == kind]
            names = [cell.partition for cell in own]
            some = [np.maximum(_numbers(sheet.where(**cell.key), "seconds"), 1e-5) for cell in own]
            shown = [(n, values) for n, values in zip(names, some, strict=True) if values.size]
            if shown:
                ax.boxplot([values for _, values in shown], tick_labels=[n.replace("-", "\n") for n, _ in shown])
                ax.set_yscale("log")
            _dress(ax, f"{kind}: {title}", "", "seconds")
            ax.tick_params(axis="x", labelsize=5)
        _save(figure, folder, f"fig-{name}")


def subsets(sizes: Sizes, folder: Path, counts: Sequence[int]) -> None:
    """Fig. 12: mean sizes of blocks and of the master's components against the number of subsets."""
    kinds = [kind for kind in PAPER if sizes.sheet.where(kind=kind)]
    figure, axes = _figure(len(kinds))
    for kind, ax in zip(kinds, axes[0], strict=True):
        for what, colour in (("block_mean", COLOURS[0]), ("component_mean", COLOURS[1])):
            for pairs, line in (("all", "--"), ("reduced", "-")):
                means = []
                for count in counts:
                    rows = sizes.sheet.where(kind=kind, subsets=count, pairs=pairs, partition="distance-vector")
                    means.append(float(_numbers(rows, what).mean()) if rows else np.nan)
                ax.plot(counts, means, line, color=colour, label=f"{what.split('_')[0]}, {pairs} pairs")
        _dress(ax, kind, "subsets M", "records, mean")
    axes[0, 0].legend(fontsize=5)
    _save(figure, folder, "fig-12")


def _columns(file: Path) -> dict[str, list[str]]:
    with file.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    return {name: [row[name] for row in rows] for name in (rows[0] if rows else {})}


def maps(source: Path, folder: Path, records: int, count: int) -> None:
    """Fig. 13 to 16: the subsets of each partitioner."""
    for number, kind in enumerate(PAPER, 13):
        file = source / "partitions" / f"{kind}-{records}-{count}.csv"
        if not file.exists():
            continue
        table = _columns(file)
        x, y = (np.array(table[c], dtype=np.float64) for c in "xy")
        figure, axes = _figure(len(PARTITIONS))
        for name, ax in zip(PARTITIONS, axes[0], strict=True):
            ax.scatter(x, y, c=np.array(table[name], dtype=np.int64) % 20, cmap="tab20", s=4, linewidths=0)
            _dress(ax, f"{kind}: {name}", "", "")
            ax.set_xticks([])
            ax.set_yticks([])
        _save(figure, folder, f"fig-{number}")


def _trajectory(source: Path, cell: Cell) -> tuple[Any, Any, Any] | None:
    file = source / "trajectories" / f"{cell.slug}.csv"
    table = _columns(file) if file.exists() else {}
    if not table:
        return None
    seconds, lower, upper = (np.array(table[c], dtype=np.float64) for c in ("seconds", "lower", "upper"))
    return seconds, np.where(np.isfinite(lower), lower, np.nan), upper


def convergence(source: Path, folder: Path, cells: Sequence[Cell]) -> None:
    """Fig. 17 to 20: bounds by round from a cold start, partitioner by partitioner."""
    for number, kind in enumerate(PAPER, 17):
        own = [cell for cell in cells if cell.kind == kind]
        if not own:
            continue
        figure, axes = _figure(len(own))
        for cell, ax in zip(own, axes[0], strict=True):
            found = _trajectory(source, cell)
            if found is not None:
                _, lower, upper = found
                ax.plot(upper, color=COLOURS[1], label="upper")
                ax.plot(lower, color=COLOURS[0], label="lower")
                ax.set_ylim(0.0, 1.5 * float(np.nanmin(upper)) or None)
            _dress(ax, f"{kind}: {cell.partition}", "rounds", "loss")
        _legend(axes[0, 0])
        _save(figure, folder, f"fig-{number}")


def races(source: Path, folder: Path, cells: Sequence[Cell]) -> None:
    """The gap over time of the ways to begin, on one instance each."""
    kinds = list(dict.fromkeys((cell.kind, cell.records, cell.epsilon) for cell in cells))
    if not kinds:
        return
    figure, axes = _figure(len(kinds))
    for key, ax in zip(kinds, axes[0], strict=True):
        for cell in cells:
            found = _trajectory(source, cell) if (cell.kind, cell.records, cell.epsilon) == key else None
            if found is None:
                continue
            seconds, lower, upper = found
            gap = np.maximum(100 * (upper - lower) / np.maximum(np.abs(upper), 1e-300), 1e-4)
            colour = COLOURS[list(METHODS).index(cell.method)]
            ax.plot(np.maximum(seconds, 1e-3), gap, ".-", color=colour, label=cell.method, markersize=3)
        ax.axhline(1.0, color=COLOURS[5], linewidth=0.6, linestyle=":")
        ax.set_xscale("log")
        ax.set_yscale("log")
        _dress(ax, f"{key[0]}, {key[1]} records, epsilon {key[2]:g}", "seconds", "gap, %")
    _legend(axes[0, 0])
    _save(figure, folder, "convergence")
