"""The ``privopt estimate`` command, which estimates shares or flows from many reports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from privopt.command.completion import FOLDER
from privopt.command.exit_codes import PATH, QUIET, handle_errors, positive, utf8, warn_of_no_privacy
from privopt.command.terminal import complain, progress_display, remark, say_json
from privopt.declare.column_texts import REPORT
from privopt.errors import UsageError, number_of

if TYPE_CHECKING:
    from privopt.estimate.flows import Flows
    from privopt.estimate.shares import Estimate
else:  # loaded only when the command runs
    Estimate = Flows = Any

__all__ = ["estimate"]


@click.command()
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.argument("reports", metavar="REPORTS", type=PATH)
@click.option("--out", type=PATH, required=True, metavar="FILE.csv", help="Table to write.")
@click.option("--column", metavar="NAME", default="report", show_default=True, callback=utf8, help="Holds the reports.")
@click.option("--from", "start", metavar="COLUMN", callback=utf8, help="Reports of starts: with --to, flows.")
@click.option("--to", "end", metavar="COLUMN", callback=utf8, help="Reports of ends.")
@click.option("--subject", metavar="COLUMN", callback=utf8, help="Who sent each: the first of each counts.")
@click.option(
    "--also",
    type=(PATH, PATH),
    multiple=True,
    metavar="DIR REPORTS",
    help="A further release of the same records, and its reports: other people's, unless --subject says whose.",
)
@click.option("--by", "groups", type=PATH, metavar="FILE", help="Table id,group: groups instead.")
@click.option(
    "--resolution",
    type=click.FloatRange(0),
    metavar="D",
    help="Smooth shares, in the unit of distance; 0: the maximum over all distributions; default: 0 up to 300 "
    "records, as the reports support above.",
)
@click.option("--confidence", type=float, default=0.95, show_default=True, metavar="C", help="Of the intervals.")
@click.option(
    "--intervals",
    type=click.Choice(["finite-sample", "asymptotic", "smooth"]),
    help="All at once and always (default); each for many reports; or all at once for many reports, if shares are "
    "smooth over the map as those of the estimate are: much narrower. Flows have their own.",
)
@click.option(
    "--gap",
    type=float,
    callback=positive,
    default=1e-6,
    show_default=True,
    metavar="G",
    help="Of the log-likelihood, per report, to its maximum: over all distributions (method maximum-likelihood), among "
    "those as smooth (smooth-maximum-likelihood; gap_to_all is that over all). Of flows the search may end earlier, by "
    "cross-validation.",
)
@click.option("--report", "page", type=PATH, metavar="FILE.html", help="Also one page, with a map.")
@click.option(
    "--geo",
    type=PATH,
    metavar="FILE.geojson",
    help="Also each record on the map with its share and interval, or its group's.",
)
@click.option("--json", "as_json", is_flag=True, help="How it was found, on standard output.")
@QUIET
@click.option("--force", is_flag=True, help="Replace FILE.csv and the others.")
@handle_errors
def estimate(
    folder: Path,
    reports: Path,
    out: Path,
    column: str,
    start: str | None,
    end: str | None,
    subject: str | None,
    also: tuple[tuple[Path, Path], ...],
    groups: Path | None,
    resolution: float | None,
    confidence: float,
    intervals: Literal["finite-sample", "asymptotic", "smooth"] | None,
    gap: float,
    page: Path | None,
    geo: Path | None,
    as_json: bool,
    quiet: bool,
    force: bool,
) -> None:
    """Estimate shares of the records from reports, with intervals; or flows, with --from, --to and --by."""
    # The docstring is the text of --help. A record is a possible secret, such as a place. Its share is the fraction of
    # people whose secret it is. ``reports`` is a table, in which ``column``, ``start``, ``end`` and ``subject`` name
    # columns. ``also`` contains further folders with their tables. ``groups`` is the file that assigns records to
    # groups, and ``page`` and ``geo`` are a report page and a map to write. ``resolution`` is in the unit of distance,
    # and ``gap`` is the gap between the log-likelihood per report and its maximum.
    from privopt.declare.name_forms import check_distinct_columns
    from privopt.estimate.estimate_tables import write_estimate
    from privopt.estimate.shares import EstimateOptions

    # The options are created first, so that invalid ones raise an error before the folder is verified.
    options = EstimateOptions(
        resolution=resolution, confidence=confidence, intervals=intervals or "finite-sample", gap=gap
    )
    if start is not None or end is not None:
        from privopt.estimate.count_trips import TripColumns
        from privopt.estimate.estimate_flow_tables import write_flows

        start, end, groups = _check_flow_options(start, end, groups, column, also, geo, intervals)
        # If both columns were the same, a single report would count as two independent ones.
        check_distinct_columns({"--from": start, "--to": end, "--subject": subject})
        columns = TripColumns(start=start, end=end, subject=subject)
        targets = {"--out": out, "--report": page}
        with progress_display(quiet=quiet) as progress:
            flows = write_flows(
                folder, reports, groups, columns, options, targets=targets, force=force, progress=progress
            )
        count = len(flows.groups)
        counts_text = f"{count:,} x {count:,} flows from {number_of(flows.n, 'trip')}"
        remark(f"note: {flows.pair_guarantee}")
        _print_notes(
            folder, reports, flows, "both reports", None if quiet else f"{out}: {counts_text} ({flows.method})"
        )
        if as_json:
            say_json(json.dumps(flows.to_json(), indent=2, ensure_ascii=False))
        return
    check_distinct_columns({"--column": column, "--subject": subject})
    with progress_display(quiet=quiet) as progress:
        shares = write_estimate(
            folder,
            reports,
            out,
            options,
            column=column,
            subject=subject,
            also=also,
            groups=groups,
            page=page,
            geo=geo,
            force=force,
            progress=progress,
        )
    counts_text = f"{number_of(len(shares.ids), 'share')} from {number_of(shares.n, 'report')}"
    line = None if quiet else f"{out}: {counts_text} ({shares.method}{shares.gaps})"
    _print_notes(folder, reports, shares, "a report", line)
    if as_json:
        say_json(json.dumps(shares.to_json(), indent=2, ensure_ascii=False))


def _print_notes(folder: Path, reports: Path, result: Estimate | Flows, required: str, line: str | None) -> None:
    """Print an estimate's notes to standard error, followed by a line that says what was written.

    Call this function after the table has been written.

    Args:
        folder: The release's folder.
        reports: The table of reports.
        result: The estimate whose notes are printed.
        required: What the skipped rows lacked: "a report" or "both reports".
        line: The line that says what was written, or None to print no such line.
    """
    warn_of_no_privacy(folder)
    for note in result.notes:
        remark(f"note: {note}")
    if result.skipped:
        remark(f"{reports}: skipped {number_of(result.skipped, 'row')} without {required}")
    if line is not None:
        complain(line)


def _check_flow_options(
    start: str | None,
    end: str | None,
    groups: Path | None,
    column: str,
    also: Sequence[tuple[Path, Path]],
    geo: Path | None,
    intervals: str | None,
) -> tuple[str, str, Path]:
    """Check the options for estimating flows, and return the required ones: ``start``, ``end`` and ``groups``.

    Args:
        start, end, groups: The values of ``--from``, ``--to`` and ``--by``, or None for an omitted option. All three
            are required.
        column, also, geo, intervals: The values of the options with these names, which must all be omitted.

    Raises:
        UsageError: A required option is missing, or an option that does not apply to flows is given.
    """
    if start is None or end is None:
        missing = "--from" if start is None else "--to"
        raise UsageError(f"{missing} must be given too: flows need a column of reports for starts and one for ends")
    if groups is None:
        raise UsageError("--by must be given: flows are between groups of records, such as districts")
    inapplicable = {
        "--column": column != REPORT,
        "--also": bool(also),
        "--geo": geo is not None,
        f"--intervals {intervals}": intervals is not None,
    }
    for option, is_given in inapplicable.items():
        if is_given:
            raise UsageError(f"{option} must be left out with --from and --to: it does not apply to flows")
    return start, end, groups
