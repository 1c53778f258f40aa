"""Method ``positions``: clean copies of a folder that is not scored, and what its photos revealed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from privopt.interfaces import Outcome, SolveContext
from privopt.interfaces.notions import NoGuarantee
from privopt_photo_censor.album import some
from privopt_photo_censor.app.clean import clean_copies_of
from privopt_photo_censor.app.guesses import guesses
from privopt_photo_censor.app.naming import revealed
from privopt_photo_censor.problem import PhotoInstance
from privopt_photo_censor.release import Deletions

__all__ = ["PROMISE", "details", "revealing_names", "solve", "warnings"]

PROMISE = NoGuarantee(
    reason="no photo was scored, so that what the pictures themselves show may reveal the place; clean copies "
    "(--copy-to) carry no position, time, serial number or thumbnail, and no name that reveals one"
)


def solve(problem: PhotoInstance, context: SolveContext) -> Outcome[Deletions]:
    """Keep every photo, and make clean copies if they are asked for."""
    kept = np.ones(len(problem.names), dtype=np.bool_)
    with context.timed("solve"):
        copies = clean_copies_of(problem.declared.photos, problem.folder, kept, context)
    return Outcome(
        release=Deletions(
            names=problem.names,
            kept=kept,
            seen=problem.folder,
            copies=copies,
        ),
        solver={"name": "privopt-photo-censor", "version": "", "iterations": 0},
    )


def revealing_names(names: Sequence[str], places: Sequence[str] = ()) -> dict[str, str]:
    """Return what names of photos reveal ("a date", "coordinates", "a place"), by name; other names are absent."""
    return {name: said for name in names if (said := revealed(name, places)) is not None}


def details(problem: PhotoInstance, release: Deletions) -> Mapping[str, Any]:
    """Return what the photos revealed, and for which of them a place can be guessed."""
    album = problem.folder.metadata
    found: dict[str, Any] = {
        "deleted": int((~release.kept).sum()),
        "rank_before": None,
        "rank_after": None,
        "protected_k": None,
        "photos": len(album),
        "with_position": list(problem.folder.positioned),
        "with_time": [photo.photo for photo in album if photo.taken],
        "guessed": list(guesses(album)),
        "left_out": list(problem.folder.left_out),
    }
    if release.copies is not None:
        found["copies"] = {copy.name: copy.sha256 for copy in release.copies}
    return found


def warnings(problem: PhotoInstance, release: Deletions) -> Sequence[str]:
    """Warn that nothing was scored, which photos reveal their place, and what to post."""
    album, left_out = problem.folder.metadata, problem.folder.left_out
    lines = ["no photo was scored: no one looked at whether the pictures themselves reveal the place"]
    if left_out:
        lines.append(f"not looked at, and not copied: {some(left_out)}")
    if release.copies is not None:
        return lines
    told = problem.folder.positioned
    if told:
        lines.append(f"{len(told)} of {len(album)} photos carry a position or name a place: {some(told)}")
    guessed = guesses(album)
    if guessed:
        lines.append(f"of {len(guessed)} photos without a position it can be guessed: {some([*guessed])}")
    names = revealing_names(release.names)
    if names:
        lines.append(f"names of photos hold {' and '.join(sorted(set(names.values())))}: {some([*names])}")
    return [*lines, "post clean copies, not these files: solve with --copy-to FOLDER makes them"]
