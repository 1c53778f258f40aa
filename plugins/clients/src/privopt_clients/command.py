"""The ``privopt export`` command, a thin wrapper around :mod:`privopt_clients.export`."""

from __future__ import annotations

from pathlib import Path

import click

from privopt.command.completion import FOLDER
from privopt.command.exit_codes import (
    PATH,
    QUIET,
    handle_errors,
    warn_of_no_privacy,
)
from privopt.command.terminal import complain, remark

__all__ = ["export"]


@click.command()
@click.argument("folder", metavar="[DIR]", type=FOLDER, required=False)
@click.option(
    "--target",
    type=click.Choice(["js"]),
    default="js",
    show_default=True,
    help="An ES module and a page.",
)
@click.option("--out", type=PATH, required=True, metavar="FOLDER", help="Folder to write.")
@click.option(
    "--max-bytes",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    metavar="N",
    help="Largest size of the rows in the artefact.",
)
@click.option(
    "--allow-larger-loss",
    is_flag=True,
    help="If the release's rows do not fit, write others even if they lose over 1 % more; both losses are printed.",
)
@click.option(
    "--reach",
    type=click.FloatRange(min=0.0),
    metavar="KM",
    help="The client refuses positions farther than KM from every record, or from the region. Default: the cells of a "
    "grid, the triangles of a mesh, the diagonal of a box around points or streets.",
)
@QUIET
@click.option("--force", is_flag=True, help="Replace FOLDER.")
@handle_errors
def export(
    folder: Path | None,
    target: str,
    out: Path,
    max_bytes: int,
    allow_larger_loss: bool,
    reach: float | None,
    quiet: bool,
    force: bool,
) -> None:
    """Write a release as a client that draws reports on the device.

    The client is an ES module without dependencies, written together with its artefact, test vectors and a demo page.
    Without DIR, only the modules and a page with a world map are written. They draw reports for any position on Earth
    with fromEpsilon("1.4/km", { digits: 3 }).
    """
    # The docstring above is the help text. ``target`` is ignored, because there is only one choice so far. Modules that
    # load numpy are imported only here, so that --help stays fast.
    from privopt.command.terminal import progress_display
    from privopt_clients.export import export as run
    from privopt_clients.export import export_modules

    if folder is None:
        export_modules(out, force=force)
        if not quiet:
            complain(
                f"{out}: the modules and anywhere.html, without an artefact; see docs/how-to/approximate-location.md"
            )
        return
    with progress_display(quiet=quiet) as progress:
        result = run(
            folder,
            out,
            force=force,
            max_bytes=max_bytes,
            allow_larger_loss=allow_larger_loss,
            reach_km=reach,
            progress=progress,
        )
    warn_of_no_privacy(folder)
    for line in result.notes:
        remark(f"note: {out}: {line}")
    if not quiet:
        complain(f"{out}: mechanism.bin, {result.size:,} bytes ({result.zipped:,} gzipped), SHA-256 {result.digest}")
        if result.reach_km:
            distance = f"more than {result.reach_km:.3g} km from every record, or from the region"
            complain(f"{out}: refuses positions {distance} (--reach)")
