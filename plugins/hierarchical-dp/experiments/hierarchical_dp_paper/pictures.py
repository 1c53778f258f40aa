"""The figures of the experiments, drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

__all__ = ["draw_errors", "draw_runtimes", "draw_sizes"]


def _axes(count: int, height: float = 3.2) -> tuple[Any, list[Any]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * count, height), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False)[0]
    return figure, list(axes)


STYLES: Final = ("-o", "--s", ":^")
"""Ten colours go round with each of them."""


def _methods(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(str(row["method"]) for row in rows))


def draw_errors(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """L1 error over epsilon, one panel a level (Fig. 9)."""
    depth = sum(1 for name in rows[0] if name.startswith("level_"))
    figure, axes = _axes(depth)
    for level, axis in enumerate(axes, start=1):
        for method in _methods(rows):
            own = [row for row in rows if row["method"] == method]
            axis.errorbar(
                [row["epsilon"] for row in own],
                [row[f"level_{level}"] for row in own],
                yerr=[row[f"sd_{level}"] for row in own],
                marker="o",
                markersize=3,
                linewidth=1,
                label=method,
            )
        axis.set(xlabel="epsilon", ylabel="L1 error (groups)", title=f"level {level}", xscale="log", yscale="log")
    axes[-1].legend(fontsize=6)
    figure.savefig(path, dpi=120)


def draw_runtimes(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Seconds of post-processing over epsilon (Fig. 8)."""
    figure, axes = _axes(1, 3.6)
    for method in _methods(rows):
        own = [row for row in rows if row["method"] == method]
        axes[0].plot([row["epsilon"] for row in own], [row["seconds"] for row in own], marker="o", label=method)
    axes[0].set(xlabel="epsilon", ylabel="seconds", xscale="log", yscale="log", title="post-processing")
    axes[0].legend(fontsize=6)
    figure.savefig(path, dpi=120)


def draw_sizes(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Seconds over N (Fig. 7); the legend says from which N on a method hit the time-out."""
    figure, axes = _axes(1, 3.8)
    figure.set_figwidth(8.0)
    for number, method in enumerate(_methods(rows)):
        own = [row for row in rows if row["method"] == method]
        ended = [row for row in own if not isinstance(row["seconds"], str)]
        late = next((row for row in own if isinstance(row["seconds"], str)), None)
        label = method if late is None else f"{method} ({late['seconds']} s from N = {late['N']})"
        style = STYLES[number // 10 % len(STYLES)]
        sizes, seconds = [row["N"] for row in ended], [row["seconds"] for row in ended]
        axes[0].plot(sizes, seconds, style, markersize=3, linewidth=1, color=f"C{number % 10}", label=label)
    axes[0].set(
        xlabel="N (sizes)", ylabel="seconds", yscale="log", title="post-processing, taxi-like data cut to N sizes"
    )
    figure.legend(loc="outside right center", fontsize=7)
    figure.savefig(path, dpi=120)
