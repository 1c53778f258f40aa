"""A model printed as its formula."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from privopt.arrays import Floats
from privopt.dsl.lowering import Block, Family, Implication, relation_text
from privopt.dsl.symbols import Variable


class PrintableModel(Protocol):
    """What is printed of a model."""

    name: str
    sense: Any
    objective: Any
    families: Any
    variables: list[Variable]


def _quantifier(family: Family) -> str:
    parts = []
    if family.restricted:
        listed = ", ".join(str(index.name) for index in family.restricted)
        parts.append(f"({listed}) in {len(family.tuples[0])} tuples")
    parts += [f"{i.name} in {i.index_set.name}" for i in family.forall if i not in family.restricted]
    return ", ".join(parts)


def _span(value: Floats) -> str | None:
    """Return the common value of all bounds, "..." if they differ, None without any."""
    if value.size == 0 or not np.isfinite(value).any():
        return None
    return f"{value[0]:g}" if (value == value[0]).all() else "..."


def _variable(variable: Variable) -> str:
    """Show a variable with its sets and bounds: ``z[X, X] >= 0``, ``h[X] binary``."""
    sets = f"[{', '.join(s.name for s in variable.sets)}]" if variable.sets else ""
    lower, upper = _span(variable.lower), _span(variable.upper)
    bounds = [f"{sign} {end}" for sign, end in ((">=", lower), ("<=", upper)) if end is not None] or ["free"]
    if variable.integer:
        bounds = ["binary"] if (lower, upper) == ("0", "1") else [*bounds, "integer"]
    return f"{variable.name}{sets} {', '.join(bounds)}"


def text(model: PrintableModel) -> str:
    """Return the model as plain text, one family a line."""
    lines = [f"{model.name}: {model.sense}imize {0 if model.objective is None else model.objective}"]
    for family in model.families:
        if isinstance(family, Block):
            lines.append(f"  {family.name}: {family.matrix.shape[0]} ready rows")
            continue
        quantifier = _quantifier(family)
        shown = str(family.shown) if isinstance(family.shown, Implication) else relation_text(family.shown)
        lines.append(f"  {family.name}: {shown}{f'  for {quantifier}' if quantifier else ''}")
    return "\n".join(lines + [f"  {_variable(v)}" for v in model.variables])
