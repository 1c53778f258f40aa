"""Other Pythons than that of .venv: install, list, demo and the kit of one mechanism, from wheels.

A version is skipped where this machine has no interpreter of it. ``make newest`` tries all versions, and downloads
interpreters if it can.
"""

import sys
import tomllib

import pytest
from helpers.environments import ROOT, build_wheels

VERSIONS = ("3.13", "3.14")
"""The newest; ``.venv`` has the oldest or one between, which all other tests try."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    return build_wheels(tmp_path_factory.mktemp("built") / "wheels")


@pytest.mark.timeout(3600)  # a minute of the processor, however busy it is
@pytest.mark.parametrize("version", VERSIONS)
def test_installs_and_solves_on_other_python(monkeypatch, wheels, tmp_path, version):
    monkeypatch.syspath_prepend(ROOT / ".ci")
    monkeypatch.setenv("PRIVOPT_PROFILE", "dev")
    import pythons

    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        pytest.skip(f"Python {version} is the one of .venv, which all other tests try")
    # No new version of a library can make this fail: those are what "make newest" is for.
    pins = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["constraint-dependencies"]
    (tmp_path / "pins.txt").write_text("\n".join(pins) + "\n")
    interpreter = pythons.find_interpreter(version)
    if interpreter is None:
        pythons.check_wheels_exist(version, wheels, tmp_path)
        pytest.skip(f"no interpreter of Python {version} here; its wheels exist")
    pythons.try_python(interpreter, wheels, tmp_path, "--constraint", tmp_path / "pins.txt")
