"""The ``privopt-fl-linear`` command-line program, which sends reports, collects them and writes the browser client."""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path

import click

from privopt.command.exit_codes import PATH
from privopt.command.program import SecretCommand, program
from privopt.command.terminal import complain, print_result, say_json
from privopt.errors import UsageError, number_of
from privopt_fl_linear.quantiles import Noise

__all__ = ["cli", "main"]

PROBLEM = """[locations]
points = "locations.csv"
[privacy]
epsilon = {epsilon}
[fl-linear]
noise = "{noise}"
"""
"""The template for the problem file written by ``collect``."""
MODULE = "privopt-fl-linear.mjs"
"""The file name of the JavaScript module written by ``client``."""

cli = program("privopt-fl-linear", "Facility location from counts under local differential privacy: both sides.")


def _parse_epsilon(context: click.Context, parameter: click.Parameter, value: str) -> Fraction:
    """Convert the value of --epsilon to an exact fraction (a click callback).

    Args:
        context, parameter: The command's context and the option, which click passes to callbacks. They are not used.
        value: The value of the option.

    Raises:
        click.BadParameter: The value is not a valid epsilon.
    """
    from privopt_fl_linear.messages import parse_epsilon

    try:
        return parse_epsilon(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _read_count(text: str) -> int:
    """Parse the value of --clients, or read the secret count from standard input if the value is ``-``.

    Raises:
        UsageError: The count is not a whole number from 0 to 1e12. The message does not quote it.
    """
    from privopt_fl_linear.location import MOST_CLIENTS

    try:
        # Reading the secret count from standard input keeps it out of the process list and the shell's history.
        clients = int(sys.stdin.readline() if text == "-" else text)
    except ValueError:
        clients = -1  # out of range, so that it is rejected below
    if not 0 <= clients <= MOST_CLIENTS:
        raise UsageError("--clients must be a whole number from 0 to 1e12")  # the text is secret, so it is not quoted
    return clients


@cli.command(cls=SecretCommand)
@click.option("--location", required=True, metavar="ID", help="This location's id, public.")
@click.option("--clients", required=True, metavar="N", help="Its clients, secret; - reads them from standard input.")
@click.option(
    "--epsilon", required=True, callback=_parse_epsilon, metavar="E", help="Budget of a client, in this round."
)
@click.option(
    "--round", "round_", required=True, metavar="NAME", help="The round of collection in which this count is reported."
)
@click.option("--noise", type=click.Choice(["discrete", "continuous"]), default="discrete", show_default=True)
@click.option(
    "--kept",
    required=True,
    type=PATH,
    metavar="FILE",
    help="Messages sent so far: the message of a round is drawn once, and repeated from this file.",
)
@click.option("--ledger", type=PATH, metavar="FILE", help="Charged before a message is drawn.")
def report(
    location: str, clients: str, epsilon: Fraction, round_: str, noise: str, kept: Path, ledger: Path | None
) -> None:
    """Send this location's noisy count as one line on standard output. Nothing else is sent."""
    from privopt_fl_linear.messages import repeat_or_draw

    if not (location.isprintable() and round_.isprintable() and location.strip() and round_.strip()):
        raise UsageError("--location and --round must be text of one line")
    number = _read_count(clients)
    kind: Noise = "discrete" if noise == "discrete" else "continuous"
    # A location that is asked again in the same round repeats its message, because a second draw would spend epsilon
    # again.
    message, is_new = repeat_or_draw(kept, location, number, epsilon, round_, kind, ledger=ledger)
    if not is_new:
        complain(
            f"{location}: round {round_} was reported before; the same message is sent again, and nothing is charged"
        )
    say_json(message.to_line())


@cli.command()
@click.option("--out", required=True, type=PATH, metavar="FOLDER", help="Gets the module.")
def client(out: Path) -> None:
    """Write the client for browsers: a JavaScript module that lets a device report its location's noisy count."""
    from importlib.resources import files

    from privopt.files.new_folder import new_file

    with new_file(out / MODULE) as file:
        file.write_bytes((files("privopt_fl_linear") / "js" / MODULE).read_bytes())
    print_result(str(out / MODULE))


@cli.command()
@click.argument("messages", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--sites", required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="CSV")
@click.option("--out", required=True, type=PATH, metavar="FOLDER", help="Gets problem.toml and locations.csv.")
@click.option("--leave-out", is_flag=True, help="Leave out sites that sent nothing; otherwise they are an error.")
def collect(messages: tuple[Path, ...], sites: Path, out: Path, leave_out: bool) -> None:
    """Create the server's problem from the messages of one round and the public sites."""
    from privopt.files.new_folder import check_files, new_file
    from privopt_fl_linear.messages import collect_reports, format_epsilon, read_messages

    problem = out / "problem.toml"
    # Checked before anything is read, because neither an existing problem nor an input may be overwritten.
    check_files({"--out": [problem, out / "locations.csv"]}, force=False, read=[sites, *messages])
    received = read_messages(messages)
    if not received:
        raise UsageError(f"{messages[0]} must have one message on each line, got none")
    table, silent = collect_reports(sites, received, missing="leave out" if leave_out else "refuse")
    with new_file(problem) as problem_file, new_file(out / "locations.csv") as locations:
        locations.write_bytes(table)
        problem_file.write_text(
            PROBLEM.format(epsilon=format_epsilon(received[0].epsilon), noise=received[0].noise), "utf-8"
        )
    if silent:
        complain(f"warning: omitted: {number_of(len(silent), 'site')} that sent nothing")
    print_result(
        f"{problem}: round {received[0].round}, {number_of(len(received), 'report')}; next: privopt solve fl-linear"
    )


main = cli.main_program
