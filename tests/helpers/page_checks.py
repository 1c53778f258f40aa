"""What a reader meets on a page in a browser: what is cut off, and the keyboard."""

from __future__ import annotations

from typing import Any

__all__ = ["clipped_elements", "keyboard_faults"]

CLIPPED = """() => [...document.querySelectorAll('body *')].filter(element => {
    const style = getComputedStyle(element);
    const hides = ['hidden', 'clip'].includes(style.overflowX) && style.position !== 'absolute';
    return hides && element.offsetParent && element.innerText && element.scrollWidth > element.clientWidth + 1;
}).map(element => element.outerHTML.slice(0, 160))"""
FOCUSABLE = """() => {
    const kinds = 'a[href], button, input, select, textarea, summary, [tabindex]';
    window.focusable = [...document.querySelectorAll(kinds)].filter(element => {
        const box = element.getBoundingClientRect();
        const hidden = getComputedStyle(element).visibility === 'hidden';
        return element.tabIndex >= 0 && !element.disabled && !hidden && box.width > 0 && box.height > 0;
    });
    return window.focusable.length;
}"""
FOCUSED = """() => {
    const here = document.activeElement, style = getComputedStyle(here);
    const marked = style.outlineStyle !== 'none' || style.boxShadow !== 'none';
    return [window.focusable.indexOf(here), marked, here.outerHTML.slice(0, 160)];
}"""
PRESSED = 30
"""Times the Tab key is pressed: the header, the menu and the first controls of the page."""


def clipped_elements(page: Any) -> list[str]:
    """Return the elements that hide a part of their own text to the right."""
    elements: list[str] = page.evaluate(CLIPPED)
    return elements


def keyboard_faults(page: Any) -> list[str]:
    """Press Tab through the first controls; return those that are not reached in order, or show no focus."""
    count, last, faults = page.evaluate(FOCUSABLE), -1, []
    for _ in range(min(count, PRESSED)):
        page.keyboard.press("Tab")
        position, has_mark, element = page.evaluate(FOCUSED)
        if not has_mark:
            faults.append(f"no mark of focus: {element}")
        if position == last:
            faults.append(f"the keyboard is caught: {element}")
        last = position
    return faults if last >= 0 or not count else [*faults, "the keyboard reaches nothing"]
