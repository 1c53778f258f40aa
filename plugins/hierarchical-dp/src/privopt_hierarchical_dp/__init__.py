"""Hierarchical census counts under differential privacy (Fioretto et al., AIJ 2021)."""

from __future__ import annotations

from collections.abc import Sequence

from privopt.specs import MechanismSpec, MethodSpec, hookimpl
from privopt_hierarchical_dp.methods import METHODS

__all__ = ["privopt_mechanisms"]


@hookimpl
def privopt_mechanisms() -> Sequence[MechanismSpec]:
    """Return the specs of hierarchical-dp and hierarchical-tables. The mechanisms themselves are not imported."""
    return [
        MechanismSpec(
            name="hierarchical-dp",
            # The target is only imported when the mechanism is used, so that listing mechanisms stays fast.
            target="privopt_hierarchical_dp.mechanism:HierarchicalDP",
            guarantee="pure-dp",
            summary="counts of groups by size in a hierarchy of regions: noisy, but consistent and integer",
            source="F. Fioretto, P. Van Hentenryck, K. Zhu, Differential Privacy of Hierarchical Census Data: "
            "An Optimization Approach, Artificial Intelligence 296, 2021",
            methods=[
                MethodSpec(name=row.name, summary=row.summary, guarantee=row.guarantee) for row in METHODS.values()
            ],
        ),
        MechanismSpec(
            name="hierarchical-tables",
            target="privopt_hierarchical_dp.mechanism:HierarchicalTables",
            guarantee="pure-dp",
            summary="several tables of the same individuals (age by tenure, ...) by region, under one budget",
            source="after J. Abowd et al., The 2020 Census Disclosure Avoidance System TopDown Algorithm, Harvard Data "
            "Science Review, 2022; least squares over margins in closed form",
            methods=[
                MethodSpec(
                    name="margins", summary="least squares over margins, then whole numbers, one margin after another"
                )
            ],
        ),
    ]
