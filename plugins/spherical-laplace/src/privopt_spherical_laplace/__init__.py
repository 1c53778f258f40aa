"""Laplace noise on the sphere: metric DP between any two points on Earth, sampled exactly and without a matrix.

This module only registers the mechanism. :mod:`privopt_spherical_laplace.sampler` draws reports, and
:mod:`privopt_spherical_laplace.law` contains closed forms for the distance between a position and its report.
"""

from collections.abc import Sequence

from privopt.specs import MechanismSpec, MethodSpec, hookimpl

__all__ = ["privopt_mechanisms"]


@hookimpl
def privopt_mechanisms() -> Sequence[MechanismSpec]:
    """Return the specification of the mechanism ``spherical-laplace`` and of its only method."""
    return [
        MechanismSpec(
            name="spherical-laplace",
            target="privopt_spherical_laplace.mechanism:SphericalLaplace",
            guarantee="metric-dp",
            summary="any point on Earth: Laplace noise on the sphere, drawn exactly and without a matrix",
            source="Andrés, Bordenabe, Chatzikokolakis, Palamidessi, CCS 2013, on the sphere",
            methods=[MethodSpec(name="exact", summary="the closed form, and reports remapped under a prior")],
        )
    ]
