"""Clients that draw reports on users' devices: an exporter for browsers, and a reference client in Python."""

from __future__ import annotations

from collections.abc import Sequence

from privopt.specs import CommandSpec, hookimpl


@hookimpl
def privopt_commands() -> Sequence[CommandSpec]:
    """Return the spec of the ``privopt export`` command, which turns a release into a browser client."""
    return [
        CommandSpec(
            name="export",
            target="privopt_clients.command:export",
            summary="Write a browser module that draws reports.",
            group="Use a release",
            example="privopt export city --target js --out client",
            page="docs/how-to/approximate-location.md",
        )
    ]
