"""A mechanism under trial: run through the real pipeline, in a separate registry, and watched while it solves."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping
from copy import deepcopy
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, cast
from unittest.mock import patch

import attrs
from attrs import AttrsInstance, define, evolve, field, frozen

from privopt.declare import load_problem
from privopt.errors import PrivoptError, StoppedError, UsageError
from privopt.execution.interrupts import interrupts
from privopt.files import new_folder
from privopt.interfaces import Guarantee, Mechanism, Outcome, PrivacyConstraint, Release, SolveContext
from privopt.registry import Registered, registry, using
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify_cache import CACHE
from privopt.specs import NOTHING, MechanismSpec, MethodSpec
from privopt.testing.changes import changes
from privopt.testing.noise import watched
from privopt.testing.problems import GeneratedProblem
from privopt.testing.profile import Profile, profile_of

MAX_KEPT_RUNS: Final = 400
"""Runs that are kept for the checks that come later."""

TRAITS: Final = {
    "matrix": "the release is no matrix of weights",
    "sampler": "the release cannot be sampled",
    "noise": "the release is no draw of noise",
    "choice": "the release is no deterministic choice",
    "odds": "its notion bounds no odds",
    "tails": "its notion allows no delta",
}
"""Each of the core's traits, and what is said of a release without it."""


def missing_traits() -> dict[str, str]:
    """Return what is said of a release without a trait, by trait: the core's, and those that plugins bring."""
    return TRAITS | {name: one.spec.missing for name, one in registry().of("trait").items()}


def nature(release: type[Release], notion: type[PrivacyConstraint[Any]]) -> frozenset[str]:
    """Return the traits of the releases of a class that claim a notion.

    * ``matrix``: it has ``weights``, a row of whole numbers for each secret;
    * ``sampler``: it draws for any secret (:meth:`privopt.interfaces.Release.sample`);
    * ``odds``: the notion bounds odds (:attr:`privopt.interfaces.PrivacyConstraint.odds`);
    * ``tails``: the notion bounds them but for events of small probability (``PrivacyConstraint.tails``);
    * ``noise``: it is neither matrix nor sampler, and either is bounded: so what it publishes was drawn;
    * ``choice``: none of these, one result that follows from its input.

    Plugins bring further ones (:class:`privopt.specs.TraitSpec`).
    """
    found = {name for name in ("odds", "tails") if getattr(notion, name)}
    fields = {each.name for each in attrs.fields(release)} if attrs.has(release) else set()
    if hasattr(release, "weights") or "weights" in fields:
        found.add("matrix")
    if getattr(release, "sample", Release.sample) is not Release.sample:
        found.add("sampler")
    for name, one in registry().of("trait").items():
        has = cast("Callable[[type[Release]], bool]", one.import_target())
        found |= {name} if has(release) else set()
    if not found & {"matrix", "sampler"}:
        found.add("noise" if found & {"odds", "tails"} else "choice")
    return frozenset(found)


@frozen(kw_only=True, eq=False)
class Run:
    """One run of the pipeline.

    Attributes:
        given: the problem handed in.
        source: its file.
        folder: DIR.
        stated: what result.json says, a :class:`privopt.interfaces.Result`; None where the run did not end well.
        problem: as the mechanism got it; None where its ``solve`` did not return, like the next.
        release: as the mechanism returned it.
        changed: what ``solve`` changed in the problem, and where.
        error: what was raised.
    """

    given: GeneratedProblem
    source: Path
    folder: Path
    stated: Any = None
    problem: Any = None
    release: Any = None
    changed: tuple[str, ...] = ()
    error: Exception | None = None


@frozen(kw_only=True)
class _Recorder(Registered):
    """A registered mechanism whose ``solve`` notes what goes in and comes out, by attributes of :class:`Run`."""

    mechanism_class: type[Mechanism[Any, Any]]
    notes: dict[str, Any] = field(factory=dict, eq=False)

    def load(self) -> Mechanism[Any, Any]:
        cls, notes = self.mechanism_class, self.notes

        def noted(self: Mechanism[Any, Any], problem: object, context: SolveContext) -> Outcome[Any]:
            before = None
            with contextlib.suppress(Exception):  # what cannot be copied is not compared
                before = deepcopy(problem)
            with watched():
                outcome = cls.solve(self, problem, context)
            changed = tuple(changes(before, problem, "problem"))
            notes.update(problem=problem, release=outcome.release, changed=changed)
            return outcome

        body = {"solve": noted, "__module__": cls.__module__, "__doc__": cls.__doc__}
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
    def noisy(self) -> bool:
        """Whether the guarantee is kept by noise in the release, so that its loss is random."""
        return "noise" in self.traits

    @property
    def traits(self) -> frozenset[str]:
        """What its releases are, and what their notion bounds (:func:`privopt.testing.under_trial.nature`)."""
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

    def outcome(self, loaded: object, **options: Any) -> Outcome[Any]:
        """Solve what was loaded, without the pipeline; ``options`` of :class:`privopt.interfaces.SolveContext`."""
        context = SolveContext(method=self.method.name, gap=self.method.gap, **options)
        return self.mechanism.solve(loaded, context)

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
        held = {CACHE: str(self._home() / "held")}
        with (
            using(registry().replace(here)),
            patch.dict(os.environ, held),
            patch.object(new_folder, "flush_folder", lambda folder: None),
        ):
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
                return evolve(made, error=error, **here.notes)
        if solved.stopped and "time_limit" not in options:
            if came:
                raise KeyboardInterrupt
            found = "solve returned stopped=True, yet no limit was set and no interrupt came"
            return evolve(made, error=StoppedError(found), **here.notes)
        return evolve(made, stated=solved.result, **here.notes)


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
        cls = type(registered.load())
    else:
        cls = mechanism
        registered = Registered(spec=spec or spec_of(cls, guarantee), plugin="under trial", version="0")
    spec = registered.spec
    chosen = registered.method(method)
    profile = profile or profile_of(cls())
    private = spec.promises(chosen)
    return Subject(
        siblings=max(1, sum(map(spec.promises, spec.methods))),
        spec=spec,
        mechanism_class=cls,
        method=chosen,
        profile=profile,
        kind=(profile.notion or spec.kind_of(chosen)) if private else profile.claims.get(chosen.name, NOTHING),
        private=private,
        plugin=registered.plugin,
        version=registered.version,
    )


def error_text(error: BaseException) -> str:
    """Return an error as a message shows it."""
    text = " ".join(str(error).split())
    return text if isinstance(error, PrivoptError) else f"{type(error).__name__}: {text}"
