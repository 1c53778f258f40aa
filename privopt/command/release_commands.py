"""The commands that work on an existing release: sample, audit, report and sign.

As in :mod:`privopt.command.cli`, each command imports what it needs when it is called.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from privopt.command.completion import FOLDER
from privopt.command.exit_codes import (
    HASH_SUBJECTS,
    PATH,
    QUIET,
    handle_errors,
    pair,
    utf8,
    warn_of_no_privacy,
)
from privopt.command.program import SecretCommand, say_result
from privopt.command.terminal import complain, progress_display, remark, say_ids
from privopt.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from privopt.api.draws import Draw
    from privopt.ledger.charge import Charge
    from privopt.run.verify import OpenedFolder


@click.command(cls=SecretCommand)
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.option("--input", "input_id", metavar="ID", callback=utf8, help="The secret: id of a record.")
@click.option(
    "--at",
    metavar="LAT,LON",
    callback=pair,
    help="The secret: a position; its nearest record, or that very point if the release holds everywhere.",
)
@click.option("--xy", metavar="X,Y", callback=pair, help="The same in km.")
@click.option("-n", "count", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Draws.")
@click.option(
    "--ledger",
    type=PATH,
    metavar="FILE",
    help=(
        "Charge each draw before it is drawn, whatever the secret; as many are drawn as the limit allows. Created if "
        "missing."
    ),
)
@click.option("--subject", metavar="ID", callback=utf8, help="With --ledger: whom the draws are about.")
@HASH_SUBJECTS
@handle_errors
def sample(
    folder: Path,
    input_id: str | None,
    at: tuple[float, float] | None,
    xy: tuple[float, float] | None,
    count: int,
    ledger: Path | None,
    subject: str | None,
    key: Path | None,
) -> None:
    """Draw outputs for one secret, one per line, from the operating system's entropy."""
    # The docstring is the text of --help. The secret is the id of a record, a position ``at`` in degrees, or a position
    # ``xy`` in km. ``key`` is the file with the key under which the ledger hashes subjects. No message may reveal the
    # secret, and nothing may be drawn before it is charged.
    from privopt.api.draws import draw_of, in_blocks
    from privopt.api.released import handle_of
    from privopt.ledger.charge import Charge
    from privopt.run.verify import open_to_sample, open_verified

    if sum(option is not None for option in (input_id, at, xy)) != 1:
        raise UsageError("sample: must be given one of --input ID, --at LAT,LON and --xy X,Y")
    charge: Charge | None = None
    if any(option is not None for option in (ledger, subject, key)):
        because = "draws are charged to a subject in a ledger"
        charge = Charge.of_options("sample", ledger, subject, key, whom="ID", because=because)
    if charge is not None:
        charge.check_apart(folder)  # a ledger inside DIR would make the folder invalid
    position = at or xy
    opened: OpenedFolder | None = None
    with progress_display(quiet=False) as progress:
        # Draws for an id need only the release. A position or a charge also needs the problem.
        if position is None and charge is None:
            name, release = open_to_sample(folder, progress=progress)
        else:
            opened = open_verified(folder, progress=progress)
            name, release = opened.registered.spec.name, opened.release
    if position is None:
        draw = draw_of(name, release, str(input_id))
    else:
        assert opened is not None  # a position is looked up in the problem
        draw = handle_of(opened).draws_at(position, degrees=at is not None, note=lambda line: remark(f"note: {line}"))
    blocks = in_blocks(draw, count) if charge is None or opened is None else _charge_draws(draw, count, charge, opened)
    warn_of_no_privacy(folder)
    for block in blocks:
        say_ids(block)


