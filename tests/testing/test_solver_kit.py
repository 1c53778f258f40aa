"""Planted backends, decompositions and secrets by chance: the kit for solvers, and what it does not blame."""

import random
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pytest
from attrs import evolve

from privopt.backends import get
from privopt.decompose import Benders
from privopt.testing import GeneratedProblem
from privopt.testing.backends import check_backend, check_decomposer
from privopt.testing.checks.base import LITTLE, at_little, at_one
from privopt.testing.checks.secrets import no_secret_leak
from privopt.testing.efforts import Effort


@pytest.fixture(scope="module")
def how():
    return Effort(name="quick", examples=12, seconds=60, shrinking=2, draws=1)


def failed(results):
    return {result.check: result.reason for result in results if result.status == "failed"}


class Wrong:
    """A backend whose answers are changed on the way."""

    def __init__(self, change):
        self.inner, self.change = get("highs"), change
        self.name, self.capabilities = "highs", self.inner.capabilities

    def solve(self, form, **options):
        return self.change(form, self.inner.solve(form, **options))


def test_highs_passes(how):
    assert failed(check_backend("highs", how=how)) == {}


@pytest.mark.parametrize(
    ("check", "change"),
    [
        ("optimum", lambda form, r: r if r.duals is None else evolve(r, duals=-r.duals, reduced=None)),
        ("optimum", lambda form, r: r if r.x is None else evolve(r, objective=r.objective + 0.5)),
        ("optimum", lambda form, r: evolve(r, bound=np.inf if form.sense == "min" else -np.inf)),
        ("integers", lambda form, r: r if r.x is None else evolve(r, x=r.x + 0.25)),
        ("optimum", lambda form, r: r if r.x is None else evolve(r, x=r.x + np.random.default_rng().random() / 1e6)),
    ],
)
def test_a_wrong_answer_is_caught(check, change, how):
    assert check in failed(check_backend(Wrong(change), how=how))


def test_a_backend_that_finds_everything_feasible_is_caught(how):
    from privopt.backends import Outcome

    assert "infeasible" in failed(check_backend(Wrong(lambda form, r: evolve(r, outcome=Outcome.OPTIMAL)), how=how))


def test_benders_passes(how):
    assert failed(check_decomposer(Benders(), how=how)) == {}


@pytest.mark.parametrize(
    ("check", "change"),
    [
        ("whole", lambda form, r: evolve(r, objective=r.objective + 0.5)),
        ("whole", lambda form, r: evolve(r, x=r.x + 100.0)),
        ("whole", lambda form, r: evolve(r, bound=r.objective + (1 if form.sense == "min" else -1))),
    ],
)
def test_a_wrong_decomposition_is_caught(check, change, how):
    class Spoilt:
        def solve(self, form, blocks, context):
            return change(form, Benders().solve(form, blocks, context))

    assert check in failed(check_decomposer(Spoilt(), how=how))


SECRET = "2433411"


class Trial:
    """Runs whose release tells the secret with a probability."""

    def __init__(self, folder, chance):
        self.folder, self.chance, self.drawn, self.failed = folder, chance, random.Random(1), False

    def problem(self):
        return GeneratedProblem(toml="", secrets=[SECRET.encode()])

    def run(self, problem, fresh=0):
        told = SECRET if self.drawn.random() < self.chance else "2433409"
        (self.folder / "release.csv").write_text(f"region,count\na,{told}\n")
        return SimpleNamespace(folder=self.folder)

    def fail(self, what, problem):
        self.failed = True


@pytest.mark.parametrize(("chance", "failed"), [(0.5, 0), (1, 100)])
def test_a_hundred_trials(tmp_path, chance, failed):
    trial = Trial(tmp_path, chance)
    count = 0
    for _ in range(100):
        no_secret_leak(trial)
        count, trial.failed = count + trial.failed, False
    assert count == failed


def test_next_to_no_budget_whatever_it_is_called():
    epsilon = GeneratedProblem(toml="[privacy]\nepsilon = 3\n")
    rho = GeneratedProblem(toml='[privacy]\nrho = ".125"\n')
    assert Decimal(str(at_little(epsilon).get("privacy.epsilon"))) == LITTLE
    assert Decimal(str(at_little(rho).get("privacy.rho"))) == LITTLE**2 / 2
    assert Decimal(str(at_one(rho).get("privacy.rho"))) == Decimal("0.5")
    assert at_little(rho).get("privacy.epsilon") is None
