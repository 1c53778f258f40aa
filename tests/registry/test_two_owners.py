"""What one distribution owns another cannot register: it is refused, and both are named."""

import re
import shutil
import sys
from importlib.metadata import entry_points

import pytest
from click.testing import CliRunner
from helpers.mended_sums import edit

import privopt
from privopt import checker
from privopt.command.cli import cli
from privopt.errors import PrivoptError
from privopt.registry import discover, using
from privopt.specs import GROUP
from privopt.testing.checks import checks as all_checks
from privopt.testing.checks.base import CHECKS
from privopt.testing.under_trial import missing_traits

SOURCE = """
from privopt import specs
from privopt.specs import hookimpl
from privopt.testing import check


@hookimpl
def {hook}():
    return [{spec}]


def acme_check():
    @check({name!r})
    def run(trial): ...
    return run


class Part:
    def __init__(self, folder, problem, result):
        pass

    def claims(self):
        return {{"everything": lambda: "holds"}}


def __getattr__(name):
    if name != "registered":
        raise AttributeError(name)
    return acme_check()
"""

METHOD = "methods=[specs.MethodSpec(name='solve', summary='')]"
MECHANISM = f"specs.MechanismSpec(name='optimal-lp', target='a:B', guarantee='metric-dp', summary='', {METHOD})"
CHECK = "specs.CheckSpec(name='acme-check', target='acme_plugin:registered')"
TRAIT = "specs.TraitSpec(name='matrix', missing='', target='acme_plugin:Part')"


@pytest.fixture
def acme(tmp_path, monkeypatch):
    """Install the distribution acme with one hook, or with a part of the checker; return the registry with it."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(hook="privopt_names", spec="", name="acme-check", part=""):
        (tmp_path / "acme_plugin.py").write_text(SOURCE.format(hook=hook, spec=spec, name=name))
        info = tmp_path / "acme-1.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.5\n")
        points = f"[{GROUP}]\nacme = acme_plugin\n"
        points += f"[privopt.checkers]\n{part} = acme_plugin:Part\n" if part else ""
        (info / "entry_points.txt").write_text(points)
        monkeypatch.delitem(sys.modules, "acme_plugin", raising=False)
        return discover(entry_points(group=GROUP))

    yield install
    sys.modules.pop("acme_plugin", None)
    CHECKS.pop("acme-check", None)


@pytest.mark.parametrize(
    ("hook", "spec", "use"),
    [
        ("privopt_mechanisms", MECHANISM, lambda registry: registry.get("optimal-lp")),
        ("privopt_commands", "specs.CommandSpec(name='export', target='a:b', summary='')", None),
        ("privopt_commands", "specs.CommandSpec(name='solve', target='a:b', summary='')", None),
        ("privopt_names", "specs.NameSpec(name='curve', target='a:b')", None),
        ("privopt_names", "specs.NameSpec(name='solve', target='a:b')", None),
        ("privopt_kinds", "specs.KindSpec(role='solver', name='highs', target='a:b', summary='')", None),
        ("privopt_checks", "specs.CheckSpec(name='traces', target='a:b')", lambda registry: all_checks()),
    ],
)
def test_second_owner_is_named(hook, spec, use, acme):
    with_acme = acme(hook, spec)
    reasons = [broken.reason for broken in with_acme.broken if broken.fatal]
    assert reasons
    assert all(re.search(r"privopt-[\w-]+ .*acme 1\.5", reason) for reason in reasons)
    with using(with_acme):
        if use is not None:
            with pytest.raises(PrivoptError, match=r"acme 1\.5"):
                use(with_acme)
        else:  # the project's own are never looked up in another distribution
            assert privopt.solve.__module__ == "privopt.api.released"
            assert privopt.curve.__module__.startswith("privopt_tables.")
            assert with_acme.kind("solver", "highs").load().__module__ == "privopt.backends.highs"
            assert CliRunner().invoke(cli, ["export", "--help"]).exit_code == 0
            assert CliRunner().invoke(cli, ["list"]).exit_code == 2


@pytest.mark.parametrize(("name", "words"), [("epsilon-attack", "must have another name"), ("acme", "decorated with")])
def test_check_has_its_own_name(name, words, acme):
    """A check registers by its decorator, and the last one of a name would run in place of the first."""
    earlier = CHECKS["epsilon-attack"]
    with using(acme("privopt_checks", CHECK, name)), pytest.raises(PrivoptError, match=words):
        all_checks()
    CHECKS.pop("acme", None)
    assert CHECKS["epsilon-attack"] is earlier


def test_check_of_another_distribution_is_found(acme):
    with using(acme("privopt_checks", CHECK)):
        assert "acme-check" in all_checks()


def test_trait_of_the_core_cannot_be_replaced(acme):
    with using(acme("privopt_checks", TRAIT)), pytest.raises(PrivoptError, match=r"acme 1\.5.*'matrix'.*another name"):
        missing_traits()


@pytest.mark.parametrize("part", ["metric-dp.optimal-lp", "metric-dp.spherical-laplace", "trace-dp"])
def test_checker_part_of_another_distribution_is_named(part, acme, example, tmp_path):
    """A part of its own decides about a mechanism, whoever brings it."""
    with using(acme(part=part)):
        completed = CliRunner().invoke(cli, ["checker", "--out", str(tmp_path / "check.pyz")])
    assert completed.exit_code == 2, completed.output
    assert re.search(r"acme 1\.5", completed.output)
    assert not (tmp_path / "check.pyz").exists()
    if part != "metric-dp.optimal-lp":
        return
    folder = shutil.copytree(example("words"), tmp_path / "dir")
    edit(folder, lambda result: result.update(mechanism="optimal-lp"))
    lines = []
    assert checker.check(folder, lines.append) == 2
    assert re.search(r"'metric-dp.optimal-lp' is of acme 1\.5.*'privopt-metric-dp'", lines[-1])


def test_checker_takes_the_part_of_the_mechanism_s_own_distribution(acme, example, tmp_path):
    """The distribution is what result.json, as a solve writes it, names beside its version."""
    folder = shutil.copytree(example("words"), tmp_path / "dir")
    edit(folder, lambda result: result["plugin"].update(name="Acme"))
    edit(folder, lambda result: result.update(mechanism="optimal-lp"))
    lines = []
    with using(acme(part="metric-dp.optimal-lp")):
        checker.check(folder, lines.append)
    assert "holds: everything: holds" in lines
