"""Textbook differential privacy mechanisms, which serve as baselines for new ones.

This module only registers them. Each mechanism has its own module, whose docstring gives the source, the output
distribution and the proof of privacy.
"""

from __future__ import annotations

from collections.abc import Sequence

from privopt.specs import MechanismSpec, MethodSpec, hookimpl

__all__ = ["privopt_mechanisms"]

_LOCAL, _PURE = "local-dp", "pure-dp"

# The name, target, guarantee, summary and paper of each mechanism.
_MECHANISMS = (
    (
        "randomised-response",
        "randomised_response:RandomisedResponse",
        _LOCAL,
        "the true answer or, with a fixed probability, another one",
        "P. Kairouz, S. Oh, P. Viswanath, Extremal Mechanisms for Local Differential Privacy, NIPS 2014",
    ),
    (
        "geometric",
        "geometric:Geometric",
        _PURE,
        "a count with truncated geometric noise",
        "A. Ghosh, T. Roughgarden, M. Sundararajan, Universally Utility-Maximizing Privacy Mechanisms, "
        "SIAM J. Comput. 2012",
    ),
    (
        "unary-encoding",
        "unary_encoding:UnaryEncoding",
        _LOCAL,
        "one noisy bit for each possible answer",
        "T. Wang, J. Blocki, N. Li, S. Jha, Locally Differentially Private Protocols for Frequency "
        "Estimation, USENIX Security 2017",
    ),
    (
        "subset-selection",
        "subset_selection:SubsetSelection",
        _LOCAL,
        "a random set of answers that often contains the true one",
        "M. Ye, A. Barg, Optimal Schemes for Discrete Distribution Estimation under Locally "
        "Differential Privacy, IEEE Trans. Inf. Theory 2018",
    ),
    (
        "hadamard-response",
        "hadamard_response:HadamardResponse",
        _LOCAL,
        "a random column of a Hadamard matrix, which encodes the answer",
        "J. Acharya, Z. Sun, H. Zhang, Hadamard Response, AISTATS 2019",
    ),
    (
        "permute-and-flip",
        "permute_and_flip:PermuteAndFlip",
        _PURE,
        "a random choice among candidates, in favour of high scores",
        "R. McKenna, D. Sheldon, Permute-and-Flip, NeurIPS 2020",
    ),
    (
        "noisy-max",
        "noisy_max:NoisyMax",
        _PURE,
        "the candidate with the highest noisy score",
        "C. Dwork, A. Roth, The Algorithmic Foundations of Differential Privacy, 2014",
    ),
    (
        "staircase",
        "staircase:Staircase",
        _PURE,
        "a sum with staircase noise",
        "Q. Geng, P. Kairouz, S. Oh, P. Viswanath, The Staircase Mechanism in Differential Privacy, "
        "IEEE J. Sel. Top. Signal Process. 2015",
    ),
    (
        "piecewise",
        "piecewise:Piecewise",
        _LOCAL,
        "an unbiased noisy number for one in [-1, 1]",
        "N. Wang et al., Collecting and Analyzing Multidimensional Data with Local Differential Privacy, ICDE 2019",
    ),
)


@hookimpl
def privopt_mechanisms() -> Sequence[MechanismSpec]:
    """Return the specs of the classic mechanisms, each of which has a single method, ``closed-form``."""
    return [
        MechanismSpec(
            name=name,
            target=f"privopt_classics.{target}",
            guarantee=guarantee,
            summary=summary,
            source=source,
            methods=[MethodSpec(name="closed-form", summary="the law of the paper")],
        )
        for name, target, guarantee, summary, source in _MECHANISMS
    ]
