"""The command line in this process: a new one takes half a second to begin."""

from click.testing import CliRunner, Result

from privopt.command.cli import cli


def run(*arguments: object, **options: object) -> Result:
    """Return what a command comes to; what it raises beside its exit code is the test's own failure."""
    completed = CliRunner().invoke(cli, [str(argument) for argument in arguments], prog_name="privopt", **options)
    if completed.exception is not None and not isinstance(completed.exception, SystemExit):
        raise completed.exception
    return completed
