"""Estimate how often each true value occurs, from tables of reports in files (``privopt estimate``) or in memory.

Reports are counted (:mod:`.count_reports`), and shares are estimated from the counts (:mod:`.shares`). If a release
publishes noisy counts instead of reports, the estimate is based on those counts.
"""

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
from privopt.estimate.written_digits import round_frame
from privopt.files.new_folder import check_files, new_file
from privopt.interfaces import Channel, NoisyCounts, Progress, abilities
from privopt.report.map_files import write_layer
from privopt.run.verify import OpenedFolder, open_verified


def channel_of(opened: OpenedFolder) -> Channel | NoisyCounts:
    """Return a release's public channel: the probabilities of its outputs, or the noise in its counts.

    Raises:
        UsageError: The release has no public channel.
    """
    channel = abilities.channel_of(opened.mechanism, opened.problem, opened.release)
    if channel is None:
        name = opened.registered.spec.name
        raise UsageError(
            f"{opened.folder}: {name} has no channel to read reports by: its release is one result, or the "
            "probabilities of its reports are not known as a table"
        )
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
    """Estimate shares from reports drawn from one or more releases, or from noisy counts.

    Args:
        opened: The release, which must have been verified.
        reports: The table of the release's reports. It is not read if the release publishes noisy counts.
        read_noisy_counts: A function that takes the channel and returns the noisy counts as an array of shape (N,), in
            the order of the channel's inputs.
        options: The options for the estimate.
        groups: The indices of each group's records, to estimate the groups' shares, or None to estimate the records'
            shares.
        progress: A function to call with the current step, or None.
        column: The column that contains the reports.
        subject: The column that names each report's subject, or None if there is no such column. Only a subject's first
            report counts.
        also: Additional releases about the same records, each with the table of its reports.
    """
    channel = channel_of(opened)
    if isinstance(channel, NoisyCounts):
        # Noisy counts have no rows for individual people, so they have no subjects and cannot be combined with other
        # releases.
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
    # Without subjects, it is unknown whether one person sent reports to two releases.
    has_several_releases = (
        subject is None and sum(bool(release_counts.counts.any()) for release_counts in report_counts) > 1
    )
    repeated_count = sum(release_counts.repeated for release_counts in report_counts)
    notes = _list_notes(opened, result, repeated_count, chosen=options.resolution is None, several=has_several_releases)
    return evolve(
        result, skipped=sum(release_counts.skipped for release_counts in report_counts), notes=(*result.notes, *notes)
    )


