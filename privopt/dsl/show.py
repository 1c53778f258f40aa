"""Print a model as its formula."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from privopt.arrays import Floats
from privopt.dsl.lowering import Block, Family, Implication, relation_text
from privopt.dsl.symbols import Variable


class PrintableModel(Protocol):
    """The attributes of a model that are printed."""

    name: str
    sense: Any
    objective: Any
    families: Any
    variables: list[Variable]


def _quantifier_text(family: Family) -> str:
    """Return the text after "for": the restricted tuples, then the indices that run over whole sets."""
    parts = []
    if family.restricted:
        listed = ", ".join(str(index.name) for index in family.restricted)
        parts.append(f"({listed}) in {len(family.tuples[0])} tuples")
    parts += [f"{i.name} in {i.index_set.name}" for i in family.forall if i not in family.restricted]
    return ", ".join(parts)


def _common_bound(value: Floats) -> str | None:
    """Return the common value of all bounds, "..." if they differ, or None if there are none."""
    if value.size == 0 or not np.isfinite(value).any():
        return None
    return f"{value[0]:g}" if (value == value[0]).all() else "..."


def _variable_text(variable: Variable) -> str:
    """Show a variable with its sets and bounds: ``z[X, X] >= 0``, ``h[X] binary``."""
    sets = f"[{', '.join(s.name for s in variable.sets)}]" if variable.sets else ""
    lower, upper = _common_bound(variable.lower), _common_bound(variable.upper)
    bounds = [f"{sign} {end}" for sign, end in ((">=", lower), ("<=", upper)) if end is not None] or ["free"]
    if variable.integer:
        bounds = ["binary"] if (lower, upper) == ("0", "1") else [*bounds, "integer"]
    return f"{variable.name}{sets} {', '.join(bounds)}"


def format_model(model: PrintableModel) -> str:
    """Return the model as plain text, one line for each family."""
    lines = [f"{model.name}: {model.sense}imize {0 if model.objective is None else model.objective}"]
    for family in model.families:
        if isinstance(family, Block):
            lines.append(f"  {family.name}: {family.matrix.shape[0]} ready rows")
            continue
        quantifier = _quantifier_text(family)
        relation = (
            str(family.statement) if isinstance(family.statement, Implication) else relation_text(family.statement)
        )
        lines.append(f"  {family.name}: {relation}{f'  for {quantifier}' if quantifier else ''}")
    return "\n".join(lines + [f"  {_variable_text(v)}" for v in model.variables])
