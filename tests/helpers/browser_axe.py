"""What axe-core finds wrong with a page."""

from __future__ import annotations

from typing import Any

__all__ = ["faults"]


def faults(page: Any, axe: str, *, all_of_them: bool = False) -> list[str]:
    """Return a line for each rule that a page breaks: the serious and critical ones, or all of them."""
    page.add_script_tag(content=axe)
    violations = page.evaluate("axe.run().then(found => found.violations)")
    return [
        f"{fault['id']}: {fault['help']}: {fault['nodes'][0]['html'][:200]}"
        for fault in violations
        if all_of_them or fault["impact"] in ("serious", "critical")
    ]
