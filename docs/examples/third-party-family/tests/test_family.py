"""privopt's conformance kit on the mechanism and both policies, and faults that it finds."""

import json
import math
import random

import pytest
from attrs import evolve
from policy_dp import kit
from policy_dp.mechanism import AnswerRelease, PolicyProblem, PolicyResponse
from policy_dp.notion import PolicyDP
from policy_dp.policies import Steps

import privopt
from privopt.declare import load_problem
from privopt.errors import InputError
from privopt.testing import conformance, kind_conformance, run_check, subject, to_toml

test_conformance = conformance("policy-response")
test_steps = kind_conformance("policy", "steps")
test_blocks = kind_conformance("policy", "blocks")


class Blind(PolicyDP):
    """A notion whose certificate accepts every release."""

    def measure(self, release):
        """Return an accepting certificate."""
        honest = super().measure(release)
        return evolve(honest, holds=True, worst=honest.allowed, failures=())


class TwiceEpsilon(PolicyResponse):
    """Spends 2 epsilon on each step, and looks away."""

    def privacy(self, problem, method):
        """Return the mechanism's notion, made blind."""
        right = super().privacy(problem, method)
        return Blind(epsilon=right.epsilon, policy=right.policy, distances=right.distances)

    def probabilities(self, problem, steps):
        """Decrease four times as fast."""
        return [probability**4 for probability in super().probabilities(problem, steps)]


@pytest.mark.parametrize("check", ["policy-kept", "channel"])
def test_kit_finds_twice_the_epsilon(check):
    kit_subject = subject(TwiceEpsilon, guarantee="policy-dp")
    outcome = run_check(check, kit_subject, how="quick")
    kit_subject.close()
    assert outcome.status == "failed"


def test_kit_finds_policy_that_is_no_distance(monkeypatch):
    monkeypatch.setattr(Steps, "distances", lambda self, answers, file: [[1] * len(answers)] * len(answers))
    assert kit.is_a_distance("steps", None, 0).status == "failed"


def test_two_answers_are_randomised_response():
    release = privopt.solve("policy-response", privopt.policy_problem(["no", "yes"], epsilon=2))
    assert release.result.objective.value == pytest.approx(1 / (1 + math.e), rel=1e-2)


def test_estimates_the_answers_of_a_crowd():
    problem = privopt.policy_problem(["never", "seldom", "often"], epsilon=2)
    release = privopt.solve("policy-response", problem)
    draw = random.Random(3)
    truths = draw.choices(["never", "seldom", "often"], [6, 3, 1], k=400)
    estimated = release.estimate([release.sample(truth)[0] for truth in truths])
    assert estimated.low[0] <= 0.6 <= estimated.high[0]


def test_refuses_weights_that_are_no_integers(tmp_path):
    tables = {"question": {"answers": ["no", "yes"]}, "policy": {"kind": "steps"}, "privacy": {"epsilon": 2}}
    (tmp_path / "problem.toml").write_text(to_toml(tables))
    problem = PolicyResponse().load(load_problem(PolicyProblem, tmp_path / "problem.toml"), "problem.toml")
    contents = {"answers": ["no", "yes"], "weights": [[2**62, 2**62], [2**62, 2**62 + 0.5]]}
    (tmp_path / "answers.json").write_text(json.dumps(contents))
    with pytest.raises(InputError, match="answers and weights"):
        AnswerRelease.read(tmp_path, problem)
