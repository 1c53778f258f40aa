"""Every command by which the documentation installs something, run as it stands there in an empty environment.

The slow tests need the package index or uv's and pip's caches (``make third-party``); the fast one holds the
documentation to what they run.
"""

import json
import re
import shutil
import sys
import zipfile

import pytest
from helpers.environments import ROOT, Environment, build_wheels, copy_checkout, find_uv, run

CHECKOUT = "uv pip install . ./plugins/*"
THIRD_PARTY = "uv pip install --find-links wheels ./docs/examples/third-party pytest"
FAMILY = "uv pip install --find-links wheels ./docs/examples/third-party-family pytest"
PLUGIN = "uv pip install --find-links wheels ./acme-mech pytest"
PLUGIN_BY_PIP = "python -m pip install --find-links wheels . pytest"
EDITABLE = "uv pip install -e acme-mech"
BY_NAME = "pip install privopt"

COMMAND = re.compile(r"(?:uv pip|pip3?) install [^`\n]*?(?=[`'\"\n]|$)", re.MULTILINE)
OF_EXTRA = re.compile(r"pip install (privopt|\{CORE\})\[")
"""Messages of the programs that name an extra; the extras are held to the metadata they come from."""
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


def documented_commands():
    """Every installation that a page, or a message of the programs, names; placeholders as their example."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("plugins/*/*.md"), *ROOT.glob("docs/**/*.md")]
    pages += [*ROOT.glob("privopt/**/*.py"), *ROOT.glob("plugins/*/src/**/*.py"), *ROOT.glob("docs/examples/**/*.py")]
    for page in pages:
        if page.name != "CHANGELOG.md":
            text = page.read_text("utf-8").replace("{folder}", "acme-mech")
            commands = (match[0].strip() for match in COMMAND.finditer(text) if match[0] != SHORTENED)
            yield from ((page, command) for command in commands if not OF_EXTRA.match(command))


def test_documented_commands_are_run_here():
    run_here = {
        command.removeprefix("python -m ")
        for command in (CHECKOUT, THIRD_PARTY, FAMILY, PLUGIN, PLUGIN_BY_PIP, EDITABLE, BY_NAME)
    }
    page_by_command = {command: page.relative_to(ROOT).as_posix() for page, command in documented_commands()}
    assert page_by_command.keys() == run_here, {
        name: page_by_command.get(name, "not in the documentation") for name in page_by_command.keys() ^ run_here
    }


def test_every_folder_of_plugins_is_one():
    """``./plugins/*`` takes each; what an older checkout left there (``plugins/experiments``) is to be deleted."""
    other_folders = [path for path in (ROOT / "plugins").iterdir() if not (path / "pyproject.toml").is_file()]
    assert not other_folders, f"not a distribution, so {CHECKOUT!r} ends with an error: {other_folders}"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    return build_wheels(tmp_path_factory.mktemp("built") / "wheels")


@pytest.fixture(scope="module")
def from_checkout(tmp_path_factory):
    """Return an environment that was filled from a checkout, which then went away."""
    home = tmp_path_factory.mktemp("from-checkout")
    checkout = copy_checkout(home / "checkout")
    environment = Environment(home / "env")
    environment.shell(CHECKOUT, cwd=checkout)
    checkout.rename(home / "elsewhere")
    return environment


def links(environment):
    """Return the links of an environment into a folder of sources."""
    (packages,) = environment.folder.glob("lib/python*/site-packages")
    records = [
        (path.parent.name, json.loads(path.read_text())) for path in packages.glob("*.dist-info/direct_url.json")
    ]
    return [name for name, record in records if record.get("dir_info", {}).get("editable")]


def check_installation(environment, folder, *names):
    """Check that what is installed there solves and verifies a release, and lists all these mechanisms."""
    mechanisms = {entry["name"] for entry in json.loads(environment.shell("privopt list --json", cwd=folder))}
    assert {"optimal-lp", *names} <= mechanisms
    (folder / "park.toml").write_text(PARK, "utf-8")
    environment.shell("privopt solve optimal-lp park.toml --out park", cwd=folder)
    assert "proved park: holds" in environment.shell("privopt verify park", cwd=folder)


@pytest.mark.slow
def test_checkout_may_move_away(from_checkout, tmp_path):
    assert links(from_checkout) == []
    check_installation(from_checkout, tmp_path, "bd-mdp", "lr-geo", "fl-linear", "hierarchical-dp", "photo-censor")


@pytest.mark.slow
def test_new_plugin_is_editable(from_checkout, tmp_path):
    from_checkout.shell("privopt new acme-mech", cwd=tmp_path)
    from_checkout.shell(EDITABLE, cwd=tmp_path)
    assert links(from_checkout) == ["acme_mech-0.1.0.dist-info"]
    check_installation(from_checkout, tmp_path, "acme-mech")


@pytest.mark.slow
def test_third_party_plugin_from_wheels(wheels, tmp_path):
    checkout = copy_checkout(tmp_path / "checkout")
    shutil.copytree(wheels, checkout / "wheels")
    environment = Environment(tmp_path / "env")
    environment.shell(THIRD_PARTY, cwd=checkout)
    checkout.rename(tmp_path / "elsewhere")
    assert links(environment) == []
    check_installation(environment, tmp_path, "ranked-response")


@pytest.mark.slow
@pytest.mark.parametrize(("command", "folder_name"), [(PLUGIN, "."), (PLUGIN_BY_PIP, "acme-mech")])
def test_new_plugin_from_wheels(wheels, tmp_path, command, folder_name):
    run(sys.executable, "-m", "privopt", "new", "acme-mech", cwd=tmp_path)
    shutil.copytree(wheels, tmp_path / folder_name / "wheels")
    environment = Environment(tmp_path / "env", pip="-m pip" in command)
    environment.shell(command, cwd=tmp_path / folder_name)
    (tmp_path / "acme-mech").rename(tmp_path / "elsewhere")
    assert links(environment) == []
    check_installation(environment, tmp_path, "acme-mech")


@pytest.mark.slow
def test_one_name_installs_everything(wheels, tmp_path):
    """The wheels stand in for the package index; README's own commands run then, in a folder with nothing else."""
    environment = Environment(tmp_path / "env", pip=True)
    environment.shell(f"python -m {BY_NAME}", cwd=tmp_path, PIP_FIND_LINKS=str(wheels))
    check_installation(environment, tmp_path, "bd-mdp", "lr-geo", "fl-linear", "hierarchical-dp", "photo-censor")
    for command in ("apply", "budget", "curve", "disclose", "estimate", "export", "init", "plan"):
        assert environment.shell(f"privopt {command} --help", cwd=tmp_path)


@pytest.mark.slow
def test_wheels_have_licence_types_and_readme(wheels):
    archives = {path.name.split("-")[0]: zipfile.ZipFile(path) for path in wheels.glob("*.whl")}
    assert len(archives) == 12
    for name, wheel in archives.items():
        names = wheel.namelist()
        assert any(entry.endswith("licenses/LICENSE") for entry in names)
        assert name == "privopt" or any(entry.endswith("/py.typed") for entry in names)
    run("bash", "-c", f"{find_uv()} tool run --from twine twine check --strict {wheels}/*.whl", cwd=wheels)
