"""A ledger on a disk that is full: it is made whole or not at all, and an entry is written whole or not at all."""

import subprocess
import sys
from contextlib import closing

import pytest
from helpers.full_disk import full_disk

from privopt.errors import StoppedError
from privopt.files.log_file import _check_complete, write_database
from privopt.interfaces.cost import Cost
from privopt.ledger.ledger import FORM, Ledger
from privopt.ledger.rotation import rotate_file

ONE = Cost(epsilon=1, unit="per km", notion="metric-dp", mechanism="ab" * 32, purpose="morning")
SECTOR = 512
"""The bytes of a sector, of which a page of SQLite has eight."""


def assert_usable(path, count):
    """Check a ledger from its first entry, and charge it once more; a few bytes beside it are no part of it."""
    with Ledger(path) as ledger:
        ledger.check()
        assert ledger.account("anna").reports == count
        ledger.charge("anna", ONE)
        assert ledger.account("anna").reports == count + 1


def free_sizes(step):
    """Yield growing numbers of free bytes: each multiple of a step, and a byte more."""
    for size in range(0, 2**20, step):
        yield from (size, size + 1)


STEPS = pytest.mark.parametrize("step", [4096, pytest.param(64, marks=pytest.mark.slow)])


@STEPS
def test_ledger_is_created_whole_or_not_at_all(tmp_path, step):
    path, failures = tmp_path / "ledger", 0
    for free in free_sizes(step):
        with full_disk(free) as refusals:
            try:
                with Ledger(path) as ledger:
                    ledger.set_limit(8)
                is_set = True
            except StoppedError:
                is_set = False
        assert bool(refusals) != is_set
        failures += not is_set
        if path.exists():
            assert_usable(path, 0)
        assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []
        for entry in tmp_path.iterdir():
            entry.unlink()
        if is_set:
            break
    assert failures > 24_576 // step  # six pages, and what is written beside them


@STEPS
def test_entries_are_written_whole_or_not_at_all(tmp_path, step):
    path, count, failures = tmp_path / "ledger", 0, 0
    assert_usable(path, 0)
    count = 1
    for free in free_sizes(step):
        with full_disk(free) as refusals:
            try:
                with Ledger(path) as ledger:
                    ledger.charge("anna", ONE)
                    count += 1
                is_done = not refusals
            except StoppedError:
                is_done = False
        failures += not is_done
        if is_done:
            break
        with Ledger(path) as ledger:
            ledger.check()
            assert ledger.account("anna").reports == count
    assert failures > 4096 // step
    assert_usable(path, count)


@STEPS
def test_rotation_keeps_the_ledger_on_a_full_disk(tmp_path, step):
    path, failures = tmp_path / "ledger", 0
    assert_usable(path, 0)
    for free in free_sizes(step):
        with Ledger(path) as ledger:
            clock = ledger.clock
        with full_disk(free) as refusals:
            try:
                rotate_file(path, FORM, clock)
                break
            except StoppedError:
                pass
        assert refusals
        failures += 1
        with Ledger(path) as ledger:
            ledger.check()
            assert ledger.account("anna").spent == 1
    assert failures > 24_576 // step
    with Ledger(path) as ledger:
        ledger.check()
        assert ledger.account("anna").spent == 1


def test_incomplete_file_is_found_at_every_length(tmp_path):
    with closing(Ledger(tmp_path / "unused")) as ledger:
        write_database(tmp_path / "whole", FORM, ledger.begin)
    contents = (tmp_path / "whole").read_bytes()
    _check_complete(tmp_path / "whole", FORM)
    for size in range(0, len(contents), SECTOR):
        (tmp_path / "cut").write_bytes(contents[:size])
        with pytest.raises(StoppedError, match="could not be written completely"):
            _check_complete(tmp_path / "cut", FORM)
    (tmp_path / "whole-wal").write_bytes(b"pages")
    with pytest.raises(StoppedError, match="could not be written completely"):
        _check_complete(tmp_path / "whole", FORM)


LIMITED = """
import resource, sys
from pathlib import Path
from privopt.command.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
sys.argv[1:] = ["budget", sys.argv[2], "--set", "8"]
main()
"""


@pytest.mark.parametrize("largest", [0, 5000, 20_000])
def test_command_on_a_limited_disk_leaves_nothing(tmp_path, largest):
    completed = subprocess.run(
        [sys.executable, "-c", LIMITED, str(largest), tmp_path / "ledger"], capture_output=True, text=True, timeout=600
    )
    assert completed.returncode == 5, completed.stderr
    assert completed.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
