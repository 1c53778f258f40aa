"""The commands that use a release: sample, audit, report, sign.

As in :mod:`privopt.command.cli`, each imports what it needs.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from privopt.command.exit_codes import (
    HASH_SUBJECTS,
    PATH,
    guarded,
    pair,
    utf8,
    warn_of_no_privacy,
)
from privopt.command.program import say_result
from privopt.command.terminal import complain, print_result, progress_display, say_ids
from privopt.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from privopt.api.draws import Draw
    from privopt.ledger.charge import Charge
    from privopt.run.verify import OpenedFolder


@click.command()
@click.argument("folder", metavar="DIR", type=PATH)
@click.option("--input", "input_id", metavar="ID", callback=utf8, help="The secret: id of a record.")
@click.option(
    "--at",
    metavar="LAT,LON",
    callback=pair,
    help="The secret: a position; its nearest record, or that very point where the release holds everywhere.",
)
@click.option("--xy", metavar="X,Y", callback=pair, help="The same in km.")
@click.option("-n", "count", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Draws.")
@click.option(
    "--ledger",
    type=PATH,
    metavar="FILE",
    help="Charge each draw before it is drawn, whatever the secret; as many are drawn as the limit allows. Made where "
    "there is none.",
)
@click.option("--subject", metavar="ID", callback=utf8, help="With --ledger: whom the draws are about.")
@HASH_SUBJECTS
@guarded
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
    """Draw outputs for one secret, one a line, from the operating system's entropy."""
    from privopt.api.draws import draw_of, in_blocks
    from privopt.api.released import handle_of
    from privopt.ledger.charge import Charge
    from privopt.run.verify import open_to_sample, open_verified

    if sum(given is not None for given in (input_id, at, xy)) != 1:
        raise UsageError("sample: must be given one of --input ID, --at LAT,LON and --xy X,Y")
    charge: Charge | None = None
    if any(given is not None for given in (ledger, subject, key)):
        because = "draws are charged to a subject in a ledger"
        charge = Charge.of_options("sample", ledger, subject, key, whom="ID", because=because)
    if charge is not None:
        charge.check_apart(folder)
    position = at or xy
    opened: OpenedFolder | None = None
    with progress_display(quiet=False) as progress:
        if position is None and charge is None:
            name, release = open_to_sample(folder, progress=progress)
        else:
            opened = open_verified(folder, progress=progress)
            name, release = opened.registered.spec.name, opened.release
    if position is None:
        draw = draw_of(name, release, str(input_id))
    else:
        assert opened is not None  # a position is looked up in the problem
        draw = handle_of(opened).draws_at(position, degrees=at is not None, note=lambda said: complain(f"note: {said}"))
    drawn = in_blocks(draw, count) if charge is None or opened is None else _charged(draw, count, charge, opened)
    warn_of_no_privacy(folder)
    for block in drawn:
        say_ids(block)


def _charged(draw: Draw, count: int, charge: Charge, opened: OpenedFolder) -> Iterator[list[str]]:
    """Charge draws, as many as the limit allows, and yield them; notes and refusals go to standard error."""
    from privopt.api.draws import in_blocks

    with progress_display(quiet=False) as progress:
        made = charge.charge_draws(
            partial(in_blocks, draw),
            count,
            folder=opened.folder,
            result=opened.result,
            relation=opened.relation,
            progress=progress,
        )
    complain(f"note: {made.sequence}")
    if made.refused is not None:
        complain(f"{charge.path}: {made.refused}")
    return made.reports


@click.command()
@click.argument("folder", metavar="DIR", type=PATH)
@click.option(
    "--over-time",
    type=click.IntRange(1, 1_000_000),
    is_flag=False,
    flag_value=1000,
    metavar="[N]",
    help="Also attacks on up to N reports of one place (default: 1000).",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
@guarded
def audit(folder: Path, over_time: int | None, as_json: bool) -> None:
    """Measure what an attacker learns from a release."""
    from privopt.run.audit import audit as run
    from privopt.run.audit import table

    with progress_display(quiet=False) as progress:
        found = run(folder, over_time=over_time, progress=progress)
    warn_of_no_privacy(folder)
    say_result(found, table(found).rstrip("\n"), as_json=as_json)


@click.command()
@click.argument("folder", metavar="DIR", type=PATH)
@click.option("--figures", type=PATH, metavar="FOLDER", help="Also SVG and PNG files there.")
@click.option("--geo", type=PATH, metavar="FILE", help="Also a map: .geojson.")
@click.option("--truth", is_flag=True, help="Compare with the secrets; written into DIR/private/ instead.")
@guarded
def report(folder: Path, figures: Path | None, geo: Path | None, truth: bool) -> None:
    """Write DIR/report.html: one file, works offline."""
    from privopt.report.write_report import write_figures, write_geo, write_report

    with progress_display(quiet=False) as progress:
        print_result(str(write_report(folder, truth=truth, progress=progress)))
        warn_of_no_privacy(folder)
        if figures is not None:
            for path in write_figures(folder, figures, progress=progress):
                print_result(str(path))
        if geo is not None:
            print_result(str(write_geo(folder, geo, progress=progress)))


@click.command()
@click.argument("folder", metavar="DIR", type=PATH)
@click.argument("key", metavar="KEY", type=PATH)
@click.option("--force", is_flag=True, help="Replace the signature that is there.")
@guarded
def sign(folder: Path, key: Path, force: bool) -> None:
    """Sign a verified folder with an OpenSSH key: DIR/SHA256SUMS.sig, by ssh-keygen -Y sign."""
    from privopt.run.signatures import sign as run

    with progress_display(quiet=False) as progress:
        made = run(folder, key, force=force, progress=progress)
    print_result(str(made))
    warn_of_no_privacy(folder)
