"""A mechanism under test, run in the real pipeline with its own registry and a recorded ``solve``.

:class:`Subject` is one method of a mechanism. It caches its runs, because most checks use the same problems.
"""

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
from privopt.errors import PrivoptError, RegistryError, StoppedError, UsageError
from privopt.execution.clock import interrupts
from privopt.files import new_folder
from privopt.interfaces import Guarantee, Mechanism, Outcome, PrivacyConstraint, Release, Result, SolveContext
from privopt.registry import Entry, Registered, registry, using
from privopt.run import solve as pipeline
from privopt.run.publish import Run as PipelineRun
from privopt.run.publish import SolveOutcome
from privopt.run.solve import solve
from privopt.run.task import Options, Task
from privopt.run.verify import CACHE
from privopt.specs import NOTHING, MechanismSpec, MethodSpec
from privopt.testing.changes import changes
from privopt.testing.noise import watch_noise
from privopt.testing.problems import GeneratedProblem
from privopt.testing.profile import Profile, profile_of

MAX_KEPT_RUNS: Final = 400
"""The maximum number of runs cached by a subject for later checks."""

TRAITS: Final = {
    "matrix": "the release is no matrix of weights",
    "sampler": "the release cannot be sampled",
    "noise": "the release is no draw of noise",
    "choice": "the release is no deterministic choice",
    "odds": "its notion bounds no odds",
    "tails": "its notion allows no delta",
}
"""The core's traits, each with the reason why checks that need the trait do not apply to a release without it."""


def missing_traits() -> dict[str, str]:
    """Return a dict that explains, for each trait, why checks that require it do not apply to releases without it.

    The dict contains the core's traits (:data:`TRAITS`) and those registered by plugins.
    """
    return TRAITS | {name: entry.spec.missing for name, entry in _plugin_traits().items()}


def _plugin_traits() -> dict[str, Entry[Any]]:
    """Return the traits registered by plugins, keyed by name.

    Raises:
        RegistryError: A plugin's trait has the same name as one of the core's, and would therefore select the core's
            checks.
    """
    traits = registry().of("trait")
    for name, entry in traits.items():
        if name in TRAITS:
            raise RegistryError(f"{entry.origin}: the trait {name!r} must have another name, for the core has one")
    return traits


def traits_of(release: type[Release], notion: type[PrivacyConstraint[Any]]) -> frozenset[str]:
    """Return the traits of a release class under a privacy notion, which determine the checks that apply.

    * ``matrix``: the release has ``weights``, a row of integers for each secret;
    * ``sampler``: the release can draw a report for any secret (:meth:`privopt.interfaces.Release.sample`);
    * ``odds``: the notion bounds odds (:attr:`privopt.interfaces.PrivacyConstraint.odds`);
    * ``tails``: the notion bounds odds except for events of small probability (``PrivacyConstraint.tails``);
    * ``noise``: the release is neither a matrix nor a sampler, but the notion has ``odds`` or ``tails``, so the release
      must itself be a random draw;
    * ``choice``: the release has none of the traits above, so it is a deterministic function of its input.

    Plugins can add further traits (:class:`privopt.specs.TraitSpec`).
    """
    traits = {name for name in ("odds", "tails") if getattr(notion, name)}
    fields = {attribute.name for attribute in attrs.fields(release)} if attrs.has(release) else set()
    if hasattr(release, "weights") or "weights" in fields:
        traits.add("matrix")
    # A class can be sampled if it overrides the base class's method, which raises an error.
    if getattr(release, "sample", Release.sample) is not Release.sample:
        traits.add("sampler")
    for name, entry in _plugin_traits().items():
        has_trait = cast("Callable[[type[Release]], bool]", entry.import_target())
        traits |= {name} if has_trait(release) else set()
    if not traits & {"matrix", "sampler"}:
        traits.add("noise" if traits & {"odds", "tails"} else "choice")
    return frozenset(traits)


@frozen(kw_only=True, eq=False)
class Run:
    """One run of the pipeline.

    Attributes:
        given: The generated problem.
        source: The path of the problem file.
        folder: The output folder.
        stated: The :class:`privopt.interfaces.Result` from result.json, or None if the run failed.
        problem: The loaded problem solved by the mechanism, or None if its ``solve`` did not return.
        release: The release returned by the mechanism, or None if its ``solve`` did not return.
        changed: Sentences that describe how ``solve`` changed the problem. Empty if the run did not compare the
            problem.
        error: The error that ended the run, or None if it succeeded.
    """

    given: GeneratedProblem
    source: Path
    folder: Path
    stated: Any = None
    problem: Any = None
    release: Any = None
    changed: tuple[str, ...] = ()
    error: Exception | SystemExit | None = None


