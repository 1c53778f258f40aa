"""Register the commands that come before a release, and a Python name, as data: nothing heavy is imported."""

from collections.abc import Sequence

from privopt.specs import CommandSpec, NameSpec, hookimpl

__all__ = ["privopt_commands", "privopt_names"]


@hookimpl
def privopt_commands() -> Sequence[CommandSpec]:
    """Return the commands that draft a problem, and compare what mechanisms lose."""
    summaries = {
        "init": "Write a commented problem file from a table of places.",
        "curve": "Loss and proved bound over epsilon, mechanism beside mechanism.",
        "explore": "One page of sliders on which epsilon is chosen.",
    }
    return [
        CommandSpec(name=name, target=f"privopt_studies.commands:{name}", summary=summary)
        for name, summary in summaries.items()
    ]


@hookimpl
def privopt_names() -> Sequence[NameSpec]:
    """Return the Python name of curves."""
    return [NameSpec(name="curve", target="privopt_studies.curve:curve")]
