"""``--quiet`` of every command: nothing is printed on success, and everything that matters on failure."""

import json
import shutil
import subprocess

import click
import numpy as np
import pytest
from click.testing import CliRunner
from helpers.environments import ROOT

from privopt.command.cli import cli
from privopt.run.solve import solve

CITY = ROOT / "docs" / "examples" / "city" / "problem.toml"
CALLS = {
    "solve": "solve exponential CITY --out new",
    "verify": "verify out",
    "audit": "audit out",
    "report": "report out",
    "sign": "sign out key",
    "disclose": "disclose out --format nist --out nist.md",
    "certify": "certify even.npy CITY",
    "checker": "checker --out check.pyz",
    "plan": "plan hierarchical-dp census.toml",
    "init": "init optimal-lp --points places.csv --out mine.toml --within 1",
    "curve": "curve CITY --mechanisms exponential --epsilon 1:2:2 --out curve.csv",
    "explore": "explore CITY --mechanisms exponential --epsilon 1:2:2 --out page.html",
    "apply": "apply out trips.csv --lat lat --lon lon --out safe.csv",
    "estimate": "estimate out reports.csv --out shares.csv",
    "export": "export out --out client",
}
FILES = {
    "trips.csv": "trip,lat,lon\n1,45.0,7.0\n2,45.004,7.012\n",
    "places.csv": "id,lat,lon\na,45.0,7.0\nb,45.02,7.0\nc,45.0,7.03\nd,45.01,7.01\n",
    "counts.csv": "level_1,level_2,size,groups\nall,a,1,3\nall,b,2,4\n",
    "like.csv": "level_1,level_2,size,groups\nall,a,1,2\nall,b,2,5\n",
    "census.toml": '[hierarchy]\ncounts = "counts.csv"\nlike = "like.csv"\nsizes = 3\n[privacy]\nepsilon = 1.0\n',
}


def quiet_commands():
    context = click.Context(cli)
    commands = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    return {name for name, command in commands.items() if any("--quiet" in p.opts for p in command.params)}


def test_every_quiet_command_is_tried_here():
    assert quiet_commands() == set(CALLS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a release of the city, and what the commands read."""
    folder = tmp_path_factory.mktemp("quiet")
    solve("exponential", CITY, folder / "out")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    np.save(folder / "even.npy", np.full((48, 48), 1 / 48))
    reports = np.load(folder / "out" / "mechanism.npz")["outputs"].tolist()
    (folder / "reports.csv").write_text("report\n" + "\n".join(reports * 3) + "\n")
    return folder


@pytest.mark.parametrize("name", sorted(CALLS))
def test_prints_nothing_on_success(folder, tmp_path, monkeypatch, name):
    if name == "sign":
        keygen = shutil.which("ssh-keygen")
        if keygen is None:
            pytest.skip("ssh-keygen is not installed")
        subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", folder / "key"], check=True)
    monkeypatch.chdir(folder)
    arguments = CALLS[name].replace("CITY", str(CITY)).split()
    completed = CliRunner().invoke(cli, [*arguments, "--quiet"])
    assert (completed.exit_code, completed.output) == (0, "")


def test_failure_is_told_all_the_same(folder, tmp_path):
    shutil.copytree(folder / "out", tmp_path / "forged")
    (tmp_path / "forged" / "result.json").write_text("{}")
    completed = CliRunner().invoke(cli, ["verify", str(tmp_path / "forged"), "--quiet"])
    assert completed.exit_code == 1
    assert "does not hold" in completed.output
    np.save(tmp_path / "eye.npy", np.eye(48))
    problem = str(CITY)
    completed = CliRunner().invoke(cli, ["certify", str(tmp_path / "eye.npy"), problem, "--quiet"])
    assert completed.exit_code == 1
    assert "does not hold" in completed.output
    completed = CliRunner().invoke(cli, ["certify", str(tmp_path / "eye.npy"), problem, "--quiet", "--json"])
    assert json.loads(completed.stdout)["holds"] is False


def test_json_is_printed_beside_quiet(folder, monkeypatch):
    monkeypatch.chdir(folder)
    completed = CliRunner().invoke(cli, ["audit", "out", "--quiet", "--json"])
    assert json.loads(completed.stdout)
    assert completed.stderr == ""
