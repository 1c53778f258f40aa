"""Arguments that the shell can complete: names of mechanisms and methods, and folders.

The shell requests completions with ``_PRIVOPT_COMPLETE=bash_source privopt`` (or ``zsh_source``, ``fish_source``), as
described in docs/reference/command-line.md. Values are not checked here. An unknown name causes an error where it is
used, and the message suggests similar names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem

__all__ = ["FOLDER", "MECHANISM", "METHOD"]


class _MechanismName(click.ParamType[str]):
    """The type of a command-line argument that names an installed mechanism."""

    name = "mechanism"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the installed mechanisms whose names begin with ``incomplete``, the text typed so far."""
        from privopt.registry import registry

        mechanisms = registry().mechanisms
        return [
            CompletionItem(name, help=entry.spec.summary)
            for name, entry in mechanisms.items()
            if name.startswith(incomplete)
        ]


class _MethodName(click.ParamType[str]):
    """The type of a command-line argument that names a method of the mechanism given earlier on the command line."""

    name = "method"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the methods whose names begin with ``incomplete``, the text typed so far.

        If a mechanism was given earlier on the command line, only its methods are considered. Otherwise, the methods of
        all mechanisms are considered.
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
    """A path for which the shell suggests only folders. Whether the path is a folder is checked only on opening it."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return an item that tells the shell to complete the text typed so far with folder names."""
        return [CompletionItem(incomplete, type="dir")]


MECHANISM: Final = _MechanismName()
"""The type of an argument that names a mechanism."""

METHOD: Final = _MethodName()
"""The type of an argument that names a method."""

FOLDER: Final = _FolderPath(path_type=Path)
"""The type of an argument that gives the path of a folder."""
