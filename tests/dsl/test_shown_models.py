"""A model as LaTeX and HTML."""

from __future__ import annotations

import re
from html import unescape

import matplotlib as mpl
import numpy as np
from matplotlib.mathtext import MathTextParser

from privopt.dsl import Eq, Ge, Index, IndexSet, Le, Model, exp, implies, total


def state_model() -> Model:
    m = Model("<b>")
    X, S = IndexSet("X", ["a", "b_c", "50 %"]), IndexSet("big set", 3)
    i, j, k, s = Index("i", X), Index("j", X), Index("k", X), Index("s", S)
    z, opened = m.variable("z", X, X), m.variable("opened_up", S, kind="binary")
    y, w = m.variable("y", S, upper=[1, 2, 3], kind="integer", lower=None), m.variable("w", lower=None)
    d, epsilon = m.param("d", np.ones((3, 3))), m.param("epsilon", 1.0)
    m.minimize(total(d[i, k] * z[i, k] - 1, over=(i, k)) + 3 * total(z[i, k], over=(i, k), where=[("a", "a")]) + w / 2)
    m.require("geo-ind", Le(z[i, k], exp(epsilon * d[i, j]) * z[j, k]), forall=(i, j, k), where=[("a", "b_c")])
    m.require("fixed_one", Eq(z["a", "50 %"], exp(1.5) * z[i, 0]), forall=i)
    m.require("switch", implies(1 - opened[s], y[s] <= 2), forall=s)
    m.require("least", Ge(w, 1))
    m.add_block("ready", np.eye(3), columns=opened, upper=1.0)
    return m


def test_html_has_each_formula_once_and_every_formula_is_latex() -> None:
    m = state_model()
    html = m._repr_html_()
    assert "<caption>&lt;b&gt;</caption>" in html
    cells = re.findall(r"<t[dh]>(.*?)</t[dh]>", html)
    names, formulas = cells[::3], [unescape(c) for c in (*cells[1::3], *cells[2::3]) if c]
    assert names[:6] == ["minimize", "geo-ind", "fixed_one", "switch", "least", "ready"]
    parser = MathTextParser("path")
    with mpl.rc_context({"font.family": "DejaVu Sans"}):
        for formula in formulas:
            parser.parse(formula.replace(r"\displaystyle", ""))
    assert r"$\displaystyle z_{a, \mathrm{50\ \%}} = e^{1.5} z_{i, a}$" in formulas
    assert r"$\displaystyle 1 - \mathrm{opened\_up}_{s} = 1 \Rightarrow y_{s} \leq 2$" in formulas
    assert r"$\displaystyle y \leq \ldots,\ y \in \mathbb{Z}^{\mathrm{big\ set}}$" in formulas


def test_latex_has_a_line_for_each_formula() -> None:
    m = state_model()
    latex = m.latex()
    assert latex.count("\\\\\n") == len(m.families) + len(m.variables)
    assert latex.count("{") == latex.count("}")
    assert m._repr_latex_() == f"$\\displaystyle {latex}$"
    assert r"\sum_{i \in X, k \in X} \left(d_{i, k} z_{i, k} - 1\right)" in latex
    assert r"\forall (i, j) \in \text{1 tuples}, k \in X" in latex


def test_latex_shows_nested_exponentials() -> None:
    m, X = Model("nested"), IndexSet("X", 3)
    j = Index("j", X)
    y, r = m.variable("y"), m.param("r", [1.0, 2.0, 3.0], X)
    m.require("row", exp(-exp(-r[j])) * y <= exp(-exp(r[j]) / 2), forall=j)
    assert r"y e^{- e^{- r_{j}}} \leq" in m.latex()
