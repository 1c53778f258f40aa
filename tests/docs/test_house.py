"""The picture of the house is drawn from the imports, and the page names every room in it."""

from draw_house import PICTURE, ROWS, arrows, drawn

PAGE = PICTURE.parents[1] / "guide" / "house.md"


def test_the_picture_has_the_arrows_that_the_imports_have():
    assert drawn(PICTURE.read_text("utf-8")) == arrows(), "run python tests/docs/draw_house.py"


def test_the_page_names_every_room():
    words = PAGE.read_text("utf-8")
    assert [name for row in ROWS for name, _ in row if f"`{name}" not in words] == []
