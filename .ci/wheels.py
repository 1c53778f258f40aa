"""Build every wheel into dist/, the same bytes each time, with a bill of what they stand on beside them.

Run it with the python of .venv: ``make wheels``. The wheels are built from a copy of the sources in which each project
has the licence, and a README that renders alone: its relative links lead below ``home`` of ``[tool.privopt]`` in
pyproject.toml, or are plain text while no home is set.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from bootstrap import ROOT, find_uv
from sbom import document

EPOCH = "1580601600"
"""Seconds since 1970 that files in wheels are dated, where SOURCE_DATE_EPOCH does not say another."""
NOT_COPIED = shutil.ignore_patterns(
    ".venv", ".git", ".tools", "dist", "site", "tests", "docs", ".*_cache", "__pycache__", "shared", "uv.lock"
)
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\[\]]*)\]\((?P<target>[^()\s]+)\)")
_LINKED_IMAGE = re.compile(r"\[(!\[[^\[\]]*\]\([^()\s]+\))\]\([^()\s]+\)")
_ABSOLUTE = re.compile(r"[a-z][a-z0-9+.-]*:|#")


def render_readme(text: str, folder: str, home: str) -> str:
    """Return a README without relative links.

    Args:
        text: Markdown.
        folder: where it is in the repository, "." at its root.
        home: address of the repository's files; empty while there is none. Then links become their text, and pictures
            go.
    """

    def replace(match: re.Match[str]) -> str:
        image, label, target = match["image"], match["text"], match["target"]
        if _ABSOLUTE.match(target):
            return match[0]
        if home:
            return f"{image}[{label}]({home.rstrip('/')}/{posixpath.normpath(posixpath.join(folder, target))})"
        return "" if image else label

    if not home:  # a picture that is a link would leave the brackets of the link
        text = _LINKED_IMAGE.sub(r"\1", text)
    return _LINK.sub(replace, text)


def stage(checkout: Path, folder: Path) -> None:
    """Copy the sources of all wheels, with the licence and a README for each."""
    shutil.copytree(checkout, folder, ignore=NOT_COPIED, dirs_exist_ok=True)
    home = tomllib.loads((checkout / "pyproject.toml").read_text("utf-8"))["tool"]["privopt"]["home"]
    front_page = render_readme((checkout / "README.md").read_text("utf-8"), ".", home)
    for project in (folder, *sorted(path.parent for path in folder.glob("plugins/*/pyproject.toml"))):
        place = project.relative_to(folder).as_posix()
        own_page = render_readme((project / "README.md").read_text("utf-8"), place, home)
        # What people find under the name privopt is the repository's own README.
        (project / "README.md").write_text(front_page if place == "plugins/privopt" else own_page, "utf-8")
        if project != folder:
            shutil.copyfile(checkout / "LICENSE", project / "LICENSE")
        if home:
            settings = (project / "pyproject.toml").read_text("utf-8")
            urls = f'[project.urls]\nHomepage = "{home}"\n\n[project]'
            (project / "pyproject.toml").write_text(settings.replace("[project]", urls, 1), "utf-8")


def main() -> None:
    """Build into the folder that is given, or into dist/."""
    out = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist").resolve()
    with tempfile.TemporaryDirectory(prefix="privopt-wheels-") as name:
        stage(ROOT, Path(name))
        command = [find_uv(), "build", "--quiet", "--all-packages", "--wheel", "--out-dir", str(out)]
        subprocess.run(command, cwd=name, env={"SOURCE_DATE_EPOCH": EPOCH} | os.environ, check=True)
    (out / "sbom.cdx.json").write_text(json.dumps(document(), indent=2) + "\n", "utf-8")
    print(f"{len(list(out.glob('*.whl')))} wheels and their bill of materials are in {out}")


if __name__ == "__main__":
    main()
