"""``privopt report``: one page from a DIR, and its figures as files."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from privopt.declare import files_of
from privopt.errors import UsageError
from privopt.files.new_folder import new_file, replace_in_release
from privopt.files.release_folder import PRIVATE, REPORT
from privopt.interfaces import Progress, Release
from privopt.interfaces.cost import priced, sum_text
from privopt.interfaces.reporting import open_reporting
from privopt.report import Section, page
from privopt.report.map_files import write_layer
from privopt.report.theme import save
from privopt.run.build_result import collect_warnings
from privopt.run.verify import OpenedFolder, open_verified

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
    shown = open_reporting(mechanism)
    target = folder / REPORT
    if truth:
        private = folder / PRIVATE
        if not private.is_dir():
            raise UsageError(f"--truth: {folder} has no private/ to compare with")
        compared = list(shown.report_truth(problem, release, result, private))
        if not compared:
            raise UsageError(f"--truth: {opened.registered.spec.name} has no secrets to compare its release with")
        target = private / REPORT
    check = shown.report_check(release, result, folder)
    sections = [
        *compared,
        *_budget_of(opened),
        *shown.report(problem, release, result),
        *([] if check is None else [check]),
    ]
    absent = sorted({file.name for file in files_of(opened.declared) if file.secret})
    warnings = tuple(collect_warnings(mechanism, problem, release, result))
    text = page(
        result,
        sections,
        summary=opened.registered.spec.summary,
        heading=opened.heading,
        truth=truth,
        absent=absent,
        warnings=warnings,
        in_readers_unit=partial(shown.in_readers_unit, problem, result),
    )
    replace_in_release(target, text.encode("utf-8"), folder.absolute())
    return target


def _budget_of(opened: OpenedFolder) -> list[Section]:
    """Say what a release whose noise is drawn took of a budget; nothing of one from which reports are drawn later."""
    result, release = opened.result, opened.release
    relation = opened.mechanism.privacy(opened.problem, result.method).relation
    cost = priced(result.guarantee, relation, "", "", mark=result.mark)
    if isinstance(cost, str) or type(release).sample is not Release.sample:
        return []
    lead = (
        f"This release spends {cost.account} {sum_text(cost.amount)} once, and every further release from the "
        "same data adds to it. The sum is in the ledger that privopt solve --ledger LEDGER charged; privopt budget "
        "LEDGER shows what is spent and left."
    )
    return [Section(title="Budget", html="", lead=lead)]


def write_figures(folder: Path, target: Path, *, progress: Progress | None = None) -> list[Path]:
    """Write the report's figures as SVG and PNG into ``target``, which is made where it is missing: all or none.

    Raises:
        DoesNotHoldError: DIR does not hold.
        InputError: DIR cannot be read.
        UsageError: the mechanism draws no figures, or ``target`` is none that can be written.
        StoppedError: they could not be written, or an interrupt came.
    """
    opened = open_verified(folder, progress=progress)
    if progress is not None:
        progress("figures", 0, None, None)
    figures: dict[str, Any] = dict(
        open_reporting(opened.mechanism).figures(opened.problem, opened.release, opened.result)
    )
    if not figures:
        raise UsageError(f"--figures: {opened.registered.spec.name} draws none")
    written = [target / f"{name}{ending}" for name in figures for ending in (".svg", ".png")]
    with ExitStack() as made:  # all are made before the first gets its name
        for path in written:
            save(figures[path.stem], made.enter_context(new_file(path, force=True, option="--figures")))
    return written


def write_geo(folder: Path, target: Path, *, progress: Progress | None = None) -> Path:
    """Write what a map shows of the release as GeoJSON.

    Raises:
        DoesNotHoldError: DIR does not hold.
        InputError: DIR cannot be read.
        UsageError: the release has no places, the ending is of another format, or ``target`` cannot be written.
        StoppedError: it could not be written, or an interrupt came.
    """
    opened = open_verified(folder, progress=progress)
    layer = open_reporting(opened.mechanism).geo(opened.problem, opened.release, opened.result)
    if layer is None:
        raise UsageError(f"--geo: {opened.registered.spec.name} has no coordinates on a map here")
    with new_file(target, force=True, option="--geo") as made:
        write_layer(layer, made)
    return target
