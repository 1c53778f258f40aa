"""Release: what a mechanism publishes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from privopt.errors import UsageError
from privopt.interfaces.channel import Channel, NoisyCounts


class Release(ABC):
    """What is published. Knows its artefact: how it is written, read back and sampled."""

    artefact: ClassVar[str] = ""
    """Name of the archive (.npz) that holds ``weights``, of releases that have them."""

    private_folder: ClassVar[bool] = False
    """Whether all of DIR is its owner's own: then no one else may enter it (0700)."""

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Write the artefact into ``folder``: public data alone, no secret but through the mechanism."""

    def write_private(self, folder: Path) -> None:  # noqa: B027  (most releases have nothing private)
        """Write into ``private/`` what only the owner may see."""

    @classmethod
    @abstractmethod
    def read(cls, folder: Path, problem: Any) -> Release:
        """Read the artefact back from the files in ``folder`` and nothing else."""

    @classmethod
    def alone(cls, folder: Path) -> Release | None:
        """Read what drawing takes, without the problem, from a folder that holds; None where the problem is needed."""
        return None

    def sample(self, input_id: str, count: int) -> list[str]:
        """Draw outputs for one secret from the operating system's entropy."""
        raise UsageError(f"{type(self).__name__} has no distribution to sample: it is one published result")

    def channel(self) -> Channel | NoisyCounts | None:
        """Return the channel from secrets to reports, for estimates of the crowd; None if reports are not drawn."""
        return None
