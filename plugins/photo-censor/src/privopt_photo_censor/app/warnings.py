"""Warn of what the deletions do not hide: unscored pictures, positions in files, names that reveal a place."""

from __future__ import annotations

from collections.abc import Sequence

from privopt_photo_censor.album import some
from privopt_photo_censor.app.guesses import guesses
from privopt_photo_censor.app.naming import revealing_names
from privopt_photo_censor.app.open_photo import HEIF
from privopt_photo_censor.problem import PhotoInstance
from privopt_photo_censor.release import Deletions, carriers
from privopt_photo_censor.score_table import LOG_TOLERANCE

__all__ = ["warnings_of"]


def warnings_of(problem: PhotoInstance, release: Deletions) -> list[str]:
    """Return what to warn of, a sentence each: of a table of scores, of a folder scored, of a folder alone."""
    if problem.seen is None:
        return _unlikely(problem)
    return _scored(problem, release) if problem.declared.scored else _unscored(problem, release)


def _unlikely(problem: PhotoInstance) -> list[str]:
    """Return a word where a score is above 0, which no log-probability is."""
    largest = problem.album.scores.max()
    if largest <= LOG_TOLERANCE:
        return []
    return [
        f"scores go up to {largest:.6g}, and log-probabilities to 0: they are taken for log-probabilities but for a "
        "constant of each photo, as a classifier's logits are; of similarities or the like the ranks mean nothing"
    ]


def _scored(problem: PhotoInstance, release: Deletions) -> list[str]:
    """Warn of photos not scored, and of kept ones whose file or name reveals the place."""
    left_out, carried, lines = problem.folder.left_out, carriers(release), []
    if left_out:
        what = "1 thing in the folder was" if len(left_out) == 1 else f"{len(left_out)} things in the folder were"
        lines.append(f"{what} not scored, and the guarantee does not cover it: {some(left_out)}")
        if any(name.lower().endswith(HEIF) for name in left_out):
            lines.append("install privopt-photo-censor[heif] to read HEIC photos")
    if carried:
        kept = int(release.kept.sum())
        cure = "remove it before posting" if release.copies is None else "post the clean copies, not these files"
        lines.append(
            f"{len(carried)} of the {kept} photos kept carry their position in their files' metadata (GPS or the "
            f"name of a place), which reveals the place whatever the pictures hide; {cure}: {some(carried)}"
        )
    lines += _captions([name for name in problem.folder.captioned if name in _kept(release)], release)
    posted = [name for name, stays in zip(release.names, release.kept.tolist(), strict=True) if stays]
    telling = revealing_names(posted, problem.places)
    if telling and release.copies is None:
        what = " and ".join(sorted(set(telling.values())))
        lines.append(f"names of photos kept hold {what}; copies (--copy-to) get names that do not: {some([*telling])}")
    return lines


def _unscored(problem: PhotoInstance, release: Deletions) -> list[str]:
    """Warn that nothing was scored, which photos reveal their place, and what to post."""
    album, left_out, told = problem.folder.metadata, problem.folder.left_out, problem.folder.positioned
    lines = ["no photo was scored: no one looked at whether the pictures themselves reveal the place"]
    if left_out:
        lines.append(f"not looked at, and not copied: {some(left_out)}")
    if release.copies is not None:
        return lines
    lines += _captions(problem.folder.captioned, release)
    guessed, names = guesses(album), revealing_names(release.names)
    if told:
        lines.append(f"{len(told)} of {len(album)} photos carry a position or name a place: {some(told)}")
    if guessed:
        lines.append(f"of {len(guessed)} photos without a position it can be guessed: {some([*guessed])}")
    if names:
        lines.append(f"names of photos hold {' and '.join(sorted(set(names.values())))}: {some([*names])}")
    return [*lines, "post clean copies, not these files: solve with --copy-to FOLDER makes them"]


def _kept(release: Deletions) -> set[str]:
    """Return the names of the photos kept."""
    return {name for name, is_kept in zip(release.names, release.kept.tolist(), strict=True) if is_kept}


def _captions(names: Sequence[str], release: Deletions) -> list[str]:
    """Warn of photos whose files carry texts. The texts themselves are in the owner's folder alone."""
    if not names or release.copies is not None:
        return []
    return [
        f"{len(names)} of the {int(release.kept.sum())} photos kept carry texts (captions, comments, names), which may "
        f"name a place; metadata.csv lists them: {some(names)}"
    ]
