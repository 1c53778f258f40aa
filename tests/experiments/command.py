"""One command for all papers: which parts are run, how much of each, and where the tables go."""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from attrs import frozen

from privopt.errors import PrivoptError, UsageError

__all__ = ["Study", "say"]

P = TypeVar("P")

RECORD = "plan.json"
"""What a folder's rows were made with."""


def say(line: object) -> None:
    """Show a line of progress, on standard error."""
    print(line, file=sys.stderr, flush=True)


@frozen(kw_only=True)
class Study(Generic[P]):
    """A paper's experiments.

    Attributes:
        plugin: its name.
        about: what is reproduced, in a sentence.
        parts: name -> what runs it, in order. A part computes no row again that is in its table.
        plan: how much is run, and everything else that parts need, from the options; ``size`` among these is quick,
            usual or full.
        draw: makes the pictures from the tables.
        options: adds the plugin's own options.
        fixed: options that all rows of a folder must have been made with.
    """

    plugin: str
    about: str
    parts: Mapping[str, Callable[[P], None]]
    plan: Callable[[Namespace], P]
    draw: Callable[[P], None]
    options: Callable[[ArgumentParser], None]
    fixed: Sequence[str]

    def run(self, arguments: Sequence[str] | None = None) -> int:
        """Run from the command line; exit codes as of privopt. A run that was stopped goes on where it was."""
        settings = self.parser().parse_args(arguments)
        try:
            self._record(settings)
            plan = self.plan(settings)
            for name in self.parts if settings.only is None else settings.only:
                start_seconds = time.monotonic()
                self.parts[name](plan)
                say(f"{name}: {time.monotonic() - start_seconds:.1f} s")
            self.draw(plan)
        except PrivoptError as error:
            say(error)
            return error.exit_code
        return 0

    def parser(self) -> ArgumentParser:
        """Return the options that all papers have, and the plugin's own."""
        parser = ArgumentParser(prog=f"python plugins/{self.plugin}/experiments", description=self.about)
        folder = Path(f"{self.plugin}-experiments")
        parser.add_argument("--out", type=Path, default=folder, help=f"tables and pictures; default {folder}")
        parser.add_argument(
            "--only", nargs="*", choices=self.parts, metavar="PART", help=f"{', '.join(self.parts)}; none: draw only"
        )
        sizes = parser.add_mutually_exclusive_group()
        sizes.add_argument("--quick", dest="size", action="store_const", const="quick", help="a look, in a minute")
        sizes.add_argument("--full", dest="size", action="store_const", const="full", help="the paper's own size")
        parser.set_defaults(size="usual")
        self.options(parser)
        return parser

    def _record(self, settings: Namespace) -> None:
        """Write what the rows are made with; refuse a folder whose rows were made with something else."""
        fixed_settings: dict[str, Any] = {name: getattr(settings, name) for name in self.fixed}
        fixed_settings = {
            name: str(value.resolve()) if isinstance(value, Path) else value for name, value in fixed_settings.items()
        }
        file = settings.out / RECORD
        if not fixed_settings:
            return
        if file.is_file():
            stored_settings = json.loads(file.read_text(encoding="utf-8"))
            for name, value in fixed_settings.items():
                if stored_settings.get(name) != value:
                    was = stored_settings.get(name)
                    raise UsageError(f"{file}: rows were made with {name} {was}, not {value}; expected another --out")
            return
        settings.out.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        part.write_text(json.dumps(fixed_settings, indent=1) + "\n", encoding="utf-8")
        part.replace(file)
