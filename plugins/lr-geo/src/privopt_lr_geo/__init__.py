"""LR-Geo, locally relevant geo-obfuscation (Qiu et al., PoPETs 2025). This module only registers the mechanism."""

from __future__ import annotations

from collections.abc import Sequence

from privopt.specs import MechanismSpec, MethodSpec, hookimpl


@hookimpl
def privopt_mechanisms() -> Sequence[MechanismSpec]:
    """Return the specification of ``lr-geo`` and its methods. The first method is the default."""
    return [
        MechanismSpec(
            name="lr-geo",
            target="privopt_lr_geo.mechanism:LRGeo",
            guarantee="metric-dp",
            summary="each user's part of the optimal matrix, at a cost that does not depend on the map's size",
            source="Qiu, Liu, Pappachan, Squicciarini, Xie: Time-Efficient Locally Relevant Geo-Location Privacy "
            "Protection, PoPETs 2025(2)",
            methods=[
                MethodSpec(name="benders", summary="CLR-Geo by Benders decomposition, a block a user", gap=1e-2),
                MethodSpec(name="full", summary="CLR-Geo as one linear program, by --solver"),
                MethodSpec(
                    name="exact", summary="each user computes its row from public numbers; private over all pairs"
                ),
            ],
        )
    ]
