"""No guarantee at all: what methods for comparison claim."""

from __future__ import annotations

from typing import Any

from attrs import frozen

from privopt.execution import Executor
from privopt.interfaces import Certificate, Guarantee, PrivacyConstraint

__all__ = ["NoGuarantee"]


@frozen(kw_only=True)
class NoGuarantee(PrivacyConstraint):
    """Claims nothing and measures nothing.

    >>> NoGuarantee(reason="no noise is added").measure(None).holds is None
    True

    Attributes:
        reason: why there is no guarantee, in words.
    """

    reason: str

    @property
    def guarantee(self) -> Guarantee:
        """Kind ``"none"``, with the reason."""
        return Guarantee(kind="none", statement=f"No privacy guarantee: {self.reason}.")

    def measure(self, release: Any, *, executor: Executor | None = None) -> Certificate:
        """Nothing to measure: ``holds`` is None."""
        return Certificate(
            holds=None,
            evidence="none",
            kind="none",
            worst=None,
            allowed=None,
            checked=0,
            arithmetic="nothing is claimed",
        )
