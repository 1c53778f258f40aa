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
        constraint = super().privacy(problem, method)
        guarantee = evolve(constraint.guarantee, kind="pure-dp")
        return type("Other", (type(constraint),), {"guarantee": guarantee})(
            epsilon=constraint.epsilon, unit=constraint.unit, scope=constraint.scope
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


def register_under_trial(cls):
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

    registered_entry = Here(spec=spec, plugin="acme", version="1.0")
    return using(registry().replace(registered_entry))


@pytest.mark.parametrize(
    ("cls", "error", "words"),
    [
        (
            BareMatrix,
            RegistryError,
            "under-trial: solve\\(\\) .*got ndarray",
        ),
        (NoPrivacy, RegistryError, "privacy\\(\\) .*got NoneType"),
        (NoUtility, RegistryError, "utility\\(\\) .*got str"),
        (CertificateOfBool, RegistryError, "measure\\(\\) .*got bool"),
        (NeverMeasured, CertificationError, "claimed .*not measured"),
        (OtherKind, CertificationError, "metric-dp .*claims pure-dp"),
        (NanMatrix, PrivoptError, "matrix|probabilit|number|shape|finite|sum|row"),
        (FlatMatrix, PrivoptError, "matrix|probabilit|number|shape|finite|sum|row"),
    ],
)
def test_refuses_faulty_plugins_by_name(cls, error, words, toy, tmp_path):
    with register_under_trial(cls), pytest.raises(error, match=words):
        solve("under-trial", toy, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_accepts_a_correct_plugin(toy, tmp_path):
    with register_under_trial(Right):
        assert solve("under-trial", toy, tmp_path / "out").result.certificate.holds is True


def test_unmeasurable_claim_does_not_verify(toy, tmp_path):
    with register_under_trial(Right):
        solve("under-trial", toy, tmp_path / "out")
    with register_under_trial(NeverMeasured):
        assert any("cannot be measured" in line for line in verify(tmp_path / "out").complaints)


def test_unreadable_release_is_a_fault_of_the_folder(toy, tmp_path):
    with register_under_trial(Right):
        solve("under-trial", toy, tmp_path / "out")
    with register_under_trial(Unreadable), pytest.raises(InputError, match=r"KeyError: 'rows'"):
        verify(tmp_path / "out")
    with register_under_trial(OddDetails):
        assert any("details: acme cannot" in line for line in verify(tmp_path / "out").complaints)


def test_error_of_a_plugin_is_code_5_with_traceback(toy, tmp_path):
    with register_under_trial(Raises):
        completed = CliRunner().invoke(
            cli, ["solve", "under-trial", str(toy), "--out", str(tmp_path / "out"), "--quiet"]
        )
    assert completed.exit_code == 5
    assert 'return {}["z"]' in completed.stderr
    assert "your input" in completed.stderr.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_broken_pipe_of_a_plugin_does_not_verify(toy, tmp_path):
    """A pipe of its own, such as to a worker process, is not the one that the command's output goes to."""

    class Piping(Right):
        def privacy(self, problem, method):
            raise BrokenPipeError

    with register_under_trial(Right):
        solve("under-trial", toy, tmp_path / "out")
    with register_under_trial(Piping):
        completed = CliRunner().invoke(cli, ["verify", str(tmp_path / "out")])
    assert completed.exit_code == 5


@pytest.mark.parametrize("code", [0, 1, 3, "a message"])
def test_exit_of_a_plugin_is_code_5(code, toy, tmp_path):
    """A code of its own would say that the release was written, or that a claim does not hold."""
    exiting = type("Exits", (Right,), {"matrix": lambda self, problem, context: sys.exit(code), "__module__": __name__})
    with register_under_trial(exiting):
        completed = CliRunner().invoke(
            cli, ["solve", "under-trial", str(toy), "--out", str(tmp_path / "out"), "--quiet"]
        )
    assert completed.exit_code == 5
    assert f"SystemExit: {code}" in completed.stderr
    assert not (tmp_path / "out").exists()


def test_names_missing_methods():
    entry = Registered(
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
    with pytest.raises(RegistryError, match=r"acme: under-trial: .*Abstract"):
        entry.load()
    with pytest.raises(ModelError, match="matrix nor search"):
        Abstract().matrix(None, None)
    assert Outcome(release=None).stopped is False
