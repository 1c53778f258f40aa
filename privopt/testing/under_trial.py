"""A mechanism under trial: run through the real pipeline, in a separate registry, and watched while it solves."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Hashable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from attrs import AttrsInstance, define, evolve, field, frozen

from privopt.declare import load_problem
from privopt.errors import PrivoptError, StoppedError, UsageError
from privopt.execution.interrupts import interrupts
from privopt.interfaces import Guarantee, Mechanism, Outcome, PrivacyConstraint, Result, SolveContext
from privopt.registry import Registered, registry, using
from privopt.run import publish
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify_cache import CACHE
from privopt.specs import NOTHING, MechanismSpec, MethodSpec
from privopt.testing.fingerprints import changes, fingerprint
from privopt.testing.nature import nature
from privopt.testing.noise import limited
from privopt.testing.problems import GeneratedProblem
from privopt.testing.profile import Profile, profile_of

MAX_KEPT_RUNS: Final = 400
"""Runs that are kept for the checks that come later."""


@frozen(kw_only=True, eq=False)
class SolveRecord:
    """What happened inside the mechanism's ``solve``.

    Attributes:
        problem: as loaded.
        outcome: what ``solve`` returned.
        changed: places in the problem that ``solve`` changed.
    """

    problem: Any
    outcome: Outcome[Any]
    changed: tuple[str, ...]


@frozen(kw_only=True, eq=False)
class Run:
    """One run of the pipeline.

    Attributes:
        given: the problem handed in.
        source: its file.
        folder: DIR.
        result: result.json.
        seen: the inside, where ``solve`` returned.
        error: what was raised instead.

    ``stated``, ``problem`` and ``release`` are only asked of runs that ended well.
    """

    given: GeneratedProblem
    source: Path
    folder: Path
    result: Result | None = None
    seen: SolveRecord | None = None
    error: Exception | None = None

    @property
    def stated(self) -> Result:
        """What result.json says."""
        assert self.result is not None
        return self.result

    @property
    def problem(self) -> Any:
        """The problem as the mechanism got it."""
        assert self.seen is not None
        return self.seen.problem

    @property
    def release(self) -> Any:
        """The release as the mechanism returned it."""
        assert self.seen is not None
        return self.seen.outcome.release


@frozen(kw_only=True)
class _Recorder(Registered):
    """A registered mechanism whose ``solve`` notes what goes in and comes out."""

    mechanism_class: type[Mechanism[Any, Any]]
    notes: list[SolveRecord] = field(factory=list, eq=False)

    def load(self) -> Mechanism[Any, Any]:
        cls, notes = self.mechanism_class, self.notes

        def watched(self: Mechanism[Any, Any], problem: object, context: SolveContext) -> Outcome[Any]:
            before = fingerprint(problem)
            with limited():
                outcome = cls.solve(self, problem, context)
            notes.append(SolveRecord(problem=problem, outcome=outcome, changed=changes(before, fingerprint(problem))))
            return outcome

        body = {"solve": watched, "__module__": cls.__module__, "__doc__": cls.__doc__}
        made: Mechanism[Any, Any] = type(cls.__name__, (cls,), body)()
        return made


@define(kw_only=True, eq=False)
class Subject:
    """One method of a mechanism, ready to be tried.

    Attributes:
        spec: the mechanism as data.
        mechanism_class: its class.
        method: which method.
        profile: how to try it.
        kind: guarantee that it is held against: the claimed one, or its paper's where it claims none.
        private: whether ``kind`` is what the release itself claims.
        siblings: methods of the mechanism that share the time there is.
    """

    spec: MechanismSpec
    mechanism_class: type[Mechanism[Any, Any]]
    method: MethodSpec
    profile: Profile
    kind: str
    private: bool
    siblings: int = 1
    plugin: str = "under trial"
    version: str = "0"
    _folder: Path | None = field(default=None, init=False)
    _kept: dict[Any, Run] = field(factory=dict, init=False)
    _count: int = field(default=0, init=False)

    @property
    def name(self) -> str:
        """``mechanism --method method``."""
        return f"{self.spec.name} --method {self.method.name}"

    @property
    def noisy(self) -> bool:
        """Whether the guarantee is kept by noise in the release, so that its loss is random."""
        return "noise" in self.traits

    @property
    def promises(self) -> bool:
        """Whether anything is claimed, be it in the paper alone."""
        return self.kind != NOTHING

    @property
    def traits(self) -> frozenset[str]:
        """What its releases are, and what their notion bounds (:func:`privopt.testing.nature.nature`)."""
        return nature(self.mechanism_class.release_class, self.notion)

    @property
    def mechanism(self) -> Mechanism[Any, Any]:
        """A fresh instance, not watched."""
        return self.mechanism_class()

    def epsilon(self, problem: object) -> Fraction:
        """Return the budget that the release claims for a problem, or that the paper claims."""
        claimed = self.mechanism.privacy(problem, self.method.name).guarantee.epsilon
        return self.profile.epsilon(problem) if claimed is None else claimed

    @property
    def notion(self) -> type[PrivacyConstraint[Any]]:
        """The notion that it is held against."""
        found: type[PrivacyConstraint[Any]] = registry().kind("notion", self.kind).load()
        return found

    def claimed(self, problem: object) -> Guarantee:
        """Return the release's claim for a problem, or its paper's claim at the problem's epsilon."""
        stated = self.mechanism.privacy(problem, self.method.name).guarantee
        return stated if stated.kind == self.kind else Guarantee(kind=self.kind, epsilon=self.profile.epsilon(problem))

    def declared(self, problem: GeneratedProblem) -> AttrsInstance:
        """Return the problem file, read by the mechanism's own problem class."""
        path = problem.write(self.new_folder())
        return load_problem(self.mechanism_class.problem_class, path, ignore=registry().mechanisms.keys())

    def load(self, problem: GeneratedProblem) -> Any:
        """Load what the mechanism's methods work on."""
        return self.mechanism.load(self.declared(problem), "problem.toml")

    def new_folder(self) -> Path:
        """Return an empty folder that :meth:`close` removes."""
        self._count += 1
        folder = self._home() / str(self._count)
        folder.mkdir()
        return folder

    def _home(self) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="privopt-kit-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder

    def close(self) -> None:
        """Remove everything that was written."""
        self._kept.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    @contextlib.contextmanager
    def registered(self) -> Iterator[_Recorder]:
        """Make the registry hold this mechanism, and what is installed with it, in this block.

        What is found to hold inside is remembered for this subject alone: no one else's folders are believed for it.
        What is written inside is forced onto no disk, for it is to outlive no power cut: that took a third of a run.
        """
        here = _Recorder(spec=self.spec, plugin=self.plugin, version=self.version, mechanism_class=self.mechanism_class)
        known = registry()
        taken = known.with_instead(mechanisms={**known.mechanisms, self.spec.name: here})
        held = {CACHE: str(self._home() / "held")}
        with using(taken), patch.dict(os.environ, held), patch.object(publish, "_flush", lambda folder: None):
            yield here

    def run(self, problem: GeneratedProblem, *, fresh: Hashable = 0, **options: Any) -> Run:
        """Run the pipeline on a problem; the same call is answered from what was kept.

        Args:
            problem: to solve.
            fresh: another value asks for another run.
            options: of :class:`privopt.run.options.Options`.
        """
        key = (problem.identity, fresh, tuple(sorted(options.items())))
        found = self._kept.pop(key, None)  # it becomes the youngest: a check may still read its folder after the next
        if found is None:
            if len(self._kept) >= MAX_KEPT_RUNS:
                self._forget()
            found = self._run(problem, options)
        self._kept[key] = found
        return found

    def _forget(self) -> None:
        for key in list(self._kept)[: MAX_KEPT_RUNS // 4]:
            shutil.rmtree(self._kept.pop(key).folder.parent, ignore_errors=True)

    def _run(self, problem: GeneratedProblem, options: Mapping[str, Any]) -> Run:
        home = self.new_folder()
        made = Run(given=problem, source=problem.write(home / "given"), folder=home / "out")
        chosen = Options(method=self.method.name, allow_unsafe=True, **options)
        with self.registered() as here, interrupts() as came:
            try:
                solved = solve(self.spec.name, made.source, made.folder, chosen)
            except Exception as error:  # whatever a mechanism raises is a finding, not the kit's end
                if came and "time_limit" not in options:
                    raise KeyboardInterrupt from error  # somebody wants the kit to end, not this solve alone
                return evolve(made, error=error, seen=here.notes[-1] if here.notes else None)
        if solved.stopped and "time_limit" not in options:
            if came:
                raise KeyboardInterrupt
            found = "solve returned stopped=True, yet no limit was set and no interrupt came"
            return evolve(made, error=StoppedError(found), seen=here.notes[-1])
        return evolve(made, result=solved.result, seen=here.notes[-1])


def spec_of(cls: type[Mechanism[Any, Any]], guarantee: str) -> MechanismSpec:
    """Return the registration of a class: one method, called solve."""
    notions = registry().names("notion")
    if guarantee not in notions:
        raise UsageError(
            f"{cls.__name__} must be given spec=MechanismSpec(...), or guarantee= one of {', '.join(notions)}"
        )
    words = "".join(f"-{c.lower()}" if c.isupper() else c for c in cls.__name__ if c.isalnum()).strip("-")
    return MechanismSpec(
        name=f"under-trial-{words}".replace("--", "-"),
        target=f"{cls.__module__}:{cls.__name__}",
        guarantee=guarantee,
        summary="under trial",
        methods=[MethodSpec(name="solve", summary="the only one")],
    )


def subject(
    mechanism: str | type[Mechanism[Any, Any]],
    method: str | None = None,
    *,
    spec: MechanismSpec | None = None,
    guarantee: str = "",
    profile: Profile | None = None,
) -> Subject:
    """Return one method of a mechanism as a subject.

    Args:
        mechanism: name of an installed mechanism, or a class.
        method: its default where None.
        spec: for a class: what it would be registered as.
        guarantee: for a class without a spec: the kind it claims.
        profile: its own, or its problem class's default, where None.
    """
    if isinstance(mechanism, str):
        registered = registry().get(mechanism)
        spec, cls = registered.spec, type(registered.load())
        plugin, version = registered.plugin, registered.version
    else:
        cls, plugin, version = mechanism, "under trial", "0"
        spec = spec or spec_of(cls, guarantee)
        registered = Registered(spec=spec, plugin=plugin, version=version)
    chosen = registered.method(method)
    profile = profile or profile_of(cls())
    kind = spec.kind_of(chosen)
    private = spec.promises(chosen)
    guaranteed = sum(map(spec.promises, spec.methods))
    return Subject(
        siblings=max(1, guaranteed),
        spec=spec,
        mechanism_class=cls,
        method=chosen,
        profile=profile,
        kind=(profile.notion or kind) if private else profile.claims.get(chosen.name, NOTHING),
        private=private,
        plugin=plugin,
        version=version,
    )


def error_text(error: BaseException) -> str:
    """Return an error as a message shows it."""
    text = " ".join(str(error).split())
    return text if isinstance(error, PrivoptError) else f"{type(error).__name__}: {text}"
