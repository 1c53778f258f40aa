"""The conformance kit for metric DP: problems, profiles and checks for mechanisms over records with distances.

If a mechanism over :class:`privopt_metric_dp.problem.declared.MetricProblem` requires a table of its own, its plugin
names a profile::

    from privopt_metric_dp.kit import metric_profile

    PROFILE = metric_profile(extra=lambda case: {"acme": {"radius": 1.0}}, monotone="never")
"""

from privopt_metric_dp.kit.problems import MetricCase, metric_problems, metric_profile, several_rounds

__all__ = ["MetricCase", "metric_problems", "metric_profile", "several_rounds"]
