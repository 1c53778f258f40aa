"""Register the commands for tables and studies, and the kit's check of traces, as data: nothing heavy is imported."""

from collections.abc import Sequence

from privopt.specs import CheckSpec, CommandSpec, NameSpec, TraitSpec, hookimpl

__all__ = ["privopt_checks", "privopt_commands", "privopt_handle", "privopt_names"]


@hookimpl
def privopt_commands() -> Sequence[CommandSpec]:
    """Return the command that protects a table, and those that draft a problem and compare what mechanisms lose."""
    commands = [
        ("apply", "command", "Protect a table: a report in each row."),
        ("init", "studies.commands", "Write a commented problem file from a table of places."),
        ("curve", "studies.commands", "Loss and proved bound over epsilon, mechanism beside mechanism."),
        ("explore", "studies.commands", "One page of sliders on which epsilon is chosen."),
    ]
    return [
        CommandSpec(name=name, target=f"privopt_tables.{module}:{name}", summary=summary)
        for name, module, summary in commands
    ]


@hookimpl
def privopt_names() -> Sequence[NameSpec]:
    """Return the Python name of curves."""
    return [NameSpec(name="curve", target="privopt_tables.studies.curve:curve")]


@hookimpl
def privopt_handle(release: object) -> type | None:
    """Return the class that protects tables by a release: by a matrix, or by a release that draws reports itself."""
    from privopt.interfaces import Release
    from privopt_metric_dp.matrix.release import MatrixRelease
    from privopt_tables.released_matrix import ReleasedMatrix, ReleasedRows

    if isinstance(release, MatrixRelease):
        return ReleasedMatrix
    if isinstance(release, Release) and type(release).sample is not Release.sample:
        return ReleasedRows
    return None


@hookimpl
def privopt_checks() -> Sequence[TraitSpec | CheckSpec]:
    """Return the kit's check of releases that report traces, whose rows it draws in a table."""
    module = "privopt_tables.kit.check_traces"
    return [
        TraitSpec(name="traces", missing="the release draws no traces", target=f"{module}:draws_traces"),
        CheckSpec(name="traces", target=f"{module}:traces"),
    ]
