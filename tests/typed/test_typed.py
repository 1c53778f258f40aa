"""Plugins type-check under mypy --strict: what ``privopt new`` writes, the documented patterns, the examples."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from privopt.command.new import new_plugin
from privopt.registry import registry

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"

CONFIG = """
[mypy]
strict = true
files = {files}
[mypy-scipy.*,clarabel.*]
ignore_missing_imports = true
[mypy-ranked_response.*,policy_dp.*,noisy_max,subset_selection]
disallow_untyped_defs = false
disallow_incomplete_defs = false
disallow_untyped_calls = false
disallow_any_generics = false
"""
"""The examples are short, and have no annotations of their own: what they take of privopt is checked all the same."""

PLANTED = """
from privopt_metric_dp.mechanisms.base import MetricMechanism
from privopt_metric_dp.problem.declared import MetricProblem
from privopt.testing import GeneratedProblem

class Acme(MetricMechanism[MetricProblem]):
    release_class = int

PROBLEM = GeneratedProblem(toml="", secrets=["a"])
"""


@pytest.mark.slow
def test_plugins_type_check_under_strict(tmp_path):
    """One process for all of them: the time goes into reading privopt, 10 s of a processor."""
    files = [new_plugin(f"acme-{kind}", tmp_path, kind) / "src" for kind in registry().of("template")]
    files += [Path(__file__).with_name("patterns.py"), *EXAMPLES.glob("*_*.py"), *EXAMPLES.glob("third-party*/src")]
    (tmp_path / "planted.py").write_text(PLANTED)
    (tmp_path / "mypy.ini").write_text(CONFIG.format(files=", ".join(map(str, [*files, tmp_path / "planted.py"]))))
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--cache-dir", "cache", "--no-error-summary"]
    home = {**os.environ, "MYPYPATH": str(EXAMPLES)}
    completed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=home)
    errors = [line for line in completed.stdout.splitlines() if ": error: " in line]
    planted_errors = [line for line in errors if line.startswith("planted.py")]
    assert [line for line in errors if line not in planted_errors] == [], completed.stdout
    assert re.search(r"planted.py:7: .*\[assignment\]\nplanted.py:9: .*\[list-item\]", "\n".join(planted_errors))
    assert completed.stderr == ""


def test_new_plugin_says_that_it_has_types(tmp_path):
    for kind in registry().of("template"):
        [package] = (new_plugin(f"acme-{kind}", tmp_path, kind) / "src").iterdir()
        assert (package / "py.typed").read_bytes() == b""
