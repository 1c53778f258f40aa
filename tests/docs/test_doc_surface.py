"""A hook, an option, a public name or a signature cannot change without its documentation."""

import ast
import inspect
import re

import click
import doc_surface
import pytest
from doc_blocks import pages
from doc_surface import (
    FIRST,
    FURTHER,
    MADE,
    NOT_READ,
    REFERENCE,
    ROOT,
    file_of,
    hidden_imports,
    public_names,
    shape,
    split_page,
    unlisted_imports,
)

from privopt.command import new as scaffold
from privopt.command.cli import cli
from privopt.registry import registry
from privopt.specs import Hooks

AGAIN = "the documentation lags behind the code; python tests/docs/doc_surface.py writes its listings again"


@pytest.mark.parametrize("listing_name", MADE)
def test_listing_matches_the_code(listing_name):
    name, make = MADE[listing_name]
    listed_rows = shape(split_page((REFERENCE / name).read_text("utf-8"), listing_name)[1])
    actual_rows = shape(make())
    differences = sorted(set(listed_rows) ^ set(actual_rows))
    assert listed_rows == actual_rows, f"docs/reference/{name}: {AGAIN}: {differences[:20]}"


def check_listing(listing_name):
    name, make = MADE[listing_name]
    assert shape(make()) == shape(split_page((REFERENCE / name).read_text("utf-8"), listing_name)[1])


def test_finds_renamed_options(monkeypatch):
    option = next(p for p in cli.commands["solve"].params if p.name == "time_limit")
    monkeypatch.setattr(option, "opts", ["--timeout"])
    with pytest.raises(AssertionError):
        check_listing("commands")


def test_finds_new_commands(monkeypatch):
    monkeypatch.setitem(cli.commands, "improve", click.Command("improve", callback=print))
    with pytest.raises(AssertionError):
        check_listing("commands")


def test_finds_changed_hooks_and_parameters(monkeypatch):
    hook = vars(Hooks)["privopt_released"]
    monkeypatch.setattr(Hooks, "privopt_released", staticmethod(lambda release, task: None))
    with pytest.raises(AssertionError):
        check_listing("hooks")
    monkeypatch.setattr(Hooks, "privopt_written", hook, raising=False)
    with pytest.raises(AssertionError):
        check_listing("hooks")


def test_finds_changed_types(monkeypatch):
    import privopt as po

    check_listing("names")
    monkeypatch.setattr(
        po.open, "__signature__", inspect.signature(po.open).replace(return_annotation="str"), raising=False
    )
    with pytest.raises(AssertionError):
        check_listing("names")


def test_finds_changed_names_and_signatures(monkeypatch):
    import privopt.numbers.noise
    from privopt_metric_dp.matrix.release import MatrixRelease

    original = privopt.numbers.noise.split_budget
    monkeypatch.setattr(privopt.numbers.noise, "split_budget", lambda epsilon, parts: original(epsilon, parts))
    with pytest.raises(AssertionError):
        check_listing("modules")
    monkeypatch.undo()
    monkeypatch.setattr(MatrixRelease, "sample", lambda self, input_id, n: None)
    with pytest.raises(AssertionError):
        check_listing("modules")
    monkeypatch.undo()
    monkeypatch.setattr(privopt.numbers.noise, "__all__", privopt.numbers.noise.__all__[:-1])
    with pytest.raises(AssertionError):
        check_listing("modules")
    monkeypatch.undo()
    check_listing("modules")


def test_names_that_readers_do_not_meet_exist():
    for module, names in NOT_READ.items():
        assert names <= set(public_names(file_of(module)))


@pytest.mark.parametrize("module", [*FIRST, *FURTHER])
def test_listed_modules_declare_what_is_public(module):
    assert public_names(file_of(module))
    assert ast.get_docstring(ast.parse(file_of(module).read_text("utf-8")))


def test_plugins_import_only_public_names():
    for path in (ROOT / "plugins").glob("*/src/**/*.py"):
        assert list(hidden_imports(path)) == [], path


@pytest.mark.parametrize("kind", registry().of("template"))
def test_imports_of_new_plugins_are_listed(tmp_path, kind):
    for path in scaffold.new_plugin("acme-mech", tmp_path, kind).rglob("*.py"):
        assert list(unlisted_imports(path)) == [], path


def test_imports_of_pages_and_examples_are_listed():
    examples = [path for path in (ROOT / "docs" / "examples").rglob("*.py") if ".venv" not in path.parts]
    assert len(examples) > 10
    unlisted = {path.relative_to(ROOT): list(unlisted_imports(path)) for path in [*examples, *pages()]}
    assert {path: names for path, names in unlisted.items() if names} == {}


@pytest.mark.parametrize("fence", ["", "```python\n{}```\n"])
def test_finds_unlisted_imports(tmp_path, fence):
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
    hooks_page = (REFERENCE / "hooks.md").read_text("utf-8")
    for name in vars(Hooks):
        assert not name.startswith("privopt_") or f"def {name}(" in hooks_page


def test_listing_names_every_page():
    assert all((REFERENCE / name).exists() for name, _ in MADE.values())
    with pytest.raises(ValueError, match="no listing"):
        doc_surface.split_page("nothing", "names")


def test_pages_say_how_wheels_are_made():
    pages_with_wheels = [
        path for path in (ROOT / "docs").rglob("*.md") if "--find-links wheels" in path.read_text("utf-8")
    ]
    assert pages_with_wheels
    assert [path.name for path in pages_with_wheels if "`make wheels`" not in path.read_text("utf-8")] == []


def test_tests_named_by_pages_exist():
    for path in (ROOT / "docs").rglob("*.md"):
        for name in re.findall(r"`(?:[\w/-]+/)?(test_\w+\.py)`", path.read_text("utf-8")):
            test_files = [*ROOT.glob(f"tests/**/{name}"), *ROOT.glob(f"plugins/*/tests/**/{name}")]
            assert test_files, f"{path.name} names {name}, which is not there"
