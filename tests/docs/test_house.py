"""The picture of the house is drawn from the imports, and the page names every room in it, and paths that are there."""

import re

from draw_house import PICTURE, ROOT, arrows, drawn_arrows
from helpers.rooms import FLOORS

PAGE = PICTURE.parents[1] / "guide" / "house.md"


def test_picture_has_the_arrows_of_imports():
    assert drawn_arrows(PICTURE.read_text("utf-8")) == arrows(), "run python tests/docs/draw_house.py"


def test_page_names_every_package_on_its_floor():
    tables = PAGE.read_text("utf-8").split("from the ground up")[1:]
    for table, floors in zip(tables, FLOORS.values(), strict=True):
        named_floors = [
            (int(number), set(re.findall(r"`(\w+)`", rooms)))
            for number, rooms in re.findall(r"\| (\d+) \| (.*?) \|", table)
        ]
        page_floors = {(number, package) for number, rooms in named_floors for package in rooms}
        actual_floors = {(number, package) for number, rooms in enumerate(floors, 1) for package in rooms}
        assert page_floors == {
            (number, package)
            for number, package in actual_floors
            if not package.startswith("__") and package != "plugin"
        }


def test_paths_of_the_page_exist():
    metric = ROOT / "plugins" / "metric-dp" / "src"
    text = PAGE.read_text("utf-8")
    paths = re.findall(r"`((?:privopt|privopt_metric_dp|plugins)/[\w/.-]*)`", text)
    paths += [f"privopt_metric_dp/{path}" for path in re.findall(r"`((?!tests|privopt/)[a-z]+/\w+\.py)`", text)]
    assert len(paths) > 20
    assert [path for path in paths if not any((root / path).exists() for root in (ROOT, metric))] == []
