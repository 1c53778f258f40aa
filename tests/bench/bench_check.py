"""What ``privopt check`` of each shipped mechanism takes: processor seconds of it and its workers, and wall clock.

Run as ``python tests/bench/bench_check.py [MECHANISM ...]``; it prints the table of docs/reliability.md. An idle
machine takes at least the processor seconds over the number of processors.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time

from privopt.registry import registry


def children_cpu_seconds() -> float:
    """Processor seconds of all children that have ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def main() -> None:
    """Print a row for each mechanism."""
    names = sys.argv[1:] or sorted(registry().mechanisms)
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"profile {os.environ.get('PRIVOPT_PROFILE', 'ci')}, {os.cpu_count()} processors, load {load}\n")
    print("| mechanism | methods | checks passed | skipped | processor seconds | wall clock |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in names:
        start_cpu_seconds, start = children_cpu_seconds(), time.monotonic()
        command = [sys.executable, "-m", "privopt", "check", name, "--json"]
        completed = subprocess.run(command, capture_output=True, text=True, check=False)
        results = json.loads(completed.stdout)
        status = [result["status"] for result in results]
        failed = [
            f"{check_result['method']}: {check_result['check']}"
            for check_result in results
            if check_result["status"] == "failed"
        ]
        row = [
            f"`{name}`",
            str(len({result["method"] for result in results})),
            str(status.count("passed")),
            str(len(status) - status.count("passed") - len(failed)),
            f"{children_cpu_seconds() - start_cpu_seconds:.0f}",
            f"{time.monotonic() - start:.0f} s",
        ]
        print(f"| {' | '.join(row)} |" + (f" FAILED {failed}" if failed else ""), flush=True)


if __name__ == "__main__":
    main()
