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
    for name, found in registry().mechanisms.items()
    for method in found.spec.methods
    if found.spec.kind_of(method) != "none"
]

OF_METHODS = (*OF_SOLVING, "sensitivity", "own-scale")
"""What depends on how a method solves, and on what it adds noise to."""


def test_every_shipped_mechanism_is_here():
    names = {name for name, _ in CLAIMED}
    wanted = {"bd-mdp", "const-opt", "exponential", "fl-linear", "hierarchical-dp", "lr-geo", "optimal-lp"}
    assert names >= wanted | {"photo-censor", "planar-laplace"}


@pytest.mark.slow
@pytest.mark.parametrize(("mechanism", "method"), CLAIMED)
def test_check_passes_on_every_method_with_a_guarantee(program, mechanism, method):
    """A mechanism's default method is held to every check, the others to what a method decides."""
    default = method == registry().get(mechanism).spec.default.name
    only = [] if default else [word for check in OF_METHODS for word in ("--only", check)]
    done = program("check", mechanism, "--method", method, *only, "--json", timeout=1800, PRIVOPT_PROFILE="ci")
    results = json.loads(done.stdout)
    assert [(r["check"], r["reason"]) for r in results if r["status"] == "failed"] == []
    assert done.returncode == 0
    assert sum(r["status"] == "passed" for r in results) >= (12 if default else 2)


@pytest.mark.slow
def test_check_catches_the_chain_as_published(program):
    method = "cumulative-chain-as-published"
    done = program("check", "hierarchical-dp", "--method", method, "--json", timeout=1800, PRIVOPT_PROFILE="dev")
    failed = {r["check"]: r["reason"] for r in json.loads(done.stdout) if r["status"] == "failed"}
    assert done.returncode == 1
    assert "sensitivity" in failed
    assert "times the epsilon" in failed["sensitivity"]


def test_check_is_exit_code_2_for_names_that_nobody_has(program):
    for arguments in (["optimal-pl"], ["optimal-lp", "--method", "fulll"]):
        done = program("check", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert len(done.stderr.splitlines()) == 1


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
def installed(request, monkeypatch):
    """Its mechanism's name, in a registry that knows it."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    sys.modules.pop(request.param, None)
    [spec] = __import__(request.param).privopt_mechanisms()
    with using(registry().replace(Registered(spec=spec, plugin=request.param, version="1.0"))):
        yield spec.name


@pytest.mark.parametrize(
    ("installed", "how"),
    [
        ("subset_selection", BRIEF),
        *(pytest.param(name, "dev", marks=pytest.mark.slow) for name in PLUGINS),
    ],
    indirect=["installed"],
    ids=lambda value: getattr(value, "name", value),
)
def test_it_solves_verifies_and_passes_the_kit(installed, how, request, tmp_path):
    name = request.node.callspec.params["installed"]
    toml, files, held = PLUGINS[name]
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < MOST_LINES
    (tmp_path / "problem.toml").write_text(toml)
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    solve(installed, tmp_path / "problem.toml", tmp_path / "out")
    assert verify(tmp_path / "out").holds
    tried = subject(installed)
    results = run_checks(tried, [*OF_SOLVING, *sorted(held)] if how is BRIEF else None, how=how)
    tried.close()
    assert [result for result in results if result.status == "failed"] == []
    assert held <= {result.check for result in results if result.status == "passed"}
