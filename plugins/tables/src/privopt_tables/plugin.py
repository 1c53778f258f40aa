"""Register the command ``apply`` and the kit's check of traces, as data: nothing heavy is imported."""

from collections.abc import Sequence

from privopt.specs import CheckSpec, CommandSpec, TraitSpec, hookimpl

__all__ = ["privopt_checks", "privopt_commands"]


@hookimpl
def privopt_commands() -> Sequence[CommandSpec]:
    """Return the command that protects a table."""
    summary = "Protect a table: a report in each row."
    return [CommandSpec(name="apply", target="privopt_tables.command:apply", summary=summary)]


@hookimpl
def privopt_checks() -> Sequence[TraitSpec | CheckSpec]:
    """Return the kit's check of releases that report traces, whose rows it draws in a table."""
    module = "privopt_tables.kit.check_traces"
    return [
        TraitSpec(name="traces", missing="the release draws no traces", target=f"{module}:draws_traces"),
        CheckSpec(name="traces", target=f"{module}:traces"),
    ]
