"""What a distribution brings that is not installed is said with its name."""

import re
from copy import copy

import pytest
from attrs import evolve
from click.testing import CliRunner

import privopt as po
from privopt.api.released import handle_of
from privopt.command.cli import cli
from privopt.errors import UsageError
from privopt.registry import registry, using
from privopt.registry.brought import BROUGHT_BY, brought
from privopt.registry.installed import Broken


@pytest.fixture
def alone():
    """Take away the commands and names of all plugins."""
    kept = {key: one for key, one in registry().others.items() if key[0] not in BROUGHT_BY}
    with using(evolve(registry(), others=kept)):
        yield


@pytest.mark.parametrize("category", BROUGHT_BY)
def test_the_table_says_who_brings_what(category):
    """All that the house's distributions bring, and nothing that has another home by now."""
    found = {name: one.plugin for name, one in registry().of(category).items()}
    assert {name: owner for name, owner in found.items() if owner.startswith("privopt-")} == BROUGHT_BY[category]


@pytest.mark.parametrize(("command", "owner"), BROUGHT_BY["command"].items())
def test_a_command_that_is_missing_names_its_distribution(alone, command, owner):
    done = CliRunner().invoke(cli, [command])
    assert done.exit_code == 2
    assert f"The command {command!r} comes with {owner}, which is not installed." in done.stderr


@pytest.mark.parametrize(("name", "owner"), BROUGHT_BY["name"].items())
def test_a_python_name_that_is_missing_names_its_distribution(alone, name, owner):
    with pytest.raises(AttributeError, match=f"it comes with {owner}, which is not installed"):
        getattr(po, name)


def test_checks_that_are_missing_are_said_not_to_be_tried(alone, monkeypatch):
    from privopt.testing import command

    core = {name: one for name, one in command.all_checks().items() if name not in BROUGHT_BY["check"]}
    monkeypatch.setattr(command, "all_checks", lambda: core)
    one = CliRunner().invoke(cli, ["check", "exponential", "--only", "reach"])
    assert one.exit_code == 2
    assert "the check 'reach' comes with privopt-estimate, which is not installed" in one.stderr
    monkeypatch.setattr(command, "check", lambda *_, **__: [])
    whole = CliRunner().invoke(cli, ["check", "exponential"])
    assert whole.exit_code == 0
    for name, owner in BROUGHT_BY["check"].items():
        assert f"not tried: the check {name!r} comes with {owner}, which is not installed" in whole.stderr


def test_a_name_that_nobody_brings_is_not_there(alone):
    with pytest.raises(AttributeError, match="it is not there"):
        po.nothing  # noqa: B018
    assert "No such command 'nothing'" in CliRunner().invoke(cli, ["nothing"]).stderr


def test_a_method_that_needs_a_distribution_names_it(solved_toy, alone):
    release = po.open(solved_toy)
    wanted = re.escape("release.estimate comes with privopt-estimate, which is not installed")
    with pytest.raises(UsageError, match=wanted):
        release.estimate({"report": ["a"]})


def test_a_handle_that_is_missing_names_its_distribution(solved_toy, monkeypatch):
    """The release is there with all that every release has, and can be copied."""
    monkeypatch.setattr("privopt.api.released.find_spec", lambda package: None)
    release = copy(po.open(solved_toy))
    assert release.sample("p1", 3)
    assert not hasattr(release, "_ipython_display_")
    wanted = "comes with privopt-tables, which is not installed"
    for ask in (
        lambda: release.apply({"id": ["p1"]}, id="id"),
        lambda: po.sql.register(None, release),
        lambda: release.sample(xy=(0.0, 0.0)),
    ):
        with pytest.raises(UsageError, match=wanted):
            ask()
    with pytest.raises(AttributeError, match=f"no attribute 'expr': what ReleasedMatrix has besides {wanted}"):
        release.expr("x", "y")


def test_a_handle_may_be_of_a_single_module(solved_toy, monkeypatch, tmp_path):
    source = "from privopt.api.released import OpenRelease\n\n\nclass Handle(OpenRelease):\n    pass\n"
    (tmp_path / "policy_of_others.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    opened = po.open(solved_toy).opened
    monkeypatch.setattr(type(opened.mechanism), "handle", "policy_of_others:Handle")
    assert type(handle_of(opened)).__name__ == "Handle"


def test_a_distribution_that_cannot_be_loaded_is_not_said_to_be_missing(alone):
    """What is broken elsewhere changes nothing of it."""
    others = [Broken(plugin=name, version="1", reason=f"{name}'s own") for name in ("acme", "privopt-ledger")]
    for broken, wanted in ((others[:1], "is not installed"), (others, "cannot be loaded: privopt-ledger's own")):
        with using(evolve(registry(), broken=tuple(broken))):
            with pytest.raises(UsageError, match=f"--ledger comes with privopt-ledger, which {wanted}"):
                brought("Charge", "--ledger")
            assert f"comes with privopt-ledger, which {wanted}" in CliRunner().invoke(cli, ["budget"]).stderr


def test_a_ledger_that_is_asked_for_names_its_distribution(solved_toy, alone, tmp_path):
    missing = "comes with privopt-ledger, which is not installed"
    solve = ["solve", "exponential", "p.toml", "--out", str(tmp_path / "o"), "--ledger", str(tmp_path / "l")]
    sample = ["sample", str(solved_toy), "--input", "a", "--ledger", str(tmp_path / "l"), "--subject", "anna"]
    for command in (solve, sample):
        done = CliRunner().invoke(cli, command)
        assert (done.exit_code, done.stdout, f"--ledger {missing}" in done.stderr) == (2, "", True), done.stderr
    with pytest.raises(UsageError, match=f"sample: ledger {missing}"):
        po.open(solved_toy).sample("a", ledger=tmp_path / "l", subject="anna")
