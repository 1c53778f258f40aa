"""The conformance kit of metric DP: problems, profiles and checks for mechanisms over records at distances.

A mechanism over :class:`privopt_metric_dp.problem.declared.MetricProblem` that adds a required table names a profile::

    from privopt_metric_dp.kit import metric_profile

    PROFILE = metric_profile(extra=lambda case: {"acme": {"radius": 1.0}}, monotone="never")
"""

from privopt_metric_dp.kit.problems import MetricCase, metric_problems, metric_profile

__all__ = ["MetricCase", "metric_problems", "metric_profile"]
