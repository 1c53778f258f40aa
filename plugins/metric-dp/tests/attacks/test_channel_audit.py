"""`audit` of a release without a matrix: what its channel states is measured, and what it draws is held against it."""

import json
import math

import numpy as np
import pytest
from attrs import evolve, frozen

from privopt.interfaces import Channel, Guarantee, Release
from privopt.run.attack_channel import attack_channel


@frozen(kw_only=True, eq=False)
class Answers(Release):
    """Draws as a channel states, or always the truth."""

    channel_of: Channel
    honest: bool = True

    def write(self, folder):
        raise NotImplementedError

    @classmethod
    def read(cls, folder, problem):
        raise NotImplementedError

    def sample(self, input_id, count):
        if not self.honest:
            return [input_id] * count
        row = self.channel_of.probabilities[self.channel_of.inputs.index(input_id)]
        return np.random.default_rng(0).choice(self.channel_of.outputs, count, p=row).tolist()


def make_guarantee(epsilon, unit=""):
    return Guarantee(
        kind="local-dp" if not unit else "metric-dp", epsilon=epsilon, unit=unit, scope="all-pairs", statement=""
    )


def randomised_response(count, epsilon):
    z = np.ones((count, count)) + (math.exp(epsilon) - 1) * np.eye(count)
    ids = [f"a{n}" for n in range(count)]
    return Channel(inputs=ids, outputs=ids, probabilities=z / z.sum(axis=1, keepdims=True))


def test_randomised_response_achieves_its_epsilon():
    channel = randomised_response(5, 1.5)
    findings = attack_channel(channel, Answers(channel_of=channel), make_guarantee(1.5))
    assert findings["epsilon"]["achieved"] == pytest.approx(1.5, rel=1e-12)
    assert findings["bayes_error"] == pytest.approx(4 / (4 + math.exp(1.5)), rel=1e-12)
    assert findings["entropy_bits"] == pytest.approx(math.log2(5), rel=1e-12)
    assert 1.2 < findings["statistical"]["epsilon_lower"] <= 1.5
    lying = attack_channel(channel, Answers(channel_of=channel, honest=False), make_guarantee(1.5))
    assert lying["statistical"]["epsilon_lower"] > 5


def test_divides_by_distances_and_reports_infinity():
    places = np.arange(4.0)
    z = np.exp(-np.abs(places[:, None] - places))
    line = Channel(
        inputs=list("abcd"),
        outputs=list("abcd"),
        probabilities=z / z.sum(axis=1, keepdims=True),
        prior=np.array([0.7, 0.1, 0.1, 0.1]),
        distances=lambda rows: np.abs(places[rows][:, None] - places),
        unit="km",
    )
    rows = np.log(line.probabilities)
    worst = max(np.abs(rows[i] - rows[j]).max() / (j - i) for i in range(4) for j in range(i + 1, 4))
    findings = attack_channel(line, Answers(channel_of=line), make_guarantee(2, "per km"))
    assert findings["epsilon"]["achieved"] == pytest.approx(worst, rel=1e-12)
    assert findings["bayes_error"] == pytest.approx(1 - (line.prior[:, None] * line.probabilities).max(axis=0).sum())
    bare = evolve(line, distances=None)
    assert attack_channel(bare, Answers(channel_of=bare), make_guarantee(2, "per km"))["epsilon"]["achieved"] is None
    split = evolve(line, probabilities=np.eye(4))
    assert (
        attack_channel(split, Answers(channel_of=split), make_guarantee(2, "per km"))["epsilon"]["achieved"] == math.inf
    )


def test_equal_secrets_at_distance_0():
    equal_rows = Channel(
        inputs=["a", "b"],
        outputs=["a", "b"],
        probabilities=np.full((2, 2), 0.5),
        distances=lambda rows: np.zeros((len(rows), 2)),
        unit="km",
    )
    findings = attack_channel(equal_rows, Answers(channel_of=equal_rows), make_guarantee(1, "per km"))
    assert (findings["epsilon"]["achieved"], findings["statistical"]["epsilon_lower"]) == (0.0, 0.0)
    different_rows = evolve(equal_rows, probabilities=np.array([[0.9, 0.1], [0.1, 0.9]]))
    findings = attack_channel(different_rows, Answers(channel_of=different_rows), make_guarantee(1, "per km"))
    assert (findings["epsilon"]["achieved"], findings["statistical"]["epsilon_lower"]) == (math.inf, math.inf)


def test_local_dp_covers_any_two_secrets():
    channel = randomised_response(3, 1.0)
    guarantee = evolve(make_guarantee(1.0), unit="per sender")
    findings = attack_channel(channel, Answers(channel_of=channel), guarantee)
    assert findings["epsilon"]["achieved"] == pytest.approx(1.0, rel=1e-12)


def test_command_audits_release_without_matrix(tmp_path, monkeypatch):
    from helpers.charging import run_command

    from privopt.command.new import new_plugin
    from privopt.registry import Registered, registry, using
    from privopt.run.solve import solve

    folder = new_plugin("acme-heard", tmp_path, "sampler")
    monkeypatch.syspath_prepend(str(folder / "src"))
    import acme_heard

    [spec] = acme_heard.privopt_mechanisms()
    with using(registry().replace(Registered(spec=spec, plugin="acme-heard", version="0.1.0"))):
        solve("acme-heard", folder / "example.toml", tmp_path / "out")
        code, output, err = run_command("audit", tmp_path / "out", "--json")
    assert code == 0, err
    audited = json.loads(output)
    assert 0 < audited["bayes_error"] < 1
    assert audited["entropy_bits"] > 0
    assert audited["epsilon"]["achieved"] is None  # per step, and the channel states no distances
