"""Checks on code that ``solve`` never calls: abilities used by other commands, and hooks of the mechanism's package.

An ability is an optional interface of a mechanism, such as ``Plans`` for the ``plan`` command.
"""

from __future__ import annotations

import contextlib
import hashlib
import tomllib
from collections.abc import Callable, Iterator
from fractions import Fraction
from importlib.resources import files as resources
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Final

import attrs
import click
from attrs import evolve

from privopt.declare import describe_keys, load_problem
from privopt.declare.schema import KEY, Key
from privopt.errors import InputError, PrivoptError, UsageError
from privopt.interfaces import SolveContext
from privopt.interfaces.abilities import (
    AdvisesMemory,
    Audits,
    AuditsOverTime,
    ChoosesMethod,
    CopiesFiles,
    DescribesReading,
    Drafts,
    Plans,
    TakesKinds,
    VariesEpsilon,
)
from privopt.registry import Entry, Kind, Registered, registry
from privopt.registry.missing import project_distributions
from privopt.specs import CheckSpec, CommandSpec, RoleSpec, TemplateSpec, TraitSpec
from privopt.testing.checks.base import Trial, check, default_method_only
from privopt.testing.problems import GeneratedProblem, csv_bytes
from privopt.testing.under_trial import Run, error_text

INDIVIDUALS: Final = csv_bytes(["level_1", "age"], [["north", "34"], ["south", "71"], ["south", "8"]])
"""A table of individuals, on which ``draft`` is tried in addition to the tables of the drawn problem."""

REPORTS_OVER_TIME: Final = 2
"""The number of reports passed to ``over_time``: the smallest number above one."""


@check("abilities", needs=default_method_only, share=0.04, min_examples=1)
def abilities(trial: Trial) -> None:
    """Check that abilities not used by ``solve`` raise no errors and return what other commands expect.

    An ability is an optional interface of a mechanism. The ones checked here serve the commands ``plan``, ``audit``,
    ``curve``, ``describe``, ``init`` and ``solve --copy-to``. The descriptions of the release that come from the
    privacy notion are checked as well.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem, run = trial.draw_run()
    mechanism, method, loaded = trial.subject.mechanism, trial.subject.method.name, run.problem
    declared = trial.subject.read_problem(problem)
    released = loaded, run.release, run.stated
    constraint = mechanism.privacy(loaded, method)
    calls: dict[str, Callable[[], str | None]] = {
        "the notion's promise": lambda: _expect_text(constraint.promise(run.stated)),
        "the notion's limits": lambda: _ignore(constraint.limits(run.stated)),
        "the notion's warnings": lambda: _ignore(constraint.warnings(run.stated)),
        "the notion's relation": lambda: _ignore(constraint.relation),
    }
    if isinstance(mechanism, Plans):
        calls["plan"] = lambda: _ignore(mechanism.plan(declared, run.source.name, SolveContext(method=method)))
    if isinstance(mechanism, Audits):
        calls["audit"] = lambda: _ignore(mechanism.audit(*released))
    if isinstance(mechanism, AuditsOverTime):
        calls["over_time"] = lambda: _ignore(mechanism.over_time(*released, REPORTS_OVER_TIME))
    if isinstance(mechanism, AdvisesMemory):
        calls["memory_advice"] = lambda: _ignore(mechanism.memory_advice(loaded))
    if isinstance(mechanism, DescribesReading):
        calls["reading"] = lambda: _expect_text(mechanism.reading(declared))
    if isinstance(mechanism, ChoosesMethod):
        calls["own_method"] = lambda: _find_wrong_method(trial, mechanism.own_method(declared))
    if isinstance(mechanism, TakesKinds):
        calls["takes"] = lambda: _find_wrong_kind(trial, mechanism, problem)
    if isinstance(mechanism, VariesEpsilon):
        calls["at_epsilon"] = lambda: _find_wrong_epsilon(trial, mechanism, loaded)
    if isinstance(mechanism, Drafts):
        calls["draft"] = lambda: _find_wrong_draft(trial, mechanism, problem)
    if isinstance(mechanism, CopiesFiles):
        calls["copies"] = lambda: _find_wrong_copies(trial, mechanism, problem)
    for name, call in calls.items():
        try:
            complaint = call()
        except (InputError, UsageError):  # it may reject a problem or a method
            continue
        except Exception as error:
            trial.fail(f"{name} raised {error_text(error)}", problem)
        if complaint is not None:
            trial.fail(f"{name}: {complaint}", problem)


def _ignore(value: object) -> None:
    """Accept any value returned by an ability, because only an exception would be a finding."""


def _expect_text(value: object) -> str | None:
    """Return a complaint if a value is not a string or is blank, and None otherwise."""
    is_text = isinstance(value, str) and bool(value.strip())
    return None if is_text else f"expected a few words, got {value!r}"


def _find_wrong_method(trial: Trial, name: object) -> str | None:
    """Return a complaint if the method chosen by a mechanism is neither None nor the name of one of its methods."""
    names = [method.name for method in trial.subject.spec.methods]
    return None if name is None or name in names else f"expected one of {', '.join(names)}, or None; got {name!r}"


def _find_wrong_epsilon(trial: Trial, mechanism: VariesEpsilon[Any], problem: Any) -> str | None:
    """Return a complaint if ``at_epsilon`` does not return a problem with the requested epsilon, or None if it does.

    The requested value is half of the given problem's epsilon.

    Args:
        trial: A single run of the check.
        mechanism: The mechanism.
        problem: A loaded problem solved by the mechanism.
    """
    method = trial.subject.method.name

    def epsilon_of(posed: Any) -> Fraction:
        """Return the epsilon in a loaded problem's guarantee, or 0 if the guarantee has none."""
        epsilon = trial.subject.mechanism.privacy(posed, method).guarantee.epsilon
        return Fraction(0) if epsilon is None else epsilon

    half = epsilon_of(problem) / 2
    epsilon = epsilon_of(mechanism.at_epsilon(problem, half))
    return None if epsilon == half else f"expected a problem with epsilon {half}, got one with {epsilon}"


