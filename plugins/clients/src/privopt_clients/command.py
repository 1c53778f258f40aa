"""The command ``privopt export``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

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
    type=click.Choice(["js", "jvm"]),
    required=True,
    help="js: an ES module and a page. jvm: a jar for Java and Android, made by an installed javac.",
)
@click.option("--out", type=PATH, required=True, metavar="FOLDER", help="Folder to write.")
@QUIET
@click.option("--force", is_flag=True, help="Replace FOLDER.")
@guarded
def export(folder: Path, target: Literal["js", "jvm"], out: Path, quiet: bool, force: bool) -> None:
    """Write a release as a client that draws reports on the device.

    It is an ES module or a jar without dependencies, with its artefact, test vectors and, of the module, a page that
    shows it.
    """
    from privopt.command.terminal import progress_display
    from privopt_clients.export import export as run

    with progress_display(quiet=quiet) as progress:
        made = run(folder, out, target=target, force=force, progress=progress)
    warn_of_no_privacy(folder)
    for line in made.notes:
        complain(f"note: {out}: {line}")
    if not quiet:
        complain(f"{out}: mechanism.bin, {made.size:,} bytes ({made.zipped:,} gzipped), SHA-256 {made.digest}")
