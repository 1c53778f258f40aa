"""Markup from templates, in which every text is escaped unless a template made it.

A template is a file of a package, named ``package/file``: ``render("privopt.report/table.html", ...)``. Plugins keep
theirs beside their code. jinja2 is imported when the first page is made, because solving does not need it.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from privopt.declare.notebook import format_text

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup as Markup
else:  # for annotations alone
    Environment = Markup = Any

__all__ = ["Markup", "render", "script_json"]


def render(template: str, **values: Any) -> Markup:
    """Return the markup of a template that is filled with values.

    Args:
        template: Name of the package, a slash, and the name of the file in it.
        values: The values that the template names. Texts are escaped, except those that :func:`render` returned.

    Raises:
        jinja2.UndefinedError: The template uses a name that ``values`` do not have.
    """
    from markupsafe import Markup

    return Markup(_environment().get_template(template).render(values))


@cache
def _environment() -> Environment:
    """Return jinja2's environment for all templates, in which values are escaped and unknown names are errors."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        autoescape=True,
        loader=FunctionLoader(_read_file),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["text"] = format_text
    # No-break spaces keep a number and its per cent sign, or degrees and their direction, on one line.
    environment.filters["prose"] = lambda text: re.sub(r"(?<=\d) (?=%)|(?<=\u00b0) ", "\u00a0", text)
    # Scripts and style sheets are privopt's own and need no escaping. script_json escapes what could end a script.
    environment.filters["json"] = lambda value: Markup(script_json(value))
    environment.globals["source"] = lambda name: Markup(_read_file(name))
    return environment


def _read_file(name: str) -> str:
    """Return the text of the file ``package/file``."""
    package, _, file = name.partition("/")
    return files(package).joinpath(file).read_text("utf-8")


def script_json(value: object) -> str:
    """Return JSON for a ``<script>``, with ``<``, ``>``, ``&`` and line separators escaped.

    With these escapes no value can end the script or begin a comment in it.

    Raises:
        ValueError: A number is not finite.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029]", lambda sign: f"\\u{ord(sign.group()):04x}", text)