def _find_wrong_kind(trial: Trial, mechanism: TakesKinds, problem: GeneratedProblem) -> str | None:
    """Return a complaint if ``takes`` returns a non-boolean for any kind, or False for a kind used by the problem.

    A kind is a registered way to fill a role in the problem file, such as a kind of distance.

    Args:
        trial: A single run of the check.
        mechanism: The mechanism.
        problem: A problem solved by the mechanism.
    """
    for entry in registry().entries.values():
        if isinstance(entry, Kind) and not isinstance(mechanism.takes(entry.spec.role, entry.spec.name), bool):
            return f"expected True or False for the {entry.spec.role} {entry.spec.name!r}"
    describe_keys(trial.subject.mechanism_class.problem_class, takes=mechanism.takes)
    for role, name in _kinds_of(trial.subject.mechanism_class.problem_class, problem):
        if not mechanism.takes(role, name):
            return f"it does not take the {role} {name!r}, which describe leaves out, but solves a problem with it"
    return None


def _kinds_of(problem_class: type, problem: GeneratedProblem) -> Iterator[tuple[str, str]]:
    """Yield the role and name of each kind selected by a problem, whether explicitly or by a key's default."""
    for attribute in attrs.fields(problem_class):
        declared: Key | None = attribute.metadata.get(KEY)
        if declared is not None and declared.kinds:
            name = problem.get(f"{declared.name or attribute.name}.kind", declared.kind)
            if isinstance(name, str):
                yield declared.kinds, name


def _find_wrong_draft(trial: Trial, mechanism: Drafts, problem: GeneratedProblem) -> str | None:
    """Return a complaint if ``draft`` writes no problem file, changes the table, or replaces a file without ``force``.

    Args:
        trial: A single run of the check.
        mechanism: The mechanism.
        problem: A problem. Drafts are made from its tables and from :data:`INDIVIDUALS`.
    """
    tables = {name: contents for name, contents in problem.files.items() if name.endswith(".csv")}
    for name, contents in {"individuals.csv": INDIVIDUALS, **tables}.items():
        folder = trial.subject.new_folder()
        table, out = folder / Path(name).name, folder / "draft.toml"
        table.write_bytes(contents)
        try:
            sentences = mechanism.draft(table, out, force=False)
        except PrivoptError:  # it need not be able to read this table
            if out.exists():
                return f"it refused {name}, and wrote a file"
            continue
        if isinstance(sentences, str) or not all(isinstance(sentence, str) for sentence in sentences):
            return f"expected a list of sentences, got {sentences!r}"
        if table.read_bytes() != contents:
            return f"it changed {name}"
        if not out.is_file():
            return f"it returned without error for {name}, and wrote no file"
        text = out.read_bytes()
        try:
            tomllib.loads(text.decode())
            load_problem(trial.subject.mechanism_class.problem_class, out, ignore=registry().mechanisms.keys())
        except InputError:  # the user must fill in what the table does not say
            pass
        except ValueError as error:
            return f"what it wrote for {name} is no TOML: {error}"
        # With force, the draft must replace an existing file. Without force, the file must stay.
        for force, expected in ((True, True), (False, False)):
            out.write_text("# somebody else's\n", "utf-8")
            with contextlib.suppress(PrivoptError):
                mechanism.draft(table, out, force=force)
            if (out.read_bytes() == text) is not expected:
                return "it replaced a file without force" if not force else "it did not replace a file, given force"
    return None


