"""Rendering of HTML templates. Inserted strings are escaped unless they came from a template.

A template is a file in a package and is named ``package/file``, as in ``render("privopt.report/table.html", ...)``.
Plugins keep their templates next to their code. jinja2 is imported only when the first page is made, because solving
does not need it.
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
else:  # only used in annotations
    Environment = Markup = Any

__all__ = ["Markup", "render", "script_json"]


def render(template: str, **values: Any) -> Markup:
    """Fill a template with values, and return the resulting markup.

    Args:
        template: The package's name, a slash, and the name of a file in the package.
        values: A value for each name in the template. Strings are escaped unless they were returned by :func:`render`.

    Raises:
        jinja2.UndefinedError: The template uses a name that ``values`` does not contain.
    """
    from markupsafe import Markup

    return Markup(_environment().get_template(template).render(values))


@cache
def _environment() -> Environment:
    """Return the jinja2 environment for all templates, which escapes values and treats unknown names as errors."""
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
    # No-break spaces keep a number and its per cent sign on one line, as well as degrees and their direction.
    environment.filters["prose"] = lambda text: re.sub(r"(?<=\d) (?=%)|(?<=\u00b0) ", "\u00a0", text)
    # Scripts and style sheets come from packages and need no escaping. script_json escapes what could end a script.
    environment.filters["json"] = lambda value: Markup(script_json(value))
    environment.globals["source"] = lambda name: Markup(_read_file(name))
    return environment


def _read_file(name: str) -> str:
    """Return the contents of the template file ``package/file``."""
    package, _, file = name.partition("/")
    return files(package).joinpath(file).read_text("utf-8")


def script_json(value: object) -> str:
    """Return a value as JSON for a ``<script>`` element, with ``<``, ``>``, ``&`` and line separators escaped.

    With these characters escaped, no value can end the script or begin a comment in it.

    Raises:
        ValueError: The value contains a number that is not finite.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029]", lambda sign: f"\\u{ord(sign.group()):04x}", text)
