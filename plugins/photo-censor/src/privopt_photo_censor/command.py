"""``privopt-photo-censor``: a table of places, copies counted again."""

from __future__ import annotations

from pathlib import Path

import click

from privopt.command.exit_codes import PATH
from privopt.command.program import program
from privopt.command.terminal import say

__all__ = ["cli", "main"]


cli = program("privopt-photo-censor", "What photo-censor has beside privopt's own commands.")


@cli.command()
@click.argument("classifier", type=PATH)
@click.argument("references", type=PATH)
@click.option("--force", is_flag=True, help="Replace the files.")
def places(classifier: Path, references: Path, force: bool) -> None:
    """Write the table of places of a model that embeds, from a folder of photos for each place.

    CLASSIFIER is the TOML next to the model, with output = "embedding"; its cells and places are written there. Cells
    that are there already, with names, stay. It says how often a photo that is held out is nearest to its own place.
    """
    from privopt_photo_censor.app.places import place_table

    table, settings = place_table(classifier, references)
    written = table.write(classifier.parent, settings, force=force)
    for name, count in zip(table.names, table.counts.tolist(), strict=True):
        say(f"{name}: {count} photo{'s' if count > 1 else ''}")
    if table.tried:
        say(f"nearest place, each photo omitted in turn: its own for {table.right} of {table.tried}")
    say(f"written: {', '.join(map(str, written))}")


@cli.command()
@click.argument("folder", metavar="DIR", type=PATH)
@click.argument("copies", type=PATH)
@click.argument("classifiers", nargs=-1, required=True, type=PATH)
def recount(folder: Path, copies: Path, classifiers: tuple[Path, ...]) -> None:
    """Score the clean copies in COPIES again, and count their rank, against what DIR promises and lists.

    CLASSIFIERS are the TOMLs of the models, in the problem's order. Ends 1 where a copy is not the one that was made,
    or the promise does not hold of them.
    """
    from privopt_photo_censor.app.copies import recount as run

    say(run(folder, copies, classifiers))


main = cli.main_program
