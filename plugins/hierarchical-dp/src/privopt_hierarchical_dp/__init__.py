"""Hierarchical census counts under differential privacy (AIJ 2021)."""

from __future__ import annotations

from collections.abc import Sequence

from privopt.specs import MechanismSpec, MethodSpec, hookimpl

__all__ = ["privopt_mechanisms"]


@hookimpl
def privopt_mechanisms() -> Sequence[MechanismSpec]:
    """Register the mechanism."""
    return [
        MechanismSpec(
            name="hierarchical-dp",
            target="privopt_hierarchical_dp.mechanism:HierarchicalDP",
            guarantee="pure-dp",
            summary="Counts of groups by size in a hierarchy of regions: noisy, consistent, integer",
            source="F. Fioretto, P. Van Hentenryck, K. Zhu, Differential Privacy of Hierarchical Census Data: "
            "An Optimization Approach, Artificial Intelligence 296, 2021",
            methods=[
                MethodSpec(
                    name="cumulative-smoothed",
                    summary="cumulative counts, exact region totals, strength borrowed from the parent region",
                ),
                MethodSpec(
                    name="cumulative-chain",
                    summary="cumulative counts, exact region totals, all constraints jointly (Model 2), made valid",
                ),
                MethodSpec(name="cumulative-dp", summary="M_c^dp: cumulative counts, isotonic steps, then half-prices"),
                MethodSpec(name="cumulative", summary="M_c: Model 2 as an integer program (small inputs)"),
                MethodSpec(
                    name="cumulative-relaxed", summary="M_c^r: Model 2 relaxed and rounded; may be inconsistent"
                ),
                MethodSpec(name="hierarchical-dp", summary="M_H^dp: counts, Model 1 solved exactly by half-prices"),
                MethodSpec(name="hierarchical", summary="M_H: Model 1 as an integer program (small inputs)"),
                MethodSpec(
                    name="hierarchical-relaxed", summary="M_H^r: Model 1 relaxed and rounded; may be inconsistent"
                ),
                MethodSpec(name="top-down", summary="level by level with controlled rounding (TopDown, 2018)"),
                MethodSpec(
                    name="cumulative-chain-as-published",
                    summary="M_c^ch as printed: not private at its epsilon, for comparison",
                    guarantee="none",
                ),
            ],
        ),
        MechanismSpec(
            name="hierarchical-tables",
            target="privopt_hierarchical_dp.several:HierarchicalTables",
            guarantee="pure-dp",
            summary="Several tables of the same individuals (age by tenure, ...) by region, under one budget",
            source="after J. Abowd et al., The 2020 Census Disclosure Avoidance System TopDown Algorithm, Harvard Data "
            "Science Review, 2022; least squares over margins in closed form",
            methods=[
                MethodSpec(
                    name="margins", summary="least squares over margins, then whole numbers, one margin after another"
                )
            ],
        ),
    ]
