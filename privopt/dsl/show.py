"""Show a model's formulas as text, LaTeX or HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, Protocol

import numpy as np
import sympy

from privopt.arrays import Floats
from privopt.dsl.lowering import Block, Family, Implication, Range, Relation, relation_operator, relation_text
from privopt.dsl.sums import latex_name, latex_text
from privopt.dsl.variables import Variable


class PrintableModel(Protocol):
    """Protocol with the attributes of a ``Model`` that the functions in this module print."""

    name: str

    @property
    def sense(self) -> str:
        """The direction of the objective: "min" or "max"."""

    @property
    def objective(self) -> Any:
        """The objective's formula, or None if the model has no objective."""

    @property
    def families(self) -> Sequence[Family | Block]:
        """The families of rows (constraints)."""

    @property
    def variables(self) -> Sequence[Variable]:
        """The variables."""


def _quantifier_text(family: Family) -> str:
    """Return the text that follows "for" in a family's line, such as ``(i, j) in 2 tuples, k in X``."""
    parts = []
    if family.restricted:
        listed = ", ".join(str(index.name) for index in family.restricted)
        parts.append(f"({listed}) in {len(family.tuples[0])} tuples")
    parts += [f"{i.name} in {i.index_set.name}" for i in family.forall if i not in family.restricted]
    return ", ".join(parts)


def _common_bound(value: Floats) -> str | None:
    """Return the common value of all bounds as a string, "..." if they differ, or None if none of them is finite."""
    if value.size == 0 or not np.isfinite(value).any():
        return None
    return f"{value[0]:g}" if (value == value[0]).all() else "..."


def _variable_text(variable: Variable) -> str:
    """Return a variable with its sets and its bounds as a string, such as ``z[X, X] >= 0`` or ``h[X] binary``."""
    sets = f"[{', '.join(s.name for s in variable.sets)}]" if variable.sets else ""
    lower, upper = _common_bound(variable.lower), _common_bound(variable.upper)
    bounds = [f"{sign} {end}" for sign, end in ((">=", lower), ("<=", upper)) if end is not None] or ["free"]
    if variable.kind == "semicontinuous":
        return f"{variable.name}{sets} = 0 or {', '.join(bounds)}"
    if variable.integer:
        bounds = ["binary"] if (lower, upper) == ("0", "1") else [*bounds, "integer"]
    return f"{variable.name}{sets} {', '.join(bounds)}"


def format_model(model: PrintableModel) -> str:
    """Return the model as plain text, with one line each for the objective, every family of rows and every variable."""
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


def _latex_relation(statement: Relation) -> str:
    """Return a relation or an implication in LaTeX."""
    if isinstance(statement, Implication):
        return rf"{sympy.latex(statement.binary)} = 1 \Rightarrow {_latex_relation(statement.relation)}"
    if isinstance(statement, Range):
        sides = (sympy.latex(x) for x in (statement.lower, statement.expression, statement.upper))
        return r" \leq ".join(sides)
    operator = {"<=": r"\leq", ">=": r"\geq", "==": "="}[relation_operator(statement)]
    return f"{sympy.latex(statement.lhs)} {operator} {sympy.latex(statement.rhs)}"


def _latex_quantifier(family: Family) -> str:
    """Return the LaTeX code for the index tuples or sets that a family's rows run over, or "" if it has no indices."""
    parts = []
    if family.restricted:
        listed = ", ".join(latex_name(index.name) for index in family.restricted)
        parts.append(rf"({listed}) \in \text{{{len(family.tuples[0])} tuples}}")
    others = [i for i in family.forall if i not in family.restricted]
    parts += [rf"{latex_name(i.name)} \in {latex_name(i.index_set.name)}" for i in others]
    return rf"\forall {', '.join(parts)}" if parts else ""


def _latex_variable(variable: Variable) -> str:
    """Return a variable's bounds and domain in LaTeX. A bound that is not the same for all columns is shown as dots."""
    name = latex_name(variable.name)
    domains = {"continuous": r"\mathbb{R}", "integer": r"\mathbb{Z}", "binary": r"\{0, 1\}"}
    domain = domains.get(variable.kind, r"\mathbb{R}")
    sets = r" \times ".join(latex_name(s.name) for s in variable.sets)
    membership = rf"{name} \in {domain}{f'^{{{sets}}}' if sets else ''}"
    if variable.kind == "binary":
        return membership
    lower, upper = (
        None if bound is None else bound.replace("...", r"\ldots")
        for bound in (_common_bound(variable.lower), _common_bound(variable.upper))
    )
    if lower is None and upper is None:
        return membership
    if variable.kind == "semicontinuous":
        return rf"{name} = 0 \lor {lower} \leq {name} \leq {upper},\ {membership}"
    start, end = "" if lower is None else rf"{lower} \leq ", "" if upper is None else rf" \leq {upper}"
    return rf"{start}{name}{end},\ {membership}"


def _latex_lines(model: PrintableModel) -> list[tuple[str, str, str]]:
    """Return (name, formula, quantifier) triples for the objective, all families of rows and all variables, in order.

    The formulas and quantifiers are in LaTeX.
    """
    objective = "0" if model.objective is None else sympy.latex(model.objective)
    lines = [(f"{model.sense}imize", objective, "")]
    for family in model.families:
        if isinstance(family, Block):
            lines.append((family.name, rf"\text{{{family.matrix.shape[0]} ready rows}}", ""))
        else:
            lines.append((family.name, _latex_relation(family.statement), _latex_quantifier(family)))
    return [*lines, *(("", _latex_variable(variable), "") for variable in model.variables)]


def format_latex(model: PrintableModel) -> str:
    """Return the model as one aligned formula in LaTeX."""
    rows = [
        " ".join([latex_text(name), r"&\quad", formula, *([r"&&\quad", quantifier] if quantifier else [])])
        for name, formula, quantifier in _latex_lines(model)
    ]
    return "\\begin{aligned}\n" + " \\\\\n".join(rows) + "\n\\end{aligned}"


def format_html(model: PrintableModel) -> str:
    """Return the model as an HTML table of LaTeX formulas, which are typeset in notebooks."""
    cells = [
        f"<tr><th>{escape(name)}</th><td>{_html_formula(formula)}</td><td>{_html_formula(quantifier)}</td></tr>"
        for name, formula, quantifier in _latex_lines(model)
    ]
    return f"<table><caption>{escape(model.name)}</caption>{''.join(cells)}</table>"


def _html_formula(formula: str) -> str:
    """Escape a LaTeX formula for HTML and enclose it in dollar signs, so that it is typeset in notebooks.

    An empty formula remains empty.
    """
    return rf"$\displaystyle {escape(formula)}$" if formula else ""
