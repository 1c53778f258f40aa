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
PAGE = ROOT / "docs" / "tutorials" / "language.md"

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

        def install(self, *packages):
            source = ["--find-links", home / "wheels", "--constraint", home / "pins.txt"]
            run(find_uv(), "pip", "install", "--quiet", "--python", self.python, *source, *packages, cwd=home)

        def privopt(self, *arguments):
            return run(self.python.with_name("privopt"), *arguments, cwd=home, PRIVOPT_PROFILE="dev")

        def complaints(self, *arguments):
            """Return the standard error of a command that ends with code 0."""
            command = [self.python.with_name("privopt"), *arguments]
            return subprocess.run(command, cwd=home, capture_output=True, text=True, check=True).stderr

        def told(self, *arguments):
            """Return the output of a command that must end with another code than 0."""
            command = [self.python.with_name("privopt"), *arguments]
            completed = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
            assert completed.returncode
            return completed.stderr

    environment = Core()
    environment.install("privopt-core", "pytest")
    return environment


def passed_checks(core, name):
    results = json.loads(core.privopt("check", name, "--json"))
    assert {result["status"] for result in results} <= {"passed", "skipped", "not applicable"}, results
    return {result["check"] for result in results if result["status"] == "passed"}


def test_only_the_core_is_installed(core):
    packages = run(find_uv(), "pip", "list", "--python", core.python, cwd=core.folder)
    assert re.findall(r"privopt[\w-]*", packages) == ["privopt-core"]
    assert not re.search(r"^(polars|numba|matplotlib|opendp)\b", packages, re.MULTILINE)
    assert json.loads(core.privopt("list", "--json")) == []
    assert "pip install privopt" in core.complaints("list")
    (core.folder / "problem.toml").touch()
    message = core.told("solve", "optimal-lp", "problem.toml", "--out", "out")
    assert message.startswith("no mechanism is")
    assert "privopt-metric-dp, " in message
    assert "privopt-tables" in core.told("curve", "problem.toml")
    assert "--format" in core.privopt("disclose", "--help")
    core.privopt("budget", "my.ledger", "--set", "1")


def test_page_of_the_modelling_language_runs(core):
    """Every Python block of the page, in one process: none needs another plugin, and those without polars no extra."""
    blocks = re.findall(r"(?ms)^```python\n(.*?)^```", PAGE.read_text("utf-8"))
    code = "\n".join(block for block in blocks if not re.search(r"import polars|to_frame|ranging", block))
    (core.folder / "page.py").write_text(code)
    run(core.python, "page.py", cwd=core.folder)


def test_noisy_mechanism_passes_its_kit(core):
    core.privopt("new", "acme-noise", "--kind", "noise")
    core.install("./acme-noise")
    core.privopt("solve", "acme-noise", "acme-noise/example.toml", "--out", "noisy")
    assert "declared noisy: holds" in core.privopt("verify", "noisy")
    assert passed_checks(core, "acme-noise") >= {"solves", "sensitivity", "epsilon-attack", "non-interference"}


def test_family_needs_no_line_of_the_core(core):
    project = shutil.copytree(FAMILY, core.folder / "family", ignore=shutil.ignore_patterns("__pycache__", ".*"))
    core.install("./family")
    assert "policy-response" in core.privopt("list")
    assert "at most 7.4" in core.privopt("policy", "family/example.toml")
    core.privopt("solve", "policy-response", "family/example.toml", "--out", "asked")
    assert "proved asked: holds" in core.privopt("verify", "asked")
    core.privopt("report", "asked")
    assert "failed" not in run(core.python, "-m", "pytest", "-q", cwd=project, PRIVOPT_PROFILE="dev")
    assert passed_checks(core, "policy-response") >= {"policy-kept", "channel", "epsilon-attack", "use-verifies"}


def test_project_from_the_family_template_passes(core):
    core.privopt("new", "acme-mixed", "--kind", "policy")
    core.install("./acme-mixed")
    core.privopt("solve", "acme-mixed", "acme-mixed/example.toml", "--out", "mixed")
    assert "policy-kept" in passed_checks(core, "acme-mixed")


def test_one_file_checker_has_the_part_of_the_family(core):
    assert "policy-dp" in core.privopt("checker", "--out", "check.pyz")
    for folder in ("asked", "mixed"):
        completed = subprocess.run([sys.executable, "-I", "check.pyz", folder], cwd=core.folder, check=False)
        assert completed.returncode == 0
    answers = json.loads((core.folder / "asked" / "answers.json").read_text())
    shutil.copytree(core.folder / "asked", core.folder / "forged")
    answers["weights"][0] = [2**63, *[0] * (len(answers["answers"]) - 1)]
    (core.folder / "forged" / "answers.json").write_text(json.dumps(answers))
    completed = subprocess.run([sys.executable, "-I", "check.pyz", "forged"], cwd=core.folder, check=False)
    assert completed.returncode == 1
