"""A model printed as its formula: text, LaTeX, HTML."""

from __future__ import annotations

from html import escape
from typing import Any, Protocol

import numpy as np
import sympy

from privopt.arrays import Floats
from privopt.dsl.lowering import Block, Family, Implication, Relation, relation_text
from privopt.dsl.symbols import Index, Variable

__all__ = ["Shown", "html", "latex", "text"]


class Shown(Protocol):
    """What is printed of a model."""

    name: str
    sense: Any
    objective: Any
    families: Any
    variables: list[Variable]


def _quantifier(family: Family, name: Any, belongs: str) -> str:
    parts = []
    if family.restricted:
        listed = ", ".join(name(i) for i in family.restricted)
        parts.append(f"({listed}){belongs}{len(family.tuples[0])} tuples")
    parts += [f"{name(i)}{belongs}{i.index_set.name}" for i in family.forall if i not in family.restricted]
    return ", ".join(parts)


def _span(value: Floats) -> str | None:
    """One number where all bounds agree, "..." where they differ, None where there are none."""
    if value.size == 0 or not np.isfinite(value).any():
        return None
    return f"{value[0]:g}" if (value == value[0]).all() else "..."


def _domain(variable: Variable, less: str = "<=", more: str = ">=") -> str:
    """Bounds of a variable, without its name: ``>= 0``, ``in 0..1, integer``."""
    lower, upper = _span(variable.lower), _span(variable.upper)
    parts = [f"{more} {lower}"] if lower is not None else []
    parts += [f"{less} {upper}"] if upper is not None else []
    parts = parts or ["free"]
    if variable.integer:
        parts.append("binary" if (lower, upper) == ("0", "1") else "integer")
        parts = parts[-1:] if parts[-1] == "binary" else parts
    return ", ".join(parts)


def _variable(variable: Variable) -> str:
    sets = f"[{', '.join(s.name for s in variable.sets)}]" if variable.sets else ""
    return f"{variable.name}{sets} {_domain(variable)}"


def text(model: Shown) -> str:
    """Return the model as plain text, one family a line."""
    lines = [f"{model.name}: {model.sense}imize {0 if model.objective is None else model.objective}"]
    for family in model.families:
        if isinstance(family, Block):
            lines.append(f"  {family.name}: {family.matrix.shape[0]} ready rows")
            continue
        quantifier = _quantifier(family, lambda i: str(i.name), " in ")
        shown = str(family.shown) if isinstance(family.shown, Implication) else relation_text(family.shown)
        lines.append(f"  {family.name}: {shown}{f'  for {quantifier}' if quantifier else ''}")
    return "\n".join(lines + [f"  {_variable(v)}" for v in model.variables])


def _latex_relation(shown: Relation) -> str:
    if isinstance(shown, Implication):
        return rf"{sympy.latex(shown.binary)} = 1 \Rightarrow {_latex_relation(shown.relation)}"
    sign = {sympy.Le: r"\le", sympy.Ge: r"\ge", sympy.Eq: "="}[type(shown)]
    return f"{sympy.latex(shown.lhs)} {sign} {sympy.latex(shown.rhs)}"


def _latex_text(value: str) -> str:
    for mark in "_&%#$":
        value = value.replace(mark, chr(92) + mark)
    return rf"\text{{{value}}}"


def latex_body(model: Shown) -> str:
    """Return the model as a LaTeX ``aligned`` environment, without dollar signs."""
    goal = r"\min" if model.sense == "min" else r"\max"
    lines = [rf"{goal}\quad & {sympy.latex(0 if model.objective is None else model.objective)}"]
    for family in model.families:
        if isinstance(family, Block):
            lines.append(rf"& {_latex_text(f'{family.matrix.shape[0]} ready rows')} && {_latex_text(family.name)}")
            continue
        quantifier = _latex_quantifier(family)
        lines.append(rf"& {_latex_relation(family.shown)} {quantifier} && {_latex_text(family.name)}")
    for variable in model.variables:
        kind = _domain(variable, r"\le", r"\ge")
        for word in ("free", "binary", "integer"):
            kind = kind.replace(word, rf"\text{{ {word}}}")
        lines.append(rf"& {sympy.latex(variable)} {kind}")
    return r"\begin{aligned}" + (r" \\" + "\n").join(lines) + r"\end{aligned}"


def _latex_quantifier(family: Family) -> str:
    def name(index: Index) -> str:
        return str(sympy.latex(index))

    parts = []
    if family.restricted:
        parts.append(rf"({','.join(map(name, family.restricted))}) \in T_{{{len(family.tuples[0])}}}")
    parts += [
        rf"{name(i)} \in {sympy.latex(sympy.Symbol(i.index_set.name))}"
        for i in family.forall
        if i not in family.restricted
    ]
    joined = r",\, ".join(parts)
    return rf"\quad \forall\, {joined}" if parts else ""


def latex(model: Shown) -> str:
    """Return the model as displayed LaTeX."""
    return f"$\\displaystyle {latex_body(model)}$"


def html(model: Shown) -> str:
    """Show the model in a notebook, which typesets the formula; below, folded, the same as text for others."""
    columns = sum(variable.size for variable in model.variables)
    head = f"<b>{escape(model.name)}</b>: {columns:,} columns, {len(model.families)} families"
    formula = f"$${escape(latex_body(model), quote=False)}$$"
    folded = f"<details><summary>as text</summary><pre>{escape(text(model))}</pre></details>"
    return f"<div><div>{head}</div>{formula}{folded}</div>"
