"""Plugins written from the docs alone, each a short file: they solve, verify and pass the kit."""

import sys
from pathlib import Path

import pytest

from privopt.registry import Registered, registry, using
from privopt.run.solve import solve
from privopt.run.verify import verify
from privopt.testing import run_checks, subject

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
MOST_LINES = 80
"""Lines that such a file has fewer of."""

PLUGINS = {
    "noisy_max": (
        'votes = "v.csv"\nepsilon = 0.5\n',
        {"v.csv": "dish,votes\n1,7\n0,3\n"},
        {"own-scale", "epsilon-attack"},
    ),
    "subset_selection": ("answers = 4\nepsilon = 1.0\n", {}, {"epsilon-achieved", "distances", "sampler"}),
}


@pytest.fixture
def installed(request, monkeypatch):
    """Its mechanism's name, in a registry that knows it."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    sys.modules.pop(request.param, None)
    [spec] = __import__(request.param).privopt_mechanisms()
    found = {**registry().mechanisms, spec.name: Registered(spec=spec, plugin=request.param, version="1.0")}
    with using(registry().with_instead(mechanisms=found)):
        yield spec.name


@pytest.mark.parametrize(
    "installed", [pytest.param("noisy_max", marks=pytest.mark.slow), "subset_selection"], indirect=True
)
def test_it_solves_verifies_and_passes_the_kit(installed, request, tmp_path):
    name = request.node.callspec.params["installed"]
    toml, files, held = PLUGINS[name]
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < MOST_LINES
    (tmp_path / "problem.toml").write_text(toml)
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    solve(installed, tmp_path / "problem.toml", tmp_path / "out")
    assert verify(tmp_path / "out").holds
    tried = subject(installed)
    results = run_checks(tried, how="dev")
    tried.close()
    assert [result for result in results if result.status == "failed"] == []
    assert held <= {result.check for result in results if result.status == "passed"}
