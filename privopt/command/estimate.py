"""The command ``privopt estimate``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import click

from privopt.command.completion import FOLDER
from privopt.command.exit_codes import PATH, QUIET, handle_errors, positive, utf8, warn_of_no_privacy
from privopt.command.terminal import complain, progress_display, remark, say_json
from privopt.errors import number_of

__all__ = ["estimate"]


@click.command()
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.argument("reports", metavar="REPORTS", type=PATH)
@click.option("--out", type=PATH, required=True, metavar="FILE.csv", help="Table to write.")
@click.option("--column", metavar="NAME", default="report", show_default=True, callback=utf8, help="Holds the reports.")
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
    default="finite-sample",
    show_default=True,
    help="All at once and always; each for many reports; or all at once for many reports, if shares are smooth over "
    "the map as those of the estimate are (much narrower).",
)
@click.option(
    "--gap",
    type=float,
    callback=positive,
    default=1e-6,
    show_default=True,
    metavar="G",
    help="Of the log-likelihood, per report, to its maximum: over all distributions (method maximum-likelihood), among "
    "those as smooth (smooth-maximum-likelihood; gap_to_all is that over all).",
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
    subject: str | None,
    also: tuple[tuple[Path, Path], ...],
    groups: Path | None,
    resolution: float | None,
    confidence: float,
    intervals: Literal["finite-sample", "asymptotic", "smooth"],
    gap: float,
    page: Path | None,
    geo: Path | None,
    as_json: bool,
    quiet: bool,
    force: bool,
) -> None:
    """Estimate shares of the records from reports, with intervals."""
    # The docstring is the text of --help, and the options above say what the parameters mean. A record is a possible
    # secret, such as a place; its share is the part of the people whose secret it is. ``groups``, ``page`` and ``geo``
    # are files: a group for each record to read, and a report page and a map to write.
    from privopt.estimate.estimate_tables import write_estimate
    from privopt.estimate.shares import EstimateOptions

    # Created first: it refuses invalid options before the folder is verified.
    options = EstimateOptions(resolution=resolution, confidence=confidence, intervals=intervals, gap=gap)
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
    # A table on disk is complete by now; all that follows is about it, on standard error.
    warn_of_no_privacy(folder)
    for line in shares.notes:
        remark(f"note: {line}")
    if shares.skipped:
        remark(f"{reports}: skipped {number_of(shares.skipped, 'row')} without a report")
    if not quiet:
        counts_text = f"{number_of(len(shares.ids), 'share')} from {number_of(shares.n, 'report')}"
        complain(f"{out}: {counts_text} ({shares.method}{shares.gaps})")
    if as_json:
        say_json(json.dumps(shares.to_json(), indent=2, ensure_ascii=False))
