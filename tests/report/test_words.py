"""The words that a report explains: those that its readers meet, and no others."""

import re
import shutil

import pytest

from privopt.interfaces.reporting import Section
from privopt.report.words import MEANINGS, explain_words
from privopt.report.write_report import write_report


def test_words_of_texts_and_markup_but_not_of_scripts():
    html = "<script>const ledger = 'rho';</script><p class='prior'>Two epsilons</p>"
    section = Section(title="Budget", html=html, lead="", paragraphs=["Odds of 2 to 1"])
    assert list(explain_words(["A loss.", "lossless"], [section])) == ["budget", "epsilon", "loss", "odds"]
    assert explain_words(["Nothing to explain"], []) == {}


def test_meanings_are_sentences_in_order_that_no_symbol_needs():
    assert list(MEANINGS) == sorted(MEANINGS)
    for meaning in MEANINGS.values():
        assert re.fullmatch(r"[A-Z][^<>=^]*[.]", meaning)
        assert len(meaning.split()) <= 20


@pytest.mark.usefixtures("undrawn")
def test_every_report_explains_the_words_of_its_readers_part(example, tmp_path):
    page = write_report(shutil.copytree(example("fl-linear"), tmp_path / "out")).read_text("utf-8")
    part = page[page.index('<h2 id="words">') : page.index('<h2 id="experts">')]
    assert {"epsilon", "noise", "report"} <= {*re.findall(r"<dt>(\w+)</dt>", part)}
    assert "<dt>classifier</dt>" not in part