@frozen(kw_only=True)
class _Recorder(Registered):
    """A registry entry for a mechanism whose ``solve`` records the problem and the release.

    Attributes:
        mechanism_class: The class under test.
        compared: Whether to compare the problem after the solve with a copy made before it (:attr:`Run.changed`).
        notes: The values recorded by the last ``solve``, keyed by the name of an attribute of :class:`Run`.
    """

    mechanism_class: type[Mechanism[Any, Any]]
    compared: bool = False
    notes: dict[str, Any] = field(factory=dict, eq=False)

    def load(self) -> Mechanism[Any, Any]:
        """Return an instance of the mechanism under test whose ``solve`` records the problem and the release."""
        cls, notes, compared = self.mechanism_class, self.notes, self.compared

        def solve_and_note(self: Mechanism[Any, Any], problem: object, context: SolveContext) -> Outcome[Any]:
            """Solve the problem as the class under test does, and record the problem, the release and any changes."""
            original_problem = None
            if compared:
                with contextlib.suppress(Exception):  # a problem that cannot be copied is not compared
                    original_problem = deepcopy(problem)
            with watch_noise():  # this stops a mechanism that never stops drawing noise
                outcome = cls.solve(self, problem, context)
            changed = tuple(changes(original_problem, problem, "problem"))
            notes.update(problem=problem, release=outcome.release, changed=changed)
            return outcome

        # The subclass has the same name as the class under test, because messages contain the name.
        body = {"solve": solve_and_note, "__module__": cls.__module__, "__doc__": cls.__doc__}
        instance: Mechanism[Any, Any] = type(cls.__name__, (cls,), body)()
        return instance


def _leave_unwritten(task: Task, outcome: Outcome[Any], result: Result, run: PipelineRun) -> SolveOutcome:
    """Return the outcome of a certified run without writing the release.

    This function replaces :func:`privopt.run.publish.publish_release`.

    Args:
        task: The task, which consists of the problem and the mechanism.
        outcome: The mechanism's outcome.
        result: The result, with the certificate.
        run: The run, with its options and folder.
    """
    return SolveOutcome(folder=run.out, result=result, stopped=outcome.stopped)


