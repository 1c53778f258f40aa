"""Check that a model's objective and rows do not push the variables of convex or concave terms away from their lines.

A convex term is the maximum of linear functions, which are called its lines. Rows of the model keep the term's variable
above the lines. A concave term is the minimum of its lines, and its variable is kept below them.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from privopt.dsl.form import StandardForm
from privopt.dsl.variables import Variable
from privopt.errors import ModelError


def check_curvature(
    form: StandardForm, variable: Variable, is_convex: bool, lines: Collection[str], advice: str
) -> None:
    """Check that a model uses the variable of a convex or concave term only in ways that keep it on the term's lines.

    A convex term is the maximum of several linear functions, which are called its lines. Rows keep its variable above
    the lines, so the objective and all other families must not push the variable up. A concave term is the minimum of
    its lines, so its variable must not be pushed down.

    Args:
        form: The compiled model.
        variable: The variable of the term.
        is_convex: Whether the term is convex rather than concave.
        lines: The names of the families that contain the term's lines.
        advice: The beginning of the error message, which says how the term may be used.

    Raises:
        ModelError: The objective or a family pushes the variable away from the term's lines, or the variable occurs in
            a quadratic term of the objective.
    """
    # A concave term is treated as its negative, which is convex.
    sign = 1.0 if is_convex else -1.0
    columns = slice(variable.start, variable.start + variable.size)
    # A positive cost pushes the variable of a convex term down onto its lines. A negative one would push it up.
    cost = sign * form.c[columns] * (1.0 if form.sense == "min" else -1.0)
    misuses = [f"objective ({form.sense}imize)"] if (cost < 0).any() else []
    if form.Q is not None and form.Q[columns].nnz:
        misuses.append("objective (in a quadratic term)")
    for block in form.families:
        if block.name in lines:
            continue
        # An entry in another family pushes the wrong way if its row has a bound that keeps the variable from reaching
        # its lines.
        part = form.A[block.start : block.stop, columns].tocoo()
        pull = sign * part.data
        at_least = np.isfinite(form.row_lower[block.start : block.stop])[part.row]
        at_most = np.isfinite(form.row_upper[block.start : block.stop])[part.row]
        if (at_least & (pull > 0)).any() or (at_most & (pull < 0)).any():
            misuses.append(f"family {block.name}")
    if misuses:
        raise ModelError(f"{advice}; it is used otherwise in {', '.join(misuses)}")
