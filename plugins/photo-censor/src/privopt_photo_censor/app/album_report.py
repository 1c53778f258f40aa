"""Report sections on what the photos' metadata and names reveal, with a table, a map and guessed positions."""

from __future__ import annotations

from typing import Final

import numpy as np

from privopt.arrays import Figure
from privopt.errors import number_of
from privopt.interfaces.reporting import Feature, Layer, Section
from privopt.report import figure_section, table_section, use_theme
from privopt.report.charts import orient_map, set_up_map
from privopt.report.theme import BAD, MARK, add_legend, axes_of
from privopt_photo_censor.album import conjugate_carry
from privopt_photo_censor.app.guesses import guesses
from privopt_photo_censor.app.metadata import FolderContents, Metadata, Point
from privopt_photo_censor.app.naming import describe_revelation
from privopt_photo_censor.app.tiles import render_tiles
from privopt_photo_censor.problem import PhotoInstance
from privopt_photo_censor.release import Deletions

__all__ = ["folder_figures", "folder_layer", "folder_sections", "left_out_sections"]

SHOWN_CHARACTERS: Final = 160
"""The maximum number of characters from a photo's texts to show next to its picture. The table shows the full texts."""


def _locate_photos(problem: PhotoInstance) -> dict[str, tuple[Point, bool]]:
    """Map photo names to positions, each paired with a flag indicating whether the position is a guess.

    Photos whose position is unknown and cannot be guessed are omitted.
    """
    points_by_name = {photo.photo: (photo.point, False) for photo in problem.folder.metadata if photo.point is not None}
    return points_by_name | {name: (guess.point, True) for name, guess in guesses(problem.folder.metadata).items()}


@use_theme
def _draw_map(points: dict[str, tuple[Point, bool]]) -> Figure:
    """Draw a map of the photos' known and guessed positions.

    Args:
        points: A mapping from photo names to pairs of a position (latitude and longitude in degrees) and a flag
            indicating whether the position is a guess.
    """
    figure, axes = axes_of(7.6, 4.6)
    places, labels, latitude = orient_map(np.array([point for point, _ in points.values()]))
    is_guessed = np.array([guessed for _, guessed in points.values()])
    for mask, colour, marker, label in (
        (~is_guessed, BAD, "o", "position in the file"),
        (is_guessed, MARK, "x", "guessed"),
    ):
        if mask.any():
            axes.plot(*places[mask].T, marker, color=colour, ms=8, mew=2, label=f"{label} ({mask.sum()})")
    set_up_map(axes, labels, latitude=latitude, margin=0.15)
    # Equal scales are achieved by widening the ranges of the axes instead of shrinking the box.
    axes.set_adjustable("datalim")
    axes.tick_params(axis="x", rotation=30)
    add_legend(figure)
    return figure


def folder_figures(problem: PhotoInstance) -> dict[str, Figure]:
    """Return the figures for the report on a folder of photos processed without a classifier.

    The only figure is a map, named ``map``. It is omitted if no photo has a known or guessed position.
    """
    points = _locate_photos(problem)
    return {"map": _draw_map(points)} if points else {}


def folder_layer(problem: PhotoInstance) -> Layer | None:
    """Return a map layer with a point for each known or guessed position, or None if there are no positions."""
    features = [
        Feature(path=((lon, lat),), properties={"photo": name, "guessed": guessed})
        for name, ((lat, lon), guessed) in _locate_photos(problem).items()
    ]
    return Layer(kind="geographic", features=features) if features else None