def _list_notes(opened: OpenedFolder, estimate: Estimate, repeated: int, *, chosen: bool, several: bool) -> list[str]:
    """Return warnings for the users of an estimate, as sentences.

    Args:
        opened: The release.
        estimate: The estimate.
        repeated: The number of reports that were omitted because their subject already had a counted report.
        chosen: Whether the resolution was chosen automatically rather than by the user.
        several: Whether several releases may contain reports about the same people, with no column to identify them.
    """
    lines = []
    if repeated:
        lines.append(f"{number_of(repeated, 'report')} omitted: their subjects had one already, and several show less")
    if several:
        lines.append(
            "reports to several releases are assumed to come from different people; if one person sent several, "
            "intervals are too narrow unless a column says who sent each (subject)"
        )
    if estimate.resolution:
        # Smooth shares are mixtures of bumps (smooth distributions around centres) as wide as the resolution.
        reason = ", as fine as the reports support" if chosen else ""
        lines.append(
            f"shares are estimated as mixtures of bumps {estimate.resolution:.3g} {estimate.unit} wide{reason}; finer "
            "details are smoothed away"
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
    """Estimate shares from the reports in a file, and write them as a table and, if requested, as a page and a map.

    Args:
        folder: The release's folder, which is verified before use.
        reports: The path of the table of reports.
        out: The CSV file to write.
        options: The options for the estimate.
        column: The column that contains the reports or the noisy counts.
        subject: The column that names each report's subject, or None if there is no such column. Only a subject's first
            report counts.
        also: Additional releases about the same records: pairs of a release's folder and the table of its reports.
        groups: A CSV file with the columns ``id`` and ``group``, to estimate the groups' shares, or None to estimate
            the records' shares.
        page: The HTML file to write, or None.
        geo: The GeoJSON file to write, or None. It contains a point for each record, with the share of the record or of
            its group.
        force: Whether existing files may be replaced.
        progress: A function to call with the current step, or None.

    Raises:
        UsageError: A file to be written already exists, or options contradict one another.
        InputError: A table is invalid.
        DoesNotHoldError: A release fails verification.
    """
    input_files = [path for path in (reports, *(path for _, path in also), groups) if path is not None]
    folders = [folder, *(further for further, _ in also)]
    # Checked first, so that a run of several minutes does not fail because a file already exists.
    check_files({"--out": out, "--report": page, "--geo": geo}, force=force, read=input_files, folders=folders)
    opened = open_verified(folder)
    channel = channel_of(opened)
    members_by_group = None if groups is None else read_groups(groups, channel.inputs)
    if geo is not None and (not isinstance(channel, Channel) or channel.coordinates is None):
        raise UsageError(f"--geo must be of records on a map, got those of {folder}, which have no positions")
    result = _estimate_opened(
        opened,
        TableSource.of_file(reports),
        lambda channel: noisy_counts_of(channel, reports, column),
        options,
        members_by_group,
        progress,
        column=column,
        subject=subject,
        # A generator, so that each further release is verified only when it is needed.
        also=((open_verified(further), TableSource.of_file(path)) for further, path in also),
    )
    # The files are given their names when the block ends, after all of them have been written.
    with ExitStack() as stack:
        if page is not None:
            path = stack.enter_context(new_file(page, force=force))
            path.write_text(estimate_page(result, opened, reports.name, per_subject=subject is not None), "utf-8")
        if geo is not None and isinstance(channel, Channel):
            path = stack.enter_context(new_file(geo, force=force, option="--geo"))
            write_layer(share_layer(result, channel), path)
        round_frame(result.to_frame()).write_csv(stack.enter_context(new_file(out, force=force)))
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
    """Estimate shares from tables in memory, on behalf of :meth:`privopt.api.released.OpenRelease.estimate`.

    Args:
        opened: The release.
        reports: A data frame with the column of reports, or a sequence of reports. For a release that publishes noisy
            counts, a sequence or array of these counts.
        column: The column that contains the reports.
        subject: The column that names each report's subject, or None if there is no such column. Only a subject's first
            report counts.
        by: The name of each record's group, keyed by record id, to estimate the groups' shares, or None to estimate the
            records' shares.
        also: Additional releases about the same records, each with its reports.
        confidence: The confidence level of the intervals, in (0, 1).
        gap: The fit stops once its log-likelihood per report is proved to be within this distance of the maximum.
        intervals: "finite-sample" (valid for any number of reports), "asymptotic" (valid for many reports) or "smooth"
            (valid for many reports if shares are smooth over the map).
        resolution: The resolution of smooth shares, in the same units as distances. If 0, shares are not smooth. If
            None, the resolution is chosen automatically.
    """
    ids = list(channel_of(opened).inputs)
    return _estimate_opened(
        opened,
        _table_source(reports, column, "reports"),
        lambda channel: _noisy_counts(reports, channel.inputs),
        EstimateOptions(confidence=confidence, gap=gap, intervals=intervals, resolution=resolution),
        None if by is None else check_groups(by, ids),
        None,  # no progress is shown in memory
        column=column,
        subject=subject,
        also=[
            (further, _table_source(further_reports, column, f"also[{number}]"))
            for number, (further, further_reports) in enumerate(also)
        ],
    )


def _table_source(reports: object, column: str, name: str) -> TableSource:
    """Return a table source called ``name`` for reports in memory.

    The reports are given as a data frame, or as a sequence of values, which becomes the column ``column``.
    """
    reports = values_of(reports)
    if isinstance(reports, (list, tuple, np.ndarray)):
        reports = {column: np.asarray(reports, dtype=object).ravel().tolist()}
    return TableSource.of_frame(frame_of(reports, "reports"), name)


def _noisy_counts(reports: object, ids: Sequence[str]) -> Floats:
    """Convert noisy counts, given as a sequence or an array, to an array of shape (N,).

    Args:
        reports: One finite number for each id, in any form that NumPy accepts.
        ids: The ids of the release's N inputs.

    Raises:
        UsageError: The number of counts differs from the number of ids, or a count is not finite.
    """
    counts = np.asarray(reports, dtype=np.float64)
    if counts.shape != (len(ids),) or not np.isfinite(counts).all():
        raise UsageError(f"reports must be {len(ids)} finite numbers, one for each of {', '.join(ids[:3])}, ...")
    return counts


def check_groups(by: Mapping[str, str], ids: Sequence[str]) -> dict[str, Ints]:
    """Return the indices of each group's records, keyed by group name.

    Args:
        by: The name of each record's group, keyed by record id.
        ids: The ids of the release's records, each of which must have a group.

    Raises:
        UsageError: A record has no group, a group's name is not a string, or a key is not the id of a record.
    """
    if not isinstance(by, Mapping):
        raise UsageError(f"by must be a mapping from each record's id to its group, got {type(by).__name__}")
    group_by_id = {str(name): group for name, group in by.items()}
    # Records without a group, and unknown records that have one.
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
