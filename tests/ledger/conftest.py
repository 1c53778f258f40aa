"""Releases over a town of twelve places."""

import pytest
from helpers.charging import made

from privopt.run.solve import solve


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    folder = tmp_path_factory.mktemp("town")
    return solve("exponential", made(folder), folder / "out").folder


@pytest.fixture(scope="module")
def everywhere(tmp_path_factory):
    folder = tmp_path_factory.mktemp("everywhere")
    return solve("optimal-lp", made(folder, "everywhere = true"), folder / "out").folder
