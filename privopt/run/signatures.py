"""Signatures over a folder's SHA256SUMS by ``ssh-keygen -Y``; privopt has no cryptography of its own."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from attrs import evolve

from privopt.errors import UsageError
from privopt.files.new_folder import replace_in_release
from privopt.files.regular import Unreadable, read_bytes
from privopt.files.release_folder import LARGEST_TEXT, SIGNATURE, SUMS
from privopt.interfaces import Progress
from privopt.run.verdict import Verdict
from privopt.run.verify import open_verified

NAMESPACE: Final = "privopt-release"
"""What a signature is for: one that was made for another purpose, a commit or a letter, is none of a release."""

PROGRAM: Final = "ssh-keygen"


def sign(folder: Path, key: Path, *, force: bool = False, progress: Progress | None = None) -> Path:
    """Sign a verified DIR: write SHA256SUMS.sig next to SHA256SUMS.

    Args:
        folder: DIR.
        key: private key of OpenSSH, or a public one whose private half an agent holds.
        force: replace the signature that is there.
        progress: called with what is being done.

    Raises:
        DoesNotHoldError: a sum or a claim of DIR does not hold.
        InputError: DIR cannot be read.
        UsageError: it is signed already, ``ssh-keygen`` is missing, or it cannot sign with such a key.
    """
    target = folder / SIGNATURE
    if target.exists() and not force:
        raise UsageError(f"{target}: exists already; --force replaces it")
    open_verified(folder, progress=progress)
    made = _signature((folder / SUMS).read_bytes(), key)
    replace_in_release(target, made, folder.absolute())
    return target


def check_key(key: Path) -> None:
    """Check that a key can sign, before a long computation and not after it.

    Raises:
        UsageError: ``ssh-keygen`` is missing, or it cannot sign with such a key.
    """
    _signature(b"", key)


def with_signature(verdict: Verdict, folder: Path, allowed: Path) -> Verdict:
    """Add to a verdict who signed the folder, or why no one did whom a file of allowed signers names.

    Args:
        verdict: what ``verify`` found.
        folder: DIR.
        allowed: allowed signers, as ``ssh-keygen`` reads them: a line ``NAME KEYTYPE KEY`` each.

    Returns:
        With :attr:`Verdict.signed_by` where a signature holds; a complaint and no verdict where none does.

    Raises:
        UsageError: ``allowed`` cannot be read, or ``ssh-keygen`` is missing.
    """
    try:
        read_bytes(allowed)
    except Unreadable as error:
        raise UsageError(f"--signed-by {allowed}: must be a file of allowed signers, got {error.found}") from None
    program = _program()
    try:
        read_bytes(folder / SIGNATURE, largest=LARGEST_TEXT, links=False)
    except Unreadable as error:
        return _unsigned(verdict, f"{SIGNATURE}: got {error.found}; privopt sign DIR KEY signs a folder")
    sums = (folder / SUMS).read_bytes()
    given = ["-s", str(folder / SIGNATURE), "-f", str(allowed)]
    code, said, why = _run([program, "-Y", "find-principals", *given], b"")
    names = said.decode("utf-8", "replace").splitlines() if code == 0 else []
    for name in names:
        asked = [program, "-Y", "verify", "-n", NAMESPACE, "-I", name, *given]
        code, said, why = _run(asked, sums)
        if code == 0:
            key = said.decode("utf-8", "replace").strip().rpartition(" with ")[2]
            # A pattern is nobody's name, so that only the key says who signed.
            signer = f"{key}, a key for any name like {name}" if set("*?!") & set(name) else f"{name} ({key})"
            return evolve(verdict, signed_by=signer)
    return _unsigned(verdict, f"{SIGNATURE}: no signature by whom {allowed} allows ({why or 'no such signer'})")


def _unsigned(verdict: Verdict, complaint: str) -> Verdict:
    return evolve(verdict, verdict=None, complaints=(*verdict.complaints, complaint))


def _signature(message: bytes, key: Path) -> bytes:
    """Return the signature of ``ssh-keygen``; it asks for a passphrase in the terminal itself."""
    if not key.is_file():
        raise UsageError(f"{key}: must be a key of OpenSSH, found no such file; ssh-keygen -t ed25519 makes one")
    code, made, why = _run([_program(), "-Y", "sign", "-n", NAMESPACE, "-f", str(key)], message)
    if code != 0 or not made:
        raise UsageError(f"{key}: {PROGRAM} cannot sign with it ({why or f'ended with {code}'})")
    return made


def _program() -> str:
    found = shutil.which(PROGRAM)
    if found is None:
        raise UsageError(f"signatures need {PROGRAM} of OpenSSH 8.2 or newer, found none; install OpenSSH's client")
    return found


def _run(command: Sequence[str], stdin: bytes) -> tuple[int, bytes, str]:
    """Run the program with something on its standard input: its code, its output, and its last complaint."""
    done = subprocess.run(command, input=stdin, capture_output=True, check=False)
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return done.returncode, done.stdout, lines[-1].strip() if lines else ""
