"""Forged folders, made by code: changes to a folder that held, its sums mended, after which it says what is not so."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from helpers.forgeries.archives import archives_of
from helpers.forgeries.arrays import arrays_of, planes_of, regions_of
from helpers.forgeries.bases import BASES, METRIC, PLANES, REGIONS, make
from helpers.forgeries.changes import Forgery
from helpers.forgeries.claims import claims_of, files_of
from helpers.forgeries.guesses import guesses_of, restate_weights
from helpers.forgeries.photos import photos_of
from helpers.forgeries.problems import problems_of
from helpers.forgeries.proofs import proofs_of
from privopt.files.release_folder import sums_text

__all__ = ["BASES", "METRIC", "REGIONS", "Forgery", "forge", "forgeries", "make", "restate_weights"]


def forgeries(base: str, folder: Path) -> Iterator[Forgery]:
    """All forgeries of a base whose DIR lies at ``folder``."""
    yield from claims_of(json.loads((folder / "result.json").read_text()))
    yield from files_of(folder)
    if base in METRIC:
        yield from arrays_of(folder, base)
        yield from archives_of()
        yield from proofs_of(folder)
        yield from problems_of(folder, base)
    elif base in REGIONS:
        yield from planes_of(folder, base) if base in PLANES else regions_of(folder)
        yield from proofs_of(folder)
    elif base == "guesses":
        yield from guesses_of()
    else:
        yield from photos_of(folder)


def forge(folder: Path, forgery: Forgery, target: Path) -> Path:
    """Return a copy of a DIR with a forgery."""
    shutil.copytree(folder, target)
    forgery.change(target)
    if forgery.mended:
        (target / "SHA256SUMS").write_text(sums_text(target))
    return target
