"""``privopt check`` on everything that is shipped: it passes on what has a guarantee, and catches what has none.

The whole of it takes many minutes; each plugin's own default tests hold its quick methods to the kit at effort dev.
"""

import json

import pytest

from privopt.registry import registry

CLAIMED = [
    (name, method.name)
    for name, found in registry().mechanisms.items()
    for method in found.spec.methods
    if found.spec.kind_of(method) != "none"
]


def test_every_shipped_mechanism_is_here():
    names = {name for name, _ in CLAIMED}
    wanted = {"bd-mdp", "const-opt", "exponential", "fl-linear", "hierarchical-dp", "lr-geo", "optimal-lp"}
    assert names >= wanted | {"photo-censor", "planar-laplace"}


@pytest.mark.slow
@pytest.mark.parametrize(("mechanism", "method"), CLAIMED)
def test_check_passes_on_every_method_with_a_guarantee(privopt, mechanism, method):
    done = privopt("check", mechanism, "--method", method, "--json", timeout=1800, PRIVOPT_PROFILE="ci")
    results = json.loads(done.stdout)
    assert [(r["check"], r["reason"]) for r in results if r["status"] == "failed"] == []
    assert done.returncode == 0
    assert sum(r["status"] == "passed" for r in results) >= 12


@pytest.mark.slow
def test_check_catches_the_chain_as_published(privopt):
    method = "cumulative-chain-as-published"
    done = privopt("check", "hierarchical-dp", "--method", method, "--json", timeout=1800, PRIVOPT_PROFILE="dev")
    failed = {r["check"]: r["reason"] for r in json.loads(done.stdout) if r["status"] == "failed"}
    assert done.returncode == 1
    assert "sensitivity" in failed
    assert "times the epsilon" in failed["sensitivity"]


def test_check_is_exit_code_2_for_names_that_nobody_has(privopt):
    for arguments in (["optimal-pl"], ["optimal-lp", "--method", "fulll"]):
        done = privopt("check", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert len(done.stderr.splitlines()) == 1
