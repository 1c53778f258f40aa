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


def test_two_reports_of_one_person_say_more_than_two_of_two():
    one = Oracle().channel()
    both = one.paired(one)
    assert both.outputs[1] == "(a, b)"
    assert both.probabilities[0, 1] == pytest.approx(0.6 * 0.2)
    truth = np.array([0.6, 0.3, 0.1])
    rng = np.random.default_rng(1)
    joined = ReportCounts(channel=both, counts=rng.multinomial(5_000, truth @ both.probabilities))
    apart = ReportCounts(channel=one, counts=rng.multinomial(5_000, truth @ one.probabilities))
    asked = EstimateOptions(intervals="asymptotic")
    found, alone = estimate([joined], asked), estimate([apart], asked)
    assert found.shares == pytest.approx(truth, abs=0.05)
    assert (found.high - found.low).sum() < (alone.high - alone.low).sum()
    with pytest.raises(UsageError, match="inputs must be those of the first channel"):
        one.paired(Channel(inputs=["x"], outputs=["x"], probabilities=np.ones((1, 1))))


def test_a_channel_is_held_to_its_form():
    with pytest.raises(UsageError, match="shape"):
        Channel(inputs=["a"], outputs=["b"], probabilities=np.ones((2, 1)))
    with pytest.raises(UsageError, match="sum to 1"):
        Channel(inputs=["a"], outputs=["b"], probabilities=np.full((1, 1), 0.5))
