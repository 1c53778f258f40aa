"""The conformance kit for metric DP, with generated problems, profiles and checks for mechanisms on metric problems.

If a mechanism on a :class:`privopt_metric_dp.problem.declared.MetricProblem` requires a table of its own in the problem
file, its plugin must define a profile that adds the table to generated problems::

    from privopt_metric_dp.kit import metric_profile

    PROFILE = metric_profile(extra=lambda case: {"acme": {"radius": 1.0}}, monotone="never")
"""

from privopt_metric_dp.kit.problems import MetricCase, metric_problems, metric_profile, several_rounds

__all__ = ["MetricCase", "metric_problems", "metric_profile", "several_rounds"]
