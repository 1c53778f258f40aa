"""Register what the distribution brings, as data: nothing heavy is imported."""

from collections.abc import Sequence

from privopt.specs import CommandSpec, NameSpec, hookimpl


@hookimpl
def privopt_commands() -> Sequence[CommandSpec]:
    """Return the command that sets limits and shows what subjects have spent."""
    summary = "Show what subjects have spent, exactly; every entry of the ledger is checked."
    return [CommandSpec(name="budget", target="privopt_ledger.command:budget", summary=summary)]


@hookimpl
def privopt_names() -> Sequence[NameSpec]:
    """Return the class of ledgers, and of what is charged to them (:class:`privopt.interfaces.Charge`)."""
    homes = {"Charge": "privopt_ledger.charge", "Ledger": "privopt_ledger.ledger"}
    return [NameSpec(name=name, target=f"{home}:{name}") for name, home in homes.items()]