@define(kw_only=True, eq=False)
class Subject:
    """One method of a mechanism, ready to be tested.

    Attributes:
        spec: The mechanism's registration.
        mechanism_class: The mechanism's class.
        method: The method under test.
        profile: The mechanism's profile.
        kind: The kind of guarantee to check. It is the one claimed by the method or, if the method claims none, by its
            paper.
        private: Whether the method itself claims ``kind``.
        siblings: The number of the mechanism's methods that share the available time.
        plugin: The name of the package that registered the mechanism.
        version: The version of that package.
        _folder: This subject's temporary folder, or None before its first use.
        _runs: The cached runs, keyed by problem and options, with the least recently used first.
        _count: The number of subfolders created so far.
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
    _runs: dict[Any, Run] = field(factory=dict, init=False)
    _count: int = field(default=0, init=False)

    @property
    def noisy(self) -> bool:
        """Whether the guarantee comes from noise in the release, so that the loss is random."""
        return "noise" in self.traits

    @property
    def traits(self) -> frozenset[str]:
        """The traits of the method's releases under their notion (:func:`privopt.testing.under_trial.traits_of`)."""
        return traits_of(self.mechanism_class.release_class, self.notion)

    @property
    def mechanism(self) -> Mechanism[Any, Any]:
        """A new instance of the mechanism, whose ``solve`` is not recorded."""
        return self.mechanism_class()

    def epsilon(self, problem: object) -> Fraction:
        """Return the epsilon claimed by the method for a loaded problem, or the profile's epsilon if it claims none."""
        claimed = self.mechanism.privacy(problem, self.method.name).guarantee.epsilon
        return self.profile.epsilon(problem) if claimed is None else claimed

    @property
    def notion(self) -> type[PrivacyConstraint[Any]]:
        """The class of the privacy notion named by :attr:`kind`, against which the checks test releases."""
        notion_class: type[PrivacyConstraint[Any]] = registry().kind("notion", self.kind).load()
        return notion_class

    def claim_of(self, problem: object) -> Guarantee:
        """Return the guarantee claimed for a loaded problem.

        This is the method's own guarantee if it is of :attr:`kind`. Otherwise, it is the guarantee that the method's
        paper claims, at the problem's epsilon.
        """
        own_guarantee = self.mechanism.privacy(problem, self.method.name).guarantee
        if own_guarantee.kind == self.kind:
            return own_guarantee
        return Guarantee(kind=self.kind, epsilon=self.profile.epsilon(problem))

    def read_problem(self, problem: GeneratedProblem) -> AttrsInstance:
        """Write a generated problem to a new folder, and parse its problem file into the mechanism's problem class."""
        path = problem.write(self.new_folder())
        return load_problem(self.mechanism_class.problem_class, path, ignore=registry().mechanisms.keys())

    def load(self, problem: GeneratedProblem) -> Any:
        """Load a generated problem, including the contents of its files, in the same way as the mechanism."""
        return self.mechanism.load(self.read_problem(problem), "problem.toml")

    def outcome(self, loaded: object, **options: Any) -> Outcome[Any]:
        """Solve a loaded problem directly, without the pipeline, and return the outcome.

        Args:
            loaded: The loaded problem to solve.
            options: Additional arguments for :class:`privopt.interfaces.SolveContext`.
        """
        context = SolveContext(method=self.method.name, gap=self.method.gap, **options)
        return self.mechanism.solve(loaded, context)

    def new_folder(self) -> Path:
        """Create an empty folder and return its path. :meth:`close` removes the folder."""
        self._count += 1
        folder = self._home_folder() / str(self._count)
        folder.mkdir()
        return folder

    def _home_folder(self) -> Path:
        """Return this subject's temporary folder, creating it on first use."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="privopt-kit-"))
            # The folder is removed even if nobody calls close().
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder

    def close(self) -> None:
        """Remove all files written for this subject."""
        self._runs.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    @contextlib.contextmanager
    def registered(self, *, compared: bool = False) -> Iterator[_Recorder]:
        """Replace the mechanism in the registry with a recorder for the duration of a ``with`` block.

        The block uses a separate verification cache, so that results cached by other runs are not reused. Files are not
        flushed to disk. They need not survive a power failure, and flushing would take about a third of a run's time.

        Args:
            compared: Whether to compare each problem after its solve with a copy made before it. The comparison takes
                about 5 % of a run's time.
        """
        recorder = _Recorder(
            spec=self.spec,
            plugin=self.plugin,
            version=self.version,
            mechanism_class=self.mechanism_class,
            compared=compared,
        )
        environment = {CACHE: str(self._home_folder() / "held")}
        with (
            using(registry().replace(recorder)),
            patch.dict(os.environ, environment),
            patch.object(new_folder, "flush_folder", lambda folder: None),
        ):
            yield recorder

    def run(
        self,
        problem: GeneratedProblem,
        *,
        fresh: Hashable = 0,
        written: bool = True,
        compared: bool = False,
        **options: Any,
    ) -> Run:
        """Run the pipeline on a problem, or return the cached run from an earlier call with the same arguments.

        Args:
            problem: The problem to solve.
            fresh: A part of the cache key. Pass a new value to force a new run on the same problem.
            written: Whether to write the release and read it back. If False, the run ends after certification, takes
                half the time, and may have no folder. This suffices for checks that use only the release and its
                result, and discard failed runs.
            compared: Whether to compare the problem after the solve with a copy made before it (:attr:`Run.changed`).
            options: Additional arguments for :class:`privopt.run.task.Options`.
        """
        # Equal problems may be different objects, so the key consists of their texts.
        key = (problem.identity, fresh, tuple(sorted(options.items())), written, compared)
        # A run that was written and read back can also serve a check that does not need that.
        if not written and (*key[:3], True, compared) in self._runs:
            key = (*key[:3], True, compared)
        # The run is removed and inserted again, so that it becomes the last one. _forget_oldest removes the first runs,
        # but a check may still read this run's folder after the next run.
        earlier_run = self._runs.pop(key, None)
        if earlier_run is None:
            if len(self._runs) >= MAX_KEPT_RUNS:
                self._forget_oldest()
            earlier_run = self._run_pipeline(problem, options, written=written, compared=compared)
        self._runs[key] = earlier_run
        return earlier_run

    def _forget_oldest(self) -> None:
        """Remove the least recently used quarter of the cached runs, and delete their folders."""
        # The runs are in order of use, with the oldest first (see run). Each run's folder is alone in its parent
        # folder.
        for key in list(self._runs)[: MAX_KEPT_RUNS // 4]:
            shutil.rmtree(self._runs.pop(key).folder.parent, ignore_errors=True)

    def _run_pipeline(
        self, problem: GeneratedProblem, options: Mapping[str, Any], *, written: bool, compared: bool
    ) -> Run:
        """Run ``privopt solve`` on a problem, and return the run even if it ends in an error.

        Args:
            problem: The problem, which is written to a new folder.
            options: Additional arguments for :class:`privopt.run.task.Options`.
            written: Whether to write the release and read it back.
            compared: Whether to compare the problem after the solve with a copy made before it.

        Raises:
            KeyboardInterrupt: The user interrupted the kit.
        """
        home = self.new_folder()
        unfinished_run = Run(given=problem, source=problem.write(home / "given"), folder=home / "out")
        pipeline_options = Options(method=self.method.name, allow_unsafe=True, **options)
        publication = (
            contextlib.nullcontext() if written else patch.object(pipeline, "publish_release", _leave_unwritten)
        )
        with self.registered(compared=compared) as recorder, interrupts() as interrupt_received, publication:
            try:
                summary = solve(self.spec.name, unfinished_run.source, unfinished_run.folder, pipeline_options)
            except (Exception, SystemExit) as error:  # the mechanism's error is a finding, and must not end the kit
                if interrupt_received and "time_limit" not in options:
                    raise KeyboardInterrupt from error  # the user wants to end the kit, not only this solve
                return evolve(unfinished_run, error=error, **recorder.notes)
        if summary.stopped and "time_limit" not in options:
            if interrupt_received:
                raise KeyboardInterrupt
            message = "solve returned stopped=True, yet no limit was set and no interrupt came"
            return evolve(unfinished_run, error=StoppedError(message), **recorder.notes)
        return evolve(unfinished_run, stated=summary.result, **recorder.notes)


def spec_of(cls: type[Mechanism[Any, Any]], guarantee: str) -> MechanismSpec:
    """Return a registration for a mechanism class that has a single method, named ``solve``.

    Args:
        cls: The mechanism class.
        guarantee: The name of the privacy notion claimed by the mechanism.

    Raises:
        UsageError: There is no privacy notion with that name.
    """
    notions = registry().names("notion")
    if guarantee not in notions:
        raise UsageError(
            f"{cls.__name__} must be given spec=MechanismSpec(...), or guarantee= one of {', '.join(notions)}"
        )
    # Registered names are words joined by hyphens, so the class's name is converted to that form.
    kebab_name = "".join(f"-{c.lower()}" if c.isupper() else c for c in cls.__name__ if c.isalnum()).strip("-")
    return MechanismSpec(
        name=f"under-trial-{kebab_name}".replace("--", "-"),
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
    """Return one method of a mechanism as a :class:`Subject`, ready to be tested.

    Args:
        mechanism: The name of an installed mechanism, or a Mechanism class.
        method: The method's name. If None, the default method is tested.
        spec: The registration of a class that is not installed.
        guarantee: The kind of guarantee claimed by a class without a spec.
        profile: The profile to use. If None, the profile named by the mechanism is used.

    Raises:
        UnknownNameError: The mechanism or the method does not exist.
        UsageError: A class has neither a spec nor a valid ``guarantee``.
    """
    if isinstance(mechanism, str):
        registered = registry().get(mechanism)
        cls = type(registered.load())
    else:
        cls = mechanism
        registered = Registered(spec=spec or spec_of(cls, guarantee), plugin="under trial", version="0")
    spec = registered.spec
    chosen_method = registered.method(method)
    profile = profile or profile_of(cls())
    # A method that claims no privacy is checked against its paper's claim, if the profile gives one.
    private = spec.promises(chosen_method)
    return Subject(
        siblings=max(1, sum(map(spec.promises, spec.methods))),
        spec=spec,
        mechanism_class=cls,
        method=chosen_method,
        profile=profile,
        kind=(profile.notion or spec.kind_of(chosen_method))
        if private
        else profile.claims.get(chosen_method.name, NOTHING),
        private=private,
        plugin=registered.plugin,
        version=registered.version,
    )


def error_text(error: BaseException) -> str:
    """Format an error as a single line, preceded by its type unless it is one of privopt's own errors."""
    text = " ".join(str(error).split())
    return text if isinstance(error, PrivoptError) else f"{type(error).__name__}: {text}"
