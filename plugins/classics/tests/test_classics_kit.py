"""The conformance kit on the classics, and laws that it must refuse."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path

import pytest
from helpers.kits import BRIEF, OF_SOLVING, PLANTED

from privopt.errors import InputError
from privopt.report.write_report import write_report
from privopt.run.solve import solve
from privopt.run.verify import load_release, verify
from privopt.testing import conformance, run_check, subject
from privopt_classics.permute_and_flip import PermuteAndFlip
from privopt_classics.randomised_response import RandomisedResponse, ResponseLaw

EXAMPLES = Path(__file__).parents[1] / "examples"
LAWS = (*OF_SOLVING, "channel", "fresh-samples", "round-trip", "use-verifies", "loss-monotone", "bad-input")
CHOICES = (*OF_SOLVING, "exact-epsilon", "drawn-as-stated", "round-trip", "order-leak", "reordering", "own-scale")

test_randomised_response = conformance("randomised-response", how=BRIEF)
test_geometric = conformance("geometric", checks=LAWS, how=BRIEF)
test_unary_encoding = conformance("unary-encoding", checks=LAWS, how=BRIEF)
test_subset_selection = conformance("subset-selection", checks=LAWS, how=BRIEF)
test_hadamard_response = conformance("hadamard-response", checks=LAWS, how=BRIEF)
test_staircase = conformance("staircase", checks=LAWS, how=BRIEF)
test_piecewise = conformance("piecewise", checks=LAWS, how=BRIEF)
test_permute_and_flip = conformance("permute-and-flip", checks=CHOICES, how=BRIEF)
test_noisy_max = conformance("noisy-max", checks=CHOICES, how=BRIEF)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_examples_are_solved_and_verified(path, tmp_path):
    solve(path.stem, path, tmp_path / "out")
    assert verify(tmp_path / "out").verdict == "declared"
    release = load_release(tmp_path / "out").release
    if "privopt sample out" in path.read_text():
        secret = path.read_text().partition("--input ")[2].split()[0]
        outputs = None if (channel := release.channel()) is None else set(channel.outputs)
        assert outputs is None or set(release.sample(secret, 20)) <= outputs


def test_larger_odds_are_refused(tmp_path):
    solve("randomised-response", EXAMPLES / "randomised-response.toml", tmp_path / "out")
    law = tmp_path / "out" / "law.txt"
    odds = Fraction(law.read_text())
    release = load_release(tmp_path / "out").release
    constraint = RandomisedResponse().privacy(release.problem, "closed-form")
    assert constraint.measure(release).holds
    for forged_odds in (odds + Fraction(1, 2**62), 1 / odds):
        assert not constraint.measure(ResponseLaw(problem=release.problem, parameter=forged_odds)).holds
    law.write_text("1e30000000\n")
    with pytest.raises(InputError, match="one positive rational number"):
        ResponseLaw.read(tmp_path / "out", release.problem)
    assert not verify(tmp_path / "out").holds


def test_reports_say_between_what_the_guarantee_is(tmp_path):
    sentences = {
        "subset-selection": "whatever is published is at most 2.8 times as likely under one answer as under another.",
        "staircase": "whether or not one person is in the data, every result is at most",
        "permute-and-flip": "whether or not one person is in the data, every result is at most",
    }
    for name, sentence in sentences.items():
        folder = solve(name, EXAMPLES / f"{name}.toml", tmp_path / name).folder
        page = write_report(folder).read_text("utf-8")
        assert sentence in page
        assert ("<dt>published</dt><dd>1 <small>choice</small>" in page) == (name == "permute-and-flip")


@pytest.mark.parametrize(
    "names", [["tea\rmilk", "coffee"], ["tea\u2028", "coffee"], ["tea ", "coffee"], ["", "coffee"], ["tea", "tea"]]
)
@pytest.mark.parametrize("mechanism", ["noisy-max", "randomised-response"])
def test_names_that_are_not_one_line_each_are_refused(mechanism, names, tmp_path):
    """Otherwise whether a choice can be written and read back depends on the choice that is drawn."""
    problem = (EXAMPLES / f"{mechanism}.toml").read_text("utf-8")
    (tmp_path / "problem.toml").write_text(re.sub(r"\[\"(tea|walk).*\]", lambda _: json.dumps(names), problem), "utf-8")
    (tmp_path / "scores.csv").write_text("choice,score\ntea,1\n")
    with pytest.raises(InputError, match="two or more different names"):
        solve(mechanism, tmp_path / "problem.toml", tmp_path / "out")


def test_choice_with_two_scores_is_refused(tmp_path):
    (tmp_path / "problem.toml").write_bytes((EXAMPLES / "noisy-max.toml").read_bytes())
    (tmp_path / "scores.csv").write_text("choice,score\ntea,12\ncoffee,15\nwater,3\ntea,90\n")
    with pytest.raises(InputError, match="each of the choices once") as error:
        solve("noisy-max", tmp_path / "problem.toml", tmp_path / "out")
    assert "90" not in str(error.value)


class Louder(ResponseLaw):
    """Tells the truth as if the odds were squared, and states the law of the odds."""

    @property
    def truth_probability(self):
        odds = self.parameter**2
        return odds / (odds + self.size - 1)


class LouderResponse(RandomisedResponse):
    release_class = Louder


class HastyFlip(PermuteAndFlip):
    """Flips coins of twice the rate, and states the right one."""

    def choose(self, scores, rate, seed):
        index, _ = super().choose(scores, 2 * rate, seed)
        return index, rate


@pytest.mark.parametrize(
    ("mechanism", "guarantee", "check"),
    [(LouderResponse, "local-dp", "channel"), (HastyFlip, "pure-dp", "drawn-as-stated")],
)
def test_kit_finds_planted_faults(mechanism, guarantee, check):
    planted = subject(mechanism, guarantee=guarantee)
    result = run_check(check, planted, how=PLANTED)
    planted.close()
    assert result.status == "failed"
