"""Laplace noise on the sphere: metric DP between any two points on Earth, drawn exactly, without an artefact.

This module only registers the mechanism. :mod:`privopt_spherical_laplace.sampler` draws reports, and
:mod:`privopt_spherical_laplace.law` has the closed forms.
"""

from collections.abc import Sequence

from privopt.specs import MechanismSpec, MethodSpec, hookimpl

__all__ = ["privopt_mechanisms"]


@hookimpl
def privopt_mechanisms() -> Sequence[MechanismSpec]:
    """Return the spec of the mechanism."""
    return [
        MechanismSpec(
            name="spherical-laplace",
            target="privopt_spherical_laplace.mechanism:SphericalLaplace",
            guarantee="metric-dp",
            summary="any point on Earth: Laplace noise on the sphere, drawn exactly, no matrix",
            source="Andrés, Bordenabe, Chatzikokolakis, Palamidessi, CCS 2013, on the sphere",
            methods=[MethodSpec(name="exact", summary="the closed form, and reports remapped under a prior")],
        )
    ]
