"""Checks that compare a released obfuscation matrix with the data of its metric problem."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from privopt.numbers.sampling import TOTAL
from privopt.testing.checks.base import Elsewhere, Trial, check
from privopt.testing.checks.loss import is_same_sum
from privopt.testing.checks.matrix import solve_with_weights

__all__: list[str] = []


@check("expected-loss", of={"matrix"}, min_examples=12)
def expected_loss(trial: Trial) -> None:
    """Check that the reported expected loss is the sum of prior times cost times probability over all entries.

    The sum is computed in exact rationals. The check does not apply if the mechanism reports its loss in a unit other
    than the problem's.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem, run, rows = solve_with_weights(trial)
    data, objective = getattr(run.problem, "data", None), run.stated.objective
    cost = getattr(data, "cost", None)
    if data is None or cost is None or np.shape(cost) != np.shape(rows) or data.loss_unit != objective.unit:
        trial.pass_over(Elsewhere("its loss is not the expected one of a metric problem"))
    total = Fraction(0)
    for row, costs, prior in zip(rows, np.asarray(cost).tolist(), np.asarray(data.prior).tolist(), strict=True):
        total += Fraction(prior) * sum((w * Fraction(c) for w, c in zip(row, costs, strict=True)), Fraction(0))
    computed = float(total / TOTAL)
    if not is_same_sum(objective.value, computed):
        trial.fail(f"objective.value is {objective.value!r}; prior, cost and weights give {computed!r}", problem)


@check("input-order", of={"matrix"})
def input_order(trial: Trial) -> None:
    """Check that a release lists its records and outputs in the same order as the problem.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem = trial.problem()
    attempt = trial.attempt(problem)
    # A wrong order makes ``privopt solve`` fail as well, so even a failed run is examined if it produced a release. If
    # there is none, run() discards the example.
    run = attempt if attempt.release is not None else trial.run(problem)
    data: Any = getattr(run.problem, "data", None)
    if data is None:
        trial.pass_over(Elsewhere("its data are not those of a metric problem, so there is no order to compare"))
    for name, input_ids in (("records", data.records.ids), ("outputs", data.outputs.ids)):
        release_ids = [str(x) for x in getattr(run.release, name)]
        ordered_ids = [x for x in map(str, input_ids) if x in set(release_ids)]
        if release_ids != ordered_ids:
            actual, expected = ", ".join(release_ids[:6]), ", ".join(ordered_ids[:6])
            trial.fail(f"the release's {name} are in the order {actual}; the input's order is {expected}", problem)
