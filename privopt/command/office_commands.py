"""Commands that sign a folder, and that write the documents an office files about it.

As in :mod:`privopt.command.cli`, each imports what it needs.
"""

from __future__ import annotations

from pathlib import Path

import click

from privopt.command.exit_codes import PATH, guarded, say_when_compiling, warn_of_no_privacy
from privopt.command.terminal import complain, print_result


@click.command()
@click.argument("folder", metavar="DIR", type=PATH)
@click.argument("key", metavar="KEY", type=PATH)
@click.option("--force", is_flag=True, help="Replace the signature that is there.")
@guarded
def sign(folder: Path, key: Path, force: bool) -> None:
    """Sign a verified folder with an OpenSSH key: DIR/SHA256SUMS.sig, by ssh-keygen -Y sign."""
    from privopt.command.terminal import progress_display
    from privopt.run.signatures import sign as run

    say_when_compiling()
    with progress_display(quiet=False) as progress:
        made = run(folder, key, force=force, progress=progress)
    print_result(str(made))
    warn_of_no_privacy(folder)


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
    from privopt.command.terminal import progress_display
    from privopt.report.disclose.write import write_disclosure

    say_when_compiling()
    with progress_display(quiet=False) as progress:
        left = write_disclosure(folder, form, out, facts=facts, ask=ask, force=force, progress=progress)
    warn_of_no_privacy(folder)
    if left:
        complain(
            f"note: {len(left)} questions are open: {', '.join(left)}; --ask FILE.toml writes them, --facts reads it"
        )
    print_result(str(out))
