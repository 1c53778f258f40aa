"""``privopt new``: what it writes is a plugin that solves, certifies and passes the kit, and is short."""

import sys
import tomllib

import pytest
from attrs import evolve
from click.testing import CliRunner

from privopt.command.cli import cli
from privopt.command.new import new_plugin
from privopt.errors import UsageError
from privopt.registry import Registered, discover, registry, using
from privopt.run.solve import Options, solve
from privopt.run.verify import verify
from privopt.testing import run_check, subject
from privopt.testing.efforts import EFFORTS


@pytest.fixture
def acme(tmp_path, monkeypatch):
    """A new project, importable and registered."""
    folder = new_plugin("acme-mech", tmp_path)
    monkeypatch.syspath_prepend(str(folder / "src"))
    for name in ("acme_mech", "acme_mech.mechanism"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import acme_mech

    [spec] = acme_mech.privopt_mechanisms()
    found = {**registry().mechanisms, spec.name: Registered(spec=spec, plugin="acme-mech", version="0.1.0")}
    with using(evolve(discover([]), mechanisms=found, kinds=registry().kinds)):
        yield folder


def test_a_new_plugin_solves_to_a_proved_optimum(acme, tmp_path):
    for solver in ("cbc", "highs"):
        result = solve("acme-mech", acme / "example.toml", tmp_path / solver, Options(solver=solver)).result
        assert result.status == "optimal"
        assert verify(tmp_path / solver).complaints == ()


@pytest.mark.parametrize("check", ["solves", "epsilon-achieved", "lower-bound", "bad-input", "round-trip"])
def test_a_new_plugin_passes_the_kit(acme, check):
    tried = subject("acme-mech")
    result = run_check(check, tried, how=EFFORTS["dev"])
    tried.close()
    assert result.status == "passed", result.reason


def test_its_own_table_is_read_and_its_faults_are_named(acme, tmp_path):
    text = (acme / "example.toml").read_text()
    assert "penalty = 0.0" in text
    (acme / "example.toml").write_text(text.replace("penalty = 0.0", "penalty = -1"))
    done = CliRunner().invoke(cli, ["solve", "acme-mech", str(acme / "example.toml"), "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert "acme-mech.penalty: found -1" in done.stderr


def test_it_is_short_and_whole(tmp_path):
    folder = new_plugin("acme-mech", tmp_path)
    assert len((folder / "src/acme_mech/mechanism.py").read_text().splitlines()) < 60
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["privopt"] == {"acme-mech": "acme_mech"}
    assert [path.name for path in tmp_path.iterdir()] == ["acme-mech"]


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("Acme", "lower-case"),
        ("acme_mech", "lower-case"),
        ("class", "Python package"),
        ("json", "Python package"),
        ("privopt", "Python package"),
        ("optimal-lp", "privopt already"),
        ("../acme", "lower-case"),
        ("", "lower-case"),
    ],
)
def test_names_that_will_not_do(tmp_path, name, word):
    with pytest.raises(UsageError, match=word):
        new_plugin(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_kept(tmp_path):
    new_plugin("acme-mech", tmp_path)
    with pytest.raises(UsageError, match="exists already"):
        new_plugin("acme-mech", tmp_path)
    with pytest.raises(UsageError, match="does not exist"):
        new_plugin("acme-mech", tmp_path / "nowhere")
