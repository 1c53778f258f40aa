"""Sizes that tell whether the core stays simple: methods of the base classes, files that the smallest solve enters."""

from __future__ import annotations

from privopt_metric_dp.mechanisms.base import MetricMechanism

MAX_METHODS = 20


def test_the_base_of_metric_mechanisms_stays_small():
    methods = [
        name for name, member in vars(MetricMechanism).items() if callable(member) and not isinstance(member, type)
    ]
    assert len(methods) <= MAX_METHODS, methods
