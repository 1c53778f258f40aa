"""Certified mechanisms on the users' devices: exports for browsers and phones, and a reference client."""

from __future__ import annotations

from collections.abc import Sequence

from privopt.specs import CommandSpec, hookimpl


@hookimpl
def privopt_commands() -> Sequence[CommandSpec]:
    """Register the command that exports a release."""
    return [
        CommandSpec(
            name="export",
            target="privopt_clients.command:export",
            summary="Write a release as a client that draws reports on the device.",
        )
    ]
