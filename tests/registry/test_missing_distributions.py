"""What a distribution brings that is not installed is said with its name."""

import re

import pytest
from attrs import evolve
from click.testing import CliRunner

import privopt as po
from privopt.command.cli import cli
from privopt.errors import UsageError
from privopt.registry import registry, using
from privopt.registry.brought import BROUGHT_BY


@pytest.fixture
def alone():
    """Take away the commands and names of all plugins."""
    kept = {key: one for key, one in registry().others.items() if key[0] not in BROUGHT_BY}
    with using(evolve(registry(), others=kept)):
        yield


@pytest.mark.parametrize(("command", "owner"), BROUGHT_BY["command"].items())
def test_a_command_that_is_missing_names_its_distribution(alone, command, owner):
    if command in cli.commands:
        pytest.skip("still the core's")
    done = CliRunner().invoke(cli, [command])
    assert done.exit_code == 2
    assert f"The command {command!r} comes with {owner}, which is not installed." in done.stderr


@pytest.mark.parametrize(("name", "owner"), BROUGHT_BY["name"].items())
def test_a_python_name_that_is_missing_names_its_distribution(alone, name, owner):
    with pytest.raises(AttributeError, match=f"it comes with {owner}, which is not installed"):
        getattr(po, name)


def test_a_name_that_nobody_brings_is_not_there(alone):
    with pytest.raises(AttributeError, match="it is not there"):
        po.nothing  # noqa: B018
    assert "No such command 'nothing'" in CliRunner().invoke(cli, ["nothing"]).stderr


def test_a_method_that_needs_a_distribution_names_it(solved_toy, alone):
    release = po.open(solved_toy)
    wanted = re.escape("release.estimate comes with privopt-estimate, which is not installed")
    with pytest.raises(UsageError, match=wanted):
        release.estimate({"report": ["a"]})
