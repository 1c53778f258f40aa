"""A million strings of entropy for each kind of artefact: the same reports in Python, node and a browser.

Run as ``python tests/bench/bench_strings.py FOLDER [--seconds S]``: after S seconds it ends, and started again it goes
on where it was. FOLDER keeps the exports, and in strings.json the SHA-256 of each chunk's reports by each client. An
export of another artefact begins again. It ends 0 when all agree, 1 when two differ, 5 while some are missing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from helpers.client_engines import ENGINES, Ask  # noqa: E402
from helpers.client_exports import EXPORTS, release_of  # noqa: E402
from helpers.client_strings import (  # noqa: E402
    CHUNK,
    entropy_of,
    hash_in_python,
    inputs_of,
    open_export,
    write_inputs,
)

from privopt_clients.export import export  # noqa: E402

STRINGS = 1_000_000
PYTHON = "python"

Told = dict[str, str]


def export_all(work: Path) -> dict[str, Path]:
    """Return FOLDER of each export, with today's clients; releases are kept."""
    folders = {}
    for name, (release, options) in EXPORTS.items():
        problem = work / "releases" / release.replace(" ", "-")
        problem.mkdir(parents=True, exist_ok=True)
        output_folder = problem / "out" if (problem / "out" / "SHA256SUMS").exists() else release_of(release, problem)
        folders[name] = export(output_folder, work / name.replace(" ", "-"), force=True, **options).folder
    return folders


@contextmanager
def client(engine: str, work: Path) -> Iterator[Callable[[Path, int], str]]:
    """Open a client; called with FOLDER and a chunk's number it returns the SHA-256 of the chunk's reports."""
    if engine == PYTHON:
        yield lambda folder, chunk: hash_in_python(folder, chunk, CHUNK)
        return
    scratch = work / engine
    scratch.mkdir(exist_ok=True)

    def ask_client(ask: Ask, folder: Path, chunk: int) -> str:
        entropy, size = entropy_of(open_export(folder), chunk, CHUNK)
        (scratch / "entropy.bin").write_bytes(entropy)
        files = {"inputs.tsv": write_inputs(scratch / "inputs.tsv", inputs_of(open_export(folder)))}
        return ask(folder, "hash", size, {**files, "entropy.bin": scratch / "entropy.bin"})

    with ENGINES[engine](scratch) as ask:
        yield lambda folder, chunk: ask_client(ask, folder, chunk)


def main() -> int:
    """Go on with what is missing; prints a line for each artefact that is complete."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    arguments = parser.parse_args()
    until = time.monotonic() + arguments.seconds
    arguments.folder.mkdir(parents=True, exist_ok=True)
    folders, record_file = export_all(arguments.folder), arguments.folder / "strings.json"
    hashes: dict[str, Told] = json.loads(record_file.read_text()) if record_file.exists() else {}
    sums = {name: hashlib.sha256((at / "mechanism.bin").read_bytes()).hexdigest() for name, at in folders.items()}
    clients = (PYTHON, *ENGINES)
    for engine in clients:
        missing = [
            (name, chunk)
            for name in folders
            for chunk in range(STRINGS // CHUNK)
            if engine not in hashes.setdefault(f"{name} {sums[name]} {chunk}", {})
        ]
        if missing and time.monotonic() < until:
            with client(engine, arguments.folder) as answer:
                for name, chunk in missing:
                    if time.monotonic() > until:
                        break
                    began = time.monotonic()
                    hashes[f"{name} {sums[name]} {chunk}"][engine] = answer(folders[name], chunk)
                    record_file.write_text(json.dumps(hashes, indent=1))
                    print(f"{engine} {name} {chunk}: {time.monotonic() - began:.1f} s", flush=True)
    is_complete = True
    for name in folders:
        chunks = [hashes[f"{name} {sums[name]} {chunk}"] for chunk in range(STRINGS // CHUNK)]
        for by_client in chunks:
            if len(set(by_client.values())) > 1:
                print(f"{name}: clients differ: {by_client}")
                return 1
        complete = sum(len(chunk) == len(clients) for chunk in chunks)
        is_complete &= complete == len(chunks)
        print(f"{name}: {complete * CHUNK:,} strings, the same reports from {', '.join(clients)}")
    return 0 if is_complete else 5


if __name__ == "__main__":
    sys.exit(main())
