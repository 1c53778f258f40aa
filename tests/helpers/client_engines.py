"""The clients that are no Python: each does the tasks of replay.mjs, where it is installed."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from helpers.browser import open_browser

__all__ = ["ENGINES", "Ask"]

Ask = Callable[[Path, str, int, Mapping[str, Path]], str]
"""FOLDER, a task, its number, and the files that it reads by name: lines of text."""

HERE = Path(__file__).parents[2] / "plugins" / "clients" / "tests"
MODULES = ("privopt-client.mjs", "replay.mjs")
PAGE = "https://client.example/"
PATIENCE = 600_000
"""Milliseconds: a busy machine is slow, and no page waits for anything else."""
IN_NODE = """
import { readFileSync } from "node:fs";
const given = JSON.parse(process.argv[1]);
const { open } = await import(given.client);
const { replay } = await import(given.replay);
const read = ([name, path]) => [name, new Uint8Array(readFileSync(path))];
const files = Object.fromEntries(Object.entries(given.files).map(read));
process.stdout.write(await replay({ ...given, open, files }));
"""
IN_PAGE = """
async ({ task, number, names }) => {
  const { open } = await import("/privopt-client.mjs");
  const { replay } = await import("/replay.mjs");
  const fetched = async (name) => (await fetch(`/${name}`, { cache: "no-store" })).arrayBuffer();
  const read = async (name) => [name, new Uint8Array(await fetched(name))];
  const files = Object.fromEntries(await Promise.all(names.map(read)));
  return replay({ open, task, number, files });
}
"""


@contextmanager
def node(scratch: Path) -> Iterator[Ask]:
    """Ask the module in node."""
    program = shutil.which("node")
    if program is None:
        pytest.skip("no node on this machine")

    def ask(folder: Path, task: str, number: int, files: Mapping[str, Path]) -> str:
        modules = {"client": (folder / MODULES[0]).as_uri(), "replay": (HERE / MODULES[1]).as_uri()}
        read = {"mechanism.bin": folder / "mechanism.bin", **files}
        request = {"task": task, "number": number, "files": {name: str(path) for name, path in read.items()}, **modules}
        return _output_of([program, "--input-type=module", "-e", IN_NODE, json.dumps(request)])

    yield ask


@contextmanager
def browser(scratch: Path) -> Iterator[Ask]:
    """Ask the module in a real browser: its page is served by the test, and nothing else is reached."""
    with open_browser() as running_browser:
        paths: dict[str, Path] = {"replay.mjs": HERE / "replay.mjs"}

        def serve(route: Any) -> None:
            name = route.request.url.rsplit("/", 1)[1]
            kind = "text/javascript" if name.endswith(".mjs") else "text/html"
            route.fulfill(body=paths[name].read_bytes() if name else b"<!doctype html>", content_type=kind)

        page = running_browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.route("**/*", serve)

        def ask(folder: Path, task: str, number: int, files: Mapping[str, Path]) -> str:
            paths.update({name: folder / name for name in ("privopt-client.mjs", "mechanism.bin")}, **files)
            if page.url != PAGE:
                page.goto(PAGE)
            names = ["mechanism.bin", *files]
            answer: str = page.evaluate(IN_PAGE, {"task": task, "number": number, "names": names})
            return answer

        yield ask


ENGINES = {"node": node, "browser": browser}


def _output_of(command: list[str]) -> str:
    """Return what a program prints."""
    completed = subprocess.run(command, capture_output=True, timeout=600, check=False)
    assert completed.returncode == 0, completed.stderr.decode()
    return completed.stdout.decode("utf-8")
