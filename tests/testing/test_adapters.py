"""Mechanisms of other libraries, with their own claims; those that are not installed here are stood in for."""

import math

import numpy as np
import pytest

from privopt.errors import UsageError
from privopt_metric_dp.kit import other_libraries as adapters


def test_opendp_states_its_own_claim():
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    claimed = adapters.opendp(dp.m.make_randomized_response_bool(prob=0.75), name="response")
    assert (claimed.library, claimed.epsilon) == ("opendp", pytest.approx(math.log(3)))
    assert not claimed.judge([False, True], draws=10_000).violated
    assert claimed.judge([False, True], draws=10_000, epsilon=0.9).violated
    whole = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    concentrated = adapters.opendp(dp.m.make_gaussian(*whole, scale=1.0), order=3.0)
    assert (concentrated.epsilon, concentrated.order) == (1.5, 3.0)
    assert not concentrated.judge([0, 1], draws=10_000).violated


def test_what_is_not_installed_is_said():
    with pytest.raises(UsageError, match="no-such-library: found no such distribution"):
        adapters.installed("no-such-library")


class Noise:
    """As diffprivlib's mechanisms and privkit's look."""

    epsilon, delta = 1.0, 0.0

    def randomise(self, value):
        return value + np.random.default_rng().laplace(0, 0.4)

    def get_obfuscated_point(self, lat, lon):
        return lat, lon, 0.0


def test_objects_are_taken_as_their_libraries_make_them(monkeypatch):
    monkeypatch.setattr(adapters, "version", lambda name: "1.0")
    assert adapters.diffprivlib(Noise()).judge([0.0, 1.0], draws=10_000).violated
    kept = adapters.multi_freq_ldpy(lambda value, k, epsilon, optimal: value, 4, 1.0, optimal=True)
    assert (kept.notion, kept.version) == ("local-dp", "1.0")
    assert kept.judge([0, 1], draws=10_000).violated
    place = adapters.privkit(Noise())
    assert place.distance((0.0, 0.0), (1.0, 0.0)) == pytest.approx(111_194.93, abs=0.01)
    assert adapters.privkit(Noise(), 0.01).judge([(41.0, 12.0), (41.0001, 12.0)], draws=10_000).violated


def test_a_channel_is_measured_exactly():
    channel = np.array([[0.75, 0.25], [0.25, 0.75]])
    least = adapters.least_of(channel, lambda i, j: 2.0, 0.5)
    assert (least.holds, least.epsilon) == (False, pytest.approx(math.log(3) / 2, rel=1e-15))
