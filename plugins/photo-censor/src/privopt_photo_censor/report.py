"""The report on a photo-censor release: the album, the true place's rank, and what each photo reveals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from privopt.arrays import Bools, Figure, Floats
from privopt.declare.notebook import format_percent
from privopt.errors import number_of
from privopt.interfaces import Result
from privopt.interfaces.reporting import Layer, Reporting
from privopt.report import Section, drawing, figure_section, pair_section, use_theme
from privopt.report.charts import rows_of
from privopt.report.templates import Markup
from privopt.report.theme import BAD, INK, MARK, add_legend, axes_of, use_whole_ticks
from privopt_photo_censor.album import Album, conjugate_carry, describe_place, shorten_list
from privopt_photo_censor.app.album_report import folder_figures, folder_layer, folder_sections, left_out_sections
from privopt_photo_censor.app.tiles import SHOWN_PHOTOS, render_tiles
from privopt_photo_censor.problem import PhotoInstance
from privopt_photo_censor.rank import belief, rank
from privopt_photo_censor.release import Deletions, find_carriers

__all__ = ["AlbumReport"]

SHOWN_PLACES: Final = 10
"""The maximum number of places to show in a figure, most likely first. The true place is added if it is not among
them."""
TINY: Final = 1e-300
"""The smallest probability shown in the report, so that underflowing probabilities are not shown as exactly 0."""


def compute_true_probabilities(album: Album) -> Floats:
    """Return P(true place | photo) for each photo, as an array of shape (N,).

    This probability shows how much a photo reveals on its own. Each photo's scores are normalised first, because they
    are log-probabilities only up to a constant.
    """
    # Each row's largest score is subtracted, so that exp does not overflow. In a row of -inf, nothing is subtracted.
    max_scores = np.where(np.isneginf(album.scores).all(axis=1), 0.0, album.scores.max(axis=1))[:, None]
    weights = np.exp(album.scores - max_scores)
    return np.asarray(weights[:, album.true] / np.maximum(weights.sum(axis=1), np.finfo(np.float64).tiny))


@use_theme
def guess_figure(album: Album, retained: Bools, title: str, places: Sequence[str] = ()) -> Figure:
    """Draw a bar chart of the most likely places according to the classifier's posterior for a set of photos.

    The true place is always included, and is shown in a different colour.

    Args:
        album: The scores.
        retained: (N,) A mask of the photos that the classifier sees.
        title: The start of the figure's title, to which the rank of the true place is appended.
        places: The names of the places, if known.
    """
    chances, true_rank = belief(album, retained), rank(album, retained)
    order = np.argsort(-chances, kind="stable")[:SHOWN_PLACES].tolist()
    frequency = Counter(places)

    def name(place: int) -> str:
        """Return a place's name if it is unique, or otherwise a description that includes the place's column."""
        is_unique = place < len(places) and places[place] and frequency[places[place]] == 1
        return places[place] if is_unique else describe_place(places, place)

    labels = [name(j) for j in order]
    if album.true in order:
        labels[order.index(album.true)] = f"{name(album.true)} (true)"
    else:
        # If the true place is not among the likeliest, it is added at the end, with its rank.
        order, labels = [*order, album.true], [*labels, f"{true_rank}: {name(album.true)} (true)"]
    figure, axes, rows = rows_of(labels, "the classifier's belief (%)", width=5.6, row=0.27)
    colours = [BAD if j == album.true else MARK for j in order]
    bars = axes.barh(rows, 100 * chances[order], color=colours, height=0.7)
    percentages = [format_percent(max(chance, TINY)) for chance in chances[order].tolist()]
    axes.bar_label(bars, labels=percentages, padding=4, color=INK, fontsize=9)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.margins(x=0.18)
    axes.set_title(f"{title}: the true place is guess {true_rank}")
    return figure


@use_theme
def photo_figure(album: Album, retained: Bools) -> Figure:
    """Draw a bar chart of P(true place | photo), which shows how much each photo reveals on its own.

    Args:
        album: The scores.
        retained: (N,) A mask of the retained photos. Deleted photos are shown in a different colour.
    """
    chances = compute_true_probabilities(album)
    order = np.argsort(-chances, kind="stable")
    figure, axes = axes_of(7.6, 3.0)
    rows, chances = np.arange(1, album.photos + 1), 100 * chances
    for mask, colour, name in ((retained, MARK, "kept"), (~retained, BAD, "deleted")):
        axes.bar(rows[mask[order]], chances[order][mask[order]], color=colour, width=0.8, label=name)
    use_whole_ticks(axes.xaxis)
    axes.set_xlabel("photos, the most revealing first")
    axes.set_ylabel("belief in the true place (%)")
    add_legend(figure)
    return figure


class AlbumReport(Reporting[PhotoInstance, Deletions]):
    """The report on a photo-censor release: the album, and the classifier's guesses before and after the deletions.

    If the photos were not scored by a classifier, the report shows what their files reveal instead.
    """

    def figures(self, problem: PhotoInstance, release: Deletions, result: Result) -> Mapping[str, Figure]:
        """Return the report's figures by name: the guesses before and after deletion, and how much each photo reveals.

        For a folder without a classifier, the only figure is a map of the photos' positions, if any are known.
        """
        if not problem.declared.is_scored:
            return folder_figures(problem)
        album = problem.album
        return {
            "before": guess_figure(album, np.ones(album.photos, dtype=np.bool_), "All photos", problem.places),
            "after": guess_figure(album, release.retained, "Photos kept", problem.places),
            "photos": photo_figure(album, release.retained),
        }

    def report(self, problem: PhotoInstance, release: Deletions, result: Result) -> Sequence[Section]:
        """Return the sections of the report in order."""
        if not problem.declared.is_scored:
            return folder_sections(problem, release)
        album, figures = problem.album, self.figures(problem, release, result)
        deleted = int((~release.retained).sum())
        kept, stay = album.photos - deleted, "stays" if deleted == 1 else "stay"
        verb = "is" if kept == 1 else "are"
        lead = (
            f"{kept} of {number_of(album.photos, 'photo')} {verb} kept; {deleted} {stay} at home (marked as deleted; "
            f"your own files are untouched). {_describe_metadata(release)} Bars show how sure the classifier is of the "
            "true place from each photo alone."
        )
        sections = [Section(title="The album", lead=lead, html=_make_tiles(album, release))]
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
        lead = (
            "How sure the classifier is of the true place from each photo alone. The most revealing ones are not "
            "always those to go: what all photos kept say together counts."
        )
        sections.append(figure_section("How much each photo reveals", figures["photos"], lead))
        return sections

    def geo(self, problem: PhotoInstance, release: Deletions, result: Result) -> Layer | None:
        """Return a map layer with the photos' positions, or None if the photos have scores or no position is known."""
        return None if problem.declared.is_scored else folder_layer(problem)


