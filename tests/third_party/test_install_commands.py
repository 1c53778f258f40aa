"""Every command by which the documentation installs something, run as it stands there in an empty environment.

The slow tests need the package index or uv's and pip's caches (``make third-party``); the fast one holds the
documentation to what they run.
"""

import email
import json
import re
import shutil
import sys
import zipfile

import pytest
from docs.doc_blocks import COMPILING, PROGRESS, blocks, matches, session
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
ABSOLUTE = re.compile(r"https?:|mailto:|#")
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


@pytest.fixture(scope="module")
def by_name(wheels, tmp_path_factory):
    """Return an environment that README's one command filled; the wheels stand in for the package index."""
    environment = Environment(tmp_path_factory.mktemp("by-name") / "env", pip=True)
    environment.shell(f"python -m {BY_NAME}", cwd=environment.folder.parent, PIP_FIND_LINKS=str(wheels))
    return environment


@pytest.mark.slow
def test_one_name_installs_everything(by_name, tmp_path):
    check_installation(by_name, tmp_path, "bd-mdp", "lr-geo", "fl-linear", "hierarchical-dp", "photo-censor")
    for command in ("apply", "budget", "curve", "disclose", "estimate", "export", "init", "plan"):
        assert by_name.shell(f"privopt {command} --help", cwd=tmp_path)


@pytest.mark.slow
def test_commands_of_readme_run_from_wheels(by_name, tmp_path):
    """README's commands and Python as they stand there, with nothing of the checkout but the example city."""
    text = (ROOT / "README.md").read_text("utf-8")
    shutil.copytree(ROOT / "docs" / "examples" / "city", tmp_path / "docs" / "examples" / "city")
    readme_blocks = list(blocks(text, "README.md"))
    commands = [pair for block in readme_blocks if block.code.startswith("$ ") for pair in session(block.code)]
    commands += [(line, "") for line in re.findall(r"`(privopt [^`]+)`", text)]
    assert [command.split()[1] for command, _ in commands[1:]] == ["solve", "apply", "verify", "report", "init"]
    for command, expected in commands:
        shown = PROGRESS.sub("", by_name.shell(f"({command}) 2>&1", cwd=tmp_path)).replace(COMPILING, "")
        assert matches(expected, shown) or not expected, f"{command}\nexpected\n{expected}\ngot\n{shown}"
    assert (tmp_path / "mine.toml").is_file()
    python = next(position for position, block in enumerate(readme_blocks) if block.language == "python")
    (tmp_path / "readme.py").write_text(readme_blocks[python].code, "utf-8")
    assert matches(readme_blocks[python + 1].code, by_name.shell("python readme.py", cwd=tmp_path))


def installed_megabytes(environment, *left_out):
    """Size of the files of an environment without bytecode, which pip writes and uv does not."""
    (packages,) = environment.folder.glob("lib/python*/site-packages")
    files = [path for path in packages.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    counted = [path for path in files if path.relative_to(packages).parts[0].split("-")[0] not in left_out]
    return sum(path.stat().st_blocks * 512 for path in counted) / 2**20


@pytest.mark.slow
def test_sizes_keep_their_limits(by_name, wheels, tmp_path):
    """What README and docs/adr/0036 promise; a new version of a library may not break it unnoticed."""
    core = Environment(tmp_path / "core")
    core.shell(f"uv pip install --find-links {wheels} privopt-core", cwd=tmp_path)
    core_size, whole_size = installed_megabytes(core), installed_megabytes(by_name, "pip")
    print(f"privopt-core {core_size:.0f} MB, privopt {whole_size:.0f} MB")
    assert core_size <= 900
    assert whole_size <= 1500


@pytest.mark.slow
def test_wheels_have_licence_types_and_readme(wheels):
    archives = {path.name.split("-")[0]: zipfile.ZipFile(path) for path in wheels.glob("*.whl")}
    assert len(archives) == 12
    for name, wheel in archives.items():
        names = wheel.namelist()
        assert any(entry.endswith("licenses/LICENSE") for entry in names)
        assert name == "privopt" or any(entry.endswith("/py.typed") for entry in names)
        (metadata_name,) = (entry for entry in names if entry.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(wheel.read(metadata_name))
        page = metadata.get_payload()
        assert len(page.split()) > 30, f"{name}: expected a README"
        assert metadata["Description-Content-Type"] == "text/markdown"
        targets = re.findall(r"\]\(\s*([^()\s]+)|^\[[^]]+\]:\s*(\S+)|(?:href|src)=[\"']([^\"']+)", page, re.MULTILINE)
        assert [target for groups in targets for target in groups if target and not ABSOLUTE.match(target)] == [], name
        assert metadata.get_all("Classifier")
        assert metadata["Keywords"]
    run("bash", "-c", f"{find_uv()} tool run --from twine twine check --strict {wheels}/*.whl", cwd=wheels)
