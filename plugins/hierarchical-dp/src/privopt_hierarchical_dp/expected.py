"""Errors of a method on counts that are known: noise is drawn and fitted as for a release, and compared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privopt.arrays import Floats, Ints
from privopt_hierarchical_dp.design import Design
from privopt_hierarchical_dp.fitting import fit
from privopt_hierarchical_dp.tasks import task_of
from privopt_hierarchical_dp.tree import add_up
from privopt_hierarchical_dp.zeros import within

__all__ = ["errors_on"]


def errors_on(leaves: Sequence[Ints], design: Design, *, seed: int = 0) -> Floats:
    """Return the (trials, L) L1 errors by level on known counts (R_L, N), a trial each; nothing drawn is released."""
    errors = []
    for trial, known in enumerate(leaves, start=seed):
        levels = add_up(design.tree, known if design.zeros is None else within(design.zeros, known))
        tops = [level.sum(axis=1) for level in levels]
        exact = tops[: len(tops) if design.totals else int(design.relation.exact)]
        noisy, _ = design.draw(levels, seed=trial)
        found, _ = fit(task_of(design, noisy, exact))
        errors.append([float(np.abs(a - b).sum()) for a, b in zip(found.counts, levels, strict=True)])
    return np.array(errors)
