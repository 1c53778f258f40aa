"""What is shipped passes its kit, many times, and so do the documentation's short plugins."""

import json
import sys
from pathlib import Path

import pytest
from helpers.kits import BRIEF, OF_SOLVING

from privopt.registry import Registered, registry, using
from privopt.run.solve import solve
from privopt.run.verify import verify
from privopt.testing import run_checks, subject

CLAIMED = [
    (name, method.name)
    for name, entry in registry().mechanisms.items()
    for method in entry.spec.methods
    if entry.spec.kind_of(method) != "none"
]

OF_METHODS = (*OF_SOLVING, "sensitivity", "own-scale")
"""What depends on how a method solves, and on what it adds noise to."""


def test_tries_every_shipped_mechanism():
    names = {name for name, _ in CLAIMED}
    required_names = {"bd-mdp", "const-opt", "exponential", "fl-linear", "hierarchical-dp", "lr-geo", "optimal-lp"}
    assert names >= required_names | {"photo-censor", "planar-laplace", "spherical-laplace"}


@pytest.mark.slow
@pytest.mark.parametrize(("mechanism", "method"), CLAIMED)
def test_check_passes_on_methods_with_a_guarantee(program, mechanism, method):
    """A mechanism's default method is held to every check, the others to what a method decides."""
    default = method == registry().get(mechanism).spec.default.name
    only = [] if default else [word for check in OF_METHODS for word in ("--only", check)]
    completed = program("check", mechanism, "--method", method, *only, "--json", timeout=1800, PRIVOPT_PROFILE="ci")
    results = json.loads(completed.stdout)
    assert [(r["check"], r["reason"]) for r in results if r["status"] == "failed"] == []
    assert completed.returncode == 0
    assert sum(r["status"] == "passed" for r in results) >= (12 if default else 2)


@pytest.mark.slow
def test_check_finds_the_published_chain(program):
    method = "cumulative-chain-as-published"
    completed = program("check", "hierarchical-dp", "--method", method, "--json", timeout=1800, PRIVOPT_PROFILE="dev")
    failures = {r["check"]: r["reason"] for r in json.loads(completed.stdout) if r["status"] == "failed"}
    assert completed.returncode == 1
    assert "sensitivity" in failures
    assert "times the epsilon" in failures["sensitivity"]


def test_check_exits_2_for_unknown_names(program):
    for arguments in (["optimal-pl"], ["optimal-lp", "--method", "fulll"]):
        completed = program("check", *arguments)
        assert (completed.returncode, completed.stdout) == (2, "")
        assert len(completed.stderr.splitlines()) == 1


EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
MOST_LINES = 80
"""Lines that such a file has fewer of."""

PLUGINS = {
    "noisy_max": (
        'votes = "v.csv"\nepsilon = 0.5\n',
        {"v.csv": "dish,votes\n1,7\n0,3\n"},
        {"own-scale", "epsilon-attack"},
    ),
    "subset_selection": ("answers = 4\nepsilon = 1.0\n", {}, {"epsilon-achieved", "distances", "sampler"}),
}


@pytest.fixture
def installed_name(request, monkeypatch):
    """Its mechanism's name, in a registry that knows it."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    sys.modules.pop(request.param, None)
    [spec] = __import__(request.param).privopt_mechanisms()
    with using(registry().replace(Registered(spec=spec, plugin=request.param, version="1.0"))):
        yield spec.name


@pytest.mark.parametrize(
    ("installed_name", "effort"),
    [
        ("subset_selection", BRIEF),
        *(pytest.param(name, "dev", marks=pytest.mark.slow) for name in PLUGINS),
    ],
    indirect=["installed_name"],
    ids=lambda value: getattr(value, "name", value),
)
def test_plugin_solves_verifies_and_passes(installed_name, effort, request, tmp_path):
    name = request.node.callspec.params["installed_name"]
    toml, files, valid_checks = PLUGINS[name]
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < MOST_LINES
    (tmp_path / "problem.toml").write_text(toml)
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    solve(installed_name, tmp_path / "problem.toml", tmp_path / "out")
    assert verify(tmp_path / "out").holds
    kit_subject = subject(installed_name)
    results = run_checks(kit_subject, [*OF_SOLVING, *sorted(valid_checks)] if effort is BRIEF else None, how=effort)
    kit_subject.close()
    assert [result for result in results if result.status == "failed"] == []
    assert valid_checks <= {result.check for result in results if result.status == "passed"}
