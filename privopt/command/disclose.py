"""The command that writes what is filed about a release: it imports what it needs when it is called."""

from __future__ import annotations

from pathlib import Path

import click

from privopt.command.exit_codes import PATH, guarded, warn_of_no_privacy
from privopt.command.terminal import complain, print_result, progress_display

__all__ = ["disclose"]


@click.command()
@click.argument("folder", metavar="DIR", type=PATH)
@click.option(
    "--format",
    "form",
    type=click.Choice(["registry", "nist", "dpia", "card"]),
    required=True,
    help="An entry of the registry of deployments (JSON), answers to NIST SP 800-226, an annex to a data protection "
    "impact assessment, a model card (Markdown).",
)
@click.option("--out", type=PATH, required=True, metavar="FILE", help="File to write.")
@click.option("--facts", type=PATH, metavar="FILE.toml", help="What only the owner knows.")
@click.option("--ask", type=PATH, metavar="FILE.toml", help="Also write the questions there, with the answers so far.")
@click.option("--force", is_flag=True, help="Replace FILE.")
@guarded
def disclose(folder: Path, form: str, out: Path, facts: Path | None, ask: Path | None, force: bool) -> None:
    """Write what an office files about a release that holds, each sentence with the claim it rests on."""
    from privopt.report.disclose.write import write_disclosure

    with progress_display(quiet=False) as progress:
        left = write_disclosure(folder, form, out, facts=facts, ask=ask, force=force, progress=progress)
    warn_of_no_privacy(folder)
    if left:
        complain(
            f"note: {len(left)} questions are open: {', '.join(left)}; --ask FILE.toml writes them, --facts reads it"
        )
    print_result(str(out))
