"""Secret values that tests plant, and all that a program shows of them."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from click.testing import CliRunner
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

SENTINEL = "734197341"
"""A secret, so long that no hash holds it by chance."""
LATIN_LETTERS = st.text("abzéNA -", max_size=4)
ENDINGS = st.sampled_from(["", ".5", "e300", "e999", ",5", f",{SENTINEL}", f",1,{SENTINEL}", " 7", "°", "\u2212"])
VALUES = st.builds(lambda start, end: f"{start}{SENTINEL}{end}", st.one_of(LATIN_LETTERS, st.just("-")), ENDINGS)
PROPERTY = settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))


@contextmanager
def recorded_logs(stream: io.StringIO) -> Iterator[None]:
    """Write what is logged in the block to a stream."""
    handler = logging.StreamHandler(stream)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


def run_command(group, *arguments) -> tuple[int, str]:
    """Return the exit code, and all that a command shows: both streams, the log and an exception."""
    log = io.StringIO()
    with recorded_logs(log):
        result = CliRunner().invoke(group, [str(argument) for argument in arguments])
    return result.exit_code, f"{result.output}\n{log.getvalue()}\n{result.exception!r}"
