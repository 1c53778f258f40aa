"""Long sentences, private words and docstrings without a verb grow fewer: words.toml holds how many there are."""

import ast

import pytest
import word_counts
from name_rules import hidden_names
from word_counts import begins_with_verb, committed, count, counted, differences, messages, sentences, written


@pytest.fixture(scope="module")
def now():
    return counted()


def test_no_count_rises(now):
    risen = differences(now, committed(), 1)
    assert risen == [], "`python tests/docs/word_counts.py FILE` shows the sentences"


def test_counts_that_fell_are_lowered(now):
    fallen = differences(now, committed(), -1)
    assert fallen == [], "`python tests/docs/word_counts.py` writes the lower counts"


def test_the_table_is_as_the_command_writes_it():
    assert written(committed()) == word_counts.TABLE.read_text("utf-8")


def test_sentences_are_counted_as_a_reader_would():
    text = "# A heading\n\nOne, `a b. C` two. Three [four. Five](six.md)\n\n- item\n- item two\n\n| cell | cell two |\n"
    assert list(sentences(text)) == ["One, Code two.", "Three four.", "Five", "item", "item two", "cell", "cell two"]
    assert list(sentences("Sum.\n\nArgs:\n    a: first.\n    b, c: second.\n")) == [
        "Sum.",
        "Args:",
        "first.",
        "second.",
    ]
    assert count(f"{'word ' * 41}. And {'word ' * 31}.") == {"over_40": 1, "over_30": 2, "private": 0}
    assert count("Nobody is told so many, whoever reads.")["private"] == 4
    assert count("The rest is notable; `nobody` is a name.")["private"] == 0


def test_docstrings_begin_with_a_verb():
    assert begins_with_verb("Return the sum.")
    assert not any(map(begins_with_verb, ["What is summed.", "The sum.", "(N,) sums.", "Returns the sum.", ""]))


def test_messages_are_what_users_see():
    code = 'raise E(f"no {x} here", "a b" + c)\nFault(file, "", f"{n} rows", wanted="two rows")\nd["a key"] = f("no b")'
    assert list(messages(ast.parse(code))) == ["no X here", "a b", "X rows", "two rows"]


def test_a_count_that_rises_and_one_that_falls_are_found():
    then = {"docs": {"a.md": {"over_40": 1}, "b.md": {"private": 2}}}
    current = {"docs": {"a.md": {"over_40": 2}, "c.md": {"private": 1}}}
    assert differences(current, then, 1) == ["a.md: docs: over_40 is 2, was 1", "c.md: docs: private is 1, was 0"]
    assert differences(current, then, -1) == ["b.md: docs: private is 0, was 2"]


def test_names_that_hide_what_they_name_are_found():
    code = "LIMIT = 3\nMAX_ROWS = 3\nclass Kept: ...\nclass Round: ...\ndef said(n, *, x_y): ...\ndef _s(n, most): ..."
    assert sorted(hidden_names(ast.parse(code))) == [
        ("classes", "Kept"),
        ("constants", "LIMIT"),
        ("functions", "said"),
        ("parameters", "most of _s"),
        ("parameters", "n of said"),
    ]
