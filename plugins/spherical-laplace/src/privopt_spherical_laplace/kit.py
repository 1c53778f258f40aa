"""The conformance kit profile for spherical-laplace, which generates problems and pairs of positions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations
from typing import Any, Final

from hypothesis import strategies as st

from privopt.testing import GeneratedProblem, Profile, relabel, reorder, to_toml
from privopt_spherical_laplace.problem import SphereInstance

__all__ = ["PROFILE", "great_circle_km", "sphere_problem"]

# Positions from which privacy is tested: at and near a pole, on the date line, and elsewhere.
_PLACES: Final = ((0.0, 0.0), (45.5, 9.2), (89.9, -30.0), (90.0, 0.0), (-33.9, 180.0), (-33.9, 151.2))
# Generated problems take their points from the start of this list.
_POINTS: Final = ((0.0, 0.0), (45.5, 9.2), (45.6, 9.3), (-33.9, 151.2), (89.0, -30.0), (90.0, 0.0))
_CHANNEL_EXPONENTS: Final = (0.01, 25.0)
"""The range of epsilon times distance in which the channel between points is accurate enough to be tested."""
_EPSILONS: Final = ("1.4", "0.1", "20.0", "0.0001")


def great_circle_km(first: tuple[float, float], second: tuple[float, float]) -> float:
    """Return the great-circle distance in km between two (latitude, longitude) positions in degrees."""
    (a, b), (c, d) = (tuple(map(math.radians, position)) for position in (first, second))
    height = math.sin((a - c) / 2) ** 2 + math.cos(a) * math.cos(c) * math.sin((b - d) / 2) ** 2
    return 2 * 6371.0088 * math.asin(min(1.0, math.sqrt(height)))


def _alike(problem: SphereInstance) -> Iterator[tuple[str, str, float]]:
    """Yield pairs of positions for testing privacy, each with its distance in km.

    A position is either a string of the form ``LAT,LON`` or the id of one of the problem's points. Most pairs of the
    first kind are chosen so that epsilon times their distance is near 1.
    """
    # The angle in degrees at which epsilon times the distance is 1.
    step = math.degrees(1.0 / (float(problem.epsilon) * 6371.0088))
    for latitude, longitude in _PLACES:
        south = latitude - math.copysign(min(step, 60.0), latitude), longitude
        # The change in longitude that corresponds to this angle. It is capped, because at a pole no change is large
        # enough.
        turn = min(step / max(math.cos(math.radians(latitude)), 1e-6), 120.0)
        east = latitude, longitude + (turn if longitude < 0 else -turn)
        for other in (south, east):
            distance = great_circle_km((latitude, longitude), other)
            yield f"{latitude!r},{longitude!r}", f"{other[0]!r},{other[1]!r}", distance
    # The problem's points, given by their ids, are the inputs of its channel, which is integrated in doubles with a
    # relative error of about 3e-4. If two points are too near, the allowed log ratio is hardly larger than that error.
    # If they are too far apart, some probabilities are mere rounding errors.
    if problem.points is not None and problem.points.coordinates is not None:
        places = dict(zip(problem.points.ids, problem.points.coordinates.tolist(), strict=True))
        for first, second in combinations(places, 2):
            distance = great_circle_km(tuple(places[first]), tuple(places[second]))
            if _CHANNEL_EXPONENTS[0] <= float(problem.epsilon) * distance <= _CHANNEL_EXPONENTS[1]:
                yield first, second, distance


def sphere_problem(epsilon: str, outputs: dict[str, Any], points: int = 0, *, prior: bool = False) -> GeneratedProblem:
    """Return a problem file for spherical-laplace, along with any files it refers to.

    Args:
        epsilon: Epsilon per km, as a decimal string.
        outputs: The ``[outputs]`` table, which is ignored if ``points`` is positive.
        points: The number of points that can be reported, or 0 for other kinds of outputs.
        prior: Whether the problem has a prior over the points.
    """
    files: dict[str, bytes] = {}
    tables: dict[str, Any] = {"privacy": {"epsilon": float(epsilon)}, "outputs": outputs}
    if points:
        rows = [f"place{row},{lat},{lon}\n" for row, (lat, lon) in enumerate(_POINTS[:points])]
        files["points.csv"] = ("id,lat,lon\n" + "".join(rows)).encode()
        tables["outputs"] = {"points": "points.csv"}
        if prior:
            weights = [row + 1 for row in range(points)]
            shares = [f"place{row},{weight / sum(weights)!r}\n" for row, weight in enumerate(weights)]
            files["prior.csv"] = ("id,p\n" + "".join(shares)).encode()
            tables["utility"] = {"prior": "prior.csv"}
    return GeneratedProblem(toml=to_toml(tables), files=files)


def _stricter(problem: GeneratedProblem) -> GeneratedProblem:
    """Return a copy of the problem with epsilon halved."""
    return problem.with_key("privacy.epsilon", problem.get("privacy.epsilon") / 2)


PROFILE: Final = Profile(
    problems=st.one_of(
        st.builds(
            lambda epsilon, digits: sphere_problem(epsilon, {"digits": digits}),
            st.sampled_from(_EPSILONS),
            st.sampled_from((3, 2, 0, 5)),
        ),
        st.builds(
            lambda epsilon, side: sphere_problem(epsilon, {"grid": side}),
            st.sampled_from(_EPSILONS),
            st.sampled_from((0.25, 5, 90)),
        ),
        st.builds(
            lambda epsilon, points, prior: sphere_problem(epsilon, {}, points, prior=prior),
            st.sampled_from(_EPSILONS),
            st.integers(1, len(_POINTS)),
            st.booleans(),
        ),
    ),
    alike=_alike,
    stricter=_stricter,
    variants={
        "relabelling": relabel({"points.csv": ["id"], "prior.csv": ["id"]}),
        "reordering": reorder("points.csv"),
    },
    skip={
        "oracle": "any output may be reported; tests of the plugin compare frequencies with quadrature",
        "units": "distances are in km alone",
    },
)
