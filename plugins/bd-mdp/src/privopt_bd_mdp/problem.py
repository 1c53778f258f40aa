"""The problem file of bd-mdp: the keys of any metric problem, plus options for the decomposition."""

from __future__ import annotations

from typing import Final, Literal

from attrs import frozen

from privopt.declare import key
from privopt.declare.schema import at_least
from privopt_metric_dp.problem.declared import MetricProblem

__all__ = ["PARTITIONS", "BDmDPProblem", "Decomposition"]

PARTITIONS: Final = ("distance-vector", "records", "adjacency", "spectral", "minimum-boundary")


@frozen(kw_only=True)
class Decomposition:
    """The ``[bd-mdp]`` table of a problem file, which selects the partitioner and how to start the iterations."""

    partition: Literal["distance-vector", "records", "adjacency", "spectral", "minimum-boundary"] = key(
        "distance-vector",
        help="k-means on distance vectors, records or adjacency rows; balanced spectral clustering; or the multilevel "
        "partition with few boundary records",
    )
    subsets: int = key(4, help="number of subsets of records (M); at most the number of records", check=at_least(1))
    start: Literal["auto", "star", "cold"] = key(
        "auto",
        help=(
            "what the rounds start from: auto: what the methods of optimal-lp find; star: the star mechanism and its "
            "multipliers; cold: one output for all, as the paper does"
        ),
    )


@frozen(kw_only=True)
class BDmDPProblem(MetricProblem):
    """A metric problem with an optional ``[bd-mdp]`` table, which configures the decomposition."""

    bd_mdp: Decomposition = key(factory=Decomposition, help="how to decompose", name="bd-mdp")
