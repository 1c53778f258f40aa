"""`sample` with a ledger: nothing is drawn that is not charged, and no secret decides what is."""

import os
from fractions import Fraction

import pytest
from helpers.charging import charged, said
from hypothesis import given, settings
from hypothesis import strategies as st

import privopt as po
from privopt.errors import BudgetSpentError, InputError, UsageError
from privopt.files.release_folder import SUMS, sha256
from privopt.ledger.ledger import Ledger
from privopt_metric_dp.matrix.release import MatrixRelease


def options(ledger, who="anna"):
    return ["--ledger", ledger, "--subject", who]


def test_as_many_draws_come_as_the_limit_allows(town, tmp_path):
    ledger = tmp_path / "l"
    said("budget", ledger, "--set", "1.2")
    code, out, err = said("sample", town, "--input", "p1", "-n", str(10**12), *options(ledger))
    assert (code, len(out.splitlines())) == (0, 2)
    assert "note: what holds of all reports of a subject: the guarantee of one, at epsilon 0.5 per km as" in err
    assert "each draw counts, whatever its position" in err
    assert f"{ledger}: 999,999,999,998 of 1,000,000,000,000 draws refused: budget spent" in err
    assert "subject anna has 0.2 left, each takes 0.5" in err
    (name, cost), other = charged(ledger)
    assert (name, cost) == other
    assert (name, cost.epsilon, cost.unit, cost.notion) == (
        "anna",
        Fraction(1, 2),
        "per km as the crow flies",
        "metric-dp",
    )
    assert (cost.mechanism, cost.purpose) == (sha256(town / SUMS), "sample")
    code, out, err = said("sample", town, "--xy", "1,1", *options(ledger))
    assert (code, out) == (2, "")
    assert "subject anna: budget spent: asked for epsilon 0.5 where 0.2 is left; nothing was charged" in err
    assert said("sample", town, "--xy", "1,1", *options(ledger, "bert"))[0] == 0
    assert [name for name, _ in charged(ledger)] == ["anna", "anna", "bert"]


def test_a_subject_has_one_budget_for_tables_and_draws(town, tmp_path):
    said("budget", tmp_path / "l", "--set", "1")
    with pytest.warns(po.PrivoptWarning, match="budget spent"):
        po.open(town).apply({"who": ["Zoe\u0308"] * 3, "at": ["p0"] * 3}, id="at", ledger=tmp_path / "l", subject="who")
    assert said("sample", town, "--input", "p0", *options(tmp_path / "l", " Zo\u00eb "))[0] == 2


def test_every_charge_is_durable_before_the_draw(town, tmp_path, monkeypatch):
    seen, draw = [], MatrixRelease.sample

    def watched(self, input_id, count):
        seen.append((count, len(charged(tmp_path / "l"))))
        return draw(self, input_id, count)

    monkeypatch.setattr(MatrixRelease, "sample", watched)
    assert said("sample", town, "--input", "p0", "-n", "4", *options(tmp_path / "l"))[0] == 0
    assert len(po.open(town).sample("p0", 2, ledger=tmp_path / "l", subject="anna")) == 2
    assert seen == [(4, 4), (2, 6)]


SECRETS = st.sampled_from([["--input", "p3"], ["--input", "nobody"], ["--xy", "1,2"], ["--xy", "nan,0"]])


@settings(max_examples=5)
@given(SECRETS, SECRETS, st.integers(1, 3))
def test_what_is_charged_is_no_function_of_the_secret(town, tmp_path_factory, one, two, count):
    left = []
    for secret in (one, two):
        ledger = tmp_path_factory.mktemp("l") / "l"
        said("budget", ledger, "--set", "1")
        code, out, err = said("sample", town, *secret, "-n", str(count), *options(ledger))
        good = secret[1] in ("p3", "1,2")
        assert (code, bool(out)) == ((0, True) if good else (2, False)), err
        assert good or f"charged all the same: {min(count, 2)} draw" in err
        left.append(charged(ledger))
    assert left[0] == left[1]
    assert len(left[0]) == min(count, 2)


def test_what_apply_refuses_is_refused(town, example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for more, found in (
        (["--ledger", "l"], "sample: --ledger must be used with --subject ID"),
        (["--subject", "anna"], "sample: --subject must be used with --ledger FILE"),
        (["--hash-subjects", "k", "--subject", "a"], "--subject and --hash-subjects must be used with --ledger FILE"),
        (options("l", " "), "subject must be text of 1 to 1,000 characters that can be seen, got ' '"),
        (options(town / "l"), "holds the release alone; name a file elsewhere"),
    ):
        code, out, err = said("sample", town, "--input", "p0", *more)
        assert (code, out, found in err) == (2, "", True), err
    release = po.open(town)
    for wrong in ({"ledger": "l"}, {"subject": "anna"}):
        with pytest.raises(UsageError, match="ledger and subject must be given together"):
            release.sample("p0", **wrong)
    assert os.listdir(tmp_path) == []
    with Ledger("l") as ledger:
        ledger.charge("anna", po.Cost(epsilon="0.1", unit="per client"))
        ledger.set_limit("0.2")
    code, out, err = said("sample", town, "--input", "p0", *options("l"))
    assert (code, out) == (2, "")
    assert (
        "unit: expected per client, as charged (what another relation bounds is for another file), "
        "got per km as the crow flies" in err
    )
    with pytest.raises(InputError, match="unit"):
        release.sample("p0", ledger="l", subject="anna")
    raw = (tmp_path / "l").read_bytes()
    (tmp_path / "l").write_bytes(raw.replace(b"anna", b"anne"))
    code, out, err = said("sample", town, "--input", "p0", *options("l"))
    assert (code, out, "entry 3 (subject anne): changed" in err) == (1, "", True), err


def test_in_memory_the_rest_is_warned_of(town, tmp_path):
    release = po.open(town)
    with po.Ledger(tmp_path / "l", key=tmp_path / "key") as ledger:
        ledger.set_limit("1")
        with pytest.warns(po.PrivoptWarning, match="1 of 3 draws refused: budget spent"):
            assert len(release.sample(xy=(1.0, 1.0), count=3, ledger=ledger, subject="anna")) == 2
        with pytest.raises(BudgetSpentError, match="nothing was charged"):
            release.sample("p0", ledger=ledger, subject="anna")
        assert ledger.account("anna").reports == 2
    code, out, _ = said("sample", town, "--input", "p0", *options(tmp_path / "l", "bert"))
    assert (code, out) == (2, "")  # the ledger hashes its subjects
    hashed = ["--hash-subjects", tmp_path / "key"]
    assert said("sample", town, "--input", "p0", *options(tmp_path / "l", "bert"), *hashed)[0] == 0


def test_what_gives_no_privacy_or_has_no_reports_is_not_charged(example, tmp_path):
    code, out, err = said("sample", example("hierarchical-dp"), "--input", "x", *options(tmp_path / "l"))
    assert (code, out, "has no distribution to sample" in err) == (2, "", True), err
    assert not (tmp_path / "l").exists()
