"""What a notebook shows of problems, releases, guarantees, certificates and models."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest
from helpers.examples import EXAMPLES, SECRETIVE

from privopt.declare import load_problem
from privopt.declare.notebook import card
from privopt.dsl import Eq, Ge, Index, IndexSet, Le, Model, exp, implies, total
from privopt.run.verify import load_release

pytestmark = pytest.mark.xdist_group("reports")

VOID = {"br", "img", "hr"}


class Nesting(HTMLParser):
    """Markup whose tags close in order, and its text."""

    def __init__(self):
        super().__init__()
        self.open = []
        self.text = []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def words(markup):
    parser = Nesting()
    parser.feed(markup)
    parser.close()
    assert parser.open == []
    return " ".join(" ".join(parser.text).split())


@pytest.mark.parametrize("name", EXAMPLES)
def test_problem_release_guarantee_and_certificate(name, example):
    opened = load_release(example(name))
    mechanism, problem, release, result = opened.mechanism, opened.problem, opened.release, opened.result
    privacy = mechanism.privacy(problem, result.method)
    shown = words(problem._repr_html_())
    assert shown.startswith(f"Problem: {type(opened.declared).__name__}")
    assert "privacy." in shown
    assert words(release._repr_html_()).startswith(f"Release: {type(release).__name__}")
    assert result.guarantee.kind in words(privacy.guarantee._repr_html_())
    certificate = words(privacy.measure(release)._repr_html_())
    assert certificate.startswith("Certificate: holds")
    assert f"{result.certificate.checked:,}" in certificate


def test_a_matrix_shows_its_sizes_and_likeliest_outputs(example):
    release = load_release(example("optimal-lp")).release
    shown = words(release._repr_html_())
    assert "records 56 outputs 56" in shown
    first = release.probabilities[0]
    assert f"0-0 {release.outputs[first.argmax()]} {first.max():.9g}" in shown
    assert "and 51 more" in shown


@pytest.mark.parametrize("name", SECRETIVE)
def test_secrets_are_named_and_not_shown(name, example, tmp_path):
    from privopt.registry import registry

    found = SECRETIVE[name]
    mechanism = registry().get(found.mechanism).load()
    declared = load_problem(mechanism.problem_class, found.write(tmp_path), public=False)
    owned = mechanism.load(declared, "problem.toml")
    release = load_release(example(name, secretive=True)).release
    for value in (declared, owned, release):
        markup = value._repr_html_()
        assert not [secret for secret in found.secrets if secret in re.sub(r"(?<=\d),(?=\d)", "", markup)]
    assert "(secret)" in owned._repr_html_()


@pytest.fixture
def model():
    X = IndexSet("X", ["home", "work"])
    i, j, k = Index("i", X), Index("j", X), Index("k", X)
    made = Model("a_model")
    z = made.variable("z", X, X, lower=0)
    h = made.variable("h", X, kind="binary")
    d = made.param("d", np.array([[0.0, 1.0], [1.0, 0.0]]))
    made.minimize(total(d[i, k] * z[i, k] / 2, over=(i, k)))
    made.require("mass", Eq(total(z[i, k], over=k), 1), forall=i)
    pairs = [("home", "work"), ("work", "home")]
    made.require("geo-ind", Le(z[i, k], exp(d[i, j]) * z[j, k]), forall=(i, j, k), where=pairs)
    made.require("rule", implies(h[i], Ge(z[i, i], 0.5)), forall=i)
    return made


def test_a_model_is_its_formula(model):
    latex = model._repr_latex_()
    assert latex.startswith("$")
    assert latex.endswith("$")
    for part in (r"\min", r"\sum", r"z_{i,k} \le e^{d_{i,j}} z_{j,k}", r"\forall\, ", r"\Rightarrow", r"\text{mass}"):
        assert part in latex, latex
    assert latex.count("{") == latex.count("}")
    assert latex.count(r"\begin{aligned}") == latex.count(r"\end{aligned}") == 1


def test_a_notebook_gets_the_formula_typeset_and_as_text(model):
    markup = model._repr_html_()
    shown = words(markup)
    assert "a_model : 6 columns, 3 families" in shown
    formula = shown[shown.index("$$") + 2 : shown.rindex("$$")]
    assert formula == " ".join(model._repr_latex_()[len("$\\displaystyle ") : -1].split())
    assert "&amp;" in markup  # what separates columns, as markup wants it
    assert "geo-ind: z[i, k] <= exp(d[i, j])*z[j, k]" in shown


def test_cards_escape_what_they_are_given():
    markup = card("<b>", {"<i>": "<script>alert(1)</script>"})
    assert "<script>" not in markup
    assert "<i>" not in markup
    assert "<script>alert(1)</script>" in words(markup)
