"""What is said to a plugin's author whose mechanism returns the wrong thing; nothing is ever written then."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from click.testing import CliRunner

from privopt.command.cli import cli
from privopt.errors import CertificationError, InputError, ModelError, PrivoptError, RegistryError
from privopt.interfaces import Certificate, Outcome
from privopt.registry import Registered, registry, using
from privopt.run.solve import solve
from privopt.run.verify import verify
from privopt.specs import MechanismSpec, MethodSpec
from privopt_metric_dp.matrix.privacy import MetricDP
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.mechanisms.answer import Matrix
from privopt_metric_dp.mechanisms.base import MetricMechanism


class Right(MetricMechanism):
    """The same answer whatever the secret."""

    def matrix(self, problem: Any, context: Any) -> Matrix:
        return Matrix(z=np.full(problem.data.shape, 1 / problem.data.shape[1]), solver={"name": "none"})


class BareMatrix(Right):
    def solve(self, problem, context):
        return self.matrix(problem, context).z


class NoPrivacy(Right):
    def privacy(self, problem, method):
        return None


class NoUtility(Right):
    def utility(self, problem, method):
        return "expected loss"


class Unmeasured(MetricDP):
    def measure(self, release):
        blank = {"worst": None, "allowed": None, "checked": 0, "arithmetic": "none"}
        return Certificate(holds=None, evidence="none", kind="metric-dp", **blank)


class NeverMeasured(Right):
    def privacy(self, problem, method):
        data = problem.data
        return Unmeasured(epsilon=data.epsilon, unit=f"per {data.unit}", scope="all-pairs")


class Trusting(MetricDP):
    def measure(self, release):
        return True


class CertificateOfBool(Right):
    def privacy(self, problem, method):
        return Trusting(epsilon=problem.data.epsilon, unit="per km", scope="all-pairs")


class Raises(Right):
    def matrix(self, problem, context):
        return {}["z"]


class NanMatrix(Right):
    def matrix(self, problem, context):
        return Matrix(z=np.full(problem.data.shape, np.nan))


class FlatMatrix(Right):
    def matrix(self, problem, context):
        return Matrix(z=np.ones(problem.data.shape[0]))


class OtherKind(Right):
    def privacy(self, problem, method):
        made = super().privacy(problem, method)
        guarantee = evolve(made.guarantee, kind="pure-dp")
        return type("Other", (type(made),), {"guarantee": guarantee})(
            epsilon=made.epsilon, unit=made.unit, scope=made.scope
        )


class Unreadable(Right):
    class release_class(MatrixRelease):
        @classmethod
        def read(cls, folder, problem):
            raise KeyError("rows")


class OddDetails(Right):
    def verify(self, problem, release, result):
        return [result.details.facts["never"]]


class Abstract(MetricMechanism):
    pass


def registered(cls):
    """Return a block in which a class of this file is the mechanism under-trial."""
    spec = MechanismSpec(
        name="under-trial",
        target=f"{__name__}:{cls.__name__}",
        guarantee="metric-dp",
        summary="",
        methods=[MethodSpec(name="solve", summary="")],
    )

    class Here(Registered):
        def load(self):
            sys.modules.setdefault(__name__, sys.modules[cls.__module__])
            return cls()

    made = Here(spec=spec, plugin="acme", version="1.0")
    return using(registry().replace(made))


@pytest.mark.parametrize(
    ("cls", "error", "words"),
    [
        (
            BareMatrix,
            RegistryError,
            r"acme: under-trial: solve\(\) must return privopt.interfaces.Outcome, got ndarray",
        ),
        (NoPrivacy, RegistryError, r"privacy\(\) must return privopt.interfaces.PrivacyConstraint, got NoneType"),
        (NoUtility, RegistryError, r"utility\(\) must return a privopt.interfaces.UtilityLoss, got str"),
        (CertificateOfBool, RegistryError, r"measure\(\) must return privopt.interfaces.Certificate, got bool"),
        (NeverMeasured, CertificationError, "metric-dp is claimed but was not measured"),
        (OtherKind, CertificationError, "registered as metric-dp but claims pure-dp"),
        (NanMatrix, PrivoptError, "matrix|probabilit|number|shape|finite|sum|row"),
        (FlatMatrix, PrivoptError, "matrix|probabilit|number|shape|finite|sum|row"),
    ],
)
def test_it_is_refused_with_names(cls, error, words, toy, tmp_path):
    with registered(cls), pytest.raises(error, match=words):
        solve("under-trial", toy, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_right_one_is_not(toy, tmp_path):
    with registered(Right):
        assert solve("under-trial", toy, tmp_path / "out").result.certificate.holds is True


def test_a_claim_that_cannot_be_measured_does_not_verify(toy, tmp_path):
    with registered(Right):
        solve("under-trial", toy, tmp_path / "out")
    with registered(NeverMeasured):
        assert any("cannot be measured" in line for line in verify(tmp_path / "out").complaints)


def test_what_a_plugin_cannot_read_is_the_folders_fault(toy, tmp_path):
    with registered(Right):
        solve("under-trial", toy, tmp_path / "out")
    with registered(Unreadable), pytest.raises(InputError, match=r"cannot be read .KeyError: 'rows'"):
        verify(tmp_path / "out")
    with registered(OddDetails):
        assert any("details: acme cannot check them" in line for line in verify(tmp_path / "out").complaints)


def test_a_plugins_own_error_is_code_5_and_keeps_its_traceback(toy, tmp_path):
    with registered(Raises):
        done = CliRunner().invoke(cli, ["solve", "under-trial", str(toy), "--out", str(tmp_path / "out"), "--quiet"])
    assert done.exit_code == 5
    assert 'return {}["z"]' in done.stderr
    assert "not of your input" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_what_is_missing_is_named():
    made = Registered(
        spec=MechanismSpec(
            name="under-trial",
            target="test_plugin_faults_nowhere:Abstract",
            guarantee="metric-dp",
            summary="",
            methods=[MethodSpec(name="solve", summary="")],
        ),
        plugin="acme",
        version="1.0",
    )
    with pytest.raises(RegistryError, match="acme: under-trial: test_plugin_faults_nowhere:Abstract cannot be loaded"):
        made.load()
    with pytest.raises(ModelError, match="neither matrix nor search"):
        Abstract().matrix(None, None)
    assert Outcome(release=None).stopped is False
