"""The conformance kit for metric DP: generated problems, profiles and checks for mechanisms on metric problems.

A mechanism on a :class:`privopt_metric_dp.problem.declared.MetricProblem` may require a table of its own in the problem
file. Its plugin must then define a profile that adds the table to generated problems::

    from privopt_metric_dp.kit import metric_profile

    PROFILE = metric_profile(extra=lambda case: {"acme": {"radius": 1.0}}, monotone="never")
"""

from privopt_metric_dp.kit.problems import MetricCase, metric_problems, metric_profile, several_rounds

__all__ = ["MetricCase", "metric_problems", "metric_profile", "several_rounds"]
