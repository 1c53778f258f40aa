"""Pictures of the experiments."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from photo_censor_paper.generate import World
from privopt_photo_censor.scores import Album, Floats, Mask

__all__ = ["draw_figure_1", "draw_figure_2", "draw_figure_3", "draw_table_3"]

OPTIMAL, GREEDY, TRUE = "#1b6ca8", "#c8553d", "#2a9d55"


def _figure(rows: int, columns: int, width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _plane(features: Floats) -> Floats:
    """Two directions in which the locations differ most: a map of what looks alike."""
    centred = features - features.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    return np.asarray(centred @ axes[:2].T)


def draw_figure_1(out: Path, world: World, album: Album, kept: dict[str, Mask]) -> None:
    """Before and after: the classifier's belief over all locations, and which photos are posted."""
    figure, axes = _figure(2, len(kept), 4.0, 3.2)
    places = _plane(world.features)
    for column, (name, mask) in enumerate(kept.items()):
        scores = album.scores[mask].sum(axis=0)
        belief = np.exp(scores - scores.max())
        belief /= belief.sum()
        guesses = np.argsort(-scores, kind="stable")[:5]
        top = axes[0, column]
        top.scatter(*places.T, s=4, color="#cccccc")
        top.scatter(*places[guesses].T, s=40 + 500 * belief[guesses], color=OPTIMAL, alpha=0.6, label="best guesses")
        top.scatter(*places[album.true], marker="*", s=160, color=TRUE, label="true place")
        top.set(title=f"{name}: {int(mask.sum())} of {album.photos} photos", xticks=[], yticks=[])
        below = axes[1, column]
        order = np.argsort(-album.scores[:, album.true])
        colours = [OPTIMAL if mask[i] else "#dddddd" for i in order]
        below.bar(range(album.photos), np.exp(album.scores[order, album.true]), color=colours)
        below.set(xlabel="photo, by its true-location score", ylabel="P(true place | photo)")
    axes[0, 0].legend(loc="lower left", fontsize=7)
    figure.savefig(out / "figure1.png", dpi=120)


def draw_figure_2(out: Path, rows: Sequence[tuple[Any, ...]]) -> None:
    """Success and fraction removed over the rank of the retained photo."""
    kinds = list(dict.fromkeys(row[0] for row in rows))
    figure, axes = _figure(2, len(kinds), 3.4, 2.8)
    for line, k in enumerate((1, 5)):
        for column, kind in enumerate(kinds):
            chosen = [row for row in rows if row[0] == kind and row[1] == k]
            ranks = [row[2] for row in chosen]
            axis = axes[line, column]
            axis.plot(ranks, [row[3] for row in chosen], marker="o", color=TRUE, label="success rate")
            axis.plot(ranks, [row[4] for row in chosen], marker="s", color=OPTIMAL, label="fraction removed")
            axis.axhline(chosen[0][5], linestyle="--", color=OPTIMAL, label="removed, nothing retained")
            axis.set(title=f"{kind}, top-{k}", xlabel="rank of the retained photo", ylim=(0, 1.05))
    axes[0, 0].legend(fontsize=7)
    figure.savefig(out / "figure2.png", dpi=120)


def draw_figure_3(out: Path, rows: Sequence[tuple[Any, ...]]) -> None:
    """Success against the unknown classifier and deletions, over theta."""
    figure, axes = _figure(1, 2, 4.0, 3.0)
    for column, k in enumerate((1, 5)):
        chosen = [row for row in rows if row[1] == k]
        thetas = [row[2] for row in chosen]
        axis = axes[0, column]
        axis.plot(thetas, [row[3] for row in chosen], marker="o", color=TRUE, label="success rate")
        axis.plot(thetas, [row[4] for row in chosen], marker="s", color=OPTIMAL, label="fraction removed")
        axis.set(title=f"{chosen[0][0]}, top-{k}", xlabel="margin θ", ylim=(0, 1.05))
    axes[0, 0].legend(fontsize=7)
    figure.savefig(out / "figure3.png", dpi=120)


def draw_table_3(out: Path) -> None:
    """Protected k over the deletion budget, ours and the paper's."""
    with (out / "table3.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    kinds = [kind for kind in dict.fromkeys(row["type"] for row in rows) if kind != "Albums"]
    budgets = [name for name in rows[0] if name.endswith("%") and not name.startswith("paper")]
    figure, axes = _figure(1, len(kinds), 3.2, 3.0)
    for column, kind in enumerate(kinds):
        axis = axes[0, column]
        for row in rows:
            if row["type"] == kind:
                colour = OPTIMAL if row["method"] == "optimal" else GREEDY
                axis.plot(budgets, [float(row[b]) for b in budgets], marker="o", color=colour, label=row["method"])
                published = [float(row[f"paper_{b}"]) for b in budgets]
                axis.plot(budgets, published, linestyle=":", color=colour, label=f"{row['method']}, paper")
        axis.set(title=kind, xlabel="deletion budget", ylabel="protected k")
        axis.set_yscale("symlog", linthresh=1.0)
    axes[0, 0].legend(fontsize=7)
    figure.savefig(out / "table3.png", dpi=120)
