"""The memory and threads available to this process, and the division of work among its threads.

On Linux, free memory is read from /proc/meminfo, and limits come from ulimit and from control groups (cgroups v1 and
v2), as used by containers and batch systems. On other systems, only physical memory and ulimit are considered.
``--jobs`` limits the number of threads.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from pathlib import Path
from typing import Final, TypeVar

from privopt.execution.clock import check

GB: Final = 10**9
"""The number of bytes in a gigabyte, as used by ``--memory``."""
PROGRAM_BYTES: Final = 240_000_000
"""The minimum memory, in bytes, used by a process once it has loaded the libraries for solving."""
PAGE: Final = os.sysconf("SC_PAGE_SIZE")
"""The size of a memory page, in bytes."""
UNLIMITED: Final = 1 << 62
"""The number of bytes at or above which a limit counts as no limit.

cgroup v1 reports a huge number when there is no limit.
"""

_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def return_freed_memory() -> None:
    """Give freed memory back to the operating system, including what the C library keeps for later use.

    The GNU C library may keep hundreds of megabytes of freed arrays, which count as used by the process. With other C
    libraries, and if the process is smaller than `PROGRAM_BYTES`, nothing is done.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None and _read_resident() >= PROGRAM_BYTES:
        trim(0)


def resident() -> int:
    """Return the number of bytes of physical memory currently used by this process (its resident set size).

    In a process larger than `PROGRAM_BYTES`, freed memory is first returned to the operating system where possible
    (:func:`return_freed_memory`), so that it does not count.
    """
    return_freed_memory()
    return _read_resident()


def _read_resident() -> int:
    """Return the resident set size in bytes, or an upper bound if the system is not Linux."""
    try:
        return int((_PROC / "self/statm").read_text().split()[1]) * PAGE
    except OSError:  # the peak so far is an upper bound
        return peak_resident()


def peak_resident() -> int:
    """Return the largest number of bytes of physical memory used by this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS reports the peak in bytes, other systems in kibibytes.
    return peak if sys.platform == "darwin" else peak * 1024


def available() -> int:
    """Return the number of bytes that this process may still allocate: the minimum of free memory and all limits."""
    return max(0, min(_free_bytes(), _bytes_under_rlimits(), _bytes_under_cgroups()))


def _free_bytes() -> int:
    """Return the machine's free memory in bytes from /proc/meminfo, or all physical memory if it cannot be read."""
    try:
        lines = (_PROC / "meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PHYS_PAGES") * PAGE


def _bytes_under_rlimits() -> int:
    """Return the number of bytes that this process may still allocate under its resource limits (ulimit).

    This is the smaller of the remaining address space and the remaining private memory.
    """
    try:
        fields = [int(field) * PAGE for field in (_PROC / "self/statm").read_text().split()]
    except OSError:  # not Linux: estimate both sizes by the peak of the resident set, although they may be larger
        fields = [resident()] * 7
    # Fields of statm, in pages: 0 is the size of the address space, 5 is data and stack (proc(5)).
    used_by_limit = {resource.RLIMIT_AS: fields[0], resource.RLIMIT_DATA: fields[5]}
    remaining_bytes = [UNLIMITED]
    for name, used_bytes in used_by_limit.items():
        limit, _ = resource.getrlimit(name)
        if limit != resource.RLIM_INFINITY:
            remaining_bytes.append(limit - used_bytes)
    return min(remaining_bytes)


def _bytes_under_cgroups(lines: str | None = None, root: Path = _CGROUPS) -> int:
    """Return the number of bytes still permitted by this process's control groups: the minimum across all levels.

    Inactive file caches count as free, because the kernel drops them when memory runs short.

    Args:
        lines: The contents of /proc/self/cgroup, for tests. If None, the file is read.
        root: The root folder of the control groups, for tests.
    """
    try:
        text = (_PROC / "self/cgroup").read_text() if lines is None else lines
    except OSError:
        return UNLIMITED
    remaining_bytes = UNLIMITED
    for line in text.splitlines():
        # Each line has a hierarchy's number, its controllers (none in v2), and the group's path in the hierarchy.
        _, controllers, name = line.split(":", 2)
        is_v1 = "memory" in controllers.split(",")
        if not (is_v1 or not controllers):
            continue
        hierarchy = root / "memory" if is_v1 else root
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if is_v1 else ("memory.max", "memory.current")
        folder = hierarchy / name.strip("/")
        # The limits of all enclosing groups also apply to this process.
        for group in [folder, *folder.parents]:
            if group == hierarchy.parent:
                break
            remaining_bytes = min(remaining_bytes, _bytes_left_in_group(group, *names))
    return remaining_bytes


