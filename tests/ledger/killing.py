"""A program of its own that forks writers of a ledger and kills them: it imports nothing that has threads.

``killing.py kill LEDGER REPORTS TIMES`` kills a writer that often, at random moments; after each kill every report must
have its charge, and the chain be whole. ``killing.py race LEDGER WRITERS EACH`` lets writers charge at once.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

from privopt.interfaces.cost import Cost
from privopt.ledger.ledger import Ledger


def fork_work(work):
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(1)
    return child


def cost(purpose):
    return Cost(epsilon="0.1", unit="per km", purpose=purpose)


def write_until_killed(path, reports, pipe_end):
    """Charge, then report: ever again, one report at a time and several."""
    handle = os.open(reports, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    with Ledger(path) as ledger:
        while True:
            name = f"{os.getpid()}-{time.monotonic_ns()}"
            count = random.randint(1, 40)
            ledger.charge_each([f"s{n % 7}" for n in range(count)], cost(name))
            os.write(handle, f"{name} {count}\n".encode())
            os.write(pipe_end, b".")


def kill(path, reports, times):
    random.seed(1)
    report_count, counts_by_report = 0, {}
    for turn in range(times):
        reading, write_end = os.pipe()
        child = fork_work(lambda write_end=write_end: write_until_killed(path, reports, write_end))
        os.close(write_end)
        if turn % 2:  # else it may be killed while it makes or opens the ledger
            assert os.read(reading, 1), "the writer ended"
        time.sleep(random.uniform(0.0, 0.06))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)
        if not path.exists():
            continue
        with Ledger(path) as ledger:
            ledger.check()
            counts_by_report = {}
            for charge in ledger.charges():
                counts_by_report[charge.cost.purpose] = counts_by_report.get(charge.cost.purpose, 0) + 1
        lines = reports.read_text().splitlines() if reports.exists() else []
        for line in lines:
            name, count = line.split()
            assert counts_by_report[name] == int(count), f"{line}: {counts_by_report.get(name)} charges"
        report_count = len(lines)
    print(report_count, sum(counts_by_report.values()))


def race(path, writers, repetitions):
    def work():
        with Ledger(path) as ledger:
            granted_count = sum(sum(ledger.charge_each(["anna"] * 3, cost("race"))) for _ in range(repetitions))
        os._exit(granted_count)

    total = 0
    for child in [fork_work(work) for _ in range(writers)]:
        total += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(total)


if __name__ == "__main__":
    if sys.argv[1] == "kill":
        kill(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
    else:
        race(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