def _charge_draws(draw: Draw, count: int, charge: Charge, opened: OpenedFolder) -> Iterator[list[str]]:
    """Charge the ledger for the draws that its limit allows, and return an iterator over the reports in blocks.

    Notes are printed to standard error, along with a message if the limit does not allow all draws.

    Args:
        draw: A function that draws a given number of reports.
        count: The number of draws that the user requested.
        charge: The ledger and the subject to charge.
        opened: The verified release, whose guarantee determines the cost of a draw.
    """
    from privopt.api.draws import in_blocks

    with progress_display(quiet=False) as progress:
        # When this returns, all charges are on disk, and at most the first block of reports has been drawn.
        charged_draws = charge.charge_draws(
            partial(in_blocks, draw),
            count,
            folder=opened.folder,
            result=opened.result,
            relation=opened.relation,
            progress=progress,
        )
    # `sequence` is a sentence on the joint guarantee for all of the subject's reports.
    remark(f"note: {charged_draws.sequence}")
    if charged_draws.refused is not None:
        complain(f"{charge.path}: {charged_draws.refused}")
    return charged_draws.reports


@click.command()
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.option(
    "--over-time",
    type=click.IntRange(1, 1_000_000),
    is_flag=False,
    flag_value=1000,
    metavar="[N]",
    help="Also attacks on up to N reports of one place (default: 1000).",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
@QUIET
@handle_errors
def audit(folder: Path, over_time: int | None, as_json: bool, quiet: bool) -> None:
    """Measure what an attacker learns from a release."""
    # The docstring is the text of --help. ``over_time`` is the largest number of reports about one place that are
    # attacked together.
    from privopt.run.audit import audit as run
    from privopt.run.audit import table

    with progress_display(quiet=quiet) as progress:
        measured_figures = run(folder, over_time=over_time, progress=progress)
    warn_of_no_privacy(folder)
    say_result(measured_figures, table(measured_figures).rstrip("\n"), as_json=as_json)


@click.command()
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.option("--figures", type=PATH, metavar="FOLDER", help="Also SVG and PNG files there.")
@click.option("--geo", type=PATH, metavar="FILE", help="Also a map: .geojson.")
@click.option("--truth", is_flag=True, help="Compare with the secrets; written into DIR/private/ instead.")
@click.option("--json", "as_json", is_flag=True, help="The files that were written, as one object.")
@QUIET
@handle_errors
def report(folder: Path, figures: Path | None, geo: Path | None, truth: bool, as_json: bool, quiet: bool) -> None:
    """Write DIR/report.html, one file that works offline."""
    # The docstring is the text of --help. ``figures`` is a folder to write to, and ``geo`` a file to write.
    from privopt.files.new_folder import check_files, check_files_folder
    from privopt.report.write_report import write_figures, write_geo, write_report

    # All targets are checked first, so that nothing is written if one of them cannot be.
    if figures is not None:
        check_files_folder(figures, "--figures")
    check_files({"--geo": geo}, force=True, folders=[folder])
    with progress_display(quiet=quiet) as progress:
        written = {"report": [write_report(folder, truth=truth, progress=progress)]}
        warn_of_no_privacy(folder)
        if figures is not None:
            written["figures"] = list(write_figures(folder, figures, progress=progress))
        if geo is not None:
            written["map"] = [write_geo(folder, geo, progress=progress)]
    names = {kind: [str(path) for path in paths] for kind, paths in written.items()}
    say_result(names, "\n".join(name for paths in names.values() for name in paths), as_json=as_json)


@click.command()
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.argument("key", metavar="KEY", type=PATH)
@click.option("--force", is_flag=True, help="Replace the signature that is there.")
@QUIET
@handle_errors
def sign(folder: Path, key: Path, force: bool, quiet: bool) -> None:
    """Sign a verified folder with an OpenSSH key, writing the signature to DIR/SHA256SUMS.sig."""
    # The docstring is the text of --help. ``key`` is the file of a private key, or of a public key whose private key is
    # in the agent.
    from privopt.run.signatures import sign as run

    with progress_display(quiet=quiet) as progress:
        signature_file = run(folder, key, force=force, progress=progress)
    say_result({"signature": str(signature_file)}, str(signature_file), as_json=False)
    warn_of_no_privacy(folder)
