"""``privopt report``: one page from a DIR, and its figures as files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from privopt.declare import files_of
from privopt.errors import Fault, InputError, UsageError
from privopt.interfaces import Progress
from privopt.run.conclude import warned
from privopt.run.folder import PRIVATE, REPORT
from privopt.run.report import Section, page
from privopt.run.report.geo import write_layer
from privopt.run.report.theme import save
from privopt.run.verify import open_verified

__all__ = ["write_figures", "write_geo", "write_report"]


def write_report(folder: Path, *, truth: bool = False, progress: Progress | None = None) -> Path:
    """Write DIR/report.html, or DIR/private/report.html where it compares with the secrets.

    ``progress`` is called with what is being done.

    Raises:
        DoesNotHoldError: DIR does not hold.
        InputError: DIR cannot be read.
        UsageError: ``truth`` without ``private/``, the mechanism has nothing to compare, or DIR cannot be written.
    """
    opened = open_verified(folder, progress=progress)
    if progress is not None:
        progress("figures and tables of the report", 0, None, None)
    mechanism, problem, release, result = opened.mechanism, opened.problem, opened.release, opened.result
    compared: list[Section] = []
    target = folder / REPORT
    if truth:
        private = folder / PRIVATE
        if not private.is_dir():
            raise UsageError(f"--truth: {folder} has no private/ to compare with")
        compared = list(mechanism.report_truth(problem, release, result, private))
        if not compared:
            raise UsageError(f"--truth: {opened.registered.spec.name} has no secrets to compare its release with")
        target = private / REPORT
    check = mechanism.report_check(release, result, folder)
    sections = [*compared, *mechanism.report(problem, release, result), *([] if check is None else [check])]
    absent = sorted({file.name for file in files_of(opened.declared) if file.secret})
    warnings = tuple(warned(mechanism, problem, release, result))
    _replace(target, page(result, sections, truth=truth, absent=absent, warnings=warnings), folder.absolute())
    return target


def write_figures(folder: Path, target: Path, *, progress: Progress | None = None) -> list[Path]:
    """Write the report's figures as SVG and PNG into ``target``, which is made where it is missing.

    Raises:
        DoesNotHoldError: DIR does not hold.
        InputError: DIR cannot be read.
        UsageError: the mechanism draws no figures.
    """
    opened = open_verified(folder, progress=progress)
    if progress is not None:
        progress("figures", 0, None, None)
    figures: dict[str, Any] = dict(opened.mechanism.figures(opened.problem, opened.release, opened.result))
    if not figures:
        raise UsageError(f"--figures: {opened.registered.spec.name} draws none")
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError([Fault(str(target), "", error.strerror or "an error", "a folder for the figures")]) from None
    written = []
    for name, figure in figures.items():
        for ending in (".svg", ".png"):
            written.append(target / f"{name}{ending}")
            save(figure, written[-1])
    return written


def write_geo(folder: Path, target: Path, *, progress: Progress | None = None) -> Path:
    """Write what a map shows of the release as GeoJSON or GeoParquet, by the ending of ``target``.

    Raises:
        DoesNotHoldError: DIR does not hold.
        InputError: DIR cannot be read, or the target cannot be written.
        UsageError: the release has no places, or the ending is of neither format.
    """
    opened = open_verified(folder, progress=progress)
    layer = opened.mechanism.geo(opened.problem, opened.release, opened.result)
    if layer is None:
        raise UsageError(f"--geo: {opened.registered.spec.name} has no coordinates on a map here")
    try:
        write_layer(layer, target)
    except OSError as error:
        raise InputError([Fault(str(target), "", error.strerror or "an error", "a file that can be written")]) from None
    return target


def _replace(target: Path, text: str, folder: Path) -> None:
    """Write beside DIR and rename: what a kill leaves would be a file in DIR that no sum covers, which is refused."""
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise UsageError(f"{target}: its folder cannot be written")
    beside = folder.parent if os.access(folder.parent, os.W_OK | os.X_OK) else target.parent
    handle, name = tempfile.mkstemp(dir=beside, prefix=f".{folder.name}.report-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        if target.parent.name != PRIVATE:
            Path(name).chmod(0o600 | target.parent.stat().st_mode & 0o044)  # for whoever may read the folder
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)  # a file that no sum covers would be refused
        raise
