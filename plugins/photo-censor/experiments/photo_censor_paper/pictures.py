"""Draw the pictures of photo-censor's tables."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from experiments.pictures import COLOURS, Painter, Rows, curve, dress, panels
from experiments.tables import number, split
from photo_censor_paper.generate import World
from privopt.arrays import Bools, Floats
from privopt_photo_censor.album import Album

__all__ = ["PICTURES", "before_and_after"]

OPTIMAL, GREEDY, TRUE = COLOURS[:3]


def _plane(features: Floats) -> Floats:
    """Project feature vectors (M, D) on the two directions in which they differ most, for a map (M, 2) of locations.

    These are the first two principal components, computed by a singular value decomposition.
    """
    centred = features - features.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    return np.asarray(centred @ axes[:2].T)


def before_and_after(world: World, album: Album, masks: dict[str, Bools]) -> Any:
    """Draw Figure 1: the classifier's belief over all locations, and which photos are posted.

    Args:
        world: The locations.
        album: The scores of the photos.
        masks: (N,) masks of the posted photos, by the name of the method. Each gets a column of the figure.
    """
    figure, axes = panels(len(masks), 2, 4.0, 3.2)
    places = _plane(world.features)
    for column, (name, mask) in enumerate(masks.items()):
        scores = album.scores[mask].sum(axis=0)
        # The largest score is subtracted first, so that exp does not overflow.
        belief = np.exp(scores - scores.max())
        belief /= belief.sum()
        guesses = np.argsort(-scores, kind="stable")[:5]
        top = axes[0, column]
        top.scatter(*places.T, s=4, color="#cccccc")
        top.scatter(*places[guesses].T, s=40 + 500 * belief[guesses], color=OPTIMAL, alpha=0.6, label="best guesses")
        top.scatter(*places[album.true], marker="*", s=160, color=TRUE, label="true place")
        top.set(title=f"{name}: {int(mask.sum())} of {album.photos} photos", xticks=[], yticks=[])
        lower_axis = axes[1, column]
        order = np.argsort(-album.scores[:, album.true])
        colours = [OPTIMAL if mask[i] else "#dddddd" for i in order]
        lower_axis.bar(range(album.photos), np.exp(album.scores[order, album.true]), color=colours)
        lower_axis.set(xlabel="photo, by its true-location score", ylabel="P(true place | photo)")
    axes[0, 0].legend(loc="lower left", fontsize=7)
    return figure


def _figure_2(rows: Rows) -> Any:
    """Draw Figure 2: the success rate and the share of deleted photos over the rank of the retained photo."""
    kinds = split(rows, "type")
    figure, axes = panels(len(kinds), 2, 3.4, 2.8)
    for column, (kind, of_kind) in enumerate(kinds.items()):
        for line, (k, rank_rows) in enumerate(split(of_kind, "k").items()):
            axis = axes[line, column]
            curve(axis, rank_rows, "rank_of_retained", "success", color=TRUE, label="success rate")
            curve(axis, rank_rows, "rank_of_retained", "removed_of_successes", color=OPTIMAL, label="fraction removed")
            removed_without = number(rank_rows[0]["removed_without"])
            axis.axhline(removed_without, linestyle="--", color=OPTIMAL, label="removed, nothing retained")
            dress(axis, f"{kind}, top-{k}", "rank of the retained photo", ylim=(0, 1.05))
    return figure


def _figure_3(rows: Rows) -> Any:
    """Draw Figure 3: the success rate against the unknown classifier and the share of deleted photos over theta."""
    parts = split(rows, "k")
    figure, axes = panels(len(parts), 1, 4.0, 3.0)
    for axis, (k, rank_rows) in zip(axes[0], parts.items(), strict=True):
        curve(axis, rank_rows, "theta", "success", color=TRUE, label="success rate")
        curve(axis, rank_rows, "theta", "removed", color=OPTIMAL, label="fraction removed")
        dress(axis, f"{rank_rows[0]['type']}, top-{k}", "margin θ", ylim=(0, 1.05))
    return figure


def _table_3(rows: Rows) -> Any:
    """Draw Table 3: the protected k over the deletion budget, from this run (lines) and in the paper (dots)."""
    kinds = split([row for row in rows if row["type"] != "Albums"], "type")
    budgets = [name for name in rows[0] if name.endswith("%") and not name.startswith("paper")]
    figure, axes = panels(max(1, len(kinds)), 1, 3.2, 3.0)
    for axis, (kind, kind_rows) in zip(axes[0], kinds.items(), strict=False):
        for row, colour in zip(kind_rows, (OPTIMAL, GREEDY), strict=True):
            our_values, paper_values = ([number(row[f"{prefix}{b}"]) for b in budgets] for prefix in ("", "paper_"))
            axis.plot(budgets, our_values, marker="o", color=colour, label=row["method"])
            axis.plot(budgets, paper_values, linestyle=":", color=colour, label=f"{row['method']}, paper")
        axis.set_yscale("symlog", linthresh=1.0)
        dress(axis, kind, "deletion budget", "protected k")
    return figure


PICTURES: Final[dict[str, tuple[str, Painter]]] = {
    "table3": ("table3", _table_3),
    "figure2": ("figure2", _figure_2),
    "figure3": ("figure3", _figure_3),
}