def _describe_metadata(release: Deletions) -> str:
    """Return one or more sentences that say what the retained photos' files reveal, and which files may be posted."""
    if release.copies is not None:
        verb = "was" if len(release.copies) == 1 else "were"
        return (
            f"{number_of(len(release.copies), 'clean copy')} of those kept {verb} made: the pictures alone, encoded "
            "again, with no position, thumbnail or time. They were scored again as they are encoded, and keep the "
            "promise. Post the copies, not the files that they were made of."
        )
    if release.problem.folder_contents is None:
        return "What else their files carry (position, time, names) was not looked at: remove it before posting."
    # `carried` are the retained photos whose files reveal a position, and `captioned` those whose files contain texts.
    carried = find_carriers(release)
    kept_names = {name for name, is_kept in zip(release.names, release.retained.tolist(), strict=True) if is_kept}
    captioned = kept_names.intersection(release.problem.folder_contents.photos_with_texts)
    if not carried:
        return (
            f"No photo kept carries a position, and {len(captioned)} {conjugate_carry(len(captioned))} texts, which "
            "may name a place (metadata.csv lists them). --copy-to makes clean copies."
        )
    files = "1 file carries its" if len(carried) == 1 else f"{len(carried)} files carry their"
    return (
        f"None may be posted with its metadata: of the photos kept {files} position (GPS or the name of "
        f"a place), which tells the place: {shorten_list(carried, 20)}. --copy-to makes clean copies."
    )


def _make_tiles(album: Album, release: Deletions) -> Markup:
    """Render one HTML tile per photo, with its status, its metadata, and P(true place | photo) as a bar.

    Args:
        album: The scores.
        release: The release, which provides the names of the photos and identifies the retained photos.
    """
    chances = compute_true_probabilities(album)
    contents = release.problem.folder_contents
    positioned, captioned = (
        (set(), set()) if contents is None else (set(contents.photos_with_position), set(contents.photos_with_texts))
    )
    notes = []
    # The lengths differ if the album is large, because only the first SHOWN_PHOTOS photos have a tile.
    for row, (name, is_retained) in enumerate(zip(release.names[:SHOWN_PHOTOS], release.retained, strict=False)):
        keep_note = ", never to be deleted" if album.keep[row] else ""
        probability = float(chances[row])
        lines = [f"{'kept' if is_retained else 'deleted'}{keep_note}"]
        lines += ["position in its metadata"] * (name in positioned) + ["texts in its metadata"] * (name in captioned)
        remark = f"true place {format_percent(max(probability, TINY))}"
        notes.append((lines, remark, min(1.0, probability)))
    return render_tiles(release, notes)
