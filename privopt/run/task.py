"""The first step of ``solve``: read a problem file, and make the task that the mechanism is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attrs import AttrsInstance, evolve, frozen

from privopt.declare import File, describe_keys, load_problem
from privopt.declare.schema import folders_of, share
from privopt.declare.toml import UNKNOWN_KEY
from privopt.errors import Fault, InputError, UsageError
from privopt.files.sizes import loading
from privopt.interfaces import Mechanism, PrivacyConstraint, SolveContext
from privopt.interfaces.abilities import ChoosesMethod, CopiesFiles, DescribesReading, check_memory, check_problem
from privopt.registry import Registered, registry
from privopt.run.options import Options
from privopt.run.problem_copy import ProblemCopy, with_csv_tables
from privopt.specs import MethodSpec

__all__ = ["Task", "read_problem", "read_task", "select_method"]


@frozen(kw_only=True, eq=False)
class Task:
    """A problem that was read, and the mechanism and method that solve it.

    Attributes:
        registered: The mechanism as its plugin registered it.
        method: The method to run.
        mechanism: The mechanism itself.
        declared: The problem file, as it will be read from DIR.
        problem: What the mechanism loads from it.
        copy: The copy of the problem for DIR.
        privacy: The mechanism's privacy constraint for this problem and method.
    """

    registered: Registered
    method: MethodSpec
    mechanism: Mechanism[Any, Any]
    declared: AttrsInstance
    problem: Any
    copy: ProblemCopy
    privacy: PrivacyConstraint[Any]


def select_method(name: str, options: Options) -> tuple[Registered, MethodSpec]:
    """Look up a mechanism and the method to run, and check the options that depend on them.

    Raises:
        UsageError: The method gives no privacy and that was not accepted, or the gap is not between 0 and 1.
        UnknownNameError: There is no such mechanism, method or solver.
    """
    registered = registry().get(name)
    method = registered.method(options.method)
    if registered.spec.asks(method) and not options.allow_unsafe:
        raise UsageError(f"{name} --method {method.name} gives no privacy guarantee; --allow-unsafe accepts that")
    if options.gap is not None and (expectation := share(options.gap)):  # at 1 anything would be optimal
        raise UsageError(f"gap must be {expectation}, got {options.gap:g}")
    registry().kind("solver", options.solver)
    return registered, method


def read_task(name: str, source: File, out: Path, options: Options, context: SolveContext) -> Task:
    """Read a problem and select the method, which the problem may name; refuse what the mechanism cannot take.

    Args:
        name: The mechanism.
        source: The problem file.
        out: The folder to write, which must not overlap with folders that the problem reads.
        options: How to solve.
        context: Its ``method`` and ``gap`` become those of the method that the problem names, if no option names one.

    Raises:
        InputError: All faults of the problem file.
        StoppedError: The problem needs more memory than there is.
    """
    registered, method = select_method(name, options)
    mechanism: Mechanism[Any, Any] = registered.load()
    if options.copy_to is not None and not (isinstance(mechanism, CopiesFiles) and mechanism.copies):
        raise UsageError(f"--copy-to: {name} makes no copies")
    context.report("problem")
    with context.timed("build"), loading(context.need):
        declared, problem, copy = _load(mechanism, source, out, context)
    own_method = mechanism.own_method(declared) if isinstance(mechanism, ChoosesMethod) else None
    if options.method is None and own_method is not None:
        registered, method = select_method(name, evolve(options, method=own_method))
        context.method, context.gap = method.name, method.gap if options.gap is None else options.gap
    check_memory(mechanism, problem, context)
    privacy = mechanism.privacy(problem, method.name)
    registered.expect("privacy", privacy, PrivacyConstraint)
    check_problem(mechanism, problem, method.name)
    return Task(
        registered=registered,
        method=method,
        mechanism=mechanism,
        declared=declared,
        problem=problem,
        copy=copy,
        privacy=privacy,
    )


def _load(
    mechanism: Mechanism[Any, Any], source: File, out: Path, context: SolveContext
) -> tuple[AttrsInstance, Any, ProblemCopy]:
    """Load the problem as it will be read from DIR, and copy it."""
    original = read_problem(mechanism, source)
    _check_outside(out, original)
    # Solving the converted problem ensures that a verifier, who only has the published files, reads what was solved.
    published = with_csv_tables(source, original)
    declared = original if published is source else read_problem(mechanism, published)
    copy = ProblemCopy.of(published, declared)
    context.report(mechanism.reading(declared) if isinstance(mechanism, DescribesReading) else "problem")
    try:
        problem = mechanism.load(declared, source.name)
    except InputError:
        # The original files have the same faults, and the user knows their names and rows.
        mechanism.load(original, source.name)
        raise
    return declared, problem, copy


def _check_outside(out: Path, declared: AttrsInstance) -> None:
    """Refuse to write into a folder that the problem reads, or around it."""
    target = out.resolve()
    for folder in folders_of(declared):
        if folder.path is None:
            continue
        path = folder.path.resolve()
        if path in (target, *target.parents) or target in path.parents:
            raise UsageError(f"--out {out}: lies in {path}, which the problem reads, or around it; name one elsewhere")


def read_problem(
    mechanism: Mechanism[Any, Any], source: Path | File, *, public: bool = False, closed: bool = False
) -> AttrsInstance:
    """Read a problem file as a mechanism declares it; it may have tables of other mechanisms, too.

    ``public`` and ``closed`` are those of :func:`privopt.declare.load_problem`.
    """
    mechanism_names = registry().mechanisms.keys()
    try:
        return load_problem(mechanism.problem_class, source, public=public, closed=closed, ignore=mechanism_names)
    except InputError as error:
        raise InputError(_name_takers(mechanism, fault) for fault in error.faults) from None


def _name_takers(mechanism: Mechanism[Any, Any], fault: Fault) -> Fault:
    """Return a fault; if it is an unknown key, with the names of the plugin's mechanisms that take the key."""
    if fault.found != UNKNOWN_KEY:
        return fault
    package = type(mechanism).__module__.partition(".")[0]
    takers = [
        name
        for name, entry in registry().mechanisms.items()
        if entry.spec.target.partition(".")[0] == package
        and fault.where in {row.key for row in describe_keys(entry.load().problem_class)}
    ]
    return evolve(fault, found=f"{fault.found} ({', '.join(takers)} takes it)") if takers else fault
