"""Render an album for the report, as one HTML tile per photo."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final

from privopt.report.templates import Markup, render
from privopt_photo_censor.release import Deletions

__all__ = ["SHOWN_PHOTOS", "render_tiles"]

PICTURE_BYTES: Final = 3_000_000
"""The maximum total size, in bytes, of the thumbnails in a page. Further photos are listed without thumbnails."""
SHOWN_PHOTOS: Final = 1_000
"""The maximum number of photos that a page lists."""


def render_tiles(release: Deletions, notes: Sequence[tuple[Sequence[str], str, float | None]]) -> Markup:
    """Render one HTML tile per photo, with a thumbnail, the photo's name and a note.

    At most :data:`SHOWN_PHOTOS` photos are shown.

    Args:
        release: The release, with names, thumbnails and the mask of retained photos.
        notes: The note for each photo: lines of text below its name, a secondary line, and the length of a bar from 0
            to 1 (None for no bar).
    """
    remaining_bytes = PICTURE_BYTES
    tiles = []
    for row, (name, is_retained, note) in enumerate(
        zip(release.names[:SHOWN_PHOTOS], release.retained.tolist(), notes, strict=False)
    ):
        picture = ""
        if release.thumbnails and len(release.thumbnails[row]) <= remaining_bytes:
            # Pictures are embedded in the page, so that it is a single file.
            remaining_bytes -= len(release.thumbnails[row])
            picture = base64.b64encode(release.thumbnails[row]).decode()
        # If the table has no names, a photo's name is its row number.
        label = name if release.thumbnails or not name.isdigit() else f"photo {name}"
        tiles.append((label, is_retained, picture, note))
    return render("privopt_photo_censor.app/tiles.html", tiles=tiles, count=len(release.names))
