"""The report of photo-censor: the album, the true place's rank before and after, and what each photo reveals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from privopt.arrays import Bools, Floats
from privopt.interfaces import Result
from privopt.interfaces.reporting import Layer, Reporting
from privopt.report import Section, drawing, figure_section, pair_section, themed
from privopt.report.theme import BAD, INK, MARK, axes_of, whole
from privopt_photo_censor.album import Album, describe_place, shorten_list
from privopt_photo_censor.app.album_report import folder_figures, folder_layer, folder_sections, left_out_sections
from privopt_photo_censor.app.tiles import SHOWN_PHOTOS, render_tiles
from privopt_photo_censor.problem import PhotoInstance
from privopt_photo_censor.rank import belief, rank
from privopt_photo_censor.release import Deletions, find_carriers

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:
    Figure = Any

__all__ = ["AlbumReport"]

SHOWN_PLACES: Final = 10
"""Number of the likeliest places that a figure shows."""


def _format_percent(probability: float) -> str:
    return f"{100 * probability:.3g} %" if probability >= 1e-5 else "under 0.001 %"


def compute_true_probabilities(album: Album) -> Floats:
    """Return (N,) P(true place | photo), which says how much each photo reveals by itself.

    The scores may be short of a constant in each row, so that they are normalised here.
    """
    # The largest score of a row is taken off before exp, which could overflow. A row of -inf has no largest one.
    max_scores = np.where(np.isneginf(album.scores).all(axis=1), 0.0, album.scores.max(axis=1))[:, None]
    weights = np.exp(album.scores - max_scores)
    return np.asarray(weights[:, album.true] / np.maximum(weights.sum(axis=1), np.finfo(np.float64).tiny))


@themed
def guess_figure(album: Album, retained: Bools, title: str, places: Sequence[str] = ()) -> Figure:
    """Draw the classifier's likeliest places, the true one in another colour, and in any case present."""
    chances, true_rank = belief(album, retained), rank(album, retained)
    order = np.argsort(-chances, kind="stable")[:SHOWN_PLACES].tolist()
    labels = [describe_place(places, j) for j in order]
    if album.true in order:
        labels[order.index(album.true)] = f"{describe_place(places, album.true)} (true)"
    else:
        order, labels = [*order, album.true], [*labels, f"{true_rank}: {describe_place(places, album.true)} (true)"]
    figure, axes = axes_of(5.6, 0.9 + 0.27 * len(order))
    colours = [BAD if j == album.true else MARK for j in order]
    bars = axes.barh(range(len(order)), chances[order], color=colours, height=0.7)
    axes.bar_label(
        bars, labels=[_format_percent(p) for p in chances[order].tolist()], padding=4, color=INK, fontsize="small"
    )
    axes.set_yticks(range(len(order)), labels)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.invert_yaxis()
    axes.margins(x=0.18)
    axes.set_xlabel("the classifier's belief")
    axes.set_title(f"{title}: the true place has rank {true_rank}")
    return figure


@themed
def photo_figure(album: Album, retained: Bools) -> Figure:
    """Draw how much each photo reveals by itself: P(true place | photo), kept and deleted."""
    chances = compute_true_probabilities(album)
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
        if not problem.declared.is_scored:
            return folder_figures(problem)
        album = problem.album
        return {
            "before": guess_figure(album, np.ones(album.photos, dtype=np.bool_), "All photos", problem.places),
            "after": guess_figure(album, release.retained, "Photos kept", problem.places),
            "photos": photo_figure(album, release.retained),
        }

    def report(self, problem: PhotoInstance, release: Deletions, result: Result) -> Sequence[Section]:
        """See :class:`Reporting`."""
        if not problem.declared.is_scored:
            return folder_sections(problem, release)
        album, figures = problem.album, self.figures(problem, release, result)
        deleted = int((~release.retained).sum())
        lead = f"{album.photos - deleted} of {album.photos} photos are kept; {deleted} stay at home. "
        sections = [
            Section(title="The album", lead=lead + _describe_metadata(release), html=_make_album_html(album, release))
        ]
        if release.problem.folder_contents is not None:
            sections += left_out_sections(
                release.problem.folder_contents, "None of this was scored: the promise does not cover it."
            )
        pictures = [
            drawing("Guesses from all photos", figures["before"]),
            drawing("Guesses from the photos kept", figures["after"]),
        ]
        lead = "What the classifier believes from all photos together, and from those that remain."
        sections.append(pair_section("The true place before and after", pictures, lead))
        lead = "The most revealing photos are not always those to go: it is the sum over all photos kept that counts."
        sections.append(figure_section("How much each photo reveals", figures["photos"], lead))
        return sections

    def geo(self, problem: PhotoInstance, release: Deletions, result: Result) -> Layer | None:
        """See :class:`Reporting`."""
        return None if problem.declared.is_scored else folder_layer(problem)


def _describe_metadata(release: Deletions) -> str:
    """Describe what the files of the retained photos carry besides their pictures, and what may be posted."""
    if release.copies is not None:
        return (
            f"Of these {len(release.copies)} clean copies were made: the pictures alone, encoded again, with no "
            "position, thumbnail or time. They were scored again as they are encoded, and keep the promise. "
            "Post the copies, not the files that they were made of."
        )
    if release.problem.folder_contents is None:
        return "What else their files carry (position, time, names) was not looked at: remove it before posting."
    carried = find_carriers(release)
    kept_names = {name for name, is_kept in zip(release.names, release.retained.tolist(), strict=True) if is_kept}
    captioned = kept_names.intersection(release.problem.folder_contents.captioned)
    if not carried:
        return (
            f"No photo kept carries a position, and {len(captioned)} carry texts, which may name a place "
            "(metadata.csv lists them). --copy-to makes clean copies."
        )
    files = "1 file carries its" if len(carried) == 1 else f"{len(carried)} files carry their"
    return (
        f"None may be posted with its metadata: of the photos kept {files} position (GPS or the name of "
        f"a place), which tells the place: {shorten_list(carried, 20)}. --copy-to makes clean copies."
    )


def _make_album_html(album: Album, release: Deletions) -> str:
    chances = compute_true_probabilities(album)
    folder_contents = release.problem.folder_contents
    positioned, captioned = (
        (set(folder_contents.positioned), set(folder_contents.captioned))
        if folder_contents is not None
        else (set(), set())
    )
    notes = []
    for row, (name, is_retained) in enumerate(zip(release.names[:SHOWN_PHOTOS], release.retained, strict=False)):
        keep_note = ", never to be deleted" if album.keep[row] else ""
        where = "<br>position in its metadata" if name in positioned else ""
        where += "<br>texts in its metadata" if name in captioned else ""
        probability = float(chances[row])
        state = f"{'kept' if is_retained else 'deleted'}{keep_note}{where}"
        bar = f'<div class="bar" aria-hidden="true"><i style="width:{min(100.0, 100 * probability):.3g}%"></i></div>'
        notes.append((f'{state}<br><span class="soft">true place {_format_percent(probability)}</span>', bar))
    return render_tiles(release, notes)
