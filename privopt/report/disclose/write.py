"""``privopt disclose``: check a folder, attack it, and write one document about it."""

from __future__ import annotations

from pathlib import Path

from privopt.files.new_folder import new_file
from privopt.files.targets import check_files
from privopt.interfaces import Progress
from privopt.report.disclose.documents import document
from privopt.report.disclose.entry import check_answers, entry
from privopt.report.disclose.facts import questions_text, read_facts
from privopt.report.disclose.statements import statements
from privopt.run.audit import audit
from privopt.run.verify import open_verified


def write_disclosure(
    folder: Path,
    form: str,
    out: Path,
    *,
    facts: Path | None = None,
    ask: Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> list[str]:
    """Write what an office files about a release.

    Args:
        folder: DIR.
        form: one of :data:`privopt.report.disclose.documents.FORMATS`.
        out: file to write.
        facts: TOML of what only the owner knows, or None.
        ask: file to write the questions into, with the answers so far, or None.
        force: replace the files.
        progress: called with what is being done.

    Returns:
        Keys of the questions that are open.

    Raises:
        DoesNotHoldError: DIR does not hold; nothing is written.
        InputError: DIR or the facts cannot be read, or the registry takes no such answer.
        UsageError: a file that must not be written.
    """
    read = [] if facts is None else [facts]
    check_files({"--out": out, "--ask": ask}, force=force, read=read, folders=[folder])
    answers = {} if facts is None else read_facts(facts)
    if form == "registry":
        check_answers(answers, str(facts))
    opened = open_verified(folder, progress=progress)
    told = statements(opened, audit(folder, progress=progress), answers)
    with new_file(out, force=force) as made:
        made.write_text(entry(told) if form == "registry" else document(form, told), "utf-8")
    if ask is not None:
        with new_file(ask, force=force, option="--ask") as made:
            made.write_text(questions_text(answers), "utf-8")
    return [each.values["name"] for each in told if each.claim == "open"]
