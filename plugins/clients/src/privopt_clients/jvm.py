"""Compile the Java and Android client with ``javac`` into a jar without dependencies, next to its source."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from privopt.errors import UsageError

__all__ = ["JAR", "write_jar"]

SOURCES: Final = Path(__file__).parent / "java"
SOURCE: Final = "privopt/PrivoptClient.java"
JAR: Final = "privopt-client.jar"
RELEASE: Final = "11"
"""Of Java: classes run there and on all later ones; Android's tools take them."""
DATED: Final = (1980, 1, 1, 0, 0, 0)
"""Of every file in the jar, so that the same sources give the same bytes: the first that the format has."""


def write_jar(folder: Path) -> None:
    """Compile the client into ``privopt-client.jar`` and put its source next to it.

    Raises:
        UsageError: no Java compiler is installed, or it refuses the source.
    """
    compiler = shutil.which("javac")
    if compiler is None:
        raise UsageError("--target jvm must have a Java compiler, javac of a JDK 11 or later, got none: install one")
    shutil.copyfile(SOURCES / SOURCE, folder / Path(SOURCE).name)
    with tempfile.TemporaryDirectory() as scratch:
        command = [compiler, "--release", RELEASE, "-encoding", "UTF-8", "-d", scratch, str(SOURCES / SOURCE)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UsageError(f"--target jvm must have javac of a JDK {RELEASE} or later, got: {done.stderr.strip()}")
        with zipfile.ZipFile(folder / JAR, "w") as jar:
            _put(jar, "META-INF/MANIFEST.MF", b"Manifest-Version: 1.0\r\nAutomatic-Module-Name: privopt\r\n\r\n")
            for path in sorted(Path(scratch).rglob("*.class")):
                _put(jar, path.relative_to(scratch).as_posix(), path.read_bytes())


def _put(jar: zipfile.ZipFile, name: str, data: bytes) -> None:
    """Put a file into the jar."""
    jar.writestr(zipfile.ZipInfo(name, DATED), data, zipfile.ZIP_DEFLATED)
