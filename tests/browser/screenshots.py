"""The pictures of docs/: ``python tests/browser/screenshots.py [NAME ...]`` solves the examples and takes them again.

All are taken on a page of 390 pixels, the width of a telephone, where the pages of docs/ show them in their own size.
Each has a light form, NAME.png, and a dark one, NAME-dark.png (docs/style/pages.py).
"""

from __future__ import annotations

import io
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from docs.doc_blocks import Page  # noqa: E402
from helpers.albums import write_album  # noqa: E402
from helpers.client_exports import release_of  # noqa: E402
from helpers.examples import EXAMPLES  # noqa: E402

from privopt.report.write_report import write_report  # noqa: E402
from privopt.run.solve import solve  # noqa: E402
from privopt.run.task import Options  # noqa: E402
from privopt_clients.export import export, export_modules  # noqa: E402

OUT = HERE.parents[1] / "docs" / "img"

WIDTH = 390
SCALE = 1.5
"""Pixels of a picture for each pixel of the page, for sharp screens."""

SECTIONS: dict[str, tuple[str, str, str]] = {
    "report-metric": ("optimal-lp", "", "Where a report falls"),
    "report-metric-maps": ("optimal-lp", "Loss and privacy over the map", "Loss and privacy over the map"),
    "report-words": ("words", "Where a report falls", "Where a report falls"),
    "report-bd-mdp": ("bd-mdp", "Convergence of the bounds", "Convergence of the bounds"),
    "report-lr-geo": ("lr-geo", "Where a user's report falls", "Where a user's report falls"),
    "report-lr-geo-server": ("lr-geo", "What the server saw", "What the server saw"),
    "report-fl-linear": ("fl-linear", "Who is served where", "Who is served where"),
    "report-fl-linear-cost": ("fl-linear", "Cost next to the alternatives", "Cost over delta"),
    "report-hierarchical-dp": ("hierarchical-dp", "The regions", "The regions"),
    "report-photo-censor": ("album", "The true place before and after", "The true place before and after"),
    "explore": ("used-for/choose-epsilon.md city-explore.html", "", "Choose"),
}
"""File: the example, or a page of docs and the report that its commands write; first (empty: the top of the page) and
last section shown."""

PARTS: dict[str, tuple[str, str]] = {
    "album-map": ("used-for/album.md album/report.html", "main figure"),
    "curve-loss": ("how-to/tables.md curve.html", "main figure"),
    "estimate-districts": ("tutorials/every-night.md ends.html", "main figure"),
    "report-sentences": ("how-to/tables.md spoken/report.html", '[aria-label="Table: What replaces some words"]'),
    **{
        f"gallery-{name}": (f"how-to/gallery.md {name}/report.html", "main :is(figure, .album)")
        for name in re.findall(r"img/gallery-(\w+)\.png", (OUT.parent / "how-to/gallery.md").read_text("utf-8"))
    },
}
"""File: as above, and the selector of what is shown, the first of these elements."""


