"""Draw for a position, each draw charged to a subject if a ledger is given."""

from __future__ import annotations

from collections.abc import Callable

from privopt.api.draws import Draw
from privopt.errors import UsageError
from privopt.run.verify import OpenedFolder

__all__ = ["draw_at"]


def draw_at(
    opened: OpenedFolder, at: tuple[float, float], *, degrees: bool, note: Callable[[str], None] | None = None
) -> Draw:
    """Return draws for a position: of the nearest record that the release has a row for, or at that very point.

    Args:
        opened: the release.
        at: latitude and longitude, or x and y in km; no such position raises :class:`UsageError` when it is drawn for.
        degrees: which of the two.
        note: called with each sentence that the position's owner should know, before the first draw is given.

    Raises:
        UsageError: these are not two numbers, the release has no matrix, or its records no such coordinates.
    """
    import narwhals as nw
    import numpy as np
    import polars as pl

    from privopt.numbers.sampling import draw_each
    from privopt_metric_dp.tables.application import Application
    from privopt_metric_dp.tables.apply_table import matrix_of
    from privopt_metric_dp.tables.nearest_record import REASONS
    from privopt_metric_dp.tables.protect import Protector
    from privopt_metric_dp.tables.secret_columns import Secret

    at = _pair(at, "at" if degrees else "xy")
    release, problem = matrix_of(opened)
    names = {"lat": "lat", "lon": "lon"} if degrees else {"x": "x", "y": "y"}
    secret = Secret.of(**names)
    protector = Protector.of(release, problem.data, secret, Application())
    snap, strays = protector.snap, protector.strays
    unsaid = [note] if note is not None else []

    def draw(count: int) -> list[str]:
        frame = nw.from_native(pl.DataFrame([at], schema=list(names), orient="row"), eager_only=True)
        if snap.region is not None:  # each draw begins with the position
            frame = nw.concat([frame] * count)
        rows, reason = snap.rows(frame, secret, strays=strays)
        if reason[0] >= 0:
            raise UsageError(
                f"{at[0]:g},{at[1]:g}: must be {' and '.join(names)} of a record's row, got {REASONS[reason[0]]}"
            )
        while unsaid:
            say = unsaid.pop()
            for sentence in protector.notes(opened.result.guarantee):
                say(sentence)
            if strays.rows:
                say(
                    f"the position lies {strays.farthest:,.0f} km from every record and is drawn for as the "
                    "nearest: are its numbers swapped? (this note is for its owner alone)"
                )
        drawn: list[str] = release.outputs[draw_each(release.weights, np.resize(rows, count))].tolist()
        return drawn

    return draw


def _pair(position: object, name: str) -> tuple[float, float]:
    """Two numbers of a position."""
    import numpy as np

    try:
        first, second = map(float, np.asarray(position, dtype=np.float64))
    except (TypeError, ValueError):
        raise UsageError(f"{name} must be two numbers, got {position!r}") from None
    return first, second
