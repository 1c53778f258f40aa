"""The ``privopt apply`` command, its options, and the checks that involve only the options.

The command is implemented in :mod:`.apply`. That module is imported only when the command runs, so that other commands
start quickly.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import click

from privopt.command.completion import FOLDER
from privopt.command.exit_codes import (
    HASH_SUBJECTS,
    PATH,
    QUIET,
    SEED,
    handle_errors,
    positive,
    utf8,
    warn_of_no_privacy,
)
from privopt.command.terminal import complain, remark, say_json
from privopt.errors import UsageError, number_of

__all__ = ["apply"]


def parse_positions(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, list[str]]:
    """Parse the values of a repeatable NAME=COL,COL option into a dict from position names to lists of columns.

    This is a click callback.

    Args:
        context, parameter: The command's context and the option, as passed by click.
        values: The option's values, each of the form NAME=COL,COL or NAME=COL.

    Raises:
        click.BadParameter: A value does not have this form, or a name is given twice.
    """
    columns_by_name: dict[str, list[str]] = {}
    for value in values:
        name, equals_sign, columns = (utf8(context, parameter, value) or "").partition("=")
        column_names = [column.strip() for column in columns.split(",")]
        if not (name.strip() and equals_sign and all(column_names) and len(column_names) <= 2):
            raise click.BadParameter(f"{value!r} must be NAME=COLUMN,COLUMN, or NAME=COLUMN for ids")
        if name.strip() in columns_by_name:
            raise click.BadParameter(f"{name.strip()} must name one position, got it twice")
        columns_by_name[name.strip()] = column_names
    return columns_by_name


def utf8_each(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Apply the click callback :func:`utf8` to each value of a repeatable option, and return the values."""
    return tuple(utf8(context, parameter, value) or "" for value in values)


