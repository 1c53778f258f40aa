"""Render an album for the report, as one HTML tile per photo."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final

from privopt.report.templates import Markup, render
from privopt_photo_censor.release import Deletions

__all__ = ["SHOWN_PHOTOS", "render_tiles"]

PICTURE_BYTES: Final = 3_000_000
"""The maximum total size of a page's thumbnails, in bytes. Photos beyond this limit are shown without a thumbnail."""
SHOWN_PHOTOS: Final = 1_000
"""The maximum number of photos to show on a page."""


def render_tiles(release: Deletions, notes: Sequence[tuple[Sequence[str], str, float | None]]) -> Markup:
    """Render one HTML tile per photo, with its thumbnail, name and note.

    Only the first :data:`SHOWN_PHOTOS` photos are shown.

    Args:
        release: The release, which provides the photos' names and thumbnails and identifies the retained photos.
        notes: One note per photo. A note consists of the lines of text to show below the photo's name, a secondary
            line, and the length of a bar as a fraction from 0 to 1, or None to show no bar.
    """
    remaining_bytes = PICTURE_BYTES
    tiles = []
    for row, (name, is_retained, note) in enumerate(
        zip(release.names[:SHOWN_PHOTOS], release.retained.tolist(), notes, strict=False)
    ):
        picture = ""
        if release.thumbnails and len(release.thumbnails[row]) <= remaining_bytes:
            # Thumbnails are embedded, so that the page is a single file.
            remaining_bytes -= len(release.thumbnails[row])
            picture = base64.b64encode(release.thumbnails[row]).decode()
        # In a table of scores without names, each photo is named by its row number.
        label = name if release.thumbnails or not name.isdigit() else f"photo {name}"
        tiles.append((label, is_retained, picture, note))
    return render("privopt_photo_censor.app/tiles.html", tiles=tiles, count=len(release.names))
