"""Using a folder checks it first: what does not hold is refused, what was checked is remembered."""

import json
import os
import shutil

import pytest
from helpers.mended_sums import edit

from privopt.errors import DoesNotHoldError
from privopt.report.write_report import write_figures, write_report
from privopt.run import verify as module
from privopt.run import verify as remembered
from privopt.run.audit import audit
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import open_verified, verify


@pytest.fixture
def forged_folder(solved_toy, tmp_path):
    """Return a DIR whose epsilon was made smaller, with sums to fit."""
    folder = shutil.copytree(solved_toy, tmp_path / "forged")
    return edit(folder, lambda r: r["guarantee"].update(epsilon=0.1, epsilon_text="0.1"))


@pytest.mark.parametrize(
    "use", [audit, write_report, open_verified, lambda folder: write_figures(folder, folder.parent / "figures")]
)
def test_every_use_refuses_a_forged_folder(forged_folder, use):
    with pytest.raises(DoesNotHoldError, match=r"guarantee\.epsilon"):
        use(forged_folder)
    assert not (forged_folder / "report.html").exists()


def test_command_exits_1_and_draws_nothing(forged_folder, privopt):
    for command in (["sample", forged_folder, "--input", "p1"], ["audit", forged_folder], ["report", forged_folder]):
        completed = privopt(*command)
        assert (completed.returncode, completed.stdout) == (1, "")
        assert "does not hold" in completed.stderr


@pytest.fixture
def count(monkeypatch, tmp_path):
    """How often a folder was really checked, with an empty memory."""
    monkeypatch.setenv("PRIVOPT_CACHE", str(tmp_path / "memory"))
    calls = []
    original_verify = module.verify
    monkeypatch.setattr(
        module, "verify", lambda folder, **options: calls.append(folder) or original_verify(folder, **options)
    )
    return calls


def test_valid_folder_is_checked_once_until_changed(solved_toy, tmp_path, count):
    folder = tmp_path / "out"
    shutil.copytree(solved_toy, folder)
    assert open_verified(folder).verdict == "proved"
    assert open_verified(folder).verdict == "proved"
    moved_folder = folder.rename(tmp_path / "moved")
    assert open_verified(moved_folder).verdict == "proved"
    assert len(count) == 1
    (moved_folder / "problem" / "prior.csv").write_text("id,p\n")
    with pytest.raises(DoesNotHoldError, match=r"prior\.csv: changed"):
        open_verified(moved_folder)


def test_another_version_checks_again(solved_toy, count, monkeypatch):
    open_verified(solved_toy)
    monkeypatch.setattr(remembered, "VERSION", "0.0.1")
    open_verified(solved_toy)
    assert len(count) == 2


def test_another_plugin_version_checks_again(solved_toy, count, monkeypatch):
    from attrs import evolve

    from privopt.registry import registry

    open_verified(solved_toy)
    installed = registry()
    newer = [evolve(kind, version="9.9") for kind in installed.of("distance").values()]
    monkeypatch.setattr(remembered, "registry", lambda: installed.replace(*newer))
    open_verified(solved_toy)
    assert len(count) == 2


def test_foreign_memory_is_not_believed(solved_toy, tmp_path, count, monkeypatch):
    assert open_verified(solved_toy).verdict == "proved"
    (entry,) = (tmp_path / "memory" / "held").iterdir()
    with monkeypatch.context() as other_user:
        other_user.setattr(remembered.os, "geteuid", lambda: 12345)
        assert remembered.recall(solved_toy) is None
    entry.unlink()
    os.mkfifo(entry)
    assert open_verified(solved_toy).verdict == "proved"
    assert len(count) == 2


def test_unusable_memory_only_costs_time(solved_toy, tmp_path, count, monkeypatch):
    (tmp_path / "memory").write_text("no folder")
    assert [open_verified(solved_toy).verdict for _ in range(2)] == ["proved"] * 2
    assert len(count) == 2


def test_memory_is_private_and_repairs_itself(solved_toy, tmp_path, count):
    assert open_verified(solved_toy).verdict == "proved"
    memory_folder = tmp_path / "memory" / "held"
    assert memory_folder.stat().st_mode & 0o777 == 0o700
    for path in memory_folder.iterdir():
        path.write_text("certainly")
    assert open_verified(solved_toy).verdict == "proved"
    assert len(count) == 2


def test_seeded_is_marked_equally_everywhere(tmp_path, privopt, example):
    from helpers.examples import EXAMPLES

    problem = EXAMPLES["hierarchical-dp"].write(tmp_path / "problem")
    completed = privopt("solve", "hierarchical-dp", problem, "--out", tmp_path / "out", "--seed", "3")
    assert "seeded, not private" in completed.stderr
    for command in ("verify", "audit", "report"):
        completed = privopt(command, tmp_path / "out")
        assert "seeded, not private" in completed.stdout + completed.stderr
        assert completed.returncode == (6 if command == "verify" else 0)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "seeded, not private" in page
    assert '"badge good"' not in page


def test_kind_none_exits_6_and_is_marked(tmp_path, privopt, example):
    from helpers.examples import EXAMPLES

    problem = EXAMPLES["fl-linear"].write(tmp_path / "problem")
    folder = solve("fl-linear", problem, tmp_path / "out", Options(method="optimal", allow_unsafe=True)).folder
    assert verify(folder).verdict == "none"
    completed = privopt("verify", folder)
    assert (completed.returncode, completed.stdout.split()[0]) == (6, "none")
    assert "no privacy guarantee" in privopt("report", folder).stderr


def test_require_proved_rejects_declarations(example, solved_toy, privopt):
    assert privopt("verify", solved_toy, "--require", "proved").returncode == 0
    folder = example("hierarchical-dp")
    assert privopt("verify", folder).returncode == 0
    completed = privopt("verify", folder, "--require", "proved", "--json")
    assert completed.returncode == 6
    summary = json.loads(completed.stdout)
    assert (summary["verdict"], summary["complaints"], summary["certificate"]["evidence"]) == (
        "declared",
        [],
        "declared",
    )


@pytest.mark.parametrize("name", ["hierarchical-dp", "fl-linear"])
@pytest.mark.usefixtures("undrawn")
def test_name_of_a_folder_is_no_pattern(example, tmp_path, name):
    """Tables in it are read under their own names, not as globs."""
    folder = tmp_path / "o[1]*"
    shutil.copytree(example(name), folder)
    write_report(folder)
    assert verify(folder).verdict is not None
