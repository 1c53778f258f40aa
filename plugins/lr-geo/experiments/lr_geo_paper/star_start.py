"""Where the paper's rounds begin: the exponential form alone, without multipliers (Figure 6)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privopt.arrays import Floats
from privopt.decompose.benders import Start
from privopt_lr_geo.messages import Package, Terms
from privopt_lr_geo.program import Central, assemble, central_model

__all__ = ["star_start"]


def star_start(packages: Sequence[Package], terms: Terms) -> Start:
    """Return a feasible point to begin with, or nothing.

    Every entry, also the free ones, in the exponential form, with weights that make all rows sum to one: the star of
    the users' own records (rows of one record are the same in every package). Where no such weights are positive:
    all mass on the output that is far from everybody, where there is one.
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
        far_part, _ = piece.split(central.columns)
        x[form.variable(f"s{n}").start] = far_part @ x[first : first + len(far_part)]
    return Start(x=x)


def _star(central: Central, packages: Sequence[Package], terms: Terms) -> tuple[Floats, list[Floats]] | None:
    """Weights y (K,) >= 0 with which the form alone makes rows that sum to one, and the forms (n, K), scaled as y."""
    shift = np.where(np.isnan(central.shift), 0.0, central.shift)
    rate = terms.epsilon * terms.exponent
    with np.errstate(over="ignore"):  # a form beyond doubles is no start
        forms = [np.exp(-rate * np.minimum(p.reach, terms.obfuscation_radius) - shift) for p in packages]
    if not all(np.isfinite(part).all() for part in forms):
        return None
    cheapest_columns = np.concatenate(
        [np.where((p.reach == 0).any(axis=1), (p.reach == 0).argmax(axis=1), -1) for p in packages]
    )
    if (cheapest_columns < 0).any():
        return None
    outputs, first = np.unique(cheapest_columns, return_index=True)
    if not np.isin(outputs, central.columns).all():
        return None
    kernel = np.concatenate(forms)[first][:, outputs]
    try:
        weights = np.linalg.solve(kernel, np.ones(len(outputs)))
    except np.linalg.LinAlgError:
        return None
    if weights.min() < 0 or not np.abs(kernel @ weights - 1.0).max() <= 1e-9:
        return None
    y = np.zeros(len(shift))
    y[outputs] = weights
    usable = all((part[:, outputs] * weights).max() <= 1.0 + 1e-9 for part in forms) and weights.max() <= 1.0
    return (y, forms) if usable else None
