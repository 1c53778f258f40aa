"""The same entropy gives the same report in Python, node and a browser, for each kind of artefact."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.client_engines import ENGINES
from helpers.client_exports import EXPORTS
from helpers.client_strings import Secret, entropy_of, hash_in_python, inputs_of, open_export, write_inputs
from helpers.grids import often
from scipy.stats import chisquare

from privopt.run.verify import open_verified
from privopt_clients.client import Client
from privopt_metric_dp.matrix.release import MatrixRelease, matrix_of
from privopt_metric_dp.region.snap_to_region import Snapper


@pytest.fixture(scope="module", params=ENGINES)
def ask(request, tmp_path_factory):
    """Ask one of the clients that are no Python."""
    with ENGINES[request.param](tmp_path_factory.mktemp(request.param)) as client:
        yield client


ALIKE = ("streets", "mesh", "plane anywhere", "few outputs")
"""Exports of the same kind of file as another: rows of records, or for any point of a plane."""
VARIED = ("plane", "word columns", "mesh anywhere", "earth anywhere", "predictive")
"""One of each kind of file: rows, column weights, any point of a plane or of a sphere, a policy."""


@often("name", EXPORTS, {*EXPORTS} - {*ALIKE})
def test_vectors_hold(export_folders, ask, name, tmp_path):
    vectors = json.loads((export_folders[name] / "vectors.json").read_text("utf-8"))
    secrets, entropy = [vector["input"] for vector in vectors], [vector["entropy"] for vector in vectors]
    files = {"inputs.tsv": write_inputs(tmp_path / "inputs.tsv", secrets, entropy)}
    promise, release, *lines = ask(export_folders[name], "vectors", 0, files).splitlines()
    client = open_export(export_folders[name])
    assert (promise, release, len(lines)) == (client.promise, client.release, 64)
    for vector, line in zip(vectors, lines, strict=True):
        output, *numbers = line.split("\t")
        assert [output, *map(float, numbers)] == list(vector["report"].values())


@often("name", EXPORTS, VARIED)
def test_same_entropy_gives_same_reports(export_folders, ask, name, tmp_path):
    """Two thousand strings; tests/bench/bench_strings.py compares a million."""
    folder, count = export_folders[name], 2_000
    entropy, size = entropy_of(open_export(folder), 0, count)
    (tmp_path / "entropy.bin").write_bytes(entropy)
    files = {"inputs.tsv": write_inputs(tmp_path / "inputs.tsv", inputs_of(open_export(folder)))}
    hashes = ask(folder, "hash", size, {**files, "entropy.bin": tmp_path / "entropy.bin"})
    assert hashes == hash_in_python(folder, 0, count)


def check_every_bit(folder, ask, scratch):
    """Change each bit of an artefact alone: all are refused when it is opened."""
    files = {"inputs.tsv": write_inputs(scratch / "inputs.tsv", [""])}
    count = 8 * (folder / "mechanism.bin").stat().st_size
    assert ask(folder, "bits", count, files) == str(count)


@pytest.mark.parametrize("name", ["columns"])
def test_any_changed_bit_is_refused(export_folders, ask, name, tmp_path):
    check_every_bit(export_folders[name], ask, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*EXPORTS} - {"columns"}))
def test_any_changed_bit_is_refused_slow(export_folders, ask, name, tmp_path):
    check_every_bit(export_folders[name], ask, tmp_path)


def law_of(releases: dict[str, Path], name: str, secret: Secret, client: Client) -> dict[str, float]:
    """Return the probability of each output, from the release and not from what the client reads."""
    opened_release = open_verified(releases[EXPORTS[name][0]])
    release, problem = matrix_of(opened_release)
    assert isinstance(release, MatrixRelease)
    if isinstance(secret, str):
        probabilities = release.weights[release.records.tolist().index(secret)] / 2.0**63
    else:
        data = problem.data
        snapped = Snapper.of(data.region, data.epsilon).snap(np.array([secret]))
        probabilities = snapped.probabilities[0] @ (release.weights[snapped.corners[0]] / 2.0**63)
    return dict(zip(release.outputs.tolist(), probabilities.tolist(), strict=True))


def check_law(answer: str, law: dict[str, float], count: int) -> None:
    """Compare counts of reports with their law by chi-square, rare outputs together with the rarest of the others."""
    _, *lines = answer.splitlines()
    counts = {output: int(times) for times, output in (line.split("\t") for line in lines)}
    assert sum(counts.values()) == count
    expected = np.array(list(law.values())) * count
    observed = np.array([counts.get(output, 0) for output in law], dtype=float)
    rare = expected < 5
    rare |= expected == expected[~rare].min()  # one draw of what is expected .009 times passes for a fault
    merged_counts = [np.append(part[~rare], part[rare].sum()) for part in (observed, expected)]
    is_possible = merged_counts[1] > 0
    assert chisquare(merged_counts[0][is_possible], merged_counts[1][is_possible], sum_check=False).pvalue > 1e-6


SECRETS = {"earth": "r2c3", "plane": "p7", "streets anywhere": [41.9021, 12.5034], "mesh anywhere": [41.8643, 12.4482]}


def check_draws(exported, releases, ask, name, scratch, count):
    """Have a client draw, and compare."""
    secret = SECRETS[name]
    files = {"inputs.tsv": write_inputs(scratch / "inputs.tsv", [secret])}
    answer = ask(exported[name], "draws", count, files)
    check_law(answer, law_of(releases, name, secret, open_export(exported[name])), count)


@often("name", SECRETS, ("plane", "mesh anywhere"))
def test_draws_follow_the_release(export_folders, releases, ask, name, tmp_path):
    check_draws(export_folders, releases, ask, name, tmp_path, 20_000)


@pytest.mark.slow
@pytest.mark.parametrize("name", SECRETS)
def test_a_million_draws_follow_the_release(export_folders, releases, ask, name, tmp_path):
    check_draws(export_folders, releases, ask, name, tmp_path, 1_000_000)
