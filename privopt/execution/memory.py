"""Measure how much memory this process holds, and how much more it may take before the system ends it."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import Final

GB: Final = 10**9
"""Bytes of a gigabyte, as ``--memory`` counts them."""
PROGRAM_BYTES: Final = 240_000_000
"""Bytes that a process holds at least, once it has loaded what solving takes."""
PAGE: Final = os.sysconf("SC_PAGE_SIZE")
UNLIMITED: Final = 1 << 62
"""Limits from here on are none: cgroup v1 writes so much where there is no limit."""

_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def resident() -> int:
    """Return the bytes of memory that this process holds now."""
    try:
        return int((_PROC / "self/statm").read_text().split()[1]) * PAGE
    except OSError:  # no Linux: the most that it ever held
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def available() -> int:
    """Return the bytes that this process may still take: the least of free memory and of every limit on the process."""
    return max(0, min(_free(), _under_rlimits(), _under_cgroups()))


def _free() -> int:
    try:
        lines = (_PROC / "meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PHYS_PAGES") * PAGE


def _under_rlimits() -> int:
    """Return the memory that ulimit leaves: of the address space (-v), and of private memory (-d)."""
    try:
        fields = [int(field) * PAGE for field in (_PROC / "self/statm").read_text().split()]
    except OSError:
        fields = [resident()] * 7
    taken = {resource.RLIMIT_AS: fields[0], resource.RLIMIT_DATA: fields[5]}
    left = [UNLIMITED]
    for name, used in taken.items():
        limit, _ = resource.getrlimit(name)
        if limit != resource.RLIM_INFINITY:
            left.append(limit - used)
    return min(left)


def _under_cgroups(lines: str | None = None, root: Path = _CGROUPS) -> int:
    """Return the memory that this process's control groups leave, all levels; caches that can go count as free."""
    try:
        text = (_PROC / "self/cgroup").read_text() if lines is None else lines
    except OSError:
        return UNLIMITED
    left = UNLIMITED
    for line in text.splitlines():
        _, controllers, name = line.split(":", 2)
        first = controllers == "memory" or "memory" in controllers.split(",")
        if not (first or not controllers):
            continue
        top = root / "memory" if first else root
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if first else ("memory.max", "memory.current")
        folder = top / name.strip("/")
        for group in [folder, *folder.parents]:
            if group == top.parent:
                break
            left = min(left, _left_of(group, *names))
    return left


def _left_of(group: Path, limit_file: str, used: str) -> int:
    try:
        limit = (group / limit_file).read_text().strip()
        if not limit.isdigit() or int(limit) >= UNLIMITED:
            return UNLIMITED
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        cache = int(stat.get("total_inactive_file", stat.get("inactive_file", 0)))
        return int(limit) - int((group / used).read_text()) + cache
    except (OSError, ValueError):  # no such group in view, as inside a container
        return UNLIMITED