class Reports:
    """Reports of examples and of pages of docs, each made when it is first asked for."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.paths: dict[str, Path] = {}

    def path_of(self, name: str) -> Path:
        """Return the report of an example, or of a page of docs and the file that its commands write."""
        page, _, report = name.partition(" ")
        if page not in self.paths:
            self.paths[page] = (run_page if report else solve_example)(page, self.work / page.replace("/", "-"))
        path = self.paths[page] / report
        return path if path.exists() or not report else write_report(path.parent)


def run_page(page: str, folder: Path) -> Path:
    """Run the commands of a page of docs in a folder, and return the folder."""
    folder.mkdir()
    Page(OUT.parent / page, folder).run()
    return folder


def solve_example(name: str, folder: Path) -> Path:
    """Solve an example and write its report."""
    folder.mkdir()
    if name == "album":
        return write_report(solve("photo-censor", write_album(folder / "album"), folder / "out").folder)
    example = EXAMPLES[name]
    release = solve(example.mechanism, example.write(folder / "problem"), folder / "out", Options(**example.options))
    return write_report(release.folder)


def section_of(page: Any, heading: str) -> Any:
    """Return the innermost section with a heading."""
    return page.locator("section").filter(has=page.get_by_role("heading", name=heading, exact=True)).last


def shoot_sections(page: Any, first: str, last: str) -> bytes:
    """Return a picture from a section, or the top of the page, to the last figure of another section, or to its end."""
    end = section_of(page, last)
    figures = end.locator("figure, .album")
    bottom = (figures.last if figures.count() else end).bounding_box()
    top = 0
    if first:
        # Below the line that begins a section, and above the heading, whose margin may be outside the section.
        section = section_of(page, first)
        heading = section.locator("h2, h3").first
        top = min(section.bounding_box()["y"] + 2, heading.bounding_box()["y"] - 14)
    clip = {"x": 0, "y": top, "width": WIDTH, "height": bottom["y"] + bottom["height"] + 4 - top}
    picture: bytes = page.screenshot(full_page=True, clip=clip)
    return picture


def shoot_part(page: Any, selector: str) -> bytes:
    """Return a picture of the first element that a selector finds."""
    picture: bytes = page.locator(selector).first.screenshot()
    return picture


def shoot_client(page: Any) -> bytes:
    """Return a picture of a client's page with a report on it."""
    page.locator("#place option").first.wait_for(state="attached")
    page.select_option("#place", index=12)
    page.get_by_role("button", name="Give one report").click()
    page.locator("#picture circle").first.wait_for()
    picture: bytes = page.screenshot(full_page=True)
    return picture


def shoot_world(page: Any) -> bytes:
    """Return a picture of the page with the world map after six reports from New York, 200 km off on average."""
    page.select_option("#epsilon", "0.01/km")
    for number in range(1, 7):
        page.get_by_role("button", name="Give one report").click()
        page.locator("#count").get_by_text(str(number), exact=True).wait_for()
    picture: bytes = page.screenshot(full_page=True)
    return picture


def save(picture: bytes, file: str) -> None:
    """Write a picture in few colours."""
    with Image.open(io.BytesIO(picture)) as screenshot:
        quantized = screenshot.convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE)
        quantized.save(OUT / f"{file}.png", optimize=True)
    print(file, quantized.size, (OUT / f"{file}.png").stat().st_size, flush=True)


def main() -> None:
    """Take all pictures, or those named."""
    browser_at = shutil.which("chromium") or shutil.which("google-chrome")
    if browser_at is None:
        sys.exit("screenshots: no chromium on PATH")
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as work, sync_playwright() as running:
        browser = running.chromium.launch(executable_path=browser_at, args=["--no-sandbox"])
        reports = Reports(Path(work))

        def take(file: str, make: Callable[[], Path], shoot: Callable[..., bytes], *parts: str) -> None:
            if len(sys.argv) > 1 and file not in sys.argv[1:]:
                return
            path = make()
            for scheme, ending in (("light", ""), ("dark", "-dark")):
                view: dict[str, Any] = {"viewport": {"width": WIDTH, "height": 900}, "color_scheme": scheme}
                page = browser.new_page(**view, device_scale_factor=SCALE)
                page.goto(path.as_uri())
                if page.locator("canvas#map").count():
                    page.wait_for_selector("#map[data-ready]")
                save(shoot(page, *parts), f"{file}{ending}")
                page.close()

        for file, (name, *parts) in SECTIONS.items():
            take(file, partial(reports.path_of, name), shoot_sections, *parts)
        for file, (name, selector) in PARTS.items():
            take(file, partial(reports.path_of, name), shoot_part, selector)
        take("client", partial(make_client, Path(work)), shoot_client)
        take("anywhere", partial(make_world, Path(work)), shoot_world)
        browser.close()


def make_client(work: Path) -> Path:
    """Write the page of a client that draws along streets."""
    return export(release_of("streets anywhere", work), work / "client").folder / "index.html"


def make_world(work: Path) -> Path:
    """Write the page with the world map."""
    export_modules(work / "modules")
    return work / "modules" / "anywhere.html"


if __name__ == "__main__":
    main()
