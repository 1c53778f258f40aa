"""The core's wheel alone in an empty environment, then a third party's family beside it: no metric DP anywhere."""

import json
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
from helpers.environments import ROOT, Environment, build_wheels, find_uv, run

FAMILY = ROOT / "docs" / "examples" / "third-party-family"
PAGE = ROOT / "docs" / "guide" / "language.md"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    """Return an environment with the core's wheel and pytest."""
    home = tmp_path_factory.mktemp("core")
    build_wheels(home / "wheels")
    pins = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["constraint-dependencies"]
    (home / "pins.txt").write_text("\n".join(pins) + "\n")
    Environment(home / "env")

    class Core:
        folder = home
        python = home / "env" / "bin" / "python"

        def install(self, *what):
            source = ["--find-links", home / "wheels", "--constraint", home / "pins.txt"]
            run(find_uv(), "pip", "install", "--quiet", "--python", self.python, *source, *what, cwd=home)

        def privopt(self, *arguments):
            return run(self.python.with_name("privopt"), *arguments, cwd=home, PRIVOPT_PROFILE="dev")

        def told(self, *arguments):
            """Return the output of a command that must end with another code than 0."""
            command = [self.python.with_name("privopt"), *arguments]
            done = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
            assert done.returncode
            return done.stderr

    made = Core()
    made.install("privopt", "pytest")
    return made


def passed(core, name):
    results = json.loads(core.privopt("check", name, "--json"))
    assert {result["status"] for result in results} <= {"passed", "skipped"}, results
    return {result["check"] for result in results if result["status"] == "passed"}


def test_nothing_but_the_core_is_there(core):
    listed = run(find_uv(), "pip", "list", "--python", core.python, cwd=core.folder)
    assert re.findall(r"privopt[\w-]*", listed) == ["privopt"]
    assert json.loads(core.privopt("list", "--json")) == []
    (core.folder / "problem.toml").touch()
    told = core.told("solve", "optimal-lp", "problem.toml", "--out", "out")
    assert told.startswith("no mechanism is called 'optimal-lp'; known: none; not installed: ")
    assert "privopt-metric-dp, " in told
    assert "privopt-tables" in core.told("curve", "problem.toml")
    assert "--format" in core.privopt("disclose", "--help")
    core.privopt("budget", "my.ledger", "--set", "1")


def test_the_modelling_languages_page_runs(core):
    """Every Python block of the page, in one process: none needs another plugin."""
    code = "\n".join(re.findall(r"(?ms)^```python\n(.*?)^```", PAGE.read_text("utf-8")))
    (core.folder / "page.py").write_text(code)
    run(core.python, "page.py", cwd=core.folder)


def test_a_mechanism_with_noise_passes_its_kit(core):
    core.privopt("new", "acme-noise", "--kind", "noise")
    core.install("./acme-noise")
    core.privopt("solve", "acme-noise", "acme-noise/example.toml", "--out", "noisy")
    assert "declared noisy: holds" in core.privopt("verify", "noisy")
    assert passed(core, "acme-noise") >= {"solves", "sensitivity", "epsilon-attack", "non-interference"}


def test_a_whole_family_needs_no_line_of_the_core(core):
    project = shutil.copytree(FAMILY, core.folder / "family", ignore=shutil.ignore_patterns("__pycache__", ".*"))
    core.install("./family")
    assert "policy-response" in core.privopt("list")
    assert "2 steps: at most 7.4 times" in core.privopt("policy", "family/example.toml")
    core.privopt("solve", "policy-response", "family/example.toml", "--out", "asked")
    assert "proved asked: holds" in core.privopt("verify", "asked")
    core.privopt("report", "asked")
    assert "failed" not in run(core.python, "-m", "pytest", "-q", cwd=project, PRIVOPT_PROFILE="dev")
    assert passed(core, "policy-response") >= {"policy-kept", "channel", "epsilon-attack", "verify-catches"}


def test_a_project_from_the_familys_template_passes_its_kit(core):
    core.privopt("new", "acme-mixed", "--kind", "policy")
    core.install("./acme-mixed")
    core.privopt("solve", "acme-mixed", "acme-mixed/example.toml", "--out", "mixed")
    assert "policy-kept" in passed(core, "acme-mixed")


def test_the_checkers_one_file_has_the_familys_part(core):
    assert "policy-dp" in core.privopt("checker", "--out", "check.pyz")
    for folder in ("asked", "mixed"):
        done = subprocess.run([sys.executable, "-I", "check.pyz", folder], cwd=core.folder, check=False)
        assert done.returncode == 0
    held = json.loads((core.folder / "asked" / "answers.json").read_text())
    shutil.copytree(core.folder / "asked", core.folder / "forged")
    held["weights"][0] = [2**63, *[0] * (len(held["answers"]) - 1)]
    (core.folder / "forged" / "answers.json").write_text(json.dumps(held))
    done = subprocess.run([sys.executable, "-I", "check.pyz", "forged"], cwd=core.folder, check=False)
    assert done.returncode == 1
