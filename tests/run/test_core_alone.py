"""The core works with a toy mechanism of its own and no plugin: solve, verify, forgeries, report and ledger."""

import json

import pytest
from click.testing import CliRunner
from helpers.core_toy import COUNTS, NAME, core_alone, write_counts

import privopt as po
from privopt.command.cli import cli
from privopt.errors import InputError, UsageError
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify import verify


@pytest.fixture(autouse=True)
def core():
    with core_alone() as registered:
        yield registered


@pytest.fixture
def solved(tmp_path):
    return solve(NAME, write_counts(tmp_path / "problem"), tmp_path / "out").folder


def test_no_plugin_is_registered(core):
    assert {entry.plugin for entry in core.entries.values()} == {"privopt"}
    assert list(core.mechanisms) == [NAME]


def test_a_release_is_solved_and_verified(solved):
    verified = verify(solved)
    assert (verified.holds, verified.verdict) == (True, "declared")
    assert json.loads((solved / "result.json").read_text())["guarantee"]["kind"] == "pure-dp"
    assert not (solved / "problem" / "people.csv").exists()


@pytest.mark.parametrize("file", [COUNTS, "scale.txt", "result.json", "problem/counts.toml"])
def test_a_changed_file_is_found(solved, file):
    path = solved / file
    path.write_bytes(path.read_bytes() + b" ")
    assert not verify(solved).holds


def test_a_seeded_release_is_not_private(tmp_path):
    folder = solve(NAME, write_counts(tmp_path / "problem"), tmp_path / "out", Options(seed=1)).folder
    assert verify(folder).verdict == "none"


@pytest.mark.parametrize(("rows", "where"), [("north,-1\n", "row 2"), ("north,many\n", "column people"), ("", "row")])
def test_faults_of_the_table_are_named_before_anything_is_written(tmp_path, rows, where):
    with pytest.raises(InputError, match=where):
        solve(NAME, write_counts(tmp_path / "problem", rows=rows), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_commands_work_on_it(solved, tmp_path):
    for arguments in (["list"], ["describe", NAME], ["verify", str(solved)], ["report", str(solved)]):
        completed = CliRunner().invoke(cli, arguments)
        assert completed.exit_code == 0, completed.output
    for arguments in (
        ["plan", NAME, str(tmp_path / "problem" / "counts.toml")],
        ["sample", str(solved), "--input", "a"],
    ):
        completed = CliRunner().invoke(cli, arguments)
        assert (completed.exit_code, completed.stdout) == (2, ""), completed.output


def test_a_ledger_is_charged_without_any_plugin(tmp_path):
    ledger, problem = tmp_path / "ledger", write_counts(tmp_path / "problem")
    arguments = ["solve", NAME, str(problem), "--out", str(tmp_path / "out"), "--ledger", str(ledger), "--quiet"]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    assert "people.csv" in CliRunner().invoke(cli, ["budget", str(ledger)]).stdout


def test_its_handle_is_a_plain_release(solved):
    release = po.open(solved)
    assert type(release) is po.OpenRelease
    with pytest.raises(UsageError, match="toy-counts"):
        release.apply({"id": ["north"]}, id="id")
