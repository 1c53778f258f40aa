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
def exported(releases, tmp_path_factory) -> dict[str, Path]:
    """FOLDER of each export, by name."""
    from privopt_clients.export import export

    made = {}
    for name, (release, options) in EXPORTS.items():
        made[name] = tmp_path_factory.mktemp("exported") / name.replace(" ", "-")
        export(releases[release], made[name], **options)
    return made
