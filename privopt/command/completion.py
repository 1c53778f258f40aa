"""Arguments that the shell completes: names of mechanisms and methods, and folders.

The shell asks for completions with ``_PRIVOPT_COMPLETE=bash_source privopt`` (or ``zsh_source``, ``fish_source``), as
docs/reference/command-line.md says. Values are not checked here: an unknown name is refused where it is used, with a
message that suggests similar names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem

__all__ = ["FOLDER", "MECHANISM", "METHOD"]


class _MechanismName(click.ParamType[str]):
    """An argument that is the name of an installed mechanism."""

    name = "mechanism"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the installed mechanisms whose names begin with the typed text ``incomplete``."""
        from privopt.registry import registry

        mechanisms = registry().mechanisms
        return [
            CompletionItem(name, help=entry.spec.summary)
            for name, entry in mechanisms.items()
            if name.startswith(incomplete)
        ]


class _MethodName(click.ParamType[str]):
    """An argument that names a method of the mechanism given earlier on the command line."""

    name = "method"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the methods whose names begin with the typed text ``incomplete``.

        If a mechanism was typed earlier, only its methods are considered. Otherwise, those of all mechanisms are.
        """
        from privopt.registry import registry

        mechanisms = registry().mechanisms
        entry = mechanisms.get(str(ctx.params.get("mechanism")))
        methods = {
            method.name: method.summary
            for known in ([entry] if entry is not None else mechanisms.values())
            for method in known.spec.methods
        }
        return [CompletionItem(name, help=text) for name, text in methods.items() if name.startswith(incomplete)]


class _FolderPath(click.Path):
    """A path for which the shell suggests only folders. The path of a file is refused later, when it is opened."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return an item that tells the shell to complete the typed text with folder names."""
        return [CompletionItem(incomplete, type="dir")]


MECHANISM: Final = _MechanismName()
"""The type of arguments that are names of mechanisms."""

METHOD: Final = _MethodName()
"""The type of arguments that are names of methods."""

FOLDER: Final = _FolderPath(path_type=Path)
"""The type of arguments that are paths of folders."""
