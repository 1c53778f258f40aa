"""A release of bd-mdp shows no secret that is handed to it on the command line or in a table."""

from __future__ import annotations

import pytest
from helpers.secret_values import PROPERTY, SENTINEL, VALUES, run_command
from hypothesis import given
from hypothesis import strategies as st

from privopt.command.cli import cli
from privopt.run.solve import solve

PROBLEM = """
[records]
grid = { rows = 2, cols = 3, cell_km = 1.0 }
[distance]
kind = "euclidean"
[privacy]
epsilon = 1.0
neighbours_within = 1.5
[utility]
kind = "distance"
[bd-mdp]
subsets = 2
"""


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bd_secrets")
    (folder / "p.toml").write_text(PROBLEM)
    return solve("bd-mdp", folder / "p.toml", folder / "release").folder


@PROPERTY
@given(value=VALUES, option=st.sampled_from(["--input", "--at", "--xy"]))
def test_sample_does_not_repeat_its_secret(release, value, option):
    assert SENTINEL not in run_command(cli, "sample", release, f"{option}={value}")[1]


@PROPERTY
@given(value=VALUES, options=st.sampled_from([["--id", "s"], ["--x", "s", "--y", "t"], ["--position", "home=s,t"]]))
def test_apply_and_estimate_do_not_repeat_secrets(release, tmp_path_factory, value, options):
    folder = tmp_path_factory.mktemp("rows")
    (folder / "rows.csv").write_text(f's,t,report\n"{value}",0.5,r1c1\nr1c1,0.5,"{value}"\n', encoding="utf-8")
    shown = run_command(
        cli, "apply", release, folder / "rows.csv", *options, "--prefix", "new", "--out", folder / "o.csv"
    )[1]
    shown += run_command(cli, "estimate", release, folder / "rows.csv", "--out", folder / "shares.csv")[1]
    assert SENTINEL not in shown