def folder_sections(problem: PhotoInstance, release: Deletions) -> list[Section]:
    """Return the sections of the report on a folder of photos processed without a classifier.

    The sections show the album, a map of positions, what each photo reveals, guessed positions, and the files that were
    left out. The map, the guesses and the list of files are omitted if they would be empty.

    Args:
        problem: The problem, with the contents of the folder.
        release: The release, with its thumbnails and clean copies.
    """
    album = problem.folder.metadata
    placed_count = sum(photo.place for photo in album)
    guessed = guesses(album)
    captioned_count = len(problem.folder.photos_with_texts)
    photos = number_of(len(album), "photo")
    verb, pictures = ("reveals", "its picture") if placed_count == 1 else ("reveal", "their pictures")
    lead = f"{placed_count} of {photos} {verb} a position or a place apart from {pictures}"
    # No program can tell whether a text names a place, so photos with texts are counted separately.
    if captioned_count:
        lead = (
            f"Of {photos} {placed_count} {conjugate_carry(placed_count)} a position or a place's name; "
            f"{captioned_count} {conjugate_carry(captioned_count)} texts, which may name one"
        )
    unread_count = sum(bool(photo.unread) for photo in album)
    if unread_count:
        lead += f". {unread_count} {conjugate_carry(unread_count)} data that was not read, such as a maker note"
    lead = f"{lead}. {_describe_copies(release)}"
    # A tile shows lines of text and then the time. None means that it has no bar, because the photos have no scores.
    notes = [(_describe_photo(photo, photo.photo in guessed), photo.taken, None) for photo in album]
    sections = [Section(title="The album", lead=lead, html=render_tiles(release, notes))]
    figures = folder_figures(problem)
    if figures:
        lead = "Anyone with the files has these points. The report's --geo writes them for other programs."
        sections.append(figure_section("Where the photos say they were taken", figures["map"], lead))
    sections.append(_revealed_table(problem))
    if guessed:
        rows = [
            (name, _format_degrees(guess.point), f"{guess.km:.2g} km", guess.source) for name, guess in guessed.items()
        ]
        lead = "These photos carry no position. Clean copies, without time, camera and name, cannot be guessed."
        sections.append(
            table_section("Places that can be guessed", ("photo", "position", "within", "from"), rows, lead)
        )
    return sections + left_out_sections(problem.folder, "No one looked at this, and nothing of it is copied.")


def left_out_sections(contents: FolderContents, lead: str) -> list[Section]:
    """Return a list with one section that names the files left out, or an empty list if there are none.

    Args:
        contents: The contents of the folder.
        lead: The text above the table of names.
    """
    rows = [(name,) for name in contents.left_out]
    return [table_section("Also in the folder", ("name",), rows, lead)] if rows else []


def _format_degrees(point: Point) -> str:
    """Format a position in degrees with five decimal places, which corresponds to a precision of about a metre."""
    return f"{point[0]:.5f}, {point[1]:.5f}"


def _describe_photo(photo: Metadata, is_guessed: bool) -> list[str]:
    """Return phrases that describe what a photo's file reveals, quoting the beginning of any texts it contains.

    Args:
        photo: The metadata of the photo.
        is_guessed: Whether the photo's place can be guessed from other photos.
    """
    words = ["reveals its place"] if photo.place else ["its place can be guessed"] if is_guessed else []
    if photo.texts:
        excerpt = photo.texts[:SHOWN_CHARACTERS] + "..." * (len(photo.texts) > SHOWN_CHARACTERS)
        words.append(f"carries texts ({excerpt})")
    if photo.unread:
        words.append(f"carries data that was not read ({photo.unread[:SHOWN_CHARACTERS]})")
    return words or ["reveals no place apart from its picture"]


def _describe_copies(release: Deletions) -> str:
    """Return a sentence that states whether clean copies were made. If so, it tells the reader to post only those."""
    if release.copies is None:
        return "No clean copies were made (--copy-to): as they are, the files reveal all that is listed here."
    if len(release.copies) == 1:
        return "1 clean copy was made, which carries none of it: post this, not the file."
    return f"{len(release.copies)} clean copies were made, which carry none of it: post these, not the files."


def _revealed_table(problem: PhotoInstance) -> Section:
    """Return a section with a table of everything that each photo's file and name reveal."""
    rows = []
    for photo in problem.folder.metadata:
        where = "" if photo.point is None else _format_degrees(photo.point)
        # In this case, the file reveals a place without usable coordinates.
        if photo.place and not where:
            where = "named in words, or in a form that gives no numbers"
        thumbnail, name = "yes" if photo.thumbnail else "", describe_revelation(photo.photo) or ""
        read = (where, photo.taken, photo.camera, photo.serial, thumbnail, name, photo.texts, photo.unread)
        rows.append((photo.photo, *read))
    revealed = ("position", "time", "camera", "serial number, owner", "thumbnail", "name tells", "texts", "not read")
    lead = "What each file says apart from its picture. Programs that sort or upload photos read all of it."
    return table_section("What each photo reveals", ("photo", *revealed), rows, lead)
