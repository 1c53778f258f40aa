"""Register what the distribution brings, as data: nothing heavy is imported."""

from collections.abc import Sequence

from privopt.specs import CheckSpec, CommandSpec, NameSpec, hookimpl

__all__ = ["privopt_checks", "privopt_commands", "privopt_names"]


@hookimpl
def privopt_commands() -> Sequence[CommandSpec]:
    """Return the command that estimates from tables of reports."""
    summary = "Estimate shares of the records from reports, with intervals."
    return [CommandSpec(name="estimate", target="privopt_estimate.command:estimate", summary=summary)]


@hookimpl
def privopt_names() -> Sequence[NameSpec]:
    """Return what ``release.estimate`` asks for."""
    return [NameSpec(name="estimate_of", target="privopt_estimate.estimate_tables:estimate_of")]


@hookimpl
def privopt_checks() -> Sequence[CheckSpec]:
    """Return the kit's check of the noise that intervals rest on."""
    return [CheckSpec(name="reach", target="privopt_estimate.kit:reach")]
