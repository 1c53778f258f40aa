"""Discovery: broken plugins are isolated, clashes and misspelt hooks are errors, near names are offered."""

import json
import re
import subprocess
import sys
import textwrap
from importlib.metadata import EntryPoint
from typing import ClassVar

import pytest
from attrs import frozen
from click.testing import CliRunner

from privopt.command.cli import cli
from privopt.declare import key
from privopt.declare.describe import describe_keys
from privopt.declare.toml import load_problem
from privopt.errors import RegistryError, UnknownNameError, UsageError
from privopt.interfaces import PrivacyConstraint
from privopt.registry import Kind, Registry, registry, using
from privopt.registry import discover as discover_alone
from privopt.specs import GROUP, KindSpec, MechanismSpec, MethodSpec
from privopt_metric_dp.problem.declared import MetricNotion


def discover(points: list[EntryPoint]) -> Registry:
    """With what privopt itself and its plugin for metric DP bring."""
    own_points = [
        EntryPoint("builtin", "privopt.builtin", GROUP),
        EntryPoint("metric-dp", "privopt_metric_dp.plugin", GROUP),
    ]
    return discover_alone([*own_points, *points])


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Install a module as a plugin distribution of its own; returns its entry point."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(name: str, source: str) -> EntryPoint:
        monkeypatch.delitem(sys.modules, name, raising=False)
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(source))
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {name}\n")
        from importlib.metadata import Distribution

        return next(iter(Distribution.at(info).entry_points.select(group=GROUP)))

    return install


GOOD = """
    from privopt.specs import MechanismSpec, MethodSpec, hookimpl

    @hookimpl
    def privopt_mechanisms():
        return [MechanismSpec(name="acme", target="acme.mechanism:Acme", guarantee="metric-dp", summary="noise",
                              methods=[MethodSpec(name="solve", summary="the LP")])]
"""


def test_plugin_is_registered_with_its_distribution(plugin):
    installed = discover([plugin("acme_one", GOOD)])
    assert installed.mechanisms["acme"].plugin == "acme_one"
    assert installed.mechanisms["acme"].version == "1.0"
    assert installed.broken == ()


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("import surely_not_installed", "ModuleNotFoundError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("def broken(:", "SyntaxError"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise GeneratorExit", "GeneratorExit"),
        ("class Hidden(BaseException):\n    def __str__(self):\n        1 / 0\nraise Hidden", "cannot be shown"),
        ("def again():\n    again()\nagain()", "RecursionError"),
        ("import warnings\nwarnings.warn('old', UserWarning)", "UserWarning: old"),
        ("@hookimpl\ndef privopt_mechanisms():\n    raise KeyError('x')", "KeyError"),
        ("@hookimpl\ndef privopt_mechanisms():\n    return ['text']", "list of MechanismSpec"),
        ("@hookimpl\ndef privopt_mechanisms():\n    return [[]]", "list of MechanismSpec"),
        (
            "from privopt.specs import NameSpec\n@hookimpl\ndef privopt_names():\n"
            "    return NameSpec(name='safe', target='acme:safe')",
            "list of NameSpec, got NameSpec(name='safe'",
        ),
        ("@hookimpl\ndef privopt_checks():\n    yield 1 / 0", "ZeroDivisionError"),
        ("def privopt_mechanisms():\n    return []", "marked with @privopt.specs.hookimpl"),
    ],
)
def test_broken_plugin_is_shown_and_stops_nothing(plugin, source, reason):
    installed = discover([plugin("bad", f"from privopt.specs import hookimpl\n{source}"), plugin("acme_one", GOOD)])
    assert "acme" in installed.mechanisms
    assert [broken_plugin.plugin for broken_plugin in installed.broken] == ["bad"]
    assert reason in installed.broken[0].reason
    assert "\n" not in installed.broken[0].reason


def test_names_two_distributions_with_one_name(plugin):
    installed = discover([plugin("acme_one", GOOD), plugin("acme_two", GOOD)])
    assert installed.broken[0].fatal
    with pytest.raises(RegistryError, match=r"acme_one.*acme_two"):
        installed.get("acme")


def test_misspelt_hook_is_an_error(plugin):
    installed = discover([plugin("typo", GOOD.replace("privopt_mechanisms", "privopt_mechanism"))])
    assert installed.broken[0].fatal
    assert "privopt_mechanism" in installed.broken[0].reason


