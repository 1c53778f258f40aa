"""Functions that sign release folders and check who signed them.

A signature covers SHA256SUMS, which in turn covers the published files. It is made and checked with OpenSSH's
``ssh-keygen -Y``, so privopt needs no cryptography of its own.
"""

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
from privopt.run.verify import Verdict, open_verified

NAMESPACE: Final = "privopt-release"
"""The signatures' namespace. Signatures made for other purposes, such as signing commits, are not accepted."""

PROGRAM: Final = "ssh-keygen"
"""The OpenSSH program that creates and checks signatures."""


def sign(folder: Path, key: Path, *, force: bool = False, progress: Progress | None = None) -> Path:
    """Verify a release folder (DIR), sign it by writing SHA256SUMS.sig, and return the path of this file.

    Args:
        folder: The release folder, DIR.
        key: An OpenSSH private key, or a public key if an agent holds the private one.
        force: Whether to replace an existing signature.
        progress: Called with the name of each step.

    Raises:
        DoesNotHoldError: A checksum or a claim in DIR does not hold.
        InputError: DIR cannot be read.
        UsageError: DIR is already signed and ``force`` is False, ``ssh-keygen`` is missing, or it cannot sign with this
            key.
    """
    target = folder / SIGNATURE
    if target.exists() and not force:
        raise UsageError(f"{target}: exists already; --force replaces it")
    # Nobody should sign claims that do not hold.
    open_verified(folder, progress=progress)
    signature = _make_signature((folder / SUMS).read_bytes(), key)
    replace_in_release(target, signature, folder.absolute())
    return target


def check_key(key: Path) -> None:
    """Check that a key can sign, by signing an empty message. Callers do this before a long computation.

    Raises:
        UsageError: ``ssh-keygen`` is missing, or it cannot sign with this key.
    """
    _make_signature(b"", key)


def with_signature(verdict: Verdict, folder: Path, allowed: Path) -> Verdict:
    """Check a folder's signature against a list of allowed signers, and return the updated verdict.

    Args:
        verdict: The verdict of ``verify`` on the folder.
        folder: The release folder, DIR.
        allowed: The file of allowed signers in ``ssh-keygen``'s format, with lines of the form ``NAME KEYTYPE KEY``.

    Returns:
        The verdict with :attr:`Verdict.signed_by` set, if the folder has a valid signature by an allowed signer.
        Otherwise, the verdict is withdrawn (set to None), and a complaint gives the reason.

    Raises:
        UsageError: ``allowed`` cannot be read, or ``ssh-keygen`` is missing.
    """
    try:
        read_bytes(allowed)
    except Unreadable as error:
        raise UsageError(f"--signed-by {allowed}: must be a file of allowed signers, got {error.actual}") from None
    program = _find_program()
    try:
        read_bytes(folder / SIGNATURE, largest=LARGEST_TEXT, links=False)
    except Unreadable as error:
        return _reject_signature(verdict, f"{SIGNATURE}: got {error.actual}; privopt sign DIR KEY signs a folder")
    sums = (folder / SUMS).read_bytes()
    signature_options = ["-s", str(folder / SIGNATURE), "-f", str(allowed)]
    code, output, complaint = _run_program([program, "-Y", "find-principals", *signature_options], b"")
    # A key may be listed under several names, each of which may be restricted to certain namespaces.
    names = output.decode("utf-8", "replace").splitlines() if code == 0 else []
    for name in names:
        command = [program, "-Y", "verify", "-n", NAMESPACE, "-I", name, *signature_options]
        code, output, complaint = _run_program(command, sums)
        if code == 0:
            key = output.decode("utf-8", "replace").strip().rpartition(" with ")[2]
            # The output ends with "with TYPE key HASH". If the name is a pattern such as *@example.org, it names no
            # particular person, and only the key identifies the signer.
            signer = f"{key}, a key for any name like {name}" if set("*?!") & set(name) else f"{name} ({key})"
            return evolve(verdict, signed_by=signer)
    return _reject_signature(
        verdict, f"{SIGNATURE}: no signature by anyone whom {allowed} allows ({complaint or 'no such signer'})"
    )


def _reject_signature(verdict: Verdict, complaint: str) -> Verdict:
    """Withdraw a verdict (set it to None) because of an invalid signature, and add a complaint."""
    return evolve(verdict, verdict=None, complaints=(*verdict.complaints, complaint))


def _make_signature(message: bytes, key: Path) -> bytes:
    """Sign a message with ``ssh-keygen`` and return the signature.

    If the key has a passphrase, ``ssh-keygen`` asks for it.

    Raises:
        UsageError: The key does not exist, ``ssh-keygen`` is missing, or it cannot sign with this key.
    """
    if not key.is_file():
        raise UsageError(f"{key}: must be a key of OpenSSH, found no such file; ssh-keygen -t ed25519 makes one")
    code, signature, complaint = _run_program([_find_program(), "-Y", "sign", "-n", NAMESPACE, "-f", str(key)], message)
    if code != 0 or not signature:
        raise UsageError(f"{key}: {PROGRAM} cannot sign with it ({complaint or f'ended with {code}'})")
    return signature


def _find_program() -> str:
    """Return the path of ``ssh-keygen``. Raise UsageError if it is not installed."""
    program = shutil.which(PROGRAM)
    if program is None:
        raise UsageError(f"signatures need {PROGRAM} of OpenSSH 8.2 or newer, found none; install OpenSSH's client")
    return program


def _run_program(command: Sequence[str], stdin: bytes) -> tuple[int, bytes, str]:
    """Run a command with the given standard input, and return its exit code, output and last line of stderr."""
    completed = subprocess.run(command, input=stdin, capture_output=True, check=False)
    lines = completed.stderr.decode("utf-8", "replace").strip().splitlines()
    return completed.returncode, completed.stdout, lines[-1].strip() if lines else ""
