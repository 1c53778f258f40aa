"""The core works with a toy mechanism of its own and no plugin: solve, verify, forgeries, report and ledger."""

import json

import pytest
from click.testing import CliRunner
from helpers.core_toy import COUNTS, NAME, core_alone, write_counts

import privopt as po
from privopt.command.cli import cli
from privopt.errors import InputError, UsageError
from privopt.registry.missing import CORE
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify


@pytest.fixture(autouse=True)
def core():
    with core_alone() as registered:
        yield registered


@pytest.fixture
def solved_folder(tmp_path):
    return solve(NAME, write_counts(tmp_path / "problem"), tmp_path / "out").folder


def test_no_plugin_is_registered(core):
    assert {entry.plugin for entry in core.entries.values()} == {CORE}
    assert list(core.mechanisms) == [NAME]


def test_release_is_solved_and_verified(solved_folder):
    verified = verify(solved_folder)
    assert (verified.holds, verified.verdict) == (True, "declared")
    assert json.loads((solved_folder / "result.json").read_text())["guarantee"]["kind"] == "pure-dp"
    assert not (solved_folder / "problem" / "people.csv").exists()


@pytest.mark.parametrize("file", [COUNTS, "scale.txt", "result.json", "problem/counts.toml"])
def test_verify_finds_changed_files(solved_folder, file):
    path = solved_folder / file
    path.write_bytes(path.read_bytes() + b" ")
    assert not verify(solved_folder).holds


def test_seeded_release_is_not_private(tmp_path):
    folder = solve(NAME, write_counts(tmp_path / "problem"), tmp_path / "out", Options(seed=1)).folder
    assert verify(folder).verdict == "none"


@pytest.mark.parametrize(
    ("rows", "location"), [("north,-1\n", "row 2"), ("north,many\n", "column people"), ("", "row")]
)
def test_names_table_faults_and_writes_nothing(tmp_path, rows, location):
    with pytest.raises(InputError, match=location):
        solve(NAME, write_counts(tmp_path / "problem", rows=rows), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_commands_work_on_a_core_release(solved_folder, tmp_path):
    for arguments in (["list"], ["describe", NAME], ["verify", str(solved_folder)], ["report", str(solved_folder)]):
        completed = CliRunner().invoke(cli, arguments)
        assert completed.exit_code == 0, completed.output
    for arguments in (
        ["plan", NAME, str(tmp_path / "problem" / "counts.toml")],
        ["sample", str(solved_folder), "--input", "a"],
    ):
        completed = CliRunner().invoke(cli, arguments)
        assert (completed.exit_code, completed.stdout) == (2, ""), completed.output


def test_charges_a_ledger_without_plugins(tmp_path):
    ledger, problem = tmp_path / "ledger", write_counts(tmp_path / "problem")
    arguments = ["solve", NAME, str(problem), "--out", str(tmp_path / "out"), "--ledger", str(ledger), "--quiet"]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    assert "people.csv" in CliRunner().invoke(cli, ["budget", str(ledger)]).stdout


def test_handle_is_a_plain_release(solved_folder):
    release = po.open(solved_folder)
    assert type(release) is po.OpenRelease
    with pytest.raises(UsageError, match="toy-counts"):
        release.apply({"id": ["north"]}, id="id")
