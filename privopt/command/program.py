"""Build and run the command-line programs of privopt and its plugins, with common exit codes and JSON output."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any, Final

import click

from privopt.command.exit_codes import DONE, STOPPED_EMPTY, end_with_error, handle_errors
from privopt.command.terminal import (
    complain,
    discard_lost_messages,
    divert_prints,
    is_quiet,
    print_result,
    reserve_standard_output,
    say_json,
)
from privopt.errors import number_of

__all__ = ["HELP", "JSON", "Program", "SecretCommand", "program", "run_program", "say_result"]

HELP: Final = {"help_option_names": ["-h", "--help"]}
"""The click settings that give commands ``-h`` in addition to ``--help``."""

JSON: Final = click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
"""An option for commands that print a result. See :func:`say_result`."""


class SecretCommand(click.Command):
    """A command that takes secret arguments and never repeats an argument in its error messages.

    Error messages can end up in terminal and job logs. Even unexpected arguments may be secret: a secret that contains
    a space or follows a misspelt option is parsed as an extra argument.
    """

    allow_extra_args = True  # parse_args() rejects them itself, because click would quote them

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments as :meth:`click.Command.parse_args` does, but without quoting them in error messages.

        Returns:
            The arguments that remain after parsing. This list is always empty.
        """
        try:
            remaining_arguments = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.possibilities:  # it resembles an option's name, so it is not the secret
                raise
            raise click.UsageError(
                "No such option: it is not repeated here, because it may be the secret.", ctx
            ) from None
        except click.BadParameter as error:
            if error.param is None or error.param.callback is not None:  # callbacks quote nothing
                raise
            raise click.BadParameter(f"expected {_describe_type(error.param.type)}.", ctx, error.param) from None
        if remaining_arguments:
            count = number_of(len(remaining_arguments), "further argument")
            raise click.UsageError(f"Got {count}: expected the secret as the value of its option.", ctx)
        return remaining_arguments


def _describe_type(kind: click.ParamType[Any]) -> str:
    """Describe the values accepted by a parameter type, for error messages that must not quote the value."""
    if isinstance(kind, click.Choice):
        return f"one of {', '.join(map(str, kind.choices))}"
    minimum = kind.min if isinstance(kind, click.IntRange) else None
    return f"a value of type {kind.name.split()[0]}" + ("" if minimum is None else f", at least {minimum}")


class Program(click.Group):
    """The command group of a plugin's program, which handles errors in the same way as ``privopt``.

    A command returns its exit code, or None for 0. privopt's own errors are turned into messages and exit codes, such
    as 2 for errors in the input, 3 for infeasible problems, and 5 if the run ended without a result. Interrupts and
    nearly all other exceptions also lead to code 5, and most of these exceptions print a traceback. Code 1 always means
    that a claim does not hold.
    """

    def command(self, *args: str, **options: object) -> Callable[[Callable[..., int | None]], click.Command]:  # type: ignore[override]
        """Return a decorator that adds a command, as :meth:`click.Group.command` does."""
        add = super().command(*args, **options)
        return lambda function: add(handle_errors(function))

    def main_program(self) -> None:
        """Run the program. This is the entry point to use in ``[project.scripts]``."""
        run_program(self, str(self.name))


def program(name: str, about: str) -> Program:
    """Create a program to which a plugin can add commands.

    ::

        cli = program("privopt-acme", "What acme adds to privopt's own commands.")


        @cli.command()
        @click.argument("folder", type=PATH)
        @JSON
        def count(folder: Path, as_json: bool) -> int:
            ...
            say_result({"count": places}, f"{places} places", as_json=as_json)
            return DONE if places else DOES_NOT_HOLD


        main = cli.main_program
    """
    return Program(name=name, help=about, context_settings=dict(HELP))


def say_result(document: object, text: str, *, as_json: bool) -> None:
    """Print a command's result to standard output, as a JSON document if ``as_json`` is set and as text otherwise.

    If ``text`` is empty or ``--quiet`` was given, the text is not printed. The document is always printed, because the
    user asked for it.

    Args:
        document: The result as a value that can be written as JSON.
        text: The result as text.
        as_json: Whether to print the document instead of the text.
    """
    from privopt.files.release_folder import dump_json

    if as_json:
        say_json(dump_json(document))
    elif text and not is_quiet():
        print_result(text)


def run_program(group: click.Group, name: str) -> None:
    """Run a group of commands as a program, and end the process with its exit code.

    Args:
        group: The commands, which should be decorated with :func:`~privopt.command.exit_codes.handle_errors`.
        name: The name of the program.
    """
    # Libraries might print to descriptor 1 (standard output) as soon as they are loaded, so this comes first. From here
    # on, such output is discarded, and sys.stdout writes to a copy of the original descriptor.
    reserve_standard_output()
    discard_lost_messages()
    from privopt.registry.distributions import skip_damaged_distributions

    # Libraries that look for entry points themselves would fail at the first damaged distribution.
    with divert_prints():
        skip_damaged_distributions()
    try:
        # In standalone mode, click would print errors itself, without escaping control characters in arguments.
        sys.exit(group.main(prog_name=name, standalone_mode=False) or DONE)
    except click.ClickException as error:
        text = io.StringIO()
        error.show(text)
        complain(text.getvalue().rstrip("\n"))
        sys.exit(error.exit_code)
    except click.Abort:
        complain("interrupted")
        sys.exit(STOPPED_EMPTY)
    except Exception as error:  # --help could not be printed, or a plugin's command is not decorated
        end_with_error(error)
    finally:
        sys.stdout = sys.stderr  # libraries' exit handlers may print, which must not get mixed up with results
