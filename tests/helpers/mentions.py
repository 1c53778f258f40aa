"""Asserts that a message names what matters, in whatever words it does so."""


def assert_mentions(text, *keywords):
    """Assert that each keyword (a file, row, column, option, number) occurs in the text; a failure lists the others."""
    missing = [keyword for keyword in keywords if keyword not in text]
    assert not missing, f"{missing} not mentioned in: {text}"