def _bytes_left_in_group(group: Path, limit_file: str, usage_file: str) -> int:
    """Return the number of bytes still permitted by a control group: its limit minus its usage.

    Inactive file caches are not counted as usage. ``limit_file`` and ``usage_file`` are the names of the group's files,
    which differ between cgroup versions 1 and 2.
    """
    try:
        limit = (group / limit_file).read_text().strip()
        if not limit.isdigit() or int(limit) >= UNLIMITED:
            return UNLIMITED
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        cache = int(stat.get("total_inactive_file", stat.get("inactive_file", 0)))
        return int(limit) - int((group / usage_file).read_text()) + cache
    except (OSError, ValueError):  # the group is not visible, for example inside a container
        return UNLIMITED


T = TypeVar("T")

VARIABLES: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""The environment variables from which linear algebra libraries read their number of threads when they are loaded."""


def allowed_threads() -> int:
    """Return the number of threads to use: ``OMP_NUM_THREADS`` if set, and otherwise one per processor, up to 8."""
    environment_value = os.environ.get(VARIABLES[0], "")
    return max(1, int(environment_value)) if environment_value.isdecimal() else min(8, os.cpu_count() or 1)


@contextmanager
def limited_to(jobs: int | None) -> Iterator[None]:
    """Limit the number of threads used by this process in a block, including those of linear algebra libraries.

    The limit is set for the whole process. A context variable would not work, because a pool's threads do not see the
    context variables of the thread that created the pool.

    Args:
        jobs: The number of threads, or None for no further limit (see :func:`allowed_threads`).
    """
    if jobs is None:
        yield
        return
    from threadpoolctl import threadpool_limits

    # Both are needed: the variables affect libraries that are loaded later, threadpoolctl those already loaded.
    original_environ = {name: os.environ.get(name) for name in VARIABLES}
    os.environ.update(dict.fromkeys(VARIABLES, str(jobs)))
    try:
        with threadpool_limits(limits=jobs):
            yield
    finally:
        for name, value in original_environ.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def spans(count: int, block: int, parts: int = 1) -> list[tuple[int, int]]:
    """Divide ``range(count)`` into consecutive half-open spans ``(a, b)`` of at most ``block`` elements.

    There are about ``parts`` spans, or more if necessary to keep them short enough.

    >>> spans(10, 4, 2)
    [(0, 4), (4, 8), (8, 10)]
    """
    size = max(1, min(block, -(-count // max(1, parts))))  # count / parts, rounded up
    return [(start, min(count, start + size)) for start in range(0, count, size)]


def in_threads(function: Callable[[int, int], T], count: int, *, min_span: int = 64) -> list[T]:
    """Divide ``range(count)`` into spans, call a function for each span in threads, and return the results in order.

    Args:
        function: A function that takes the ends a and b of a half-open span. It should release the GIL. Its calls must
            not depend on one another.
        count: The length of the range. If it is 0, the function is not called.
        min_span: The length of the shortest range to divide. Shorter ranges are processed as a single span in the
            caller's thread.

    Raises:
        OutOfTime: The deadline of a scope has passed. Spans that have not started yet are cancelled.
    """
    workers = allowed_threads()
    check()
    if count < min_span or workers == 1:
        return [function(0, count)] if count else []
    # Make four spans for each thread, because spans of equal length can take different amounts of time. Each call gets
    # a copy of the caller's context, and with it the caller's time scopes.
    with ThreadPoolExecutor(workers) as pool:
        futures = [
            pool.submit(copy_context().run, _call_in_time, function, start, end)
            for start, end in spans(count, count, 4 * workers)
        ]
        try:
            results = []
            for future in futures:
                results.append(future.result())
                check()
        finally:
            for future in futures:
                future.cancel()
    return results


def _call_in_time(function: Callable[[int, int], T], start: int, end: int) -> T:
    """Return the function's result for a span, or raise OutOfTime if the deadline passed while the span was waiting."""
    check()
    return function(start, end)
