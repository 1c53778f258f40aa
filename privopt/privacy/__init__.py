"""Notions of privacy: each emits its rows into a model and measures a release."""

from privopt.privacy.metric_dp import MetricDP, both_ways
from privopt.privacy.nothing import NoGuarantee

__all__ = ["MetricDP", "NoGuarantee", "both_ways"]
