"""``privopt new``: what it writes is a plugin that solves, certifies and passes the kit, and is short."""

import math
import sys
import tomllib
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import yaml
from attrs import evolve
from helpers.command import run
from helpers.kits import BRIEF
from helpers.mended_sums import mend
from helpers.mentions import assert_mentions

from privopt.command.new import new_plugin
from privopt.errors import InputError, UsageError
from privopt.registry import Registered, registry, using
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify
from privopt.testing import run_checks, subject
from privopt.testing.command import judge_skips


@pytest.fixture
def acme(request, tmp_path, monkeypatch):
    """Make a new project, importable and registered."""
    folder = new_plugin("acme-mech", tmp_path, getattr(request, "param", "matrix"))
    monkeypatch.syspath_prepend(str(folder / "src"))
    for name in ("acme_mech", "acme_mech.mechanism", "acme_mech.kit"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import acme_mech

    [spec] = acme_mech.privopt_mechanisms()
    with using(registry().replace(Registered(spec=spec, plugin="acme-mech", version="0.1.0"))):
        yield folder


def test_new_plugin_solves_to_a_proved_optimum(acme, tmp_path):
    for solver in ("cbc", "highs"):
        result = solve("acme-mech", acme / "example.toml", tmp_path / solver, Options(solver=solver)).result
        assert result.status == "optimal"
        assert verify(tmp_path / solver).complaints == ()


TRAITS = {
    "matrix": {"matrix", "sampler", "odds"},
    "noise": {"noise", "odds"},
    "selection": {"noise", "odds"},
    "sampler": {"sampler", "odds"},
}
ATTACKED = {"matrix": "epsilon-achieved", "noise": "own-scale", "selection": "exact-epsilon", "sampler": "channel"}


FEW = evolve(BRIEF, draws=500)
"""With all their problems and draws tests/third_party tries them, where each is installed."""


def test_tries_every_kind():
    assert set(TRAITS) == set(registry().of("template"))


@pytest.mark.parametrize(
    "acme",
    [pytest.param(kind, marks=[pytest.mark.slow] * (kind != "sampler")) for kind in TRAITS],
    indirect=True,
)
def test_new_plugin_passes_the_kit(acme, request):
    kind = request.node.callspec.params["acme"]
    kit_subject = subject("acme-mech")
    # as --fail-on-skip does
    results = {result.check: result for result in judge_skips(run_checks(kit_subject, how=FEW))}
    kit_subject.close()
    assert kit_subject.traits == TRAITS[kind]
    assert [result for result in results.values() if result.status == "failed"] == []
    assert results[ATTACKED[kind]].status == "passed"


@pytest.mark.parametrize("acme", TRAITS, indirect=True)
def test_new_plugin_solves_and_verifies(acme, request, tmp_path):
    solve("acme-mech", acme / "example.toml", tmp_path / "out")
    assert verify(tmp_path / "out").holds
    assert len((acme / "src/acme_mech/mechanism.py").read_text().splitlines()) < 165


@pytest.mark.parametrize("acme", ["noise"], indirect=True)
def test_noisy_count_handles_zero_and_wide_noise(acme, tmp_path):
    (acme / "people.txt").write_text("")
    solve("acme-mech", acme / "example.toml", tmp_path / "out")
    assert verify(tmp_path / "out").holds
    problem = acme / "example.toml"
    problem.write_text(problem.read_text().replace("epsilon = 0.5", "epsilon = 1e-300"))
    with pytest.raises(UsageError, match=r"at least 2.78e-17.*1e-300"):
        solve("acme-mech", problem, tmp_path / "wide")
    assert not (tmp_path / "wide").exists()


@pytest.mark.parametrize("acme", ["selection"], indirect=True)
def test_selection_keeps_epsilon_in_integers(acme):
    from acme_mech.mechanism import KEPT, rounding, weights

    chance = np.random.default_rng(5)
    cases = product(["least", 1e-3, 1.0, 20.0, 1e5], [(2, 99), (2, 1000), (5, 99), (40, 10**8)])
    for epsilon, (number, max_votes) in cases:
        allowed_epsilon = rounding(number) / (1 - KEPT) if epsilon == "least" else epsilon
        for votes in [np.array([85] + [0] * (number - 1)), *chance.integers(0, max_votes, (20, number))]:
            neighbour_votes = votes + np.eye(number, dtype=int)[chance.integers(number)]
            for weight, neighbour_weight in zip(
                *(weights(v, Fraction(allowed_epsilon)).tolist() for v in (votes, neighbour_votes)), strict=True
            ):
                assert abs(math.log1p((neighbour_weight - weight) / weight)) <= allowed_epsilon, (
                    votes,
                    neighbour_votes,
                )


@pytest.mark.parametrize("acme", ["selection"], indirect=True)
def test_selection_refuses_tiny_epsilon(acme, tmp_path):
    problem = acme / "example.toml"
    problem.write_text(problem.read_text().replace("epsilon = 1.0", "epsilon = 1e-7"))
    with pytest.raises(InputError, match=r"privacy.epsilon: .*6.\d+e-07.*1e-07"):
        solve("acme-mech", problem, tmp_path / "out")


@pytest.mark.parametrize("acme", ["noise", "sampler"], indirect=True)
def test_refuses_impossible_scales(acme, tmp_path):
    solve("acme-mech", acme / "example.toml", tmp_path / "out")
    [path] = (tmp_path / "out").glob("*.txt")
    number = path.read_text().split()[0]
    for scale_text in ("1e30000000", "1e9999999999", "0", "1/0", "-1", "1" + "0" * 2000):
        path.write_text(f"{number} {scale_text}\n")
        with pytest.raises(InputError, match=rf"{path.name}: expected .*, got '-?\d+ "):
            verify(mend(tmp_path / "out"))


def test_refuses_name_of_an_installed_package(tmp_path):
    with pytest.raises(UsageError, match="a Python package"):
        new_plugin("numpy", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_name_of_a_data_folder_is_free(tmp_path, monkeypatch):
    (tmp_path / "line_mech").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert new_plugin("line-mech", tmp_path).is_dir()


def test_names_unknown_kinds(tmp_path):
    completed = run("new", "acme-mech", "--kind", "matrx", "--into", str(tmp_path))
    assert completed.exit_code == 2
    assert "matrix" in completed.stderr
    assert list(tmp_path.iterdir()) == []


def test_reads_its_own_table_and_names_faults(acme, tmp_path):
    text = (acme / "example.toml").read_text()
    assert "penalty = 0.0" in text
    (acme / "example.toml").write_text(text.replace("penalty = 0.0", "penalty = -1"))
    completed = run("solve", "acme-mech", str(acme / "example.toml"), "--out", str(tmp_path / "out"))
    assert completed.exit_code == 2
    assert_mentions(completed.stderr, "acme-mech.penalty", "at least 0", "got -1")


def test_new_plugin_is_short_and_complete(tmp_path):
    folder = new_plugin("acme-mech", tmp_path)
    assert len((folder / "src/acme_mech/mechanism.py").read_text().splitlines()) < 60
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["privopt"] == {"acme-mech": "acme_mech"}
    assert [path.name for path in tmp_path.iterdir()] == ["acme-mech"]


def test_new_plugin_has_the_workflow_of_the_guide(tmp_path):
    text = (new_plugin("acme-mech", tmp_path) / ".github/workflows/privacy.yml").read_text()
    guide = (Path(__file__).parents[2] / "docs/guide/ci.md").read_text()
    assert f"~~~yaml\n{text}~~~" in guide
    job = yaml.safe_load(text)["jobs"]["kit"]
    (setup,) = [step for step in job["steps"] if "setup-python" in step.get("uses", "")]
    assert setup["with"]["cache"] == "pip"
    commands = [step["run"].strip() for step in job["steps"] if "run" in step]
    assert [command.split("$")[0] for command in commands] == [
        "python -m pip install --find-links wheels . pytest",
        "python -m pytest --junitxml junit.xml",
        "privopt check acme-mech --fail-on-skip --json --seed ",
    ]
    # The same three, for other systems.
    assert "\n".join([*commands[:2], "privopt check acme-mech --fail-on-skip --json > kit.json"]) in guide


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("Acme", "lower-case"),
        ("acme_mech", "lower-case"),
        ("class", "Python package"),
        ("json", "Python package"),
        ("privopt", "Python package"),
        ("optimal-lp", "privopt-metric-dp already"),
        ("../acme", "lower-case"),
        ("", "lower-case"),
    ],
)
def test_refuses_invalid_names(tmp_path, name, word):
    with pytest.raises(UsageError, match=word):
        new_plugin(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_keeps_existing_files(tmp_path):
    new_plugin("acme-mech", tmp_path)
    with pytest.raises(UsageError, match="exists already"):
        new_plugin("acme-mech", tmp_path)
    with pytest.raises(UsageError, match="does not exist"):
        new_plugin("acme-mech", tmp_path / "nowhere")
