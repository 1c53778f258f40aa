"""What a third party does, in a clean environment with the wheels just built: a new plugin, and one made elsewhere.

Builds wheels and an environment, so it needs the package index or uv's cache, and takes some minutes of processor time:
``make third-party`` runs it, and CI with it.
"""

import json
import re
import shutil
import subprocess
import tomllib

import pytest
from helpers.environments import ROOT, Environment, build_wheels, find_uv, run

THIRD = ROOT / "docs" / "examples" / "third-party"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """Wheels, constraints, an environment with privopt and its plugins, and a way to run its programs."""
    home = tmp_path_factory.mktemp("clean")
    build_wheels(home / "wheels")
    pins = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["constraint-dependencies"]
    (home / "pins.txt").write_text("\n".join(pins) + "\n")
    Environment(home / "env")

    class Clean:
        folder = home
        bin = home / "env" / "bin"

        def install(self, *packages):
            source = ["--find-links", home / "wheels", "--constraint", home / "pins.txt"]
            run(find_uv(), "pip", "install", "--quiet", "--python", self.bin / "python", *source, *packages, cwd=home)

        def privopt(self, *arguments, **options):
            return run(self.bin / "privopt", *arguments, cwd=home, **options)

        def pytest(self, project, *selected):
            """How many tests of a project pass; none fails."""
            output = run(self.bin / "python", "-m", "pytest", "-q", *selected, cwd=project, PRIVOPT_PROFILE="dev")
            assert "failed" not in output
            return int(re.search(r"(\d+) passed", output)[1])

    environment = Clean()
    plugins = [tomllib.loads(p.read_text())["project"]["name"] for p in ROOT.glob("plugins/*/pyproject.toml")]
    environment.install("privopt", *plugins, "pytest")
    return environment


def count_passed(clean, name, *options):
    """How many checks ``privopt check`` says are passed; none fails."""
    results = json.loads(clean.privopt("check", name, *options, "--json", PRIVOPT_PROFILE="dev"))
    assert {result["status"] for result in results} <= {"passed", "skipped", "not applicable"}
    return sum(result["status"] == "passed" for result in results)


def kit_passes(clean, name):
    """Run the kit by a new plugin's own tests, and as the workflow of docs/guide/ci.md runs it."""
    assert clean.pytest(clean.folder / name) >= 12
    assert count_passed(clean, name, "--fail-on-skip") >= 12


def test_uses_nothing_of_the_checkout(clean):
    location = run(clean.bin / "python", "-c", "import privopt, sys; print(privopt.__file__)", cwd=clean.folder).strip()
    assert location.startswith(str(clean.folder))
    mechanisms = clean.privopt("list")
    for name in ("optimal-lp", "bd-mdp", "lr-geo", "fl-linear", "hierarchical-dp", "photo-censor"):
        assert name in mechanisms
    assert "broken" not in mechanisms


TYPED_SCRIPT = """
from typing import assert_type

import polars as pl
import privopt as po

release = po.solve("exponential", "problem.toml", gap=0.1, seed=1)
trips = pl.DataFrame({"id": ["a"], "who": ["ann"]})
assert_type(release.apply(trips, id="id", ledger=po.Ledger("month.ledger"), subject="who"), pl.DataFrame)
assert_type(release.estimate(trips, column="id").to_frame(), pl.DataFrame)
assert_type(release.loss, float)
assert_type(release.verify().holds, bool)
po.solve("exponential", "problem.toml", gasp=0.1)
release.apply(trips, latitude="lat")
"""


def test_installed_wheels_have_types(clean):
    """Strict mypy accepts a user's script, and finds the two options in it that do not exist."""
    clean.install("mypy")
    (clean.folder / "script.py").write_text(TYPED_SCRIPT)
    checked = subprocess.run(
        [clean.bin / "python", "-m", "mypy", "--strict", "script.py"],
        cwd=clean.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    errors = [line for line in checked.stdout.splitlines() if ": error:" in line]
    assert len(errors) == 2, checked.stdout
    assert "gasp" in errors[0]
    assert "latitude" in errors[1]


def test_new_plugin_works_from_start_to_check(clean):
    clean.privopt("new", "acme-mech")
    assert "acme-mech" not in clean.privopt("list")
    clean.install("./acme-mech")
    assert "acme-mech" in clean.privopt("list")
    assert "acme-mech.penalty" in clean.privopt("describe", "acme-mech")
    clean.privopt("solve", "acme-mech", "acme-mech/example.toml", "--out", "acme-out")
    assert "holds" in clean.privopt("verify", "acme-out")
    kit_passes(clean, "acme-mech")


@pytest.mark.parametrize("kind", ["noise", "selection", "sampler"])
def test_every_kind_of_new_plugin_passes_its_kit(clean, kind):
    name = f"acme-{kind}"
    clean.privopt("new", name, "--kind", kind)
    clean.install(f"./{name}")
    clean.privopt("solve", name, f"{name}/example.toml", "--out", f"{name}-out")
    clean.privopt("verify", f"{name}-out")
    kit_passes(clean, name)


def test_third_party_plugin_works(clean):
    project = shutil.copytree(THIRD, clean.folder / "third-party", ignore=shutil.ignore_patterns("__pycache__", ".*"))
    clean.install("./third-party")
    assert "ranked-response 0.1.0" in clean.privopt("list")
    clean.privopt("solve", "ranked-response", "third-party/example.toml", "--out", "ranked")
    assert "holds" in clean.privopt("verify", "ranked")
    assert clean.privopt("sample", "ranked", "--input", "college").strip() in (project / "example.toml").read_text()
    clean.privopt("audit", "ranked")
    clean.privopt("report", "ranked")
    assert clean.pytest(project, "-k", "not conformance")  # the kit is what the next line runs
    assert count_passed(clean, "ranked-response") >= 12


def test_third_party_is_in_no_workspace():
    members = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["workspace"]["members"]
    workspace_paths = {path for pattern in members for path in ROOT.glob(pattern)}
    assert THIRD not in workspace_paths
