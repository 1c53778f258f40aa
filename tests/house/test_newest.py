"""What ``make newest`` runs with the newest versions."""

import importlib.util
import re
import sys
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


def test_runs_every_command_with_json(newest):
    context = click.Context(cli)
    commands = {name: cli.get_command(context, name) for name in cli.list_commands(context)}  # those of plugins too
    commands_with_json = {name for name, command in commands.items() if any("--json" in p.opts for p in command.params)}
    assert {line.split()[0] for line in newest.COMMANDS} == commands_with_json
    assert all("--json" in line.split() for line in newest.COMMANDS)


def test_every_python_of_the_classifiers_is_tried(monkeypatch):
    monkeypatch.syspath_prepend(CI)
    import pythons

    for path in [CI.parent / "pyproject.toml", *CI.parent.glob("plugins/*/pyproject.toml")]:
        assert tuple(re.findall(r"Python :: (3\.\d+)", path.read_text("utf-8"))) == pythons.VERSIONS, path


def test_finds_this_python_and_none_that_is_not_there(monkeypatch):
    monkeypatch.syspath_prepend(CI)
    import pythons

    version = ".".join(map(str, sys.version_info[:2]))
    assert pythons.find_interpreter(version) == Path(sys.executable)
    assert pythons.find_interpreter("3.99") is None


def test_refuses_banner_before_the_document(newest):
    newest.check_json("list --json", "[]\n")
    with pytest.raises(SystemExit, match="must be JSON"):
        newest.check_json("list --json", "Running HiGHS 1.16.0\n[]\n")
