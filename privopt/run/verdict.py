"""What ``verify`` found: a verdict with its complaints, in words and as JSON."""

from __future__ import annotations

from typing import Any

from attrs import frozen

from privopt.declare.schema import document
from privopt.interfaces import Certificate
from privopt.interfaces.claims import SEEDED
from privopt.run.verify_cache import Word

__all__ = ["Verdict"]


@frozen(kw_only=True)
class Verdict:
    """What ``verify`` found.

    Attributes:
        verdict: ``"proved"``, ``"declared"`` or ``"none"`` (kind "none", or drawn under a seed); None where a sum or
            a claim does not hold.
        complaints: a line for each that does not hold; empty where all do.
        certificate: as measured again, where it came so far.
        seeded: whether the noise of this release came from a seed.
        notes: what does not touch the verdict: versions other than those that made the folder.
        signed_by: who signed the folder, and with which key, where that was asked and is so; None else.
    """

    verdict: Word | None
    complaints: tuple[str, ...] = ()
    certificate: Certificate | None = None
    seeded: bool = False
    notes: tuple[str, ...] = ()
    signed_by: str | None = None

    @property
    def holds(self) -> bool:
        """Whether all that DIR says is so, be it only that it promises nothing."""
        return self.verdict is not None

    def words(self) -> str:
        """Say in one line what was found and what it rests on; :attr:`verdict` is the word to put before it."""
        return self._certificate_text() + (f"; signed by {self.signed_by}" if self.signed_by else "")

    def _certificate_text(self) -> str:
        found = self.certificate
        if self.verdict is None or found is None:
            return "does not hold"
        if found.holds is None:
            return "no privacy guarantee; sums hold"
        figures = f"{found.kind}: {found.in_words}; {found.arithmetic}"
        if self.seeded:
            return f"{SEEDED} ({figures})"
        rests = f"; its maker's word: {found.rests_on}" if found.rests_on else ""
        return f"holds ({figures}{rests})"

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``privopt verify --json`` prints."""
        return {
            "verdict": self.verdict,
            "seeded": self.seeded,
            "complaints": list(self.complaints),
            "notes": list(self.notes),
            "certificate": None if self.certificate is None else document(self.certificate),
            **({} if self.signed_by is None else {"signed_by": self.signed_by}),
        }