def test_hook_with_a_wrong_argument_is_an_error(plugin):
    source = "from privopt.specs import hookimpl\n@hookimpl\ndef privopt_released(relase):\n    pass"
    installed = discover([plugin("typo", source)])
    assert installed.broken[0].fatal
    assert "relase" in installed.broken[0].reason


def test_unknown_name_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="optimal-lp"):
        registry().get("optimal-pl")
    with pytest.raises(UnknownNameError, match="column-generation"):
        registry().get("optimal-lp").method("column-generaton")


def test_unknown_name_mentions_a_broken_plugin(plugin):
    installed = discover([plugin("bad", "raise RuntimeError('no licence')")])
    with pytest.raises(UsageError, match="no licence"):
        installed.get("acme")


def test_unloadable_target_is_an_error(plugin):
    installed = discover([plugin("acme_one", GOOD)])
    with pytest.raises(RegistryError, match=r"acme_one.*acme\.mechanism:Acme"):
        installed.get("acme").load()


def test_observer_errors_are_only_reported(plugin):
    source = """
        from privopt.specs import hookimpl
        seen = []

        @hookimpl
        def privopt_released(release, problem):
            seen.append(release)
            raise ValueError("disk full")
    """
    installed = discover([plugin("watcher", source)])
    assert installed.notify_released("the release", "the problem") == ["watcher:watcher: ValueError: disk full"]
    assert sys.modules["watcher"].seen == ["the release"]


@pytest.mark.parametrize("name", ["Optimal", "a b", "", "-x", "x_"])
def test_specs_refuse_invalid_names(name):
    with pytest.raises(ValueError, match="hyphens"):
        MethodSpec(name=name, summary="")


def test_refuses_unregistered_notion_by_name(plugin):
    installed = discover([plugin("acme_one", GOOD.replace('"metric-dp"', '"strong"'))])
    assert "acme" not in installed.mechanisms
    assert [(b.plugin, b.fatal) for b in installed.broken] == [("acme_one", True)]
    assert "claims 'strong'" in installed.broken[0].reason


KINDS = """
    from privopt.specs import KindSpec, hookimpl

    @hookimpl
    def privopt_kinds():
        return [KindSpec(role="solver", name="{name}", target="acme.solvers:Acme", summary="Acme's solver")]
"""


def test_registers_kinds_and_names_duplicates(plugin):
    installed = discover([plugin("acme_one", KINDS.format(name="acme"))])
    assert set(installed.names("solver")) == {"cbc", "highs", "acme"}
    assert installed.kind("solver", "acme").plugin == "acme_one"
    with pytest.raises(RegistryError, match=r"acme\.solvers:Acme cannot"):
        installed.kind("solver", "acme").load()
    with pytest.raises(UnknownNameError, match="highs"):
        installed.kind("solver", "high")
    duplicated = discover([plugin("acme_two", KINDS.format(name="cbc"))])
    with pytest.raises(RegistryError, match=r"both acme_two 1.0 .*privopt.backends.cbc:Cbc"):
        duplicated.kind("solver", "cbc")


def test_unloadable_kind_stops_only_its_users(tmp_path):
    broken_kind = Kind(
        spec=KindSpec(role="distance", name="acme", target="acme.spaces:Acme", summary="Acme's"),
        plugin="acme",
        version="1.0",
    )
    installed = registry()
    cls = installed.get("exponential").load().problem_class
    text = "[records]\ngrid = { rows = 2, cols = 2, cell_km = 1.0 }\n[privacy]\nepsilon = 1.0\n[utility]\n"
    text += "kind = 'distance'\n[distance]\nkind = "
    with using(installed.replace(broken_kind)):
        (tmp_path / "p.toml").write_text(text + "'euclidean'\n")
        assert load_problem(cls, tmp_path / "p.toml")
        (tmp_path / "p.toml").write_text(text + "'acme'\n")
        with pytest.raises(RegistryError, match=r"acme\.spaces:Acme cannot"):
            load_problem(cls, tmp_path / "p.toml")
        (row,) = (row for row in describe_keys(cls) if row.key == "distance.kind")
    assert "acme: cannot be" in row.help
    assert "euclidean" in row.type


@frozen(kw_only=True)
class Loose(MetricNotion):
    kind: ClassVar[str] = "loose"
    delta: float = key(0.1, help="what may be missed")


class LooseDP(PrivacyConstraint):
    @classmethod
    def keys(cls):
        return Loose


