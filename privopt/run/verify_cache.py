"""Cache of verification results, so that a folder is not verified again on every use.

A small file in the user's cache folder for each, named by the SHA-256 of all that was checked: the sums of every file
in DIR (which the caller has compared with the files) and the versions that checked them. Its text is the verdict.
A folder is never believed for what is in it.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final, Literal, get_args

from privopt.errors import UsageError
from privopt.files.regular import private_folder, read_bytes
from privopt.files.release_folder import PRIVATE, SUMS
from privopt.registry import registry
from privopt.version import VERSION

Word = Literal["proved", "declared", "none"]

CACHE: Final = "PRIVOPT_CACHE"
"""Environment variable that names another cache folder."""


def recall(folder: Path) -> Word | None:
    """Return the verdict on a DIR whose sums hold, where it is known."""
    try:
        place = _place(folder)
        if place.parent.lstat().st_uid != os.geteuid():  # anybody could have written it there
            return None
        text = read_bytes(place, largest=16, links=False).decode()
    except (OSError, ValueError):
        return None
    return next((word for word in get_args(Word) if word == text), None)


def remember(folder: Path, word: Word) -> None:
    """Keep the verdict on a DIR whose sums hold; where that cannot be written the next use checks again."""
    try:
        place = _place(folder)
        private_folder(place.parent)
        part = place.with_name(f"{place.name}.{os.getpid()}")
        part.write_text(word, "utf-8")
        part.replace(place)
    except (OSError, ValueError, UsageError):
        return


def _place(folder: Path) -> Path:
    digest = hashlib.sha256()
    for path in (folder / SUMS, folder / PRIVATE / SUMS):
        digest.update(hashlib.sha256(path.read_bytes() if path.is_file() else b"none").digest())
    plugins = {f"{entry.plugin} {entry.version}" for entry in registry().entries.values()}
    digest.update("\n".join([f"privopt {VERSION}", *sorted(plugins)]).encode())
    return _cache() / "held" / digest.hexdigest()


def _cache() -> Path:
    own = os.environ.get(CACHE)
    if own:
        return Path(own)
    from platformdirs import user_cache_path

    return user_cache_path("privopt", appauthor=False)
