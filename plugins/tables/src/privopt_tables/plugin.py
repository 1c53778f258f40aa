"""Register this package's commands, Python names and conformance check. Their modules are imported only when needed."""

from collections.abc import Sequence

from privopt.specs import CheckSpec, CommandSpec, NameSpec, TraitSpec, hookimpl

__all__ = ["privopt_checks", "privopt_commands", "privopt_handle", "privopt_names"]


@hookimpl
def privopt_commands() -> Sequence[CommandSpec]:
    """Register the commands that protect a table, draft a problem and compare mechanisms."""
    # The groups under which ``privopt --help`` lists its commands.
    make, use = "Make a release", "Use a release"
    # Each entry contains a command's name, module, group, summary, example and documentation page.
    commands = [
        (
            "apply",
            "command",
            use,
            "Protect a table: draw a report for each row.",
            "privopt apply city trips.csv --lat start_lat --lon start_lon --out safe.csv",
            "docs/how-to/tables.md",
        ),
        (
            "init",
            "studies.commands",
            make,
            "Write a problem file from a table.",
            "privopt init optimal-lp --points trips.csv --out mine.toml --within 1",
            "docs/how-to/tables.md",
        ),
        (
            "curve",
            "studies.commands",
            make,
            "Compare mechanisms over epsilon.",
            "privopt curve problem.toml --mechanisms optimal-lp,exponential --epsilon 1:8:4 --out curve.csv",
            "docs/used-for/choose-epsilon.md",
        ),
        (
            "explore",
            "studies.commands",
            make,
            "Write a page on which to choose epsilon.",
            "privopt explore problem.toml --out explore.html",
            "docs/used-for/choose-epsilon.md",
        ),
    ]
    return [
        CommandSpec(
            name=name,
            target=f"privopt_tables.{module}:{name}",
            summary=summary,
            group=group,
            example=example,
            page=page,
        )
        for name, module, group, summary, example, page in commands
    ]


@hookimpl
def privopt_names() -> Sequence[NameSpec]:
    """Register the Python name ``privopt.curve``."""
    return [NameSpec(name="curve", target="privopt_tables.studies.curve:curve")]


@hookimpl
def privopt_handle(release: object) -> type | None:
    """Return the class of the Python handle that protects tables with a release, or None if there is no such handle.

    A matrix gets :class:`ReleasedMatrix`. Any other release gets :class:`ReleasedRows` if it overrides ``sample``, the
    method that draws reports for ids.
    """
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
    """Register the conformance check for releases that report traces, and the trait that identifies such releases.

    If a release does not have the trait, the check is skipped and the text in ``missing`` is given as the reason.
    """
    module = "privopt_tables.kit.check_traces"
    return [
        TraitSpec(name="traces", missing="the release draws no traces", target=f"{module}:draws_traces"),
        CheckSpec(name="traces", target=f"{module}:traces"),
    ]
