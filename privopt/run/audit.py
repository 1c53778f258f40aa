"""``privopt audit``: what an attacker gets from a release, measured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from privopt.interfaces import Channel, Progress
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
    found = {**blank, **opened.mechanism.audit(opened.problem, opened.release, opened.result)}
    channel = opened.mechanism.channel(opened.problem, opened.release)
    if found["bayes_error"] is None and isinstance(channel, Channel):
        measured = attack_channel(channel, opened.release, opened.result.guarantee)
        own = found["epsilon"].get("achieved") is not None
        found |= {
            name: value for name, value in measured.items() if found[name] is None or (name == "epsilon" and not own)
        }
    if over_time is not None:
        found["over_time"] = opened.mechanism.over_time(opened.problem, opened.release, opened.result, over_time)
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
    lines = []
    titles = {name: _WORDS.get(name, name.replace("_", " ")) for name in figures}
    for name, value in figures.items():
        if value is None:
            continue
        if isinstance(value, Mapping) and any(map(_deep, value.values())):
            lines += [f"{titles[name]:<30}{line}" for line in _branches(value)]
            continue
        if isinstance(value, Mapping):
            text = _pairs(value)
        else:
            text = _shown(value)
        lines.append(f"{titles[name]:<30}{text}")
    absent = ", ".join(titles[name] for name, value in figures.items() if value is None)
    if absent:
        lines.append(f"{'not for this mechanism':<30}{absent}")
    return "\n".join(lines) + "\n"


def _deep(value: object) -> bool:
    return isinstance(value, Mapping) and any(isinstance(inner, Mapping) for inner in value.values())


def _branches(value: Mapping[str, Any]) -> list[str]:
    """Return a line for what lies flat, and one for each mapping inside."""
    flat = {name: inner for name, inner in value.items() if not isinstance(inner, Mapping) and inner is not None}
    lines = [_pairs(flat)] if flat else []
    for name, inner in value.items():
        if isinstance(inner, Mapping):
            head = name.replace("_", " ")
            lines += [f"{head}: {line}" for line in (_branches(inner) if _deep(inner) else [_pairs(inner)])]
    return lines


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
