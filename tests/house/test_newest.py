"""What ``make newest`` runs with the newest versions."""

import importlib.util
from pathlib import Path

import click
import pytest

from privopt.command.cli import cli

CI = Path(__file__).parents[2] / ".ci"


@pytest.fixture
def newest(monkeypatch):
    monkeypatch.syspath_prepend(CI)
    spec = importlib.util.spec_from_file_location("newest", CI / "newest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_command_that_has_json_is_run(newest):
    context = click.Context(cli)
    commands = {name: cli.get_command(context, name) for name in cli.list_commands(context)}  # those of plugins too
    wanted = {name for name, command in commands.items() if any("--json" in p.opts for p in command.params)}
    assert {line.split()[0] for line in newest.COMMANDS} == wanted
    assert all("--json" in line.split() for line in newest.COMMANDS)


def test_a_banner_before_the_document_is_refused(newest):
    newest.check_json("list --json", "[]\n")
    with pytest.raises(SystemExit, match="standard output must be JSON"):
        newest.check_json("list --json", "Running HiGHS 1.16.0\n[]\n")