def _find_wrong_copies(trial: Trial, mechanism: CopiesFiles, problem: GeneratedProblem) -> str | None:
    """Return a complaint unless ``solve --copy-to`` copies exactly the files listed in the result's details.

    Args:
        trial: A single run of the check.
        mechanism: The mechanism.
        problem: A problem that the mechanism solves.
    """
    if not mechanism.copies:
        return None
    folder = trial.subject.new_folder() / "copies"
    run = trial.attempt(problem, copy_to=folder)
    if run.error is not None:
        # If a problem has nothing to copy, the mechanism may raise one of privopt's own errors.
        return None if isinstance(run.error, PrivoptError) else f"solve --copy-to raised {error_text(run.error)}"
    written = {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }
    listed = run.stated.details.facts.get("copies")
    return None if listed == written else f"details.copies lists {listed!r}, and the copies are {written!r}"


# --- hooks ---------------------------------------------------------------------------------------------


@check("hooks", needs=default_method_only, share=0.04, min_examples=1)
def hooks(trial: Trial) -> None:
    """Check that everything registered by the mechanism's package can be loaded, and that the package's hooks work.

    Every entry registered by the package is imported and used as privopt would use it. The ``privopt_handle`` hooks of
    this package and of privopt's own packages are called, and must return a class that opens a release, or None. This
    package's ``privopt_released`` hook is called with a release. Hooks of third-party packages are not called, since
    the mechanism is not responsible for them.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem, run = trial.draw_run()
    for entry in registry().entries.values():
        if entry.plugin == trial.subject.plugin:
            try:
                complaint = _find_wrong_entry(entry, trial, run)
            except Exception as error:
                complaint = f"it raised {error_text(error)}"
            if complaint is not None:
                trial.fail(f"the {entry.spec.category} {entry.spec.name!r}: {complaint}", None)
    for broken in registry().broken:
        if broken.plugin == trial.subject.plugin:
            trial.fail(f"a part of {broken.plugin} is left out: {broken.reason}", None)
    try:
        complaint = _find_wrong_handle(trial, run)
    except Exception as error:
        complaint = f"it raised {error_text(error)}"
    if complaint is not None:
        trial.fail(f"privopt_handle: {complaint}", problem)
    # The kit's runs do not call observers, so call this package's observer here.
    observers = tuple(hook for hook in registry().observers if _owner_of(hook.plugin_name) == trial.subject.plugin)
    for complaint in evolve(registry(), observers=observers).notify_released(run.release, run.problem):
        trial.fail(f"privopt_released: {complaint}", problem)


def _find_wrong_handle(trial: Trial, run: Run) -> str | None:
    """Return a complaint if a ``privopt_handle`` hook returns neither a class nor None for a release.

    Only the hooks of the mechanism's package and of privopt's own packages are called.

    Args:
        trial: A single run of the check.
        run: A successful run of the mechanism.

    Raises:
        Exception: A hook raised an error.
    """
    hook = registry().handle_hook
    distributions = {trial.subject.plugin, *project_distributions()}
    for implementation in () if hook is None else hook.get_hookimpls():
        # A wrapper is a generator around other hooks and has no result of its own.
        is_wrapper = implementation.hookwrapper or implementation.wrapper
        if _owner_of(implementation.plugin_name) in distributions and not is_wrapper:
            # The hook has one parameter, the release, which an implementation may omit.
            handle_class = implementation.function(*(run.release for _ in implementation.argnames))
            if handle_class is not None and not isinstance(handle_class, type):
                return f"{implementation.plugin_name}: expected a class or None, got {handle_class!r}"
    return None


def _owner_of(plugin_name: str) -> str:
    """Return the package's name from a pluggy plugin's name, which has the form "package:entry point"."""
    return plugin_name.partition(":")[0]


def _find_wrong_entry(entry: Entry[Any], trial: Trial, run: Run) -> str | None:
    """Return a complaint if a registry entry does not match its spec, or None if it does.

    Args:
        entry: The entry.
        trial: A single run of the check.
        run: A successful run of the mechanism.

    Raises:
        Exception: Importing or using the entry failed.
    """
    spec = entry.spec
    # Load and use each kind of entry as privopt would.
    if isinstance(entry, Registered):
        entry.load()
    elif isinstance(entry, Kind):
        registry().kind(spec.role, spec.name).load()
    elif isinstance(spec, TemplateSpec):
        folder = resources(spec.package) / "templates" / spec.name
        missing = [name for name in spec.files if not (folder / f"{name}.txt").is_file()]
        if missing:
            return f"the file {missing[0]}.txt is not in the templates of {spec.package}"
        registry().kind("notion", spec.notion)
    elif isinstance(spec, RoleSpec):
        return None if isinstance(resolve_name(spec.base), type) else f"its base {spec.base} must be a class"
    else:
        target: Any = entry.import_target()
        if isinstance(spec, CommandSpec):
            if not isinstance(target, click.Command):
                return f"expected a click.Command, got {target!r}"
            target.get_help(click.Context(target, info_name=spec.name))
        elif isinstance(spec, TraitSpec) and not isinstance(target(type(run.release)), bool):
            return "expected True or False for a class of releases"
        elif isinstance(spec, CheckSpec) and not callable(target):
            return f"expected a function, got {target!r}"
    return None
