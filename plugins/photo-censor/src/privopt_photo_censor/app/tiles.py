"""Render an album in a report, with a tile for each photo."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from typing import Final

from privopt_photo_censor.release import Deletions

__all__ = ["SHOWN_PHOTOS", "render_tiles"]

PICTURE_BYTES: Final = 3_000_000
"""Total size of the thumbnails in a page. Photos beyond it are listed without a picture."""
SHOWN_PHOTOS: Final = 1_000
"""Number of photos that a page lists."""


def render_tiles(release: Deletions, notes: Sequence[tuple[str, str]]) -> str:
    """Return HTML with a tile for each photo of a release: a thumbnail, the name, a note, and HTML below it.

    Args:
        release: The release, with names, thumbnails and the mask of retained photos.
        notes: The HTML next to the picture and the HTML below it, for each of the first :data:`SHOWN_PHOTOS` photos.
    """
    remaining_bytes = PICTURE_BYTES
    items = []
    for row, (name, is_retained, (note, footer)) in enumerate(
        zip(release.names[:SHOWN_PHOTOS], release.retained.tolist(), notes, strict=False)
    ):
        picture = ""
        if release.thumbnails and len(release.thumbnails[row]) <= remaining_bytes:
            # Pictures are part of the page, so that it is one file, and their total size is limited.
            remaining_bytes -= len(release.thumbnails[row])
            source = base64.b64encode(release.thumbnails[row]).decode()
            picture = f'<img alt="" src="data:image/jpeg;base64,{source}">'
        # Photos of a table without names are named by their rows.
        label = escape(name) if release.thumbnails or not name.isdigit() else f"photo {escape(name)}"
        state = "kept" if is_retained else "deleted"
        items.append(f'<li class="{state}">{picture}<div><strong>{label}</strong><br>{note}</div>{footer}</li>')
    truncation_note = (
        f"<p>The first {SHOWN_PHOTOS} of {len(release.names)} photos.</p>" if len(release.names) > SHOWN_PHOTOS else ""
    )
    return f'<ul class="album">{"".join(items)}</ul>{truncation_note}'
