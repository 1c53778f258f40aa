"""The tables of the pages for authors of plugins say what is so: attributes, members, names, checks and reasons."""

import re
import sys
from importlib.metadata import EntryPoint
from inspect import signature
from pkgutil import resolve_name
from types import ModuleType

import numpy as np
from doc_blocks import ROOT

from privopt.declare import load_problem
from privopt.interfaces.abilities import ABILITIES, member_of
from privopt.registry import discover, registry
from privopt.specs import GROUP, hookimpl
from privopt.testing.checks import checks as all_checks
from privopt.testing.under_trial import missing_traits
from privopt_metric_dp.problem.data import MetricInstance
from privopt_metric_dp.problem.declared import MetricProblem

PAGES = ("tutorials/write-a-plugin.md", "reference/mechanism.md", "reference/kit.md")
PAGE = "\n".join((ROOT / "docs" / name).read_text("utf-8") for name in PAGES)
CODE = re.compile(r"``(.+?) ?``|`([^`]+)`")


def rows_of(heading):
    """Return the cells of a table of the page, by the first cells of its header."""
    (table,) = re.findall(rf"^\| {re.escape(heading)} .*\n\|[ -|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    # Bars within code are not those between cells.
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()]


def codes_in(text):
    return [first or second for first, second in CODE.findall(text)]


def shapes_of(value):
    """Return the shape of an array, or those of the arrays in a tuple; of a tuple of texts none."""
    if isinstance(value, tuple):
        return [shape for part in value if not isinstance(part, str) for shape in shapes_of(part)]
    return [np.shape(value)]


def test_data_has_the_listed_attributes_and_shapes(tmp_path):
    text = "[records]\ngrid = { rows = 2, cols = 3, cell_km = 1.0 }\n[outputs]\npoints = 'o.csv'\n[distance]\n"
    text += "kind = 'euclidean'\n[privacy]\nepsilon = 1.0\n[utility]\nkind = 'distance'\n"
    (tmp_path / "o.csv").write_text("id,x,y\na,0,0\nb,1,1\n")
    (tmp_path / "problem.toml").write_text(text)
    data = MetricInstance.of(load_problem(MetricProblem, tmp_path / "problem.toml")).data
    sizes = {"N": 6, "K": 2, "P": len(data.pairs), "S": len(data.needed[0])}
    for names, description in rows_of("name | shape, unit"):
        values = [eval(f"data.{name}", {"data": data, "i": [0], "j": [1]}) for name in codes_in(names)]
        stated = re.findall(r"\(((?:[A-Z]|\d)(?:, ?(?:[A-Z]|\d))*,?)\)", description)
        expected = [tuple(int(sizes.get(size, size)) for size in re.findall(r"\w", shape)) for shape in stated]
        actual = [shape for value in values for shape in shapes_of(value)] if stated else []
        assert actual == expected, names


def test_abilities_are_those_that_mechanisms_may_have():
    listed = [code for row in rows_of("asked by | method or attribute") for code in codes_in(row[1])]
    expected = set()
    for ability in ABILITIES:
        member = getattr(ability, member_of(ability), None)
        parameters = list(signature(member).parameters.values())[1:] if callable(member) else []
        names = ["*" if p.kind is p.KEYWORD_ONLY else "" for p in parameters]
        arguments = [p.name for p in parameters]
        if "*" in names:
            arguments.insert(names.index("*"), "*")
        expected.add(f"{member_of(ability)}({', '.join(arguments)})" if callable(member) else member_of(ability))
    assert {code.split(" = ")[0] for code in listed} == expected


def test_ready_made_names_can_be_imported():
    names = [code for row in rows_of("you want to | use") for code in re.findall(r"privopt(?:\.\w+)+", row[1])]
    assert len(names) >= 8
    for name in names:
        assert resolve_name(name)


def test_every_check_is_listed():
    listed = [code for row in rows_of("check | holds that") for code in codes_in(row[0])]
    assert sorted(listed) == sorted(all_checks())


def test_reasons_of_checks_that_are_not_done_are_those_of_the_kit():
    sources = [*(ROOT / "privopt" / "testing").rglob("*.py")]
    kit = "\n".join(path.read_text("utf-8") for path in sources) + "\n".join(missing_traits().values())
    for heading in ("a check is not applicable where", "a check is skipped where"):
        reasons = [code for row in rows_of(heading) for code in codes_in(row[1])]
        assert reasons
        for reason in reasons:
            words = re.split(r"[`']\w+[`']", reason)[0].removesuffix(": see the check solves").strip()
            assert words in kit, reason


def test_kinds_of_projects_are_the_templates():
    rows = rows_of("kind | what it releases")
    templates = registry().of("template")
    assert [codes_in(row[0])[0] for row in rows] == sorted(
        templates, key=["matrix", "noise", "selection", "sampler"].index
    )
    for name, _, _, needs in rows:
        spec = templates[codes_in(name)[0]].spec
        assert needs == ("privopt-metric-dp" if "privopt-metric-dp" in " ".join(spec.needs) else "privopt")


def test_answers_to_wrong_hooks_are_said(monkeypatch):
    said = [code for row in rows_of("you return | privopt says") for code in codes_in(row[1]) if " " in code]
    plugin = ModuleType("acme_of_the_page")
    plugin.privopt_mechanisms = hookimpl(lambda: ["x"], specname="privopt_mechanisms")
    monkeypatch.setitem(sys.modules, plugin.__name__, plugin)
    (broken,) = discover([EntryPoint("acme", plugin.__name__, GROUP)]).broken
    assert broken.reason in said
    said.remove(broken.reason)
    pipeline = "".join(path.read_text("utf-8") for path in (ROOT / "privopt" / "run").glob("*.py"))
    for message in said:
        assert message.removeprefix("metric-dp ").removeprefix("privopt list") in pipeline, message
