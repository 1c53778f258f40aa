"""The ``privopt disclose`` command, which verifies a release, attacks it and writes a document about it."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Final

from privopt.files.new_folder import check_files, new_file
from privopt.interfaces import Progress
from privopt.ledger.ledger import Ledger
from privopt.report.disclose.documents import document
from privopt.report.disclose.entry import check_answers, entry
from privopt.report.disclose.facts import questions_text, read_facts
from privopt.report.disclose.statements import statements
from privopt.run.audit import audit
from privopt.run.verify import open_verified

ATTACKED_REPORTS: Final = 50
"""The largest number of reports about a place observed by an attack in a disclosure. Other attacks observe 1 or 10."""


def write_disclosure(
    folder: Path,
    form: str,
    out: Path,
    *,
    facts: Path | None = None,
    ask: Path | None = None,
    ledger: Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> list[str]:
    """Write a disclosure about a release.

    Args:
        folder: The release folder DIR.
        form: One of :data:`privopt.report.disclose.documents.FORMATS`.
        out: The file to write.
        facts: The TOML file with the owner's answers, or None if there is none.
        ask: A file to which the questions and the answers so far are written, or None.
        ledger: The ledger that counts the release's reports, or None. The document names none of its subjects.
        force: Whether to replace existing files.
        progress: Called with the current step.

    Returns:
        The keys of the unanswered questions.

    Raises:
        DoesNotHoldError: A claim in DIR does not hold, or an entry in the ledger was changed. No file is written.
        InputError: DIR, the ledger or the facts cannot be read, or an answer does not conform to the schema of the
            deployment registry.
        UsageError: A file to be written is also an input, lies in the release folder, or already exists and ``force``
            is False.
    """
    # Check paths and answers first, because verifying and attacking a large release takes minutes.
    read = [path for path in (facts, ledger) if path is not None]
    check_files({"--out": out, "--ask": ask}, force=force, read=read, folders=[folder])
    answers = {} if facts is None else read_facts(facts)
    if form == "registry":
        check_answers(answers, str(facts))
    opened = open_verified(folder, progress=progress)
    with ExitStack() as stack:
        opened_ledger = None
        if ledger is not None:
            opened_ledger = stack.enter_context(Ledger(ledger, make=False))
            opened_ledger.check(progress=progress)
        figures = audit(folder, over_time=ATTACKED_REPORTS, progress=progress)
        release_statements = statements(opened, figures, answers, opened_ledger)
    with new_file(out, force=force) as file:
        file.write_text(
            entry(release_statements) if form == "registry" else document(form, release_statements), "utf-8"
        )
    if ask is not None:
        with new_file(ask, force=force, option="--ask") as file:
            file.write_text(questions_text(answers), "utf-8")
    # Unanswered questions are statements with the claim "open".
    return [statement.values["name"] for statement in release_statements if statement.claim == "open"]
