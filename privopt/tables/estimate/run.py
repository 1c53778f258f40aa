"""``privopt estimate``: reports in files, shares into a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import polars as pl
from attrs import evolve, frozen

from privopt.arrays import Ints
from privopt.errors import UsageError
from privopt.interfaces import Channel, NoisyCounts, Progress
from privopt.metric.problem import MetricInstance
from privopt.run.publish import check_file, new_file
from privopt.run.verify import Opened, open_verified
from privopt.tables.estimate.estimate import Asked, Estimate, Observed, estimate, estimate_of_counts
from privopt.tables.estimate.page import estimate_page
from privopt.tables.estimate.reports import count_all, noisy_counts_of, read_groups, read_prior
from privopt.tables.estimate.smooth import Rows
from privopt.tables.files import TableFile

__all__ = ["Batches", "Files", "channel_of", "estimate_batches", "rows_of", "write_estimate"]


@frozen(kw_only=True)
class Files:
    """What ``privopt estimate`` reads and writes.

    Attributes:
        folder: the release; it is checked before it is used.
        reports: a table.
        out: CSV to write.
        column, subject, batch: as of :class:`privopt.tables.estimate.reports.Counter`.
        also: further releases of the same records, each with its reports.
        groups: a table id,group, or None.
        prior: a table id,p or id,share, or None.
        page: HTML to write, or None.
        force: replace ``out`` and ``page``.
    """

    folder: Path
    reports: Path
    out: Path
    column: str = "report"
    subject: str | None = None
    batch: str | None = None
    also: Sequence[tuple[Path, Path]] = ()
    groups: Path | None = None
    prior: Path | None = None
    page: Path | None = None
    force: bool = False


@frozen(kw_only=True)
class Batches:
    """Estimates of all batches.

    Attributes:
        estimates: by batch; of one alone under "".
        left_out: of each batch without an estimate, a sentence.
    """

    estimates: Mapping[str, Estimate]
    left_out: tuple[str, ...] = ()


def channel_of(opened: Opened) -> Channel | NoisyCounts:
    """What a release makes known of its reports.

    Raises:
        UsageError: it makes nothing known.
    """
    found: Channel | NoisyCounts | None = opened.release.channel()
    if found is None:
        name = opened.registered.spec.name
        raise UsageError(f"{opened.folder}: {name} has no channel to read reports by: its release is one result")
    return found


def rows_of(opened: Opened) -> tuple[Rows | None, str]:
    """Distances between the inputs of a release, and their unit; None where it has rows for some records alone."""
    problem = opened.problem
    if isinstance(problem, MetricInstance) and list(problem.data.records.ids) == list(channel_of(opened).inputs):
        return problem.data.metric.rows, problem.data.unit
    return None, ""


def write_estimate(files: Files, asked: Asked, progress: Progress | None = None) -> Batches:
    """Estimate, by batch, and write the table, and the page where one is asked for.

    Raises:
        UsageError: files that are there, or options that cannot be meant so.
        InputError: tables that will not do.
        DoesNotHoldError: a release does not hold.
    """
    _check_targets(files)
    opened = open_verified(files.folder)
    channel = channel_of(opened)
    groups = None if files.groups is None else read_groups(files.groups, channel.inputs)
    if files.prior is not None:
        asked = evolve(asked, prior=read_prior(files.prior, channel.inputs))
    if isinstance(channel, NoisyCounts):
        made = Batches(estimates={"": _of_counts(files, channel, asked, groups)})
    else:
        counted = _counted(files, opened, channel, progress)
        made = estimate_batches(counted, opened, asked, groups, progress, subjects=files.subject is not None)
    with ExitStack() as stack:  # both are made before either gets its name
        if files.page is not None:
            path = stack.enter_context(new_file(files.page, force=files.force))
            path.write_text(estimate_page(made.estimates[""], opened, files.reports.name), "utf-8")
        tables = [
            each.table() if files.batch is None else each.table().select(pl.lit(name).alias("batch"), pl.all())
            for name, each in made.estimates.items()
        ]
        pl.concat(tables).write_csv(stack.enter_context(new_file(files.out, force=files.force)))
    return made


def _check_targets(files: Files) -> None:
    """Refuse to write over what is read, or into a release."""
    given = [files.reports, *(path for _, path in files.also), files.groups, files.prior]
    read = {path.resolve() for path in given if path is not None}
    for path in (files.out, files.page):
        if path is None:
            continue
        check_file(path.absolute(), force=files.force)
        if path.resolve() in read:
            raise UsageError(f"{path}: is read, so nothing is written over it; name another file")
        for folder in (files.folder, *(folder for folder, _ in files.also)):
            if path.resolve().is_relative_to(folder.resolve()):
                wanted = "which holds the release alone; name a file elsewhere"
                raise UsageError(f"{path}: lies in {folder}, {wanted}")
    if files.page is not None and files.page.resolve() == files.out.resolve():
        raise UsageError(f"--report {files.page}: is --out too; name two files")
    if files.page is not None and files.batch is not None:
        raise UsageError("--report: shows one estimate; wanted it without --batch")


def _of_counts(files: Files, channel: NoisyCounts, asked: Asked, groups: Mapping[str, Ints] | None) -> Estimate:
    if files.also or files.batch or files.subject:
        raise UsageError("noisy counts: wanted one table of them, without --also, --batch or --subject")
    counts = noisy_counts_of(channel, TableFile.of(files.reports), files.column)
    return estimate_of_counts(channel, counts, asked, groups=groups)


def _counted(files: Files, opened: Opened, channel: Channel, progress: Progress | None) -> list[dict[str, Observed]]:
    if progress is not None:
        progress("counting reports", 0, None, None)
    pairs: list[tuple[Channel, Path]] = [(channel, files.reports)]
    for folder, reports in files.also:
        other = channel_of(open_verified(folder))
        if not isinstance(other, Channel):
            raise UsageError(f"--also {folder}: publishes noisy counts, wanted a release that draws reports")
        pairs.append((other, reports))
    sources = ((each, TableFile.of(path)) for each, path in pairs)
    tables = ((each, source.path.name, source.columns, source.batches()) for each, source in sources)
    return count_all(tables, column=files.column, subject=files.subject, batch=files.batch)


def estimate_batches(
    counted: Sequence[Mapping[str, Observed]],
    opened: Opened,
    asked: Asked,
    groups: Mapping[str, Ints] | None,
    progress: Progress | None,
    *,
    subjects: bool,
) -> Batches:
    """An estimate of each batch that has reports.

    Args:
        counted: reports by batch, of each release.
        opened: the first of these releases.
        asked, groups, progress: as of :func:`privopt.tables.estimate.estimate.estimate`.
        subjects: whether it is known who sent each report.

    Raises:
        UsageError: none has.
    """
    rows, unit = rows_of(opened)
    made: dict[str, Estimate] = {}
    left = []
    names = sorted({name for found in counted for name in found})
    for number, name in enumerate(names, start=1):
        if progress is not None and len(names) > 1:
            progress(f"batch {number:,} of {len(names):,}", 0, None, None)
        here = [found[name] for found in counted if name in found]
        skipped, repeated = sum(each.skipped for each in here), sum(each.repeated for each in here)
        if not any(each.counts.any() for each in here):
            more = f", {repeated:,} of subjects whose first report lies elsewhere" if repeated else ""
            left.append(f"batch {name!r} has no estimate: no reports{more}, {skipped:,} rows without one")
            continue
        found = estimate(here, asked, groups=groups, rows=rows, unit=unit, progress=progress)
        several = not subjects and sum(bool(each.counts.any()) for each in here) > 1
        notes = _notes(opened, found, repeated, chosen=asked.resolution is None, several=several)
        made[name] = evolve(found, skipped=skipped, notes=(*found.notes, *notes))
    if not made:
        raise UsageError("reports: found none, wanted at least one")
    return Batches(estimates=made, left_out=tuple(left))


def _notes(opened: Opened, found: Estimate, repeated: int, *, chosen: bool, several: bool) -> list[str]:
    """What whoever uses an estimate must know of it, a sentence each."""
    lines = []
    if repeated:
        lines.append(f"{repeated:,} reports were left out: their subjects had one already, and several tell less")
    if several:
        lines.append(
            "reports to several releases are taken for different people's; where one person sent several, intervals "
            "are too narrow unless a column says who sent each (subject)"
        )
    if found.resolution:
        why = ", as fine as the reports bear" if chosen else ""
        lines.append(
            f"shares are smooth at a resolution of {found.resolution:.3g} {found.unit}{why}: gap is to the greatest "
            "likelihood among such shares, gap_to_all to that of all distributions; resolution 0 allows them all"
        )
    if opened.result.guarantee.scope == "everywhere":
        lines.append("shares are of the vertices: each stands for the positions around it, by their weights")
    return lines
