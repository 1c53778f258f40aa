"""`sample` with a ledger: nothing is drawn that is not charged, and no secret decides what is."""

import os
from fractions import Fraction

import pytest
from helpers.charging import read_charges, run_command
from helpers.mentions import assert_mentions
from hypothesis import given, settings
from hypothesis import strategies as st

import privopt as po
from privopt.errors import BudgetSpentError, InputError, UsageError
from privopt.files.release_folder import SUMS, sha256
from privopt.ledger.ledger import Ledger
from privopt_metric_dp.matrix.release import MatrixRelease


def options(ledger, subject="anna"):
    return ["--ledger", ledger, "--subject", subject]


def test_draws_as_many_as_the_limit_allows(town, tmp_path):
    ledger = tmp_path / "l"
    run_command("budget", ledger, "--set", "1.2")
    code, output, err = run_command("sample", town, "--input", "p1", "-n", str(10**12), *options(ledger))
    assert (code, len(output.splitlines())) == (0, 2)
    assert_mentions(err, "note:", "epsilon 0.5 per km")
    assert "each draw counts" in err
    assert_mentions(err, f"{ledger}: 999,999,999,998 of 1,000,000,000,000", "budget spent")
    assert_mentions(err, "anna has 0.2", "takes 0.5")
    (name, cost), repeated = read_charges(ledger)
    assert (name, cost) == repeated
    assert (name, cost.epsilon, cost.unit, cost.notion) == (
        "anna",
        Fraction(1, 2),
        "per km as the crow flies",
        "metric-dp",
    )
    assert (cost.mechanism, cost.purpose) == (sha256(town / SUMS), "sample")
    code, output, err = run_command("sample", town, "--xy", "1,1", *options(ledger))
    assert (code, output) == (2, "")
    assert_mentions(err, "anna: budget spent", "epsilon 0.5", "0.2 is left")
    assert run_command("sample", town, "--xy", "1,1", *options(ledger, "bert"))[0] == 0
    assert [name for name, _ in read_charges(ledger)] == ["anna", "anna", "bert"]


def test_tables_and_draws_share_the_budget(town, tmp_path):
    run_command("budget", tmp_path / "l", "--set", "1")
    with pytest.warns(po.PrivoptWarning, match="budget spent"):
        po.open(town).apply({"who": ["Zoe\u0308"] * 3, "at": ["p0"] * 3}, id="at", ledger=tmp_path / "l", subject="who")
    assert run_command("sample", town, "--input", "p0", *options(tmp_path / "l", " Zo\u00eb "))[0] == 2


def test_charges_are_durable_before_the_draw(town, tmp_path, monkeypatch):
    charge_counts, draw = [], MatrixRelease.sample

    def sample_and_record(self, input_id, count):
        charge_counts.append((count, len(read_charges(tmp_path / "l"))))
        return draw(self, input_id, count)

    monkeypatch.setattr(MatrixRelease, "sample", sample_and_record)
    assert run_command("sample", town, "--input", "p0", "-n", "4", *options(tmp_path / "l"))[0] == 0
    assert len(po.open(town).sample("p0", 2, ledger=tmp_path / "l", subject="anna")) == 2
    assert charge_counts == [(4, 4), (2, 6)]


SECRETS = st.sampled_from([["--input", "p3"], ["--input", "nobody"], ["--xy", "1,2"], ["--xy", "nan,0"]])


@settings(max_examples=5)
@given(SECRETS, SECRETS, st.integers(1, 3))
def test_charge_is_independent_of_the_secret(town, tmp_path_factory, one, two, count):
    charges = []
    for secret in (one, two):
        ledger = tmp_path_factory.mktemp("l") / "l"
        run_command("budget", ledger, "--set", "1")
        code, output, err = run_command("sample", town, *secret, "-n", str(count), *options(ledger))
        is_valid = secret[1] in ("p3", "1,2")
        assert (code, bool(output)) == ((0, True) if is_valid else (2, False)), err
        assert is_valid or f"all the same: {min(count, 2)} draw" in err
        charges.append(read_charges(ledger))
    assert charges[0] == charges[1]
    assert len(charges[0]) == min(count, 2)


def test_refuses_what_apply_refuses(town, example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for extra_options, message in (
        (["--ledger", "l"], "sample: --ledger must be used with --subject ID"),
        (["--subject", "anna"], "sample: --subject must be used with --ledger FILE"),
        (["--hash-subjects", "k", "--subject", "a"], "--subject and --hash-subjects must be used with --ledger FILE"),
        (options("l", " "), "subject must be text of 1 to 1,000 characters that can be seen, got ' '"),
        (options(town / "l"), "holds the release alone; name a file elsewhere"),
    ):
        code, output, err = run_command("sample", town, "--input", "p0", *extra_options)
        assert (code, output, message in err) == (2, "", True), err
    release = po.open(town)
    for incomplete in ({"ledger": "l"}, {"subject": "anna"}):
        with pytest.raises(UsageError, match="ledger and subject"):
            release.sample("p0", **incomplete)
    assert os.listdir(tmp_path) == []
    with Ledger("l") as ledger:
        ledger.charge("anna", po.Cost(epsilon="0.1", unit="per client"))
        ledger.set_limit("0.2")
    code, output, err = run_command("sample", town, "--input", "p0", *options("l"))
    assert (code, output) == (2, "")
    assert_mentions(err, "unit:", "per client", "per km as the crow flies")
    with pytest.raises(InputError, match="unit"):
        release.sample("p0", ledger="l", subject="anna")
    raw = (tmp_path / "l").read_bytes()
    (tmp_path / "l").write_bytes(raw.replace(b"anna", b"anne"))
    code, output, err = run_command("sample", town, "--input", "p0", *options("l"))
    assert (code, output, ": changed: " in err) == (1, "", True), err


def test_warns_of_refused_draws_in_memory(town, tmp_path):
    release = po.open(town)
    with po.Ledger(tmp_path / "l", key=tmp_path / "key") as ledger:
        ledger.set_limit("1")
        with pytest.warns(po.PrivoptWarning, match="1 of 3 draws"):
            assert len(release.sample(xy=(1.0, 1.0), count=3, ledger=ledger, subject="anna")) == 2
        with pytest.raises(BudgetSpentError, match="nothing was charged"):
            release.sample("p0", ledger=ledger, subject="anna")
        assert ledger.account("anna").reports == 2
    code, output, _ = run_command("sample", town, "--input", "p0", *options(tmp_path / "l", "bert"))
    assert (code, output) == (2, "")  # the ledger hashes its subjects
    hashed = ["--hash-subjects", tmp_path / "key"]
    assert run_command("sample", town, "--input", "p0", *options(tmp_path / "l", "bert"), *hashed)[0] == 0


def test_does_not_charge_without_privacy_or_reports(example, tmp_path):
    code, output, err = run_command("sample", example("hierarchical-dp"), "--input", "x", *options(tmp_path / "l"))
    assert (code, output, "no distribution" in err) == (2, "", True), err
    assert not (tmp_path / "l").exists()
