"""The command ``privopt estimate``: from tables of reports to shares of the true values, in files or in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from attrs import evolve

from privopt.arrays import Floats, Ints
from privopt.declare.problems_in_memory import frame_of, values_of
from privopt.declare.table_files import TableSource
from privopt.errors import UsageError, number_of
from privopt.estimate.count_reports import count_tables, groups_of, noisy_counts_of, read_groups
from privopt.estimate.page import estimate_page, share_layer
from privopt.estimate.shares import Estimate, EstimateOptions, Intervals, estimate, estimate_of_counts
from privopt.files.new_folder import new_file
from privopt.files.targets import check_files
from privopt.interfaces import Channel, NoisyCounts, Progress, abilities
from privopt.report.map_files import write_layer
from privopt.run.verify import OpenedFolder, open_verified


def channel_of(opened: OpenedFolder) -> Channel | NoisyCounts:
    """Return the public channel of a release.

    Raises:
        UsageError: it has none.
    """
    channel = abilities.channel_of(opened.mechanism, opened.problem, opened.release)
    if channel is None:
        name = opened.registered.spec.name
        raise UsageError(f"{opened.folder}: {name} has no channel to read reports by: its release is one result")
    return channel


def _estimate_opened(
    opened: OpenedFolder,
    reports: TableSource,
    read_noisy_counts: Callable[[NoisyCounts], Floats],
    options: EstimateOptions,
    groups: Mapping[str, Ints] | None,
    progress: Progress | None,
    *,
    column: str,
    subject: str | None,
    also: Iterable[tuple[OpenedFolder, TableSource]],
) -> Estimate:
    """Estimate from reports to one or several releases, or from noisy counts, which ``read_noisy_counts`` reads."""
    channel = channel_of(opened)
    if isinstance(channel, NoisyCounts):
        if subject or next(iter(also), None) is not None:
            raise UsageError(f"{opened.folder}: noisy counts must be one table, without also or subject")
        return estimate_of_counts(channel, read_noisy_counts(channel), options, groups=groups)
    tables = [(channel, reports)]
    for further_release, table in also:
        further_channel = channel_of(further_release)
        if not isinstance(further_channel, Channel):
            actual = f"{further_release.folder}, which publishes noisy counts"
            raise UsageError(f"also must be a release that draws reports, got {actual}")
        tables.append((further_channel, table))
    if progress is not None:
        progress("counting reports", 0, None, None)
    report_counts = count_tables(tables, column=column, subject=subject)
    result = estimate(
        report_counts, options, groups=groups, rows=channel.distances, unit=channel.unit, progress=progress
    )
    has_several_releases = (
        subject is None and sum(bool(release_counts.counts.any()) for release_counts in report_counts) > 1
    )
    repeated_count = sum(release_counts.repeated for release_counts in report_counts)
    notes = _list_notes(opened, result, repeated_count, chosen=options.resolution is None, several=has_several_releases)
    return evolve(
        result, skipped=sum(release_counts.skipped for release_counts in report_counts), notes=(*result.notes, *notes)
    )


def _list_notes(opened: OpenedFolder, estimate: Estimate, repeated: int, *, chosen: bool, several: bool) -> list[str]:
    """Return the warnings that users of an estimate need, as sentences."""
    lines = []
    if repeated:
        lines.append(f"{number_of(repeated, 'report')} omitted: their subjects had one already, and several show less")
    if several:
        lines.append(
            "reports to several releases are taken for different people's; where one person sent several, intervals "
            "are too narrow unless a column says who sent each (subject)"
        )
    if estimate.resolution:
        reason = ", as fine as the reports support" if chosen else ""
        lines.append(
            f"shares are smooth at a resolution of {estimate.resolution:.3g} {estimate.unit}{reason}: gap is to the "
            "greatest likelihood among such shares, gap_to_all to that of all distributions; resolution 0 allows all"
        )
    if opened.result.guarantee.scope == "everywhere":
        lines.append("shares are of the vertices: each represents the positions around it, by their weights")
    return lines


# --- from files into a file -------------------------------------------------------------------------------


def write_estimate(
    folder: Path,
    reports: Path,
    out: Path,
    options: EstimateOptions,
    *,
    column: str = "report",
    subject: str | None = None,
    also: Sequence[tuple[Path, Path]] = (),
    groups: Path | None = None,
    page: Path | None = None,
    geo: Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Estimate:
    """Estimate, and write the table, and the page and the map if they are asked for.

    Args:
        folder: the release; it is checked before it is used.
        reports: a table.
        out: CSV to write.
        options: how to estimate.
        column, subject: as of :class:`privopt.estimate.count_reports.Counter`.
        also: further releases of the same records, each with its reports.
        groups: a table id,group, or None.
        page: HTML to write, or None.
        geo: GeoJSON to write, a point a record with its share, or its group's, or None.
        force: replace files that are there.
        progress: called with what is being done.

    Raises:
        UsageError: files that are there, or options that cannot be meant so.
        InputError: tables that will not do.
        DoesNotHoldError: a release does not hold.
    """
    input_files = [path for path in (reports, *(path for _, path in also), groups) if path is not None]
    folders = [folder, *(further for further, _ in also)]
    check_files({"--out": out, "--report": page, "--geo": geo}, force=force, read=input_files, folders=folders)
    opened = open_verified(folder)
    channel = channel_of(opened)
    members_by_group = None if groups is None else read_groups(groups, channel.inputs)
    if geo is not None and (not isinstance(channel, Channel) or channel.coordinates is None):
        raise UsageError(f"--geo must be of records on a map, got those of {folder}, which lie nowhere")
    result = _estimate_opened(
        opened,
        TableSource.of_file(reports),
        lambda channel: noisy_counts_of(channel, reports, column),
        options,
        members_by_group,
        progress,
        column=column,
        subject=subject,
        also=((open_verified(further), TableSource.of_file(path)) for further, path in also),
    )
    with ExitStack() as stack:  # all are made before any gets its name
        if page is not None:
            path = stack.enter_context(new_file(page, force=force))
            path.write_text(estimate_page(result, opened, reports.name), "utf-8")
        if geo is not None and isinstance(channel, Channel):
            path = stack.enter_context(new_file(geo, force=force, option="--geo"))
            write_layer(share_layer(result, channel), path)
        result.table().write_csv(stack.enter_context(new_file(out, force=force)))
    return result


# --- in memory --------------------------------------------------------------------------------------------


def estimate_of(
    opened: OpenedFolder,
    reports: object,
    *,
    column: str,
    subject: str | None,
    by: Mapping[str, str] | None,
    also: Sequence[tuple[OpenedFolder, object]],
    confidence: float,
    gap: float,
    intervals: Intervals,
    resolution: float | None,
) -> Estimate:
    """Implement :meth:`privopt.api.released.OpenRelease.estimate`."""
    ids = list(channel_of(opened).inputs)
    return _estimate_opened(
        opened,
        _table_source(reports, column, "reports"),
        lambda channel: _noisy_counts(reports, channel.inputs),
        EstimateOptions(confidence=confidence, gap=gap, intervals=intervals, resolution=resolution),
        None if by is None else _check_groups(by, ids),
        None,
        column=column,
        subject=subject,
        also=[
            (further, _table_source(further_reports, column, f"also[{number}]"))
            for number, (further, further_reports) in enumerate(also)
        ],
    )


def _table_source(reports: object, column: str, name: str) -> TableSource:
    """Return the reports in memory, a table or a sequence, as a table."""
    reports = values_of(reports)
    if isinstance(reports, (list, tuple, np.ndarray)):
        reports = {column: np.asarray(reports, dtype=object).ravel().tolist()}
    return TableSource.of_frame(frame_of(reports, "reports"), name)


def _noisy_counts(reports: object, ids: Sequence[str]) -> Floats:
    """Check noisy counts in memory."""
    counts = np.asarray(reports, dtype=np.float64)
    if counts.shape != (len(ids),) or not np.isfinite(counts).all():
        raise UsageError(f"reports must be {len(ids)} finite numbers, one for each of {', '.join(ids[:3])}, ...")
    return counts


def _check_groups(by: Mapping[str, str], ids: Sequence[str]) -> dict[str, Ints]:
    """Check the groups of records in memory."""
    if not isinstance(by, Mapping):
        raise UsageError(f"by must be a mapping from each record's id to its group, got {type(by).__name__}")
    group_by_id = {str(name): group for name, group in by.items()}
    mismatched_ids = sorted(set(group_by_id) ^ set(ids))
    if mismatched_ids or not all(isinstance(group, str) for group in group_by_id.values()):
        example = (
            ", ".join(mismatched_ids[:3])
            if mismatched_ids
            else next(repr(g) for g in group_by_id.values() if not isinstance(g, str))
        )
        raise UsageError(
            f"by must have a text for each record's id and no other key, {{{ids[0]!r}: 'a', ...}}: see {example}"
        )
    return groups_of({number: group_by_id[name] for number, name in enumerate(ids)})
