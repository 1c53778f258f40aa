"""The first step of ``solve``: reading a problem file and the options, and creating the task for the mechanism."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Final

from attrs import Attribute, AttrsInstance, Converter, evolve, field, frozen

from privopt.declare import File, describe_keys, load_problem
from privopt.declare.schema import files_of, folders_of, share
from privopt.declare.toml import UNKNOWN_KEY
from privopt.errors import Fault, InputError, UsageError, check_number
from privopt.files.archive import loading
from privopt.interfaces import Mechanism, PrivacyConstraint, Progress, SolveContext
from privopt.interfaces.abilities import ChoosesMethod, CopiesFiles, DescribesReading, check_memory, check_problem
from privopt.ledger.charge import Charge
from privopt.registry import Registered, registry
from privopt.run.problem_copy import ProblemCopy, with_csv_tables
from privopt.specs import MethodSpec

__all__ = ["ABOVE", "Options", "Task", "read_problem", "read_task", "select_method"]


ABOVE: Final = math.ulp(0.0)
"""The smallest positive double, used as the minimum for numbers that must be above 0."""


def _convert_number(value: Any, attribute: Attribute[Any]) -> Any:
    """Check a numeric option and convert it to a Python number, because NumPy's numbers cannot be written as JSON.

    None is returned unchanged. ``attribute`` is the option's attrs field, whose metadata specifies the requirement.

    Raises:
        UsageError: The value does not meet the requirement.
    """
    if value is None:
        return None
    # _number_field has stored the arguments for check_number as the field's metadata.
    check_number(attribute.name, value, **attribute.metadata)
    return int(value) if attribute.metadata["whole"] else float(value)


def _number_field(expectation: str, *, minimum: float = -math.inf, whole: bool = False) -> Any:
    """Return a field for an optional number that defaults to None.

    Args:
        expectation: The requirement on the number in words, for error messages.
        minimum: The smallest permitted value.
        whole: Whether the number must be an integer.
    """
    rule = {"expectation": expectation, "minimum": minimum, "whole": whole}
    return field(default=None, converter=Converter(_convert_number, takes_field=True), metadata=rule)


@frozen(kw_only=True)
class Options:
    """The options of a solve, which correspond to those on the command line.

    Attributes:
        method: The name of the method, or None for the mechanism's default.
        solver: ``"cbc"``, ``"highs"`` or another registered solver.
        jobs: The number of processes, and of threads per process. If None, a single process uses one thread per
            processor, up to 8.
        executor: The URL of a cluster (``dask://host:port``), or None.
        time_limit: The time in seconds after which the search ends, or None for no limit. Certifying and writing are
            not interrupted.
        memory: The number of gigabytes (10^9 bytes) that the process may use. If None, it may use all the memory that
            is free and permitted.
        gap: The relative gap to reach, or None for the method's default.
        seed: The seed of the noise, for experiments only. A seeded release has no guarantee.
        force: Whether to replace an existing release folder.
        allow_unsafe: Whether methods with the guarantee kind ``"none"`` are permitted.
        resume: Whether to continue an earlier run from its checkpoint in ``DIR.partial/``.
        copy_to: The folder to create for clean copies of the released files, or None. Not every mechanism can make
            copies.
        progress: A function to call during long computations, or None.
        charged: The charge to make to a ledger before noise is drawn, or None.

    Raises:
        UsageError: A numeric option is not a number or is out of range.
    """

    method: str | None = None
    solver: str = "cbc"
    jobs: int | None = _number_field("a whole number of at least 1", minimum=1, whole=True)
    executor: str | None = None
    time_limit: float | None = _number_field("a finite number of seconds above 0", minimum=ABOVE)
    memory: float | None = _number_field("a finite number of gigabytes above 0", minimum=ABOVE)
    gap: float | None = _number_field("a number above 0 and below 1")
    seed: int | None = _number_field("a whole number of at least 0", whole=True, minimum=0)
    force: bool = False
    allow_unsafe: bool = False
    resume: bool = False
    copy_to: Path | None = None
    progress: Progress | None = None
    charged: Charge | None = None


@frozen(kw_only=True, eq=False)
class Task:
    """A loaded problem, together with the mechanism and method to solve it with.

    Attributes:
        registered: The mechanism as registered by its plugin.
        method: The method to run.
        mechanism: The mechanism object.
        declared: The declared problem, as it will be read from the release folder.
        problem: The problem that the mechanism loaded from ``declared``.
        copy: The copy of the problem for the release folder.
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
    """Return a mechanism and the method to run, after checking the options that depend on them.

    Args:
        name: The name of the mechanism.
        options: The options. If they name no method, the default method is used.

    Raises:
        UsageError: The method gives no privacy and ``allow_unsafe`` is False, or the gap is not between 0 and 1.
        UnknownNameError: There is no such mechanism, method or solver.
    """
    registered = registry().get(name)
    method = registered.method(options.method)
    # A method without a guarantee needs the user's consent, unless its spec waives it.
    if registered.spec.asks(method) and not options.allow_unsafe:
        raise UsageError(f"{name} --method {method.name} gives no privacy guarantee; --allow-unsafe accepts that")
    # With a gap of 1, any release would count as optimal.
    if options.gap is not None and (expectation := share(options.gap)):
        raise UsageError(f"gap must be {expectation}, got {options.gap:g}")
    registry().kind("solver", options.solver)
    return registered, method


def read_task(name: str, source: File, out: Path, options: Options, context: SolveContext) -> Task:
    """Load a problem file and return the task: the loaded problem, the mechanism and the selected method.

    Args:
        name: The name of the mechanism.
        source: The problem file.
        out: The folder to write, which must not overlap with folders that the problem reads.
        options: The options of the solve.
        context: The context of the run. If the options name no method and the mechanism chooses one for this problem,
            the context's ``method`` and ``gap`` are updated.

    Raises:
        InputError: The problem contains errors, or the mechanism cannot solve it. The exception lists all of the
            errors.
        StoppedError: The problem needs more memory than is available.
        UsageError: An option is not valid for the mechanism, or ``out`` overlaps with the problem's files or folders.
    """
    registered, method = select_method(name, options)
    mechanism: Mechanism[Any, Any] = registered.load()
    if options.copy_to is not None and not (isinstance(mechanism, CopiesFiles) and mechanism.copies):
        raise UsageError(f"--copy-to: {name} makes no copies")
    context.report("problem")
    with context.time_phase("build"), loading(context.require_memory):
        declared, problem, copy = _load(mechanism, source, out, context)
    # The problem may determine the method, which is known only now and has to be checked like any other.
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
    """Load a problem as it will be read back from the release folder, and plan the copy of its files.

    Args:
        mechanism: The mechanism.
        source: The problem file.
        out: The folder to write.
        context: The context of the run, used to report progress.

    Returns:
        The declared problem, the loaded problem, and the planned copy.
    """
    original = read_problem(mechanism, source)
    _check_outside(out, source, original)
    # Solve the converted problem, because that is what a verifier, who has only the published files, will read.
    published = with_csv_tables(source, original)
    declared = original if published is source else read_problem(mechanism, published)
    copy = ProblemCopy.of(published, declared)
    context.report(mechanism.reading(declared) if isinstance(mechanism, DescribesReading) else "problem")
    try:
        problem = mechanism.load(declared, source.name)
    except InputError:
        # Loading the original files raises the same faults, but with the names and rows that the user knows.
        mechanism.load(original, source.name)
        raise
    return declared, problem, copy


def _check_outside(out: Path, source: File, declared: AttrsInstance) -> None:
    """Raise UsageError if the folder to write contains an input file or overlaps with an input folder.

    Args:
        out: The folder to write.
        source: The problem file.
        declared: The problem, which lists the files and folders that it reads.
    """
    target = out.resolve()
    for file in (source, *files_of(declared)):
        # With --force, the folder would be replaced together with everything in it.
        if file.path is not None and target in file.path.resolve().parents:
            raise UsageError(f"--out {out}: holds {file.path}, which is read; name a folder elsewhere")
    for folder in folders_of(declared):
        if folder.path is None:
            continue
        # Resolve links, so that the output cannot lie inside the input by way of a link.
        path = folder.path.resolve()
        if path in (target, *target.parents) or target in path.parents:
            raise UsageError(f"--out {out}: lies in {path}, which the problem reads, or around it; name one elsewhere")


def read_problem(
    mechanism: Mechanism[Any, Any], source: Path | File, *, public: bool = False, closed: bool = False
) -> AttrsInstance:
    """Read a mechanism's problem file and return the declared problem.

    The file can also contain tables for other mechanisms.

    Args:
        mechanism: The mechanism.
        source: The problem file, on disk or in memory.
        public: Whether the problem is a published copy, which may lack secret files and must not name files outside its
            own folder.
        closed: Whether to leave secret files unopened, even if they exist.

    Raises:
        InputError: The file contains errors. For an unknown key, the message says where it is accepted, if anywhere.
    """
    mechanism_names = registry().mechanisms.keys()
    try:
        return load_problem(mechanism.problem_class, source, public=public, closed=closed, ignore=mechanism_names)
    except InputError as error:
        raise InputError(_name_takers(mechanism, fault) for fault in error.faults) from None


def _name_takers(mechanism: Mechanism[Any, Any], fault: Fault) -> Fault:
    """Add a hint to a fault about an unknown key, saying where the key is accepted. Return other faults unchanged.

    The key may be valid in the same table with another ``kind``, in other tables of the mechanism, or in the same table
    of other mechanisms in the same package. These are tried in this order, and the hint names the first that accepts
    the key.

    Args:
        mechanism: The mechanism that does not accept the key.
        fault: The fault.
    """
    if not fault.actual.startswith(UNKNOWN_KEY):
        return fault
    table, _, key_name = fault.where.rpartition(".")
    key_paths = [row.key for row in describe_keys(mechanism.problem_class)]
    if fault.where in key_paths:
        return evolve(fault, actual=f"{fault.actual} ({key_name} is a key of [{table}] with another kind)")
    other_tables = sorted({path.rpartition(".")[0] for path in key_paths if path.endswith(f".{key_name}")})
    if other_tables:
        tables = " and ".join(f"[{other}]" for other in other_tables)
        return evolve(fault, actual=f"{fault.actual} ({key_name} is a key of {tables})")
    # Load only mechanisms from the same package, because importing every plugin to explain a key would take seconds.
    package = type(mechanism).__module__.partition(".")[0]
    takers = [
        name
        for name, entry in registry().mechanisms.items()
        if entry.spec.target.partition(".")[0] == package
        and fault.where in {row.key for row in describe_keys(entry.load().problem_class)}
    ]
    return evolve(fault, actual=f"{fault.actual} ({', '.join(takers)} takes it)") if takers else fault
