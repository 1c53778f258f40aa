"""The checker's modules, all of whose refusals go through one function; and the file that is made of them."""

import pkgutil
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp

import privopt.checker
import privopt_metric_dp.checkers
import privopt_photo_censor.checkers

PACKAGES = (privopt.checker, privopt_metric_dp.checkers, privopt_photo_censor.checkers)


def modules():
    """Every module of the checker and its parts."""
    return [
        import_module(f"{package.__name__}.{module.name}")
        for package in PACKAGES
        for module in pkgutil.iter_modules(package.__path__)
        if module.name != "__main__"
    ]


def replace_need(patch, refuse_unless):
    """Have all modules refuse by another function."""
    for module in modules():
        if hasattr(module, "need"):
            patch.setattr(module, "need", refuse_unless)


@cache
def one_file() -> Path:
    """Return the one file, as ``privopt checker`` writes it."""
    from privopt.command.checker_file import checker_file

    file = Path(mkdtemp()) / "check.pyz"
    file.write_bytes(checker_file(file.name)[0])
    return file


def run(folder, file=None):
    """Return the exit code of the one file, run with no installed package in sight, and what it says."""
    command = [sys.executable, "-I", "-S", file or one_file(), folder]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.stderr == ""
    return completed.returncode, completed.stdout
