"""A hook, an option, a public name or a signature cannot change without its documentation."""

import ast
import re

import click
import doc_surface
import pytest
from doc_blocks import pages
from doc_surface import (
    FIRST,
    FURTHER,
    MADE,
    REFERENCE,
    ROOT,
    file_of,
    hidden_imports,
    parted,
    public_names,
    shape,
    unlisted_imports,
)

from privopt.command import new as scaffold
from privopt.command.cli import cli
from privopt.registry import registry
from privopt.specs import Hooks

AGAIN = "the documentation lags behind the code; python tests/docs/doc_surface.py writes its listings again"


@pytest.mark.parametrize("what", MADE)
def test_the_listing_is_what_the_code_says(what):
    name, make = MADE[what]
    listed = shape(parted((REFERENCE / name).read_text("utf-8"), what)[1])
    made = shape(make())
    changed = sorted(set(listed) ^ set(made))
    assert listed == made, f"docs/reference/{name}: {AGAIN}: {changed[:20]}"


def listed(what):
    name, make = MADE[what]
    assert shape(make()) == shape(parted((REFERENCE / name).read_text("utf-8"), what)[1])


def test_a_renamed_option_is_found(monkeypatch):
    option = next(p for p in cli.commands["solve"].params if p.name == "time_limit")
    monkeypatch.setattr(option, "opts", ["--timeout"])
    with pytest.raises(AssertionError):
        listed("commands")


def test_a_new_command_is_found(monkeypatch):
    monkeypatch.setitem(cli.commands, "improve", click.Command("improve", callback=print))
    with pytest.raises(AssertionError):
        listed("commands")


def test_a_renamed_hook_and_another_parameter_are_found(monkeypatch):
    released = vars(Hooks)["privopt_released"]
    monkeypatch.setattr(Hooks, "privopt_released", staticmethod(lambda release, task: None))
    with pytest.raises(AssertionError):
        listed("hooks")
    monkeypatch.setattr(Hooks, "privopt_written", released, raising=False)
    with pytest.raises(AssertionError):
        listed("hooks")


def test_a_renamed_name_and_another_signature_are_found(monkeypatch):
    import privopt.numbers.noise
    from privopt_metric_dp.matrix.release import MatrixRelease

    original = privopt.numbers.noise.split_budget
    monkeypatch.setattr(privopt.numbers.noise, "split_budget", lambda epsilon, parts: original(epsilon, parts))
    with pytest.raises(AssertionError):
        listed("names")
    monkeypatch.undo()
    monkeypatch.setattr(MatrixRelease, "sample", lambda self, input_id, n: None)
    with pytest.raises(AssertionError):
        listed("names")
    monkeypatch.undo()
    monkeypatch.setattr(privopt.numbers.noise, "__all__", privopt.numbers.noise.__all__[:-1])
    with pytest.raises(AssertionError):
        listed("names")
    monkeypatch.undo()
    listed("names")


@pytest.mark.parametrize("module", [*FIRST, *FURTHER])
def test_a_listed_module_says_what_is_public(module):
    assert public_names(file_of(module))
    assert ast.get_docstring(ast.parse(file_of(module).read_text("utf-8")))


def test_plugins_import_public_names_alone():
    for path in (ROOT / "plugins").glob("*/src/**/*.py"):
        assert list(hidden_imports(path)) == [], path


@pytest.mark.parametrize("kind", registry().of("template"))
def test_what_a_new_plugin_imports_is_listed(tmp_path, kind):
    for path in scaffold.new_plugin("acme-mech", tmp_path, kind).rglob("*.py"):
        assert list(unlisted_imports(path)) == [], path


def test_what_pages_and_examples_import_is_listed():
    examples = [path for path in (ROOT / "docs" / "examples").rglob("*.py") if ".venv" not in path.parts]
    assert len(examples) > 10
    unlisted = {path.relative_to(ROOT): list(unlisted_imports(path)) for path in [*examples, *pages()]}
    assert {path: found for path, found in unlisted.items() if found} == {}


@pytest.mark.parametrize("fence", ["", "```python\n{}```\n"])
def test_an_unlisted_import_is_found(tmp_path, fence):
    path = tmp_path / ("page.md" if fence else "plugin.py")
    code = (
        "from privopt_metric_dp.matrix.closure import close_matrix\nfrom privopt.numbers.noise import os\n"
        "from privopt.numbers import noise\nfrom privopt import arrays\n"
        "from privopt.arrays import Floats\nimport privopt.arrays\nimport privopt as po\n"
        "from privopt.numbers import draw\n"
    )
    path.write_text(fence.format(code) if fence else code)
    hidden = ["privopt.numbers.noise.os"]
    assert list(unlisted_imports(path)) == [
        "privopt_metric_dp.matrix.closure.close_matrix",
        *hidden,
        "privopt.arrays",
        "privopt.arrays.Floats",
        "privopt.arrays",
    ]
    assert list(hidden_imports(path)) == hidden


def test_every_hook_is_shown_in_use():
    shown = (REFERENCE / "hooks.md").read_text("utf-8")
    for name in vars(Hooks):
        assert not name.startswith("privopt_") or f"def {name}(" in shown


def test_the_listing_names_every_page():
    assert {name for name, _ in MADE.values()} <= {path.name for path in REFERENCE.iterdir()}
    with pytest.raises(ValueError, match="no listing"):
        doc_surface.parted("nothing", "names")


def test_who_is_told_to_take_wheels_from_a_folder_is_told_how_it_is_made():
    named = [path for path in (ROOT / "docs").rglob("*.md") if "--find-links wheels" in path.read_text("utf-8")]
    assert named
    assert [path.name for path in named if "`make wheels`" not in path.read_text("utf-8")] == []


def test_every_test_that_a_page_names_exists():
    for path in (ROOT / "docs").rglob("*.md"):
        for name in re.findall(r"`(?:[\w/-]+/)?(test_\w+\.py)`", path.read_text("utf-8")):
            found = [*ROOT.glob(f"tests/**/{name}"), *ROOT.glob(f"plugins/*/tests/**/{name}")]
            assert found, f"{path.name} names {name}, which is not there"
