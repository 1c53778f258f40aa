"""Show an album in a report: a tile for each photo."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from typing import Final

from privopt_photo_censor.release import Deletions

__all__ = ["SHOWN_PHOTOS", "tiles"]

PICTURE_BYTES: Final = 3_000_000
"""Bytes of thumbnails that a page holds."""
SHOWN_PHOTOS: Final = 1_000
"""Photos that a page shows."""


def tiles(release: Deletions, notes: Sequence[tuple[str, str]]) -> str:
    """Return the photos of a release as a list.

    Args:
        release: names, thumbnails, and which are kept.
        notes: markup next to and below each of the first :data:`SHOWN_PHOTOS` photos.
    """
    room = PICTURE_BYTES
    items = []
    for row, (name, kept, (note, below)) in enumerate(
        zip(release.names[:SHOWN_PHOTOS], release.kept.tolist(), notes, strict=False)
    ):
        picture = ""
        if release.thumbnails and len(release.thumbnails[row]) <= room:
            room -= len(release.thumbnails[row])
            source = base64.b64encode(release.thumbnails[row]).decode()
            picture = f'<img alt="" src="data:image/jpeg;base64,{source}">'
        label = escape(name) if release.thumbnails or not name.isdigit() else f"photo {escape(name)}"
        state = "kept" if kept else "deleted"
        items.append(f'<li class="{state}">{picture}<div><strong>{label}</strong><br>{note}</div>{below}</li>')
    more = (
        f"<p>The first {SHOWN_PHOTOS} of {len(release.names)} photos.</p>" if len(release.names) > SHOWN_PHOTOS else ""
    )
    return f'<ul class="album">{"".join(items)}</ul>{more}'
