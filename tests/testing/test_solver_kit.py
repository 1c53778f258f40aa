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
from privopt.testing.checks.base import LITTLE, at_little, at_one
from privopt.testing.checks.secrets import no_secret_leak
from privopt.testing.efforts import Effort


@pytest.fixture(scope="module")
def how():
    return Effort(name="quick", examples=12, seconds=60, shrinking=2, draws=1)


@contextmanager
def planted(role, name, cls):
    """Open a block in which a kind's class is another."""
    globals()[cls.__name__] = cls
    spec = KindSpec(role=role, name=name, target=f"{__name__}:{cls.__name__}", summary="planted")
    with using(registry().replace(Kind(spec=spec, plugin="planted", version="0"))):
        yield


@pytest.mark.parametrize(("role", "name"), [("solver", "highs"), ("decomposer", "benders")])
def test_privopts_own_pass(role, name, how):
    found = [check(name, how, 0) for check in CHECKS[role]]
    assert [result.reason for result in found if result.status == "failed"] == []


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
def test_a_wrong_answer_is_caught(check, change, how):
    class Spoilt(Highs):
        def solve(self, form, **options):
            return change(form, super().solve(form, **options))

    with planted("solver", "highs", Spoilt):
        assert check("highs", how, 0).status == "failed"


def test_a_model_that_is_changed_is_noticed(how):
    class Changes(Highs):
        def solve(self, form, **options):
            found = super().solve(form, **options)
            form.c.setflags(write=True)
            form.c[:] += 1.0
            return found

    with planted("solver", "highs", Changes):
        assert backends.optimum("highs", how, 0).status == "failed"


@pytest.mark.parametrize(
    "change",
    [
        lambda form, r: evolve(r, objective=r.objective + 0.5),
        lambda form, r: evolve(r, x=r.x + 100.0),
        lambda form, r: evolve(r, bound=r.objective + (1 if form.sense == "min" else -1)),
    ],
)
def test_a_wrong_decomposition_is_caught(change, how):
    class SpoiltBenders(Benders):
        def solve(self, form, blocks, context):
            return change(form, super().solve(form, blocks, context))

    with planted("decomposer", "benders", SpoiltBenders):
        assert decomposers.whole("benders", how, 0).status == "failed"


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
