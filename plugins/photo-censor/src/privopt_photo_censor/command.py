"""``privopt-photo-censor``: a page on this machine to choose which photos stay."""

from __future__ import annotations

from pathlib import Path

import click

from privopt.command.guard import guarded, say_when_compiling
from privopt.command.terminal import say

__all__ = ["cli", "main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """What photo-censor has beside privopt's own commands."""


@cli.command()
@click.argument("problem", type=click.Path(path_type=Path))
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Of 127.0.0.1; left out: any that is free.")
@guarded
def choose(problem: Path, port: int) -> None:
    """Serve a page on this machine: click which photos stay, solve again, write a problem file. Interrupt to end."""
    from privopt_photo_censor.choose import Chooser, serve

    say_when_compiling()
    server, address = serve(Chooser.of(problem), port)
    say(f"{address}\nopen it on this machine; interrupt (Ctrl-C) to end")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        say("ended")
    finally:
        server.server_close()


def main() -> None:
    """Entry point of ``privopt-photo-censor`` and ``python -m privopt_photo_censor``."""
    cli(prog_name="privopt-photo-censor")
