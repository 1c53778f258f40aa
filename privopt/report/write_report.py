"""The ``privopt report`` command, which turns a release folder DIR into a page and writes its figures to files."""

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
from privopt.interfaces.cost import cost_of_draw, sum_text
from privopt.interfaces.reporting import Reporting, open_reporting
from privopt.report import Section, page
from privopt.report.map_files import write_layer
from privopt.report.theme import save
from privopt.run.build_result import collect_warnings
from privopt.run.verify import OpenedFolder, open_verified

__all__ = ["write_figures", "write_geo", "write_report"]


def write_report(folder: Path, *, truth: bool = False, progress: Progress | None = None) -> Path:
    """Write DIR/report.html, or DIR/private/report.html if the report compares the release with the secrets.

    Args:
        folder: The release folder DIR, which is verified first.
        truth: Whether to compare the release with the secrets.
        progress: Called with the current step.

    Returns:
        The path of the page.

    Raises:
        DoesNotHoldError: A claim in DIR does not hold.
        InputError: DIR cannot be read.
        UsageError: DIR cannot be written, or ``truth`` is True but DIR has no ``private/`` folder or the mechanism has
            no secrets to compare the release with.
    """
    opened = open_verified(folder, progress=progress)
    if progress is not None:
        progress("figures and tables of the report", 0, None, None)
    mechanism, problem, release, result = opened.mechanism, opened.problem, opened.release, opened.result
    compared: list[Section] = []
    reporting = open_reporting(mechanism)
    target = folder / REPORT
    if truth:
        private = folder / PRIVATE
        if not private.is_dir():
            raise UsageError(f"--truth: {folder} has no private/ to compare with")
        compared = list(reporting.report_truth(problem, release, result, private))
        if not compared:
            raise UsageError(f"--truth: {opened.registered.spec.name} has no secrets to compare its release with")
        target = private / REPORT
    check = reporting.report_check(release, result, folder)
    # Comparisons with the secrets directly follow the mechanism's own sections, because the user asked for them.
    sections = [
        *reporting.report(problem, release, result),
        *compared,
        *_budget_of(opened),
        *([] if check is None else [check]),
    ]
    # The secret files that are missing from the folder. Those that have a public version, such as noisy counts, are not
    # included, because they are not needed to solve again.
    absent = sorted({file.name for file in files_of(opened.declared) if file.secret and file.absent})
    headline, faults = _make_headline(reporting, opened)
    # result.json does not contain the warnings, so they are computed again.
    warnings = (*collect_warnings(mechanism, problem, release, result), *faults)
    text = page(
        result,
        sections,
        headline=headline,
        heading=opened.heading,
        truth=truth,
        absent=absent,
        warnings=warnings,
        in_readers_unit=partial(reporting.in_readers_unit, problem, result),
    )
    # SHA256SUMS does not include the page, so the folder can be verified with or without it.
    replace_in_release(target, text.encode("utf-8"), folder.absolute())
    return target


def _make_headline(reporting: Reporting[Any, Any], opened: OpenedFolder) -> tuple[str, list[str]]:
    """Return the plugin's opening sentences for a report, and warnings about errors in the plugin's code.

    There are no opening sentences if the release is marked as not private, for example because its noise came from a
    seed. The report then begins with the guarantee, which says so.
    """
    if opened.result.mark:
        return "", []
    try:
        return reporting.headline(opened.problem, opened.release, opened.result), []
    except Exception as error:  # a plugin's code can raise anything, and the guarantee can begin the report instead
        # The page may be published, so it names the error's type but not its message.
        fault = f"{type(error).__name__} in {type(reporting).__name__}.headline"
        return "", [f"the first sentences of this page could not be made ({fault}); it begins with the guarantee"]


def _budget_of(opened: OpenedFolder) -> list[Section]:
    """Return a list with a section about the privacy budget spent by a noisy release.

    The list is empty if reports can be drawn from the release, because each report then spends budget and the release
    itself does not. It is also empty if ledgers do not support the release's kind of guarantee.
    """
    result, release = opened.result, opened.release
    relation = opened.mechanism.privacy(opened.problem, result.method).relation
    cost = cost_of_draw(result.guarantee, relation, "", "", mark=result.mark)
    # If the release has a ``sample`` method of its own, the reports drawn from it spend budget, and the release does
    # not.
    if isinstance(cost, str) or type(release).sample is not Release.sample:
        return []
    lead = (
        f"This release spends {cost.account} {sum_text(cost.amount)} of everyone's privacy budget. Whatever is "
        "computed from it costs nothing more; every further release from the same data adds to it. If privopt solve "
        "charged a ledger (--ledger LEDGER), privopt budget LEDGER shows what is spent and left."
    )
    return [Section(title="Budget", lead=lead)]


def write_figures(folder: Path, target: Path, *, progress: Progress | None = None) -> list[Path]:
    """Write all of a report's figures as SVG and PNG files to the folder ``target``.

    The files are renamed to their final names only once all of them are complete. If renaming one of them fails, those
    that have already been renamed are kept.

    Args:
        folder: The release folder DIR, which is verified first.
        target: The folder for the files, which is created if it is missing.
        progress: Called with the current step.

    Returns:
        The paths of the files.

    Raises:
        DoesNotHoldError: A claim in DIR does not hold.
        InputError: DIR cannot be read.
        UsageError: The mechanism draws no figures, or ``target`` cannot be written.
        StoppedError: Writing failed, or the user interrupted it.
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
    with ExitStack() as new_files:  # all files are complete before the first one gets its name
        for path in written:
            save(figures[path.stem], new_files.enter_context(new_file(path, force=True, option="--figures")))
    return written


def write_geo(folder: Path, target: Path, *, progress: Progress | None = None) -> Path:
    """Write a release's map layer as GeoJSON, and return the path of the file.

    Raises:
        DoesNotHoldError: A claim in the release folder does not hold.
        InputError: The release folder cannot be read.
        UsageError: The release has no map layer, or ``target`` does not have a GeoJSON extension or is not a valid
            path.
        StoppedError: Writing failed, or the user interrupted it.
    """
    opened = open_verified(folder, progress=progress)
    layer = open_reporting(opened.mechanism).geo(opened.problem, opened.release, opened.result)
    if layer is None:
        raise UsageError(f"--geo: {opened.registered.spec.name} has no coordinates on a map here")
    with new_file(target, force=True, option="--geo") as unfinished:
        write_layer(layer, unfinished)
    return target
