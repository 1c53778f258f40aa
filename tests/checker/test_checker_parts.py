"""Parts of the checker: one distribution a kind of guarantee, whatever its modules are called."""

import re
import shutil
import sys

import pytest
from click.testing import CliRunner
from helpers.checker_parts import run
from helpers.mended_sums import edit

from privopt import checker
from privopt.command.cli import cli

PART = """
class Part:
    def __init__(self, folder, problem, result):
        problem.used.update(f"problem/{path.name}" for path in (folder / "problem").rglob("*"))

    def claims(self):
        return {"sum": lambda: "7"}


class Holder:
    Part = Part
"""

MODULES = {
    "mine_alone:Part": "mine_alone.py",
    "mine_alone:Holder.Part": "mine_alone.py",
    "mine_package:Part": "mine_package/__init__.py",
    "mine_package.part:Part": "mine_package/part.py",
    "mine_package.inner.part : Part [extra]": "mine_package/inner/part.py",
    "mine_package.inner:Part": "mine_package/inner/__init__.py",
}
"""Entry points and the file that has the part."""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a distribution with a part of the checker, before or behind all others on the path."""

    def install(name, kind, value, file, *, first=True):
        site = tmp_path / name
        source = site / file
        source.parent.mkdir(parents=True)
        source.write_text(PART)
        info = site / f"{name}-1.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
        (info / "entry_points.txt").write_text(f"[privopt.checkers]\n{kind} = {value}\n")
        monkeypatch.setattr(sys, "path", [str(site), *sys.path] if first else [*sys.path, str(site)])

    yield install
    for module in [name for name in sys.modules if name.startswith("mine_")]:
        del sys.modules[module]


def write_checker(tmp_path):
    """Run ``privopt checker``; return its exit code and all that it says."""
    completed = CliRunner().invoke(cli, ["checker", "--out", str(tmp_path / "check.pyz"), "--force"])
    assert completed.exception is None or isinstance(completed.exception, SystemExit)
    return completed.exit_code, completed.output


@pytest.mark.parametrize("first", [True, False], ids=["before", "behind"])
@pytest.mark.parametrize("kind", ["metric-dp", "top-k"])
def test_refuses_and_names_second_distribution(example, install, tmp_path, kind, first):
    (owner,) = checker.find_parts()[kind]
    install("evilck", kind, "mine_alone:Part", "mine_alone.py", first=first)
    code, output = write_checker(tmp_path)
    assert code == 2
    assert not (tmp_path / "check.pyz").exists()
    lines: list[str] = []
    folder = edit(
        shutil.copytree(example("words"), tmp_path / "dir"), lambda result: result["guarantee"].update(kind=kind)
    )
    assert checker.check(folder, lines.append) == 2
    for text in (output, lines[-1]):
        assert "evilck 1.5" in text
        assert f"{owner.dist.name} " in text


@pytest.mark.parametrize("value", MODULES)
def test_part_of_any_module_name_is_packed(example, install, tmp_path, value):
    install("mine-ck", "mine", value, MODULES[value])
    code, output = write_checker(tmp_path)
    assert code == 0, output
    assert "mine" in output
    folder = shutil.copytree(example("words"), tmp_path / "dir")
    edit(folder, lambda result: result["guarantee"].update(kind="mine"))
    lines: list[str] = []
    for code, text in (run(folder, tmp_path / "check.pyz"), (checker.check(folder, lines.append), "\n".join(lines))):
        assert "holds: sum: 7" in text
        assert code == 0, text


@pytest.mark.parametrize(
    ("value", "file"),
    [
        ("mine_nowhere:Part", "mine_alone.py"),
        ("mine_package.nowhere:Part", "mine_package/part.py"),
        ("mine_raises.part:Part", "mine_raises/__init__.py"),
        ("mine_alone", "mine_alone.py"),
        ("mine-alone:Part", "mine_alone.py"),
        ("sys:path", "mine_alone.py"),
    ],
)
def test_unusable_part_names_its_distribution(install, tmp_path, value, file):
    install("mine-ck", "mine", value, file)
    code, output = write_checker(tmp_path)
    assert code == 2
    assert re.search(r"mine.ck 1\.5", output)
    assert "Traceback" not in output
