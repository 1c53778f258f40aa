"""Prove everything in docs/proof from nothing and build privopt-kernel from it, into .venv/bin.

Coq, OCaml and zarith are Debian's packages; they are installed where this may, and named where not.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "docs" / "proof"
WORK = ROOT / ".tools" / "proof"
PACKAGES = ("coq", "ocaml-findlib", "libzarith-ocaml-dev", "ocaml-nox")
THEORIES = (
    *("Basics", "Exp", "Rows", "Sums", "Bound", "Spec", "Claims", "Metric", "Tables", "Privacy", "Costs", "Check"),
    *("Grammar", "Folder", "Unique", "UniqueText", "Read", "Accept", "Witness", "Sampler"),
)
PARTS = ("whole.ml", "proved.mli", "proved.ml", "unzip.ml", "privopt_kernel.ml")

ASSUMED = {"sig_not_dec", "sig_forall_dec", "functional_extensionality_dep", "classic"}
"""The classical axioms of Coq's reals."""


def run(*command: str) -> str:
    """Run a command in the work folder; end where it fails."""
    done = subprocess.run(command, cwd=WORK, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"formal: {' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


def is_there() -> bool:
    """Whether Coq, OCaml and zarith are installed."""
    tools = all(map(shutil.which, ("coqc", "ocamlfind", "ocamlopt")))
    return tools and subprocess.run(["ocamlfind", "query", "zarith"], capture_output=True, check=False).returncode == 0


def main() -> None:
    """Prove, extract, compile."""
    if not is_there() and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(
            ["apt-get", "install", "-y", "--no-install-recommends", *PACKAGES], check=False, stdout=sys.stderr
        )
    if not is_there():
        sys.exit(
            f"formal: expected Coq 8.16 or later, OCaml and zarith (on Debian: apt-get install {' '.join(PACKAGES)})"
        )
    shutil.rmtree(WORK, ignore_errors=True)
    shutil.copytree(SOURCES, WORK)
    for part in (SOURCES / "program").glob("*.ml"):
        shutil.copy(part, WORK)
    for theory in THEORIES:
        print(f"formal: {theory}.v", flush=True)
        run("coqc", "-R", ".", "Privopt", f"{theory}.v")
    said = run("coqc", "-R", ".", "Privopt", "Assumptions.v")
    assumed = set(re.findall(r"^[\w.]+\.(\w+)", said, re.MULTILINE))
    if odd := assumed - ASSUMED or "Closed under the global context" not in said:
        sys.exit(f"formal: assumes {odd}: expected nothing but the axioms of Coq's reals")
    run("coqc", "-R", ".", "Privopt", "Extract.v")
    target = ROOT / ".venv" / "bin" / "privopt-kernel"
    run("ocamlfind", "ocamlopt", "-O3", "-w", "-a", "-package", "zarith,unix", "-linkpkg", *PARTS, "-o", str(target))
    print(f"formal: all proved; assumes {', '.join(sorted(assumed & ASSUMED))}; {target.relative_to(ROOT)} is made")


if __name__ == "__main__":
    main()
