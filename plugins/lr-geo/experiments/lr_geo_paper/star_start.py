"""Compute the point from which the paper's rounds start: the exponential form alone, without multipliers (Figure 6)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privopt.arrays import Floats
from privopt.decompose.benders import Start
from privopt_lr_geo.messages import Package, Terms
from privopt_lr_geo.program import Central, assemble, central_model

__all__ = ["star_start"]


def star_start(packages: Sequence[Package], terms: Terms) -> Start:
    """Return a feasible starting point of Benders decomposition, or an empty one if none is found.

    All entries, the free ones too, have the exponential form, with weights that make all rows sum to one. These are the
    weights of the star mechanism over the records of the users' LR sets. Rows of one record are the same in every
    package. If such weights are not all positive, the probability is put on the output that is far from everybody, if
    there is one.

    Args:
        packages: The users' uploads.
        terms: Epsilon, radius and exponent that the server announced.
    """
    central = assemble(packages, terms)
    form = central_model(central).compile()
    x = np.zeros(form.shape[1])
    first = form.variable("y").start
    star = _star(central, packages, terms)
    if star is not None:
        y, forms = star
        x[first : first + len(central.columns)] = y[central.columns]
        for n, piece in enumerate(central.pieces):
            block, (row, column) = form.variable(f"z{n}"), piece.entries.T
            if len(row):
                x[block.start : block.stop] = forms[n][row, column] * y[column]
    elif central.flat >= 0:
        x[first + int(np.searchsorted(central.columns, central.flat))] = 1.0
    else:
        return Start()
    for n, piece in enumerate(central.pieces):
        # The far mass of a user follows from y (module program).
        far_part, _ = piece.split(central.columns)
        x[form.variable(f"s{n}").start] = far_part @ x[first : first + len(far_part)]
    return Start(x=x)


def _star(central: Central, packages: Sequence[Package], terms: Terms) -> tuple[Floats, list[Floats]] | None:
    """Return weights with which rows of the exponential form sum to one, or None if there are no usable ones.

    Args:
        central: The program, with the scale of y.
        packages: The users' uploads.
        terms: Epsilon, radius and exponent.

    Returns:
        (K,) weights y >= 0, and for each user (n, K) the exponential forms, relative to the scale of y.
    """
    shift = np.where(np.isnan(central.shift), 0.0, central.shift)
    rate = terms.epsilon * terms.exponent
    with np.errstate(over="ignore"):  # a form beyond doubles is no start
        forms = [np.exp(-rate * np.minimum(p.reach, terms.obfuscation_radius) - shift) for p in packages]
    if not all(np.isfinite(part).all() for part in forms):
        return None
    # The output at distance 0 of each row: the row's own record.
    own_columns = np.concatenate(
        [np.where((p.reach == 0).any(axis=1), (p.reach == 0).argmax(axis=1), -1) for p in packages]
    )
    # A record that is no output has no weight of its own.
    if (own_columns < 0).any():
        return None
    outputs, first = np.unique(own_columns, return_index=True)
    if not np.isin(outputs, central.columns).all():
        return None
    # One row for each of these records, although several packages may have it.
    kernel = np.concatenate(forms)[first][:, outputs]
    try:
        weights = np.linalg.solve(kernel, np.ones(len(outputs)))
    except np.linalg.LinAlgError:
        return None
    if weights.min() < 0 or not np.abs(kernel @ weights - 1.0).max() <= 1e-9:
        return None
    y = np.zeros(len(shift))
    y[outputs] = weights
    # Entries are probabilities, and the model bounds y by 1.
    usable = all((part[:, outputs] * weights).max() <= 1.0 + 1e-9 for part in forms) and weights.max() <= 1.0
    return (y, forms) if usable else None
