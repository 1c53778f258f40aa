"""Register what the distribution brings, as data: nothing heavy is imported."""

from collections.abc import Sequence

from privopt.specs import CommandSpec, hookimpl

__all__ = ["privopt_commands"]


@hookimpl
def privopt_commands() -> Sequence[CommandSpec]:
    """Return the command that writes what is filed about a release."""
    summary = "Write what an office files about a release that holds, each sentence with the..."
    return [CommandSpec(name="disclose", target="privopt_disclose.command:disclose", summary=summary)]
