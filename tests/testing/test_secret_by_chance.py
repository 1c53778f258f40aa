"""A count that noise leaves as it is, run after run by chance, is no leak."""

import random
from decimal import Decimal
from types import SimpleNamespace

import pytest

from privopt.testing import GeneratedProblem
from privopt.testing.checks.base import LITTLE, at_little, at_one
from privopt.testing.checks.secrets import no_secret_leak

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
