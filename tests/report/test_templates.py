"""Templates of reports: whatever a text contains, it stays text."""

import subprocess
import sys
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jinja2 import UndefinedError
from markupsafe import Markup

from privopt.report import Section, drawing, render, table_section
from privopt.report.theme import axes_of


class Parsed(HTMLParser):
    """The elements of a page with the names of their attributes, and all texts and values of attributes."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, tuple(name for name, _ in attrs)))
        self.texts += [value for _, value in attrs if value]

    def handle_data(self, data):
        self.texts.append(data)


def page_of(text):
    """Return a page that has a text in all its places: title, sentences, commands, headers, cells and sections."""
    sections = [
        Section(title=text, lead=text, paragraphs=[text], commands=text, html=text),
        table_section(text, (text, "n"), [(text, 1)] * 101, text, total=1_000, file=text),
    ]
    values = dict.fromkeys(("title", "intro", "lead", "mark"), text)
    return render("privopt.estimate/page.html", **values, notes=[text], sections=sections)


PLAIN = Parsed(page_of("x"))
LETTERS = st.text(st.one_of(st.sampled_from("<>&\"'/=- {}%!;#"), st.characters(exclude_categories=["Cs"])), min_size=1)


@given(LETTERS.filter(str.strip))
@example("</td></table><script>alert(1)</script>")
@example('" onmouseover="alert(1)')
@example("{{ title }}{% raw %}")
@example("&lt;b&gt;")
@example("<!--")
def test_no_text_becomes_markup(text):
    parsed = Parsed(page_of(text))
    assert [tag for tag, _ in parsed.elements] == [tag for tag, _ in PLAIN.elements]
    assert [names for _, names in parsed.elements] == [names for _, names in PLAIN.elements]
    places = sum("x" in plain for plain in PLAIN.texts if len(plain) < 40)
    assert sum(text in found for found in parsed.texts) >= places


def test_section_shows_any_text_that_no_template_made():
    """A plugin that puts markup together by itself is shown as text, never obeyed."""
    page = str(page_of("<b>bold</b>"))
    assert "<b>" not in page
    made = render("privopt.report/parts.html")
    assert isinstance(made, Markup)
    section = Section(title="t", html=render("privopt.report/pair.html", parts=["<i>", Markup("<b>1</b>")]))
    page = render("privopt.estimate/page.html", title="t", intro="", lead="", mark="", notes=(), sections=[section])
    assert '<div class="pair">&lt;i&gt;<b>1</b></div>' in page


def test_figure_keeps_its_names_as_text():
    figure, _ = axes_of()
    markup = drawing('"><script>', figure, "<b>caption</b>")
    assert "<script" not in markup
    assert "<b>" not in markup


def test_template_without_a_value_is_refused():
    with pytest.raises(UndefinedError, match="caption"):
        render("privopt.report/figure.html", drawings=[])


def test_reports_alone_import_templates():
    code = (
        "import sys, privopt.run.solve, privopt.command.cli, privopt.interfaces.reporting, privopt.report.write_report;"
        "print({'jinja2', 'markupsafe', 'matplotlib'} & set(sys.modules))"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert completed.stdout == "set()\n"
