"""Register what the distribution brings, as data: nothing heavy is imported."""

from collections.abc import Sequence

from privopt.specs import CheckSpec, KindSpec, hookimpl

__all__ = ["privopt_kinds"]


@hookimpl
def privopt_kinds() -> Sequence[KindSpec]:
    """Return the decomposer."""
    summary = "Benders decomposition, many cuts a round"
    target = "privopt_benders.benders:Benders"
    return [KindSpec(role="decomposer", name="benders", target=target, summary=summary)]


@hookimpl
def privopt_checks() -> Sequence[CheckSpec]:
    """Return the kit's checks of decompositions, of this one and of others."""
    names = ("whole", "infeasible")
    return [CheckSpec(role="decomposer", name=name, target=f"privopt_benders.kit:{name}") for name in names]
