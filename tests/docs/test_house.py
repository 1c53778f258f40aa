"""The picture of the house is drawn from the imports, and the page names every room in it, and paths that are there."""

import re

from draw_house import PICTURE, ROOT, arrows, drawn
from helpers.rooms import FLOORS

PAGE = PICTURE.parents[1] / "guide" / "house.md"


def test_the_picture_has_the_arrows_that_the_imports_have():
    assert drawn(PICTURE.read_text("utf-8")) == arrows(), "run python tests/docs/draw_house.py"


def test_the_page_names_every_room_on_its_floor():
    tables = PAGE.read_text("utf-8").split("from the ground up")[1:]
    for table, floors in zip(tables, FLOORS.values(), strict=True):
        named = [
            (int(number), set(re.findall(r"`(\w+)`", rooms)))
            for number, rooms in re.findall(r"\| (\d+) \| (.*?) \|", table)
        ]
        shown = {(number, room) for number, rooms in named for room in rooms}
        there = {(number, room) for number, rooms in enumerate(floors, 1) for room in rooms}
        assert shown == {(number, room) for number, room in there if not room.startswith("__") and room != "plugin"}


def test_every_path_of_the_page_is_there():
    metric = ROOT / "plugins" / "metric-dp" / "src"
    text = PAGE.read_text("utf-8")
    paths = re.findall(r"`((?:privopt|privopt_metric_dp|plugins)/[\w/.-]*)`", text)
    paths += [f"privopt_metric_dp/{path}" for path in re.findall(r"`((?!tests|privopt/)[a-z]+/\w+\.py)`", text)]
    assert len(paths) > 20
    assert [path for path in paths if not any((root / path).exists() for root in (ROOT, metric))] == []
