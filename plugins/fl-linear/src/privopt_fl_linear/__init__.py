"""FL-Linear: facility location under local differential privacy."""

from __future__ import annotations

from collections.abc import Sequence

from privopt.specs import MechanismSpec, MethodSpec, hookimpl

__all__ = ["privopt_mechanisms"]


@hookimpl
def privopt_mechanisms() -> Sequence[MechanismSpec]:
    """Return the spec of ``fl-linear`` with its three methods. The mechanism's class is imported on first use."""
    return [
        MechanismSpec(
            name="fl-linear",
            target="privopt_fl_linear.mechanism:FLLinear",
            guarantee="local-dp",
            summary="facility location with linear facility costs: sites and capacities from noisy counts of clients",
            source="K. Pfisterer, Q. Hillebrand, V. Suppakitpaisarn, Facility Location Problem under Local "
            "Differential Privacy without Super-set Assumption, 2025",
            methods=[
                MethodSpec(
                    name="reconnection", summary="near facilities merged, noisy counts and margin (Algorithm 3)"
                ),
                MethodSpec(name="laplace", summary="every location at its best facility (Algorithm 2)"),
                MethodSpec(name="optimal", summary="the true counts, no privacy (Algorithm 1)", guarantee="none"),
            ],
        )
    ]
