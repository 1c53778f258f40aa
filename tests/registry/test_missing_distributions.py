"""What is missing is said with the distributions of the project that are not installed."""

import re
from copy import copy
from importlib.metadata import requires

import pytest
from attrs import evolve
from click.testing import CliRunner
from helpers.mentions import assert_mentions

import privopt as po
from privopt.api.released import OpenRelease
from privopt.command.cli import cli
from privopt.errors import RegistryError, UsageError
from privopt.registry import missing, registry, using
from privopt.registry.installed import Broken

MISSING = "not installed: privopt-clients, privopt-tables"


@pytest.fixture
def core_alone(monkeypatch):
    """Take away the commands, names and checks of plugins, and two distributions."""
    entries = {key: entry for key, entry in registry().entries.items() if key[0] not in ("command", "name", "check")}
    monkeypatch.setattr(missing, "_is_installed", lambda name: name not in ("privopt-clients", "privopt-tables"))
    with using(evolve(registry(), entries=entries, handle_hook=None)):
        yield


def test_extra_lists_every_distribution():
    plugins = {entry.plugin for entry in registry().entries.values() if entry.plugin.startswith("privopt-")} - {
        "privopt-core"
    }
    rows = [row for row in requires("privopt-core") or () if "extra == 'all'" in row]
    assert {re.match(r"[\w-]+", row)[0] for row in rows} == plugins == set(missing.project_distributions())
    assert missing.describe_missing_distributions() == []


@pytest.mark.parametrize("command", ["apply", "export", "nothing"])
def test_unknown_command_names_missing_distributions(core_alone, command):
    completed = CliRunner().invoke(cli, [command])
    assert completed.exit_code == 2
    assert f"No such command {command!r}; {MISSING}" in " ".join(completed.stderr.split())


def test_unknown_name_names_missing_distributions(core_alone):
    with pytest.raises(AttributeError, match=re.escape(f"no attribute 'records'; {MISSING}")):
        po.records  # noqa: B018


def test_names_untried_checks_of_missing_distributions(core_alone, monkeypatch):
    from privopt.testing import command

    unknown = CliRunner().invoke(cli, ["check", "exponential", "--only", "no-such-check"])
    assert (unknown.exit_code, MISSING in unknown.stderr) == (2, True)
    monkeypatch.setattr(command, "check", lambda *_, **__: [])
    completed = CliRunner().invoke(cli, ["check", "exponential"])
    assert (completed.exit_code, MISSING in completed.stderr) == (0, True)


def test_unknown_name_mentions_nothing_if_complete():
    assert "'nothing'." in CliRunner().invoke(cli, ["nothing"]).stderr
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        po.nothing  # noqa: B018


def test_names_unloadable_distribution_with_reason(core_alone):
    broken_plugins = tuple(
        Broken(plugin=name, version="1", reason="no licence") for name in ("acme", "privopt-clients")
    )
    with using(evolve(registry(), broken=broken_plugins)):
        stderr = CliRunner().invoke(cli, ["export"]).stderr
    assert_mentions(" ".join(stderr.split()), "privopt-clients", "no licence")


def test_release_without_handle_names_what_is_missing(solved_toy, core_alone):
    """The release has what every release has, and can be copied."""
    release = copy(po.open(solved_toy))
    assert type(release) is OpenRelease
    assert release.sample("p1", 3)
    for use in (
        lambda: release.apply({"id": ["p1"]}, id="id"),
        lambda: po.sql.register(None, release),
        lambda: release.sample(xy=(0.0, 0.0)),
    ):
        with pytest.raises(UsageError, match=re.escape(MISSING)):
            use()


def test_first_plugin_with_a_handle_gives_it(solved_toy):
    class Handle(OpenRelease):
        pass

    for handle_hook, handle_class in ((lambda release: Handle, Handle), (lambda release: None, OpenRelease)):
        with using(evolve(registry(), handle_hook=handle_hook)):
            assert type(po.open(solved_toy)) is handle_class
    for value in (dict, "privopt.api.released:OpenRelease"):
        with (
            using(evolve(registry(), handle_hook=lambda release, value=value: value)),
            pytest.raises(RegistryError, match="privopt_handle"),
        ):
            po.open(solved_toy)
