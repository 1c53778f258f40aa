"""What a third party does, in a clean environment with the wheels just built: a new plugin, and one made elsewhere.

Builds wheels and an environment, so it needs the package index or uv's cache, and takes some minutes of processor time:
``make third-party`` runs it, and CI with it.
"""

import json
import re
import shutil
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

        def install(self, *what):
            source = ["--find-links", home / "wheels", "--constraint", home / "pins.txt"]
            run(find_uv(), "pip", "install", "--quiet", "--python", self.bin / "python", *source, *what, cwd=home)

        def privopt(self, *arguments, **options):
            return run(self.bin / "privopt", *arguments, cwd=home, **options)

        def pytest(self, project, *chosen):
            """How many tests of a project pass; none fails."""
            told = run(self.bin / "python", "-m", "pytest", "-q", *chosen, cwd=project, PRIVOPT_PROFILE="dev")
            assert "failed" not in told
            return int(re.search(r"(\d+) passed", told)[1])

    made = Clean()
    plugins = [tomllib.loads(p.read_text())["project"]["name"] for p in ROOT.glob("plugins/*/pyproject.toml")]
    made.install("privopt", *plugins, "pytest")
    return made


def checked(clean, name, *options):
    """How many checks ``privopt check`` says are passed; none fails."""
    results = json.loads(clean.privopt("check", name, *options, "--json", PRIVOPT_PROFILE="dev"))
    assert {result["status"] for result in results} <= {"passed", "skipped"}
    return sum(result["status"] == "passed" for result in results)


def kit_passes(clean, name):
    """Run the kit by a new plugin's own tests, and as the workflow of docs/guide/ci.md runs it."""
    assert clean.pytest(clean.folder / name) >= 12
    assert checked(clean, name, "--fail-on-skip") >= 12


def test_nothing_of_the_checkout_is_used(clean):
    where = run(clean.bin / "python", "-c", "import privopt, sys; print(privopt.__file__)", cwd=clean.folder).strip()
    assert where.startswith(str(clean.folder))
    listed = clean.privopt("list")
    for name in ("optimal-lp", "bd-mdp", "lr-geo", "fl-linear", "hierarchical-dp", "photo-censor"):
        assert name in listed
    assert "broken" not in listed


def test_a_new_plugin_is_made_installed_listed_tested_and_checked(clean):
    clean.privopt("new", "acme-mech")
    assert "acme-mech" not in clean.privopt("list")
    clean.install("./acme-mech")
    assert "acme-mech" in clean.privopt("list")
    assert "acme-mech.penalty" in clean.privopt("describe", "acme-mech")
    clean.privopt("solve", "acme-mech", "acme-mech/example.toml", "--out", "acme-out")
    assert "holds" in clean.privopt("verify", "acme-out")
    kit_passes(clean, "acme-mech")


@pytest.mark.parametrize("kind", ["noise", "selection", "sampler"])
def test_a_new_plugin_of_every_kind_passes_its_own_kit(clean, kind):
    name = f"acme-{kind}"
    clean.privopt("new", name, "--kind", kind)
    clean.install(f"./{name}")
    clean.privopt("solve", name, f"{name}/example.toml", "--out", f"{name}-out")
    clean.privopt("verify", f"{name}-out")
    kit_passes(clean, name)


def test_a_third_partys_plugin_is_installed_listed_solved_and_checked(clean):
    project = shutil.copytree(THIRD, clean.folder / "third-party", ignore=shutil.ignore_patterns("__pycache__", ".*"))
    clean.install("./third-party")
    assert "ranked-response 0.1.0" in clean.privopt("list")
    clean.privopt("solve", "ranked-response", "third-party/example.toml", "--out", "ranked")
    assert "holds" in clean.privopt("verify", "ranked")
    assert clean.privopt("sample", "ranked", "--input", "college").strip() in (project / "example.toml").read_text()
    clean.privopt("audit", "ranked")
    clean.privopt("report", "ranked")
    assert clean.pytest(project, "-k", "not conformance")  # the kit is what the next line runs
    assert checked(clean, "ranked-response") >= 12


def test_it_stands_in_no_workspace():
    members = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["workspace"]["members"]
    taken = {path for pattern in members for path in ROOT.glob(pattern)}
    assert THIRD not in taken
