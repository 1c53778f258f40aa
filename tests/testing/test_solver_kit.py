"""Planted backends, decompositions and secrets by chance: the kit for solvers, and what it does not blame."""

import random
from contextlib import contextmanager
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pytest
from attrs import evolve

from privopt.backends import Outcome
from privopt.backends.highs import Highs
from privopt.decompose.benders import Benders
from privopt.registry import Kind, registry, using
from privopt.specs import KindSpec
from privopt.testing import GeneratedProblem, backends, decomposers
from privopt.testing.checks.base import TINY_EPSILON, at_epsilon_one, at_tiny_epsilon
from privopt.testing.checks.secrets import no_secret_leak
from privopt.testing.efforts import Effort


@pytest.fixture(scope="module")
def how():
    return Effort(name="quick", examples=12, seconds=60, shrinking=2, draws=1)


@contextmanager
def plant_kind(role, name, cls):
    """Open a block in which a kind's class is another."""
    globals()[cls.__name__] = cls
    spec = KindSpec(role=role, name=name, target=f"{__name__}:{cls.__name__}", summary="planted")
    with using(registry().replace(Kind(spec=spec, plugin="planted", version="0"))):
        yield


@pytest.mark.parametrize(("role", "name"), [("solver", "highs"), ("decomposer", "benders")])
def test_shipped_solvers_pass(role, name, how):
    results = [check(name, how, 0) for check in CHECKS[role]]
    assert [result.reason for result in results if result.status == "failed"] == []


CHECKS = {
    "solver": (backends.optimum, backends.integers, backends.infeasible),
    "decomposer": (decomposers.whole, decomposers.infeasible),
}


@pytest.mark.parametrize(
    ("check", "change"),
    [
        (backends.optimum, lambda form, r: r if r.duals is None else evolve(r, duals=-r.duals, reduced=None)),
        (backends.optimum, lambda form, r: evolve(r, duals=None)),
        (backends.optimum, lambda form, r: r if r.reduced is None else evolve(r, reduced=r.reduced + 1.0)),
        (backends.optimum, lambda form, r: r if r.x is None else evolve(r, objective=r.objective + 0.5)),
        (backends.optimum, lambda form, r: evolve(r, x=form.col_lower, objective=float(form.c @ form.col_lower))),
        (backends.optimum, lambda form, r: evolve(r, x=r.x + 100.0)),
        (backends.optimum, lambda form, r: evolve(r, bound=np.inf if form.sense == "min" else -np.inf)),
        (backends.optimum, lambda form, r: evolve(r, outcome=Outcome.FEASIBLE)),
        (backends.optimum, lambda form, r: evolve(r, x=r.x + np.random.default_rng().random() / 1e6)),
        (backends.integers, lambda form, r: r if r.x is None else evolve(r, x=r.x + 0.25)),
        (backends.infeasible, lambda form, r: evolve(r, outcome=Outcome.OPTIMAL)),
    ],
)
def test_finds_wrong_answers(check, change, how):
    class Spoilt(Highs):
        def solve(self, form, **options):
            return change(form, super().solve(form, **options))

    with plant_kind("solver", "highs", Spoilt):
        assert check("highs", how, 0).status == "failed"


def test_finds_changed_models(how):
    class Changes(Highs):
        def solve(self, form, **options):
            answer = super().solve(form, **options)
            form.c.setflags(write=True)
            form.c[:] += 1.0
            return answer

    with plant_kind("solver", "highs", Changes):
        assert backends.optimum("highs", how, 0).status == "failed"


@pytest.mark.parametrize(
    "change",
    [
        lambda form, r: evolve(r, objective=r.objective + 0.5),
        lambda form, r: evolve(r, x=r.x + 100.0),
        lambda form, r: evolve(r, bound=r.objective + (1 if form.sense == "min" else -1)),
    ],
)
def test_finds_wrong_decompositions(change, how):
    class SpoiltBenders(Benders):
        def solve(self, form, blocks, context):
            return change(form, super().solve(form, blocks, context))

    with plant_kind("decomposer", "benders", SpoiltBenders):
        assert decomposers.whole("benders", how, 0).status == "failed"


SECRET = "2433411"


class Trial:
    """Runs whose release tells the secret with a probability."""

    def __init__(self, folder, chance):
        self.folder, self.chance, self.drawn, self.failed = folder, chance, random.Random(1), False

    def problem(self):
        return GeneratedProblem(toml="", secrets=[SECRET.encode()])

    def run(self, problem, fresh=0):
        value = SECRET if self.drawn.random() < self.chance else "2433409"
        (self.folder / "release.csv").write_text(f"region,count\na,{value}\n")
        return SimpleNamespace(folder=self.folder)

    def fail(self, what, problem):
        self.failed = True


@pytest.mark.parametrize(("chance", "expected_failures"), [(0.5, 0), (1, 100)])
def test_hundred_trials(tmp_path, chance, expected_failures):
    trial = Trial(tmp_path, chance)
    count = 0
    for _ in range(100):
        no_secret_leak(trial)
        count, trial.failed = count + trial.failed, False
    assert count == expected_failures


def test_tiny_budget_under_any_name():
    epsilon = GeneratedProblem(toml="[privacy]\nepsilon = 3\n")
    rho = GeneratedProblem(toml='[privacy]\nrho = ".125"\n')
    assert Decimal(str(at_tiny_epsilon(epsilon).get("privacy.epsilon"))) == TINY_EPSILON
    assert Decimal(str(at_tiny_epsilon(rho).get("privacy.rho"))) == TINY_EPSILON**2 / 2
    assert Decimal(str(at_epsilon_one(rho).get("privacy.rho"))) == Decimal("0.5")
    assert at_tiny_epsilon(rho).get("privacy.epsilon") is None
