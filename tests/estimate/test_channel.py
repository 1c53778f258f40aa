"""Channels: all that an estimate needs to know of a mechanism."""

import numpy as np
import pytest

from privopt.errors import UsageError
from privopt.estimate.shares import EstimateOptions, ReportCounts, estimate
from privopt.interfaces import Channel, Release


class Oracle(Release):
    """Somebody's k-ary randomised response: all that estimating takes of it is its channel."""

    def write(self, folder): ...

    @classmethod
    def read(cls, folder, problem): ...

    def channel(self):
        return Channel(inputs=list("abc"), outputs=list("abc"), probabilities=0.4 * np.eye(3) + 0.2)


def test_a_frequency_oracle_needs_no_more_than_its_channel():
    truth = np.array([0.7, 0.2, 0.1])
    channel = Oracle().channel()
    counts = np.random.default_rng(0).multinomial(10_000, truth @ channel.probabilities)
    found = estimate([ReportCounts(channel=channel, counts=counts)], EstimateOptions())
    assert found.shares == pytest.approx(truth, abs=0.03)
    assert (found.low <= truth).all()
    assert (truth <= found.high).all()
    assert Release.channel(Oracle()) is None


def test_a_channel_is_held_to_its_form():
    with pytest.raises(UsageError, match="shape"):
        Channel(inputs=["a"], outputs=["b"], probabilities=np.ones((2, 1)))
    with pytest.raises(UsageError, match="sum to 1"):
        Channel(inputs=["a"], outputs=["b"], probabilities=np.full((1, 1), 0.5))
