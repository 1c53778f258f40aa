"""The conformance kit on spherical-laplace, and wrong samplers that it catches."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from attrs import evolve
from helpers.kits import BRIEF, OF_SOLVING
from hypothesis import strategies as st

from privopt.testing import conformance, run_check, subject
from privopt.testing.efforts import EFFORTS
from privopt_spherical_laplace.kit import PROFILE, sphere_problem
from privopt_spherical_laplace.mechanism import SphericalLaplace
from privopt_spherical_laplace.release import SphereRelease
from privopt_spherical_laplace.sampler.exact import Digits
from privopt_spherical_laplace.sampler.fast import draw_positions

test_sphere = conformance("spherical-laplace", checks=OF_SOLVING, how=BRIEF)
test_every_check = pytest.mark.slow(conformance("spherical-laplace", how="ci"))


def text_of(latitudes, longitudes):
    return [f"{a!r},{b!r}" for a, b in zip(latitudes.tolist(), longitudes.tolist(), strict=True)]


class InFloats(SphereRelease):
    """Planar Laplace noise in single precision, added to the position and printed with all its digits."""

    def draw(self, latitudes, longitudes, *, source=None):
        chance = np.random.default_rng(int.from_bytes(os.urandom(8), "little"))
        distances = chance.gamma(2.0, 1.0 / float(self.epsilon), len(latitudes)).astype(np.float32)
        bearings = (2 * np.pi * chance.random(len(latitudes))).astype(np.float32)
        places = np.column_stack([latitudes, longitudes]).astype(np.float32)
        places += (distances / np.float32(111.195))[:, None] * np.column_stack([np.cos(bearings), np.sin(bearings)])
        return text_of(*places.astype(np.float64).T), places


class NearestDouble(SphereRelease):
    """Exact noise, but on a lattice of 2^-10 km, and not rounded after it was added."""

    def draw(self, latitudes, longitudes, *, source=None):
        zero = np.zeros(len(latitudes))
        noise = draw_positions(zero, zero, self.epsilon, Digits(9)) / 1e9
        step = math.degrees(2.0**-10 / 6371.0088)
        places = np.column_stack([latitudes, longitudes]) + np.rint(noise / step) * step
        return text_of(*places.T), places


class BiasedBearing(SphereRelease):
    """A bearing by one byte modulo 200."""

    def draw(self, latitudes, longitudes, *, source=None):
        def biased(count):
            words = np.frombuffer(os.urandom(count), "<u8").copy().reshape(-1, 2)
            numbers = (words[:, 1] % np.uint64(256)) % np.uint64(200)
            words[:, 1] = numbers * np.uint64(2**64 // 200)
            return words.tobytes()

        return super().draw(latitudes, longitudes, source=biased)


class TwiceTheRate(SphereRelease):
    """Noise that is half as wide as stated."""

    def draw(self, latitudes, longitudes, *, source=None):
        narrow = evolve(self, epsilon=2 * self.epsilon)
        return SphereRelease.draw(narrow, latitudes, longitudes, source=source)


@pytest.mark.parametrize(
    "release",
    [
        InFloats,
        BiasedBearing,
        pytest.param(NearestDouble, marks=pytest.mark.slow),
        pytest.param(TwiceTheRate, marks=pytest.mark.slow),
    ],
)
def test_kit_catches_wrong_samplers(release):
    class Wrong(SphericalLaplace):
        release_class = release

        def solve(self, problem, context):
            outcome = super().solve(problem, context)
            written = release(problem=problem, epsilon=outcome.release.epsilon, remap=outcome.release.remap)
            return evolve(outcome, release=written)

    # The module's own name has a hyphen, which no target may have.
    Wrong.__module__ = "wrong_samplers"
    problems = st.builds(lambda: sphere_problem("1.4", {"digits": 3}))
    tried = subject(Wrong, guarantee="metric-dp", profile=evolve(PROFILE, problems=problems))
    try:
        result = run_check("epsilon-attack", tried, how=evolve(EFFORTS["ci"], examples=1, shrinking=0.0))
    finally:
        tried.close()
    assert result.status == "failed", result.reason
