"""``privopt audit``: what an attacker gets from a release, measured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from privopt.interfaces import Channel, Progress
from privopt.interfaces.abilities import Audits, AuditsOverTime, channel_of
from privopt.run.attack_channel import attack_channel
from privopt.run.verify import open_verified

__all__ = ["audit", "table"]

KEYS: Final = ("epsilon", "gv", "bayes_error", "expected_loss", "entropy_bits", "statistical")


def audit(folder: Path, *, over_time: int | None = None, progress: Progress | None = None) -> dict[str, Any]:
    """Measure a DIR; a key is None where it does not apply to its mechanism.

    Where a mechanism measures nothing of its own, what its release states of its reports is measured
    (:meth:`privopt.interfaces.release.Release.channel`).

    Args:
        folder: DIR.
        over_time: reports of one place, at most, for attacks on many; default: the key ``over_time`` is, too.
        progress: called with what is being done.

    Raises:
        DoesNotHoldError: DIR does not hold.
        InputError: DIR cannot be read.
    """
    opened = open_verified(folder, progress=progress)
    if progress is not None:
        progress("attacking the release", 0, None, None)
    epsilon = opened.result.guarantee.epsilon
    blank: dict[str, Any] = dict.fromkeys(KEYS)
    blank["epsilon"] = {"claimed": None if epsilon is None else float(epsilon), "achieved": None}
    mechanism, problem, release = opened.mechanism, opened.problem, opened.release
    own_figures = mechanism.audit(problem, release, opened.result) if isinstance(mechanism, Audits) else {}
    found = {**blank, **own_figures}
    channel = channel_of(mechanism, problem, release)
    if found["bayes_error"] is None and isinstance(channel, Channel):
        measured = attack_channel(channel, opened.release, opened.result.guarantee)
        own = found["epsilon"].get("achieved") is not None
        found |= {
            name: value for name, value in measured.items() if found[name] is None or (name == "epsilon" and not own)
        }
    if over_time is not None and isinstance(mechanism, AuditsOverTime):
        found["over_time"] = mechanism.over_time(problem, release, opened.result, over_time)
    return found


_WORDS: Final = {
    "epsilon": "epsilon",
    "gv": "violated inequalities",
    "bayes_error": "error of the best guess",
    "expected_loss": "expected loss",
    "entropy_bits": "entropy of the output (bits)",
    "statistical": "attack on samples",
    "over_time": "attacks on many reports",
}


def table(figures: Mapping[str, Any]) -> str:
    """Show the audit as lines of text; keys of the mechanism's own come last. One line names what does not apply."""
    titles = {name: _WORDS.get(name, name.replace("_", " ")) for name in figures}
    lines = [
        f"{titles[name]:<30}{line}" for name, value in figures.items() if value is not None for line in _lines(value)
    ]
    absent = ", ".join(titles[name] for name, value in figures.items() if value is None)
    if absent:
        lines.append(f"{'not for this mechanism':<30}{absent}")
    return "\n".join(lines) + "\n"


def _lines(value: object, *, split: bool = False) -> list[str]:
    """Return one line, or of what holds tables in tables a line for each of these and one for the rest."""
    inner = value if isinstance(value, Mapping) else {}
    tables = {name: each for name, each in inner.items() if isinstance(each, Mapping)}
    split = split or any(isinstance(each, Mapping) for table in tables.values() for each in table.values())
    if not (split and tables):
        return [_pairs(inner) if inner else _shown(value)]
    flat = {name: each for name, each in inner.items() if name not in tables and each is not None}
    lines = [_pairs(flat)] if flat else []
    return lines + [
        f"{name.replace('_', ' ')}: {line}" for name, each in tables.items() for line in _lines(each, split=True)
    ]


def _shown(value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return f"({_pairs(value)})"
    if isinstance(value, (list, tuple)):
        return (" and " if len(value) == 2 else " ").join(map(_shown, value))
    return str(value)


def _pairs(value: Mapping[str, Any]) -> str:
    return ", ".join(f"{inner.replace('_', ' ')} {_shown(what)}" for inner, what in value.items())
