"""The ``privopt audit`` command, which measures what an attacker learns from a release.

A mechanism's own attacks (:class:`privopt.interfaces.abilities.Audits`) take precedence. If they do not include the
Bayes error, all missing metrics are computed from the release's channel.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from privopt.interfaces import Channel, Progress
from privopt.interfaces.abilities import Audits, AuditsOverTime, channel_of
from privopt.run.attack_channel import attack_channel
from privopt.run.verify import open_verified

__all__ = ["audit", "table"]

# The metrics in every audit. "gv" (violations of the guarantee) says what fraction of the inequalities is violated, and
# by how much.
KEYS: Final = ("epsilon", "gv", "bayes_error", "expected_loss", "entropy_bits", "statistical")


def audit(folder: Path, *, over_time: int | None = None, progress: Progress | None = None) -> dict[str, Any]:
    """Measure what an attacker learns from a release folder (DIR). Metrics that do not apply are None.

    If the mechanism does not measure the Bayes error itself, missing metrics are computed from the release's channel
    (:meth:`privopt.interfaces.release.Release.channel`).

    Args:
        folder: The release folder.
        over_time: The largest number of reports about the same place observed in an attack over time. If None, or if
            the mechanism has no such attacks, the key ``over_time`` is left out.
        progress: Called with the name of each step.

    Returns:
        The metrics by name.

    Raises:
        DoesNotHoldError: A checksum or a claim in DIR does not hold.
        InputError: DIR cannot be read.
    """
    opened = open_verified(folder, progress=progress)
    if progress is not None:
        progress("attacking the release", 0, None, None)
    epsilon = opened.result.guarantee.epsilon
    # Include every key, with None if it does not apply, so that the JSON always has the same keys.
    blank: dict[str, Any] = dict.fromkeys(KEYS)
    blank["epsilon"] = {"claimed": None if epsilon is None else float(epsilon), "achieved": None}
    mechanism, problem, release = opened.mechanism, opened.problem, opened.release
    # The mechanism's own attacks take precedence. Only metrics missing from them are computed from the channel.
    own_figures = mechanism.audit(problem, release, opened.result) if isinstance(mechanism, Audits) else {}
    figures = {**blank, **own_figures}
    channel = channel_of(mechanism, problem, release)
    if figures["bayes_error"] is None and isinstance(channel, Channel):
        measured = attack_channel(channel, opened.release, opened.result.guarantee)
        # "epsilon" is never None, because it contains the claim. It is replaced if the mechanism did not measure
        # epsilon.
        has_achieved_epsilon = figures["epsilon"].get("achieved") is not None
        figures |= {
            name: value
            for name, value in measured.items()
            if figures[name] is None or (name == "epsilon" and not has_achieved_epsilon)
        }
    if over_time is not None and isinstance(mechanism, AuditsOverTime):
        figures["over_time"] = mechanism.over_time(problem, release, opened.result, over_time)
    return figures


# The metrics' titles in the table. The title of any other key is the key itself, with spaces.
_TITLES: Final = {
    "epsilon": "epsilon",
    "gv": "violated inequalities",
    "bayes_error": "error of the best guess",
    "expected_loss": "expected loss",
    "entropy_bits": "entropy of the output (bits)",
    "statistical": "attack on samples",
    "over_time": "attacks on many reports",
}


def table(figures: Mapping[str, Any]) -> str:
    """Return the metrics of an audit as a text table. Its last line lists the metrics that do not apply."""
    titles = {name: _TITLES.get(name, name.replace("_", " ")) for name in figures}
    lines = [
        f"{titles[name]:<30}{line}"
        for name, value in figures.items()
        if value is not None
        for line in _format_lines(value)
    ]
    absent = ", ".join(titles[name] for name, value in figures.items() if value is None)
    if absent:
        lines.append(f"{'not for this mechanism':<30}{absent}")
    return "\n".join(lines) + "\n"


def _format_lines(value: object, *, split: bool = False) -> list[str]:
    """Return a metric as lines of text.

    The metric takes a single line unless it contains mappings nested three deep. In that case, each inner mapping gets
    a line of its own that begins with the mapping's name.

    Args:
        value: The metric's value.
        split: Whether to put inner mappings on separate lines regardless of the nesting depth.
    """
    inner = value if isinstance(value, Mapping) else {}
    tables = {name: item for name, item in inner.items() if isinstance(item, Mapping)}
    split = split or any(isinstance(item, Mapping) for table in tables.values() for item in table.values())
    if not (split and tables):
        return [_format_pairs(inner) if inner else _format_value(value)]
    flat = {name: item for name, item in inner.items() if name not in tables and item is not None}
    lines = [_format_pairs(flat)] if flat else []
    return lines + [
        f"{name.replace('_', ' ')}: {line}" for name, item in tables.items() for line in _format_lines(item, split=True)
    ]


def _format_value(value: object) -> str:
    """Return a value as text, with floats rounded to six significant digits and mappings in parentheses.

    The items of a list are separated by spaces, or by "and" if there are exactly two.
    """
    if value is None:
        return "unknown"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return f"({_format_pairs(value)})"
    if isinstance(value, (list, tuple)):
        return (" and " if len(value) == 2 else " ").join(map(_format_value, value))
    return str(value)


def _format_pairs(value: Mapping[str, Any]) -> str:
    """Return a mapping as text: each name followed by its value, separated by commas."""
    return ", ".join(f"{inner.replace('_', ' ')} {_format_value(item)}" for inner, item in value.items())