def test_describe_omits_refused_kinds():
    spec = KindSpec(role="notion", name="loose", target=f"{__name__}:LooseDP", summary="loose")
    installed, extra_kind = registry(), Kind(spec=spec, plugin="planted", version="0")
    with using(installed.replace(extra_kind)):
        for name, takes in (("exponential", False), ("optimal-lp", True)):
            completed = CliRunner().invoke(cli, ["describe", name])
            assert completed.exit_code == 0, completed.output
            assert (" privacy.delta " in completed.output) is takes
            assert ("loose" in completed.output) is takes
    description = CliRunner().invoke(cli, ["describe", "planar-laplace"]).output
    assert re.search(r"  distance\.kind  .*euclidean \| haversine; ", description)


def test_decomposer_becomes_a_method(plugin):
    decomposer = """
    from privopt.specs import KindSpec, hookimpl

    @hookimpl
    def privopt_kinds():
        return [KindSpec(role="decomposer", name="acme-cuts", target="acme.cuts:Cuts", summary="cuts")]
    """
    source = GOOD.replace('guarantee="metric-dp"', 'guarantee="metric-dp", decomposes=True')
    installed = discover([plugin("acme_one", source), plugin("acme_two", decomposer)])
    assert {method.name for method in installed.get("acme").spec.methods} == {"solve", "acme-cuts", "benders"}
    assert installed.get("acme").method("acme-cuts").summary == "cuts"
    without_decomposition = discover([plugin("acme_three", GOOD), plugin("acme_four", decomposer)])
    with pytest.raises(UnknownNameError, match="acme-cuts"):
        without_decomposition.get("acme").method("acme-cuts")


def test_texts_of_one_plugin_do_not_stop_list_and_help(plugin):
    """A summary of None, such as the __doc__ of a module without one, stopped them for all plugins."""
    command = """
        from privopt.specs import CommandSpec, hookimpl

        @hookimpl
        def privopt_commands():
            return [CommandSpec(name="acme", target="acme:acme", summary="", group=None)]
    """
    points = [plugin("acme_one", GOOD.replace('summary="noise"', "summary=None")), plugin("acme_two", command)]
    installed = discover(points)
    reasons = [broken_plugin.reason for broken_plugin in installed.broken]
    assert reasons == ["TypeError: summary must be a string, not None", "TypeError: group must be a string, not None"]
    with using(installed):
        assert CliRunner().invoke(cli, ["list"]).exit_code == 0
        assert CliRunner().invoke(cli, ["--help"]).exit_code == 0


def test_specs_refuse_invalid_guarantees_and_no_methods():
    with pytest.raises(ValueError, match="guarantee"):
        MethodSpec(name="a", summary="", guarantee="Strong!")
    with pytest.raises(ValueError, match="at least one method"):
        MechanismSpec(name="a", target="a:B", guarantee="none", summary="", methods=[])


def test_list_is_quick_and_imports_nothing_heavy():
    code = (
        "import sys, time, json; sys.argv = ['privopt', 'list', '--json']\n"
        "from privopt.command.cli import main\n"
        "try: main()\n"
        "except SystemExit as stop: code = stop.code\n"
        "heavy = {'numpy', 'sympy', 'scipy', 'mip', 'highspy', 'numba', 'polars', 'opendp'} & set(sys.modules)\n"
        "print(json.dumps([code, sorted(heavy), time.process_time()]), file=sys.stderr)"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *outcome, seconds = json.loads(completed.stderr)
    assert outcome == [0, []]
    names = {row["name"] for row in json.loads(completed.stdout)}
    assert {"optimal-lp", "exponential", "planar-laplace", "const-opt"} <= names
    assert all(
        set(row) == {"name", "plugin", "version", "guarantee", "summary"} for row in json.loads(completed.stdout)
    )
    assert seconds < 2.0  # of the processor, measured 0.2: the waits of a busy machine are none of them


@pytest.mark.parametrize("returned", ["None", "'acme'", "3"])
def test_hook_that_returns_no_list_is_reported(plugin, returned):
    source = f"""
        from privopt.specs import hookimpl

        @hookimpl
        def privopt_mechanisms():
            return {returned}
    """
    [broken_plugin] = discover([plugin("acme_none", source)]).broken
    assert broken_plugin.fatal
    assert "return a list" in broken_plugin.reason
    assert f"got {returned}" in broken_plugin.reason
