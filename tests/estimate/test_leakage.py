"""An attacker's figures against brute force, and against libqif where it is installed."""

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.errors import InputError, SolverError
from privopt.estimate.capacities import (
    Vulnerability,
    error_beyond,
    min_capacity_bits,
    min_entropy_leakage_bits,
    shannon_capacity_bits,
    vulnerability,
)
from privopt.estimate.leakage import leakage as leaked
from privopt.estimate.leakage import read_gains


def channels(seed, most=12):
    rng = np.random.default_rng(seed)
    n, k, w = rng.integers(1, most, 3)
    return rng.dirichlet(np.full(k, 0.4), n), rng.dirichlet(np.ones(n)), rng.random((w, n))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_g_vulnerability_is_that_of_the_best_strategy(seed):
    z, prior, gains = channels(seed, most=4)
    found = vulnerability(z, prior, gains)
    joint = prior[:, None] * z
    best = max(
        sum(gains[w] @ joint[:, k] for k, w in enumerate(strategy))
        for strategy in itertools.product(range(len(gains)), repeat=z.shape[1])
    )
    assert found.posterior == pytest.approx(best)
    assert found.prior == pytest.approx(max(gains @ prior))
    assert found.posterior >= found.prior - 1e-12


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_no_prior_leaks_more_than_the_capacities(seed):
    z, prior, gains = channels(seed)
    capacity = min_capacity_bits(z)
    assert min_entropy_leakage_bits(z, prior) <= capacity + 1e-9
    assert min_entropy_leakage_bits(z, np.full(len(z), 1 / len(z))) == pytest.approx(capacity)
    assert vulnerability(z, prior, gains).leakage_bits <= capacity + 1e-9
    out = prior @ z
    with np.errstate(divide="ignore", invalid="ignore"):
        information = np.nansum(prior[:, None] * z * np.log2(z / out))
    assert information <= shannon_capacity_bits(z, gap=1e-6) + 2e-6


@pytest.mark.parametrize("flip", [0.0, 0.1, 0.5])
def test_the_capacity_of_a_binary_symmetric_channel_is_shannons(flip):
    z = np.array([[1 - flip, flip], [flip, 1 - flip]])
    entropy = sum(-p * math.log2(p) for p in (flip, 1 - flip) if p)
    assert shannon_capacity_bits(z) == pytest.approx(1 - entropy, abs=2e-9)


def test_errors_over_distance_fall_from_the_bayes_error_to_nothing():
    d = np.abs(np.subtract.outer(np.arange(5.0), np.arange(5.0)))
    z = np.exp(-d / 2) / np.exp(-d / 2).sum(axis=1, keepdims=True)
    prior = np.full(5, 0.2)
    errors = [error_beyond(z, prior, d, r) for r in (0.0, 1.0, 4.0)]
    assert errors[0] == pytest.approx(1 - (prior[:, None] * z).max(axis=0).sum())
    assert errors[0] > errors[1] > errors[2] == 0


def test_gains_that_nothing_earns_leak_nothing():
    assert Vulnerability(prior=0.0, posterior=0.0).leakage_bits == 0
    assert Vulnerability(prior=0.0, posterior=0.5).leakage_bits == math.inf


def test_fifty_random_channels_agree_with_libqif():
    """Show 5 of the step."""
    qif = pytest.importorskip("qif")
    for seed in range(50):
        z, prior, gains = channels(seed)
        found = vulnerability(z, prior, gains)
        measure = qif.measure
        assert found.prior == pytest.approx(measure.g_vuln.prior(gains, prior), abs=1e-9)
        assert found.posterior == pytest.approx(measure.g_vuln.posterior(gains, prior, z), abs=1e-9)
        leaks = measure.bayes_vuln.min_entropy_leakage(prior, z)
        assert min_entropy_leakage_bits(z, prior) == pytest.approx(leaks, abs=1e-9)
        assert min_capacity_bits(z) == pytest.approx(math.log2(measure.bayes_vuln.mult_capacity(z)), abs=1e-9)
        if len(z) > 1 and z.shape[1] > 1:
            capacity = measure.shannon.add_capacity(z, 1e-10)[0]
            assert shannon_capacity_bits(z, gap=1e-10) == pytest.approx(capacity, abs=1e-9)


def test_the_audit_tells_it_on_request(solved_toy, tmp_path, privopt):
    ids = [f"p{i}" for i in range(5)]
    (tmp_path / "gains.csv").write_text("guess,id,gain\n" + "".join(f"{name},{name},1\n" for name in ids))
    done = privopt("audit", solved_toy, "--leakage", "--gains", tmp_path / "gains.csv", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    told = said["leakage"]
    assert told["g_vulnerability"]["posterior"] == pytest.approx(1 - said["bayes_error"])
    assert told["g_vulnerability"]["leakage_bits"] == pytest.approx(told["min_entropy_bits"])
    assert told["min_entropy_bits"] <= told["min_capacity_bits"]
    assert told["error_beyond"]["error"][0] == pytest.approx(said["bayes_error"])
    assert "leakage" not in json.loads(privopt("audit", solved_toy, "--json").stdout)
    assert "what it leaks" in privopt("audit", solved_toy, "--leakage").stdout


def test_a_capacity_that_is_not_found_takes_nothing_else_with_it(solved_toy, monkeypatch):
    def fails(channel):
        raise SolverError("the capacity's gap is 1e-8 bits")

    whole = leaked(solved_toy)
    monkeypatch.setattr("privopt.estimate.leakage.shannon_capacity_bits", fails)
    rest = leaked(solved_toy)
    assert rest.pop("note") == "shannon_capacity_bits: the capacity's gap is 1e-8 bits"
    assert rest == whole | {"shannon_capacity_bits": None}


def test_gains_are_read_from_both_kinds_of_file(tmp_path):
    np.save(tmp_path / "g.npy", np.eye(2))
    assert read_gains(tmp_path / "g.npy", ["a", "b"]).tolist() == [[1, 0], [0, 1]]
    (tmp_path / "g.csv").write_text("guess,id,gain\nx,a,2\ny,b,1\ny,a,0.5\n")
    assert read_gains(tmp_path / "g.csv", ["a", "b"]).tolist() == [[2, 0], [0.5, 1]]
    (tmp_path / "twice.csv").write_text("guess,id,gain\nx,a,2\nx,a,1\n")
    np.save(tmp_path / "less.npy", -np.eye(2))
    for name in ("twice.csv", "less.npy"):
        with pytest.raises(InputError):
            read_gains(tmp_path / name, ["a", "b"])
