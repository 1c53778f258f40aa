"""The command ``privopt export``."""

from __future__ import annotations

from pathlib import Path

import click

from privopt.command.exit_codes import (
    PATH,
    QUIET,
    guarded,
    warn_of_no_privacy,
)
from privopt.command.terminal import complain

__all__ = ["export"]


@click.command()
@click.argument("folder", metavar="DIR", type=PATH)
@click.option(
    "--target",
    type=click.Choice(["js"]),
    default="js",
    show_default=True,
    help="An ES module and a page.",
)
@click.option("--out", type=PATH, required=True, metavar="FOLDER", help="Folder to write.")
@QUIET
@click.option("--force", is_flag=True, help="Replace FOLDER.")
@guarded
def export(folder: Path, target: str, out: Path, quiet: bool, force: bool) -> None:
    """Write a release as a client that draws reports on the device.

    It is an ES module without dependencies, with its artefact, test vectors and a page that shows it.
    """
    from privopt.command.terminal import progress_display
    from privopt_clients.export import export as run

    with progress_display(quiet=quiet) as progress:
        result = run(folder, out, force=force, progress=progress)
    warn_of_no_privacy(folder)
    for line in result.notes:
        complain(f"note: {out}: {line}")
    if not quiet:
        complain(f"{out}: mechanism.bin, {result.size:,} bytes ({result.zipped:,} gzipped), SHA-256 {result.digest}")
