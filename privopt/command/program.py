"""Build and run command-line programs, privopt's and plugins', that share exit codes and JSON output."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Final

import click

from privopt.command.exit_codes import DONE, STOPPED_EMPTY, guarded
from privopt.command.terminal import complain, divert_prints, print_result, reserve_standard_output, say_json

__all__ = ["HELP", "JSON", "Program", "program", "run_program", "say_result"]

HELP: Final = {"help_option_names": ["-h", "--help"]}
JSON: Final = click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
"""An option of commands that have a result; see :func:`say_result`."""


class Program(click.Group):
    """Commands of a plugin's own program, each guarded as those of ``privopt`` are.

    A command returns its exit code, or None for 0. Errors of privopt are their lines and codes (2 a fault of the input,
    3 infeasible, 5 stopped with nothing), an interrupt is 5, and anything else is 5 with its traceback, never 1.
    """

    def command(self, *args: str, **options: object) -> Callable[[Callable[..., int | None]], click.Command]:  # type: ignore[override]
        """Add a command, as :meth:`click.Group.command` does."""
        add = super().command(*args, **options)
        return lambda function: add(guarded(function))

    def main_program(self) -> None:
        """Run the program: its entry point in ``[project.scripts]``."""
        run_program(self, str(self.name))


def program(name: str, about: str) -> Program:
    """Make the program of a plugin.

    ::

        cli = program("privopt-acme", "What acme adds to privopt's own commands.")


        @cli.command()
        @click.argument("folder", type=PATH)
        @JSON
        def count(folder: Path, as_json: bool) -> int:
            ...
            say_result({"count": found}, f"{found} places", as_json=as_json)
            return DONE if found else DOES_NOT_HOLD


        main = cli.main_program
    """
    return Program(name=name, help=about, context_settings=dict(HELP))


def say_result(document: object, text: str, *, as_json: bool) -> None:
    """Print a result to standard output: as JSON, or as text for people."""
    from privopt.files.release_folder import dump_json

    if as_json:
        say_json(dump_json(document))
    elif text:
        print_result(text)


def run_program(group: click.Group, name: str) -> None:
    """Run a group of commands as a program of its own: the process ends with its code.

    Args:
        group: of guarded commands.
        name: of the program.
    """
    reserve_standard_output()
    from privopt.registry.distributions import skip_damaged_distributions

    with divert_prints():
        skip_damaged_distributions()
    try:
        sys.exit(group.main(prog_name=name, standalone_mode=False) or DONE)
    except click.ClickException as error:  # of an argument, which may hold anything
        text = io.StringIO()
        error.show(text)
        complain(text.getvalue().rstrip("\n"))
        sys.exit(error.exit_code)
    except click.Abort:
        complain("interrupted")
        sys.exit(STOPPED_EMPTY)
    finally:
        sys.stdout = sys.stderr  # what is printed while the interpreter ends is no result
