"""Digests of an object's contents by place: they show what a solve changed in its inputs."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from privopt.declare.schema import FileUse


def fingerprint(value: object) -> dict[str, str]:
    """Return digests of everything inside an object, by place: attrs fields, mappings, sequences, arrays."""
    found: dict[str, str] = {}
    _walk(value, "problem", found, set(), 0)
    return found


def _walk(value: Any, place: str, digests: dict[str, str], visited: set[int], depth: int) -> None:
    if depth > 12 or isinstance(value, FileUse):  # readers note what they read, in `solve` too
        return
    if isinstance(value, np.ndarray):
        head = f"{value.dtype}{value.shape}"
        digests[place] = head + hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return
    if isinstance(value, (str, bytes, int, float, complex, type(None), Path)) or not hasattr(value, "__class__"):
        digests[place] = repr(value)
        return
    if id(value) in visited:
        return
    visited.add(id(value))
    inner: list[tuple[str, Any]] = []
    if isinstance(value, Mapping):
        inner = [(f"{place}[{name!r}]", item) for name, item in value.items()]
    elif isinstance(value, (list, tuple)):
        inner = [(f"{place}[{n}]", item) for n, item in enumerate(value)]
        digests[f"{place}.length"] = str(len(value))
    elif type(value).__module__.startswith("privopt") or attrs.has(type(value)) or hasattr(value, "__dict__"):
        names = [a.name for a in attrs.fields(type(value))] if attrs.has(type(value)) else []
        names += [name for name in getattr(value, "__dict__", {}) if name not in names]
        inner = [(f"{place}.{name}", getattr(value, name)) for name in names if hasattr(value, name)]
    else:
        with contextlib.suppress(Exception):  # an object whose repr fails has no fingerprint
            digests[place] = repr(value)
    for name, item in inner:
        if not callable(item) or isinstance(item, Mapping):
            _walk(item, name, digests, visited, depth + 1)


def changes(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[str, ...]:
    """Return places whose contents differ; a value that was only cached (a cached property) is not a change."""
    return tuple(name for name, digest in old.items() if new.get(name, digest) != digest)
