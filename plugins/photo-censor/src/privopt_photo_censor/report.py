"""The report's body: the album, kept and deleted; the true place's rank before and after; top places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from privopt.arrays import Bools, Floats
from privopt.interfaces import Result
from privopt.interfaces.reporting import Layer, Reporting
from privopt.report import Section, drawing, figure_section, pair_section, themed
from privopt.report.theme import BAD, INK, MARK, axes_of, whole
from privopt_photo_censor.album import Album, label, some
from privopt_photo_censor.app.album_report import folder_figures, folder_layer, folder_sections, left_out_sections
from privopt_photo_censor.app.tiles import SHOWN_PHOTOS, tiles
from privopt_photo_censor.problem import PhotoInstance
from privopt_photo_censor.rank import belief, rank
from privopt_photo_censor.release import Deletions, carriers

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:
    Figure = Any

__all__ = ["AlbumReport"]

SHOWN_PLACES: Final = 10
"""Places that figures and table show, the likeliest."""


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %" if share >= 1e-5 else "under 0.001 %"


def revealing(album: Album) -> Floats:
    """Return (N,) how much each photo reveals by itself: P(true place | photo), of scores that need no sum of 1."""
    top = np.where(np.isneginf(album.scores).all(axis=1), 0.0, album.scores.max(axis=1))[:, None]
    weights = np.exp(album.scores - top)
    return np.asarray(weights[:, album.true] / np.maximum(weights.sum(axis=1), np.finfo(np.float64).tiny))


@themed
def guess_figure(album: Album, retained: Bools, title: str, places: Sequence[str] = ()) -> Figure:
    """Draw the classifier's likeliest places, the true one in another colour."""
    chances, place = belief(album, retained), rank(album, retained)
    order = np.argsort(-chances, kind="stable")[:SHOWN_PLACES].tolist()
    labels = [label(places, j) for j in order]
    if album.true in order:
        labels[order.index(album.true)] = f"{label(places, album.true)} (true)"
    else:
        order, labels = [*order, album.true], [*labels, f"{place}: {label(places, album.true)} (true)"]
    figure, axes = axes_of(5.6, 0.9 + 0.27 * len(order))
    colours = [BAD if j == album.true else MARK for j in order]
    drawn = axes.barh(range(len(order)), chances[order], color=colours, height=0.7)
    axes.bar_label(drawn, labels=[_percent(p) for p in chances[order].tolist()], padding=4, color=INK, fontsize="small")
    axes.set_yticks(range(len(order)), labels)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.invert_yaxis()
    axes.margins(x=0.18)
    axes.set_xlabel("the classifier's belief")
    axes.set_title(f"{title}: the true place has rank {place}")
    return figure


@themed
def photo_figure(album: Album, retained: Bools) -> Figure:
    """Draw how much each photo reveals by itself: P(true place | photo), kept and deleted."""
    chances = revealing(album)
    order = np.argsort(-chances, kind="stable")
    figure, axes = axes_of(7.6, 3.0)
    rows = np.arange(album.photos)
    for mask, colour, name in ((retained, MARK, "kept"), (~retained, BAD, "deleted")):
        axes.bar(rows[mask[order]], chances[order][mask[order]], color=colour, width=0.8, label=name)
    whole(axes.xaxis)
    axes.set_xlabel("photos, the most revealing first")
    axes.set_ylabel("P(true place | photo)")
    axes.legend()
    return figure


class AlbumReport(Reporting[PhotoInstance, Deletions]):
    """The album, ranks before and after, top places; of an unscored folder what its photos reveal."""

    def figures(self, problem: PhotoInstance, release: Deletions, result: Result) -> Mapping[str, Figure]:
        """See :class:`Reporting`."""
        if not problem.declared.scored:
            return folder_figures(problem)
        album = problem.album
        return {
            "before": guess_figure(album, np.ones(album.photos, dtype=np.bool_), "All photos", problem.places),
            "after": guess_figure(album, release.kept, "Photos kept", problem.places),
            "photos": photo_figure(album, release.kept),
        }

    def report(self, problem: PhotoInstance, release: Deletions, result: Result) -> Sequence[Section]:
        """See :class:`Reporting`."""
        if not problem.declared.scored:
            return folder_sections(problem, release)
        album, drawn = problem.album, self.figures(problem, release, result)
        deleted = int((~release.kept).sum())
        lead = f"{album.photos - deleted} of {album.photos} photos are kept; {deleted} stay at home. "
        made = [Section(title="The album", lead=lead + _metadata(release), html=_album(album, release))]
        if release.problem.seen is not None:
            made += left_out_sections(release.problem.seen, "None of this was scored: the promise does not cover it.")
        pictures = [
            drawing("Guesses from all photos", drawn["before"]),
            drawing("Guesses from the photos kept", drawn["after"]),
        ]
        lead = "What the classifier believes from all photos together, and from those that remain."
        made.append(pair_section("The true place before and after", pictures, lead))
        lead = "The most revealing photos are not always those to go: it is the sum over all photos kept that counts."
        made.append(figure_section("How much each photo reveals", drawn["photos"], lead))
        return made

    def geo(self, problem: PhotoInstance, release: Deletions, result: Result) -> Layer | None:
        """See :class:`Reporting`."""
        return None if problem.declared.scored else folder_layer(problem)


def _metadata(release: Deletions) -> str:
    """Describe what the files of the photos kept contain apart from their pictures, and which of them may be posted."""
    if release.copies is not None:
        return (
            f"Of these {len(release.copies)} clean copies were made: the pictures alone, encoded again, with no "
            "position, thumbnail or time. They were scored again as they are encoded, and keep the promise. "
            "Post the copies, not the files that they were made of."
        )
    if release.problem.seen is None:
        return "What else their files carry (position, time, names) was not looked at: remove it before posting."
    carried = carriers(release)
    kept_names = {name for name, is_kept in zip(release.names, release.kept.tolist(), strict=True) if is_kept}
    captioned = kept_names.intersection(release.problem.seen.captioned)
    if not carried:
        return (
            f"No photo kept carries a position, and {len(captioned)} carry texts, which may name a place "
            "(metadata.csv lists them). --copy-to makes clean copies."
        )
    files = "1 file carries its" if len(carried) == 1 else f"{len(carried)} files carry their"
    return (
        f"None may be posted with its metadata: of the photos kept {files} position (GPS or the name of "
        f"a place), which tells the place: {some(carried, 20)}. --copy-to makes clean copies."
    )


def _album(album: Album, release: Deletions) -> str:
    chances = revealing(album)
    seen = release.problem.seen
    positioned, captioned = (set(seen.positioned), set(seen.captioned)) if seen is not None else (set(), set())
    notes = []
    for row, (name, kept) in enumerate(zip(release.names[:SHOWN_PHOTOS], release.kept, strict=False)):
        wish = ", never to be deleted" if album.keep[row] else ""
        where = "<br>position in its metadata" if name in positioned else ""
        where += "<br>texts in its metadata" if name in captioned else ""
        share = float(chances[row])
        state = f"{'kept' if kept else 'deleted'}{wish}{where}"
        bar = f'<div class="bar" aria-hidden="true"><i style="width:{min(100.0, 100 * share):.3g}%"></i></div>'
        notes.append((f'{state}<br><span class="soft">true place {_percent(share)}</span>', bar))
    return tiles(release, notes)
