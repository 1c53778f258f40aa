"""Releases that clients are exported from, and the exports."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.client_exports import EXPORTS, RELEASES, release_of


@pytest.fixture(scope="session")
def releases(tmp_path_factory) -> dict[str, Path]:
    """DIR of each small release, by name."""
    return {name: release_of(name, tmp_path_factory.mktemp("release")) for name in RELEASES}


@pytest.fixture(scope="session")
def export_folders(releases, tmp_path_factory) -> dict[str, Path]:
    """FOLDER of each export, by name."""
    from privopt_clients.export import export

    folders = {}
    for name, (release, options) in EXPORTS.items():
        folders[name] = tmp_path_factory.mktemp("exported") / name.replace(" ", "-")
        export(releases[release], folders[name], **options)
    return folders
