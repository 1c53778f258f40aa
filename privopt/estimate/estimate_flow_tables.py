"""Estimate flows between groups from tables of trips in files (``privopt estimate --from --to``) or in memory."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from attrs import evolve

from privopt.arrays import Ints
from privopt.declare.problems_in_memory import frame_of
from privopt.declare.table_files import TableSource
from privopt.errors import UsageError
from privopt.estimate.count_reports import read_groups
from privopt.estimate.count_trips import TripColumns, count_trips
from privopt.estimate.estimate_tables import channel_of, check_groups
from privopt.estimate.flow_page import flow_page
from privopt.estimate.flows import Flows, estimate_flows
from privopt.estimate.shares import EstimateOptions
from privopt.estimate.written_digits import round_frame
from privopt.files.new_folder import check_files, new_file
from privopt.interfaces import Channel, Progress
from privopt.interfaces.cost import cost_of_draw
from privopt.ledger.cost_of_report import unit_price
from privopt.run.verify import OpenedFolder, open_verified


def _trip_channel(opened: OpenedFolder) -> Channel:
    """Return a release's public channel, which contains the probability of each output given each record.

    Raises:
        UsageError: The release publishes noisy counts instead of reports, or has no public channel.
    """
    channel = channel_of(opened)
    if not isinstance(channel, Channel):
        raise UsageError(f"{opened.folder}: flows must be of reports, got a release of noisy counts")
    return channel


def describe_pair_cost(opened: OpenedFolder) -> str:
    """Return a sentence that states the total privacy cost of a trip's two reports.

    The two reports are drawn independently, so their epsilons add up (sequential composition). If the start moves by a
    distance d1 and the end by d2, the joint probability of the reports changes by a factor of at most
    exp(epsilon (d1 + d2)).

    Args:
        opened: The release that both reports were drawn from.
    """
    # Source and purpose are empty because nothing is charged here. If a ledger cannot account for a report, the result
    # is a string that says why.
    cost = cost_of_draw(opened.result.guarantee, opened.relation, "", "", mark=opened.result.mark)
    if isinstance(cost, str):
        return f"what both reports of a trip reveal together is not bounded by a sum: {cost}"
    return (
        f"each trip has two reports, drawn independently, which together cost {unit_price(cost.times(2))}: the sum of "
        f"{unit_price(cost)} for the start and as much for the end"
    )


def _estimate_opened(
    opened: OpenedFolder,
    channel: Channel,
    source: TableSource,
    groups: Mapping[str, Ints],
    columns: TripColumns,
    options: EstimateOptions,
    progress: Progress | None,
) -> Flows:
    """Estimate flows from a table of trips, and attach a sentence about the privacy cost of a trip's two reports.

    Args:
        opened: The release.
        channel: The release's channel.
        source: The table of trips.
        groups: The indices of each group's records, keyed by group name.
        columns: The names of the table's columns.
        options: The options for the estimate.
        progress: A function to call with the current step, or None.
    """
    if progress is not None:
        progress("counting trips", 0, None, None)
    trips = count_trips(channel, source, columns)
    # Distances between records are needed because flows are assumed to be smooth over the map.
    flows = estimate_flows(trips, options, groups, rows=channel.distances, unit=channel.unit, progress=progress)
    return evolve(flows, pair_guarantee=describe_pair_cost(opened))


def write_flows(
    folder: Path,
    reports: Path,
    groups: Path,
    columns: TripColumns,
    options: EstimateOptions,
    *,
    targets: Mapping[str, Path | None],
    force: bool = False,
    progress: Progress | None = None,
) -> Flows:
    """Estimate flows from the trips in a file, and write them as a table and, if requested, as an HTML page.

    Args:
        folder: The release's folder, which is verified before use.
        reports: The path of the table of trips.
        groups: The path of a CSV file with the columns ``id`` and ``group``.
        columns: The names of the columns in the table of trips.
        options: The options for the estimate.
        targets: The files to write, keyed by option: the CSV file under ``--out``, and the HTML file (or None for no
            page) under ``--report``.
        force: Whether existing files may be replaced.
        progress: A function to call with the current step, or None.

    Raises:
        UsageError: A file to be written already exists, or the release does not publish a channel from which reports
            are drawn.
        InputError: A table is invalid.
        DoesNotHoldError: The release fails verification.
    """
    # Checked first, so that a run of several minutes does not fail because a file already exists.
    check_files(targets, force=force, read=[reports, groups], folders=[folder])
    opened = open_verified(folder)
    channel = _trip_channel(opened)
    members_by_group = read_groups(groups, channel.inputs)
    source = TableSource.of_file(reports)
    flows = _estimate_opened(opened, channel, source, members_by_group, columns, options, progress)
    # The files are given their names when the block ends, after all of them have been written.
    with ExitStack() as stack:
        if (page := targets["--report"]) is not None:
            path = stack.enter_context(new_file(page, force=force))
            path.write_text(flow_page(flows, opened, reports.name), "utf-8")
        if (out := targets["--out"]) is not None:
            round_frame(flows.to_frame()).write_csv(stack.enter_context(new_file(out, force=force)))
    return flows


def flows_of(
    opened: OpenedFolder, reports: object, by: Mapping[str, str], columns: TripColumns, options: EstimateOptions
) -> Flows:
    """Estimate flows from a table in memory, on behalf of :meth:`privopt.OpenRelease.estimate_flows`.

    Args:
        opened: The release.
        reports: A data frame that contains both columns of reports.
        by: The name of each record's group, keyed by record id.
        columns: The names of the table's columns.
        options: The options for the estimate.
    """
    channel = _trip_channel(opened)
    source = TableSource.of_frame(frame_of(reports, "reports"), "reports")
    groups = check_groups(by, list(channel.inputs))
    return _estimate_opened(opened, channel, source, groups, columns, options, None)
