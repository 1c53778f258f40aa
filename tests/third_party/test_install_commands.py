"""Every command by which the documentation installs something, run as it stands there in an empty environment.

The slow tests need the package index or uv's and pip's caches (``make third-party``); the fast one holds the
documentation to what they run.
"""

import json
import re
import shutil
import sys

import pytest
from helpers.environments import ROOT, Environment, build_wheels, copy_checkout, run

CHECKOUT = "uv pip install . ./plugins/*"
THIRD_PARTY = "uv pip install --find-links wheels ./docs/examples/third-party pytest"
FAMILY = "uv pip install --find-links wheels ./docs/examples/third-party-family pytest"
PLUGIN = "uv pip install --find-links wheels ./acme-mech pytest"
PLUGIN_BY_PIP = "python -m pip install --find-links wheels . pytest"
EDITABLE = "uv pip install -e acme-mech"

COMMAND = re.compile(r"(?:uv pip|pip3?) install [^`\n]*?(?=[`'\"\n]|$)", re.MULTILINE)
SHORTENED = "pip install ..."
"""In a sentence, for the rest of the command before it."""
PARK = """
[records]
grid = { rows = 2, cols = 2, cell_km = 0.5 }
[distance]
kind = "euclidean"
[privacy]
epsilon = 2.0
[utility]
kind = "distance"
"""


def documented():
    """Every installation that a page, or a message of the programs, names; placeholders as their example."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("plugins/*/*.md"), *ROOT.glob("docs/**/*.md")]
    pages += [*ROOT.glob("privopt/**/*.py"), *ROOT.glob("plugins/*/src/**/*.py"), *ROOT.glob("docs/examples/**/*.py")]
    for page in pages:
        if page.name != "CHANGELOG.md":
            text = page.read_text("utf-8").replace("{folder}", "acme-mech")
            yield from ((page, found[0].strip()) for found in COMMAND.finditer(text) if found[0] != SHORTENED)


def test_what_is_documented_is_what_is_run_here():
    run_here = {
        command.removeprefix("python -m ")
        for command in (CHECKOUT, THIRD_PARTY, FAMILY, PLUGIN, PLUGIN_BY_PIP, EDITABLE)
    }
    found = {command: page.relative_to(ROOT).as_posix() for page, command in documented()}
    assert found.keys() == run_here, {
        name: found.get(name, "not in the documentation") for name in found.keys() ^ run_here
    }


def test_every_folder_beside_the_plugins_is_one():
    """``./plugins/*`` takes each; what an older checkout left there (``plugins/experiments``) is to be deleted."""
    left = [path for path in (ROOT / "plugins").iterdir() if not (path / "pyproject.toml").is_file()]
    assert not left, f"not a distribution, so {CHECKOUT!r} ends with an error: {left}"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    return build_wheels(tmp_path_factory.mktemp("built") / "wheels")


@pytest.fixture(scope="module")
def from_checkout(tmp_path_factory):
    """Return an environment that was filled from a checkout, which then went away."""
    home = tmp_path_factory.mktemp("from-checkout")
    checkout = copy_checkout(home / "checkout")
    made = Environment(home / "env")
    made.shell(CHECKOUT, cwd=checkout)
    checkout.rename(home / "elsewhere")
    return made


def links(environment):
    """Return the links of an environment into a folder of sources."""
    (packages,) = environment.folder.glob("lib/python*/site-packages")
    records = [
        (path.parent.name, json.loads(path.read_text())) for path in packages.glob("*.dist-info/direct_url.json")
    ]
    return [name for name, record in records if record.get("dir_info", {}).get("editable")]


def works(environment, folder, *names):
    """Check that what is installed there solves and verifies a release, and lists all these mechanisms."""
    listed = {entry["name"] for entry in json.loads(environment.shell("privopt list --json", cwd=folder))}
    assert {"optimal-lp", *names} <= listed
    (folder / "park.toml").write_text(PARK, "utf-8")
    environment.shell("privopt solve optimal-lp park.toml --out park", cwd=folder)
    assert "proved park: holds" in environment.shell("privopt verify park", cwd=folder)


@pytest.mark.slow
def test_from_a_checkout_that_is_moved_away(from_checkout, tmp_path):
    assert links(from_checkout) == []
    works(from_checkout, tmp_path, "bd-mdp", "lr-geo", "fl-linear", "hierarchical-dp", "photo-censor")


@pytest.mark.slow
def test_a_new_plugin_as_its_author_works_on_it(from_checkout, tmp_path):
    from_checkout.shell("privopt new acme-mech", cwd=tmp_path)
    from_checkout.shell(EDITABLE, cwd=tmp_path)
    assert links(from_checkout) == ["acme_mech-0.1.0.dist-info"]
    works(from_checkout, tmp_path, "acme-mech")


@pytest.mark.slow
def test_a_third_partys_plugin_from_wheels(wheels, tmp_path):
    checkout = copy_checkout(tmp_path / "checkout")
    shutil.copytree(wheels, checkout / "wheels")
    made = Environment(tmp_path / "env")
    made.shell(THIRD_PARTY, cwd=checkout)
    checkout.rename(tmp_path / "elsewhere")
    assert links(made) == []
    works(made, tmp_path, "ranked-response")


@pytest.mark.slow
@pytest.mark.parametrize(("command", "inside"), [(PLUGIN, "."), (PLUGIN_BY_PIP, "acme-mech")])
def test_a_new_plugin_from_wheels(wheels, tmp_path, command, inside):
    run(sys.executable, "-m", "privopt", "new", "acme-mech", cwd=tmp_path)
    shutil.copytree(wheels, tmp_path / inside / "wheels")
    made = Environment(tmp_path / "env", pip="-m pip" in command)
    made.shell(command, cwd=tmp_path / inside)
    (tmp_path / "acme-mech").rename(tmp_path / "elsewhere")
    assert links(made) == []
    works(made, tmp_path, "acme-mech")
