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


def test_frequency_oracle_needs_only_its_channel():
    truth = np.array([0.7, 0.2, 0.1])
    channel = Oracle().channel()
    counts = np.random.default_rng(0).multinomial(10_000, truth @ channel.probabilities)
    estimated = estimate([ReportCounts(channel=channel, counts=counts)], EstimateOptions())
    assert estimated.shares == pytest.approx(truth, abs=0.03)
    assert (estimated.low <= truth).all()
    assert (truth <= estimated.high).all()
    assert Release.channel(Oracle()) is None


def test_paired_reports_of_one_person_say_more():
    single_channel = Oracle().channel()
    paired_channel = single_channel.pair_with(single_channel)
    assert paired_channel.outputs[1] == "(a, b)"
    assert paired_channel.probabilities[0, 1] == pytest.approx(0.6 * 0.2)
    truth = np.array([0.6, 0.3, 0.1])
    rng = np.random.default_rng(1)
    joint_counts = ReportCounts(
        channel=paired_channel, counts=rng.multinomial(5_000, truth @ paired_channel.probabilities)
    )
    separate_counts = ReportCounts(
        channel=single_channel, counts=rng.multinomial(5_000, truth @ single_channel.probabilities)
    )
    options = EstimateOptions(intervals="asymptotic")
    joint_estimate, separate_estimate = estimate([joint_counts], options), estimate([separate_counts], options)
    assert joint_estimate.shares == pytest.approx(truth, abs=0.05)
    assert (joint_estimate.high - joint_estimate.low).sum() < (separate_estimate.high - separate_estimate.low).sum()
    with pytest.raises(UsageError, match="the first channel"):
        single_channel.pair_with(Channel(inputs=["x"], outputs=["x"], probabilities=np.ones((1, 1))))


def test_channel_checks_its_form():
    with pytest.raises(UsageError, match="shape"):
        Channel(inputs=["a"], outputs=["b"], probabilities=np.ones((2, 1)))
    with pytest.raises(UsageError, match="sum to 1"):
        Channel(inputs=["a"], outputs=["b"], probabilities=np.full((1, 1), 0.5))
