"""The ``privopt disclose`` command, which writes documents about a release for registries and regulators."""

from __future__ import annotations

from pathlib import Path

import click

from privopt.command.completion import FOLDER
from privopt.command.exit_codes import PATH, QUIET, handle_errors, warn_of_no_privacy
from privopt.command.program import say_result
from privopt.command.terminal import progress_display, remark
from privopt.errors import number_of

__all__ = ["disclose"]


@click.command()
@click.argument("folder", metavar="DIR", type=FOLDER)
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
@click.option(
    "--ledger",
    type=PATH,
    metavar="FILE",
    help="The ledger that counts its reports: says what may be spent on one person, and what was. Names nobody.",
)
@QUIET
@click.option("--force", is_flag=True, help="Replace FILE.")
@handle_errors
def disclose(
    folder: Path,
    form: str,
    out: Path,
    facts: Path | None,
    ask: Path | None,
    ledger: Path | None,
    quiet: bool,
    force: bool,
) -> None:
    """Write a disclosure about a verified release, in which each sentence is marked with its evidence."""
    # The docstring is the text of --help. ``form`` is the kind of document to write to ``out``. ``facts`` is a TOML
    # file with the owner's answers, and ``ask`` is the TOML file to which all questions are written. The command does
    # not fail if questions have no answer, because the document names them.
    from privopt.report.disclose.write import write_disclosure

    with progress_display(quiet=quiet) as progress:
        open_questions = write_disclosure(
            folder, form, out, facts=facts, ask=ask, ledger=ledger, force=force, progress=progress
        )
    warn_of_no_privacy(folder)
    if open_questions:
        remark(
            f"note: {number_of(len(open_questions), 'open question')}: {', '.join(open_questions)}; "
            "--ask FILE.toml writes them, --facts reads it"
        )
    say_result({"disclosure": str(out)}, str(out), as_json=False)