@click.command()
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.argument("table", metavar="TABLE", type=PATH)
@click.option("--out", type=PATH, required=True, metavar="TABLE2", help=".csv or .parquet.")
@click.option("--id", "id_", metavar="COLUMN", callback=utf8, help="The secret: ids of records.")
@click.option("--lat", metavar="COLUMN", callback=utf8, help="The secret: latitudes, in degrees; with --lon.")
@click.option("--lon", metavar="COLUMN", callback=utf8, help="The secret: longitudes, in degrees; with --lat.")
@click.option("--x", metavar="COLUMN", callback=utf8, help="The secret: x, in km; with --y.")
@click.option("--y", metavar="COLUMN", callback=utf8, help="The secret: y, in km; with --x.")
@click.option(
    "--geometry",
    metavar="COLUMN",
    callback=utf8,
    help='The secret: points of a GeoParquet file, or a column of text such as "lat, lon", geo:, WKT or a JSON list of '
    "[lon, lat], of which the first counts.",
)
@click.option(
    "--max-snap",
    type=float,
    callback=positive,
    metavar="KM",
    help="No report for rows farther from every record, or from the region. For errors in the data: a refusal shows "
    "where a row is not.",
)
@click.option("--seed", type=SEED, metavar="N", help="For experiments: not private.")
@click.option(
    "--ledger",
    type=PATH,
    metavar="FILE",
    help="Charge each row to its subject before drawing, even if nothing is reported in the end. The file is created "
    "if missing.",
)
@click.option(
    "--subject", metavar="COLUMN", callback=utf8, help="The person each row is about: with --ledger, or for traces."
)
@click.option(
    "--time",
    metavar="COLUMN",
    callback=utf8,
    help="When each row was, ISO 8601: with a ledger whose limit is by the calendar, the period that it is charged to. "
    "For traces: the order of a subject's rows, numbers too; default: rows are in order.",
)
@click.option(
    "--time-format",
    metavar="FORM",
    callback=utf8,
    help="With --time: the form of the times, such as DD/MM/YYYY HH:MM, or unix, unix-ms, unix-us or unix-ns for "
    "numbers since 1970. Default: ISO 8601.",
)
@click.option(
    "--null-names",
    is_flag=True,
    help="With --subject: NULL, NA, None and the like are names. By default such rows are about nobody, and refused.",
)
@click.option(
    "--sticky",
    is_flag=True,
    help="With --ledger: keep the first report of a subject's place, and repeat it uncharged. Charges and refusals "
    "then show which visits shared a place.",
)
@click.option(
    "--sticky-within",
    "within",
    type=float,
    callback=positive,
    metavar="KM",
    help=(
        "With --sticky, against the noise of GPS: a kept report is repeated while the position is at most KM from the "
        "centre of its cell. A cell is all that one record is nearest to. KM is half a cell's diagonal plus the "
        "noise, or more. Anyone who knows where reports were renewed learns the cell, and which centres are near."
    ),
)
@click.option(
    "--text",
    metavar="COLUMN",
    callback=utf8,
    help="The secret: sentences, where records are words. Protected words and masks between single spaces replace "
    "them. How many known words a row has, and their order, stay visible; a row is charged for each.",
)
@click.option(
    "--unknown",
    type=click.Choice(["drop", "mask"]),
    help="With --text: what to do with unknown words. drop (default) removes them; rows are then compared with rows of "
    "equally many known words. mask writes [mask]; rows are compared with rows of the same pattern.",
)
@click.option(
    "--batch",
    metavar="NAME",
    callback=utf8,
    help="With --ledger: after a kill the same command gives each row the report that it was charged for, and charges "
    "nothing twice. Every draw follows from a key next to the ledger, deleted once TABLE2 is written.",
)
@HASH_SUBJECTS
@click.option(
    "--prefix",
    metavar="NAME",
    callback=utf8,
    help="Added columns are NAME_report, NAME_report_lat, ...: for a second position in each row, in a second apply.",
)
@click.option(
    "--position",
    "positions",
    metavar="NAME=COL,COL",
    multiple=True,
    callback=parse_positions,
    help="One of several positions of each row, instead of --lat and --lon, --x and --y, or --id (NAME=COL): added "
    "columns are NAME_report, ...; a row gets all its reports or none, and is charged for all.",
)
@click.option(
    "--keep",
    metavar="COLUMN",
    multiple=True,
    callback=utf8_each,
    help="Keep a column whose values state the row's own position or record. Such columns are dropped by default.",
)
@click.option("--drop", metavar="COLUMN", multiple=True, callback=utf8_each, help="Leave this column out of TABLE2.")
@click.option(
    "--hash",
    "hashed",
    metavar="COLUMN",
    multiple=True,
    callback=utf8_each,
    help=(
        "Replace this column's ids by keyed hashes: rows of one id stay together, and only whoever has the key can "
        "tell whose they are."
    ),
)
@click.option(
    "--hash-key",
    type=PATH,
    metavar="KEYFILE",
    help="The key of --hash, created if missing. Default: one derived from the key of --hash-subjects.",
)
@click.option("--json", "as_json", is_flag=True, help="Counts of rows, reports and refusals on standard output.")
@QUIET
@click.option("--force", is_flag=True, help="Replace TABLE2.")
@handle_errors
def apply(
    folder: Path,
    table: Path,
    out: Path,
    id_: str | None,
    max_snap: float | None,
    seed: int | None,
    ledger: Path | None,
    subject: str | None,
    time: str | None,
    time_format: str | None,
    null_names: bool,
    sticky: bool,
    within: float | None,
    text: str | None,
    unknown: Literal["drop", "mask"] | None,
    batch: str | None,
    key: Path | None,
    prefix: str | None,
    positions: dict[str, list[str]],
    keep: tuple[str, ...],
    drop: tuple[str, ...],
    hashed: tuple[str, ...],
    hash_key: Path | None,
    as_json: bool,
    quiet: bool,
    force: bool,
    **columns: str | None,
) -> None:
    """Protect a table by replacing the secret's columns with a report in each row, drawn exactly as certified.

    If the release holds everywhere, the exact position is used. Otherwise, a position is first replaced by its nearest
    record, and a release that draws without a matrix requires --id.
    """
    from privopt.command.terminal import progress_display
    from privopt.declare.name_forms import check_distinct_columns
    from privopt.interfaces.result import SEEDED
    from privopt.ledger.charge import Charge
    from privopt_tables.apply import apply as run
    from privopt_tables.apply_parts import combine_secret
    from privopt_tables.options import ApplyOptions, format_counts
    from privopt_tables.row_forms import RowForms

    # An option that would have no effect is rejected, because whoever passes it expects one.
    if unknown is not None and text is None:
        raise UsageError("--unknown must be given with --text COLUMN: it is about words of sentences")
    # ``columns`` contains --lat, --lon, --x, --y and --geometry.
    secret = combine_secret({"id": id_, **columns}, positions, text, dashes="--")
    if within is not None and not sticky:
        raise UsageError("--sticky-within must be given with --sticky: it repeats kept reports")
    # Without any of these options, --subject names the subjects of traces, and nothing is charged.
    charge = None
    if ledger is not None or sticky or key is not None or batch is not None:
        because = "reports are charged to subjects in a ledger"
        charge = Charge.of_options(
            "apply", ledger, subject, key, whom="COLUMN", because=because, sticky=sticky, within=within
        )
    # These conditions are checked again later, but the messages there do not name the command-line options.
    if seed is not None and charge is not None:
        raise UsageError("--seed must be omitted with --ledger: no epsilon covers what a seed draws")
    if time_format is not None and time is None:
        raise UsageError("--time-format must be given with --time COLUMN: it is the form of its times")
    check_distinct_columns({"--subject": subject, "--time": time, "--text": text})
    if null_names and subject is None:
        raise UsageError("--null-names must be given with --subject COLUMN: it is about its names")
    options = ApplyOptions(
        max_snap=max_snap,
        seed=seed,
        charge=charge,
        subject=subject,
        time=time,
        prefix=prefix,
        positions=positions,
        batch=batch,
        text=text,
        unknown=unknown or "drop",
        keep=keep,
        drop=drop,
        hashed=hashed,
        hash_key=hash_key,
        forms=RowForms(time_format, null_names),
    )
    with progress_display(quiet=quiet) as progress:
        summary = run(
            folder,
            table,
            out,
            secret,
            options,
            force=force,
            progress=progress,
            announce=lambda line: remark(f"note: {line}"),
        )
    # The table has been written at this point. Warnings about the release come first, then those about the table.
    warn_of_no_privacy(folder)
    for line in summary.warnings:
        remark(f"warning: {out}: {line}")
    for line in summary.notes:
        remark(f"note: {line}")
    if seed is not None:
        remark(f"warning: {out}: {SEEDED}")
    if summary.refused:
        missing = summary.rows - summary.reported
        rows = f"{missing:,} of {number_of(summary.rows, 'row')}"
        remark(f"{table}: {rows} without a report: {format_counts(summary.refused)}")
    if as_json:
        say_json(json.dumps(summary.to_json(), indent=2))
    if not quiet:
        # This goes to standard error, because standard output is reserved for --json.
        complain(f"{out}: {number_of(summary.reported, 'report')} in {number_of(summary.rows, 'row')}")
