"""Register what the distribution brings, as data: nothing heavy is imported."""

from collections.abc import Sequence

from privopt.specs import KindSpec, hookimpl

__all__ = ["privopt_kinds"]


@hookimpl
def privopt_kinds() -> Sequence[KindSpec]:
    """Return the decomposer."""
    summary = "Benders decomposition, many cuts a round"
    target = "privopt_benders.benders:Benders"
    return [KindSpec(role="decomposer", name="benders", target=target, summary=summary)]
