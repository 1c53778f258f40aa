"""The pictures of docs/: ``python tests/browser/screenshots.py`` solves the examples and takes them again."""

from __future__ import annotations

import io
import re
import shutil
import sys
import tempfile
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
from privopt_tables.studies.curve_page import write_curves  # noqa: E402
from privopt_tables.studies.draft_problem import init  # noqa: E402

OUT = HERE.parents[1] / "docs" / "img"

SHOTS: dict[str, tuple[str, str, int | None, int]] = {
    "report-metric": ("optimal-lp", "light", None, 2),
    "report-metric-maps": ("optimal-lp", "dark", 4, 2),
    "report-words": ("words", "light", 0, 1),
    "report-bd-mdp": ("bd-mdp", "light", 5, 2),
    "report-lr-geo": ("lr-geo", "light", 0, 1),
    "report-lr-geo-server": ("lr-geo", "light", 5, 2),
    "report-fl-linear": ("fl-linear", "light", 0, 3),
    "report-fl-linear-cost": ("fl-linear", "dark", 4, 2),
    "report-hierarchical-dp": ("hierarchical-dp", "light", None, 3),
    "report-photo-censor": ("album", "light", None, 2),
}
"""File: the example, the colour scheme, the first section shown (None: from the top), how many sections."""

REPORTS_OF_PAGES: dict[str, tuple[str, str, int | None, int]] = {
    "report-sentences": ("how-to/tables.md", "spoken/report.html", 2, 2),
    "estimate-districts": ("tutorials/every-night.md", "ends.html", 0, 1),
}
"""File: the page of docs whose commands write the report, the report, and as above."""

FIGURES_OF_PAGES = {
    "album-map": ("used-for/album.md", "pictures/map.png"),
    "curve-loss": ("how-to/tables.md", "curve-figures/loss.png"),
}
"""File: the page of docs whose commands draw the figure, and the figure."""


def report_of(name: str, folder: Path) -> Path:
    """Solve an example and write its report."""
    if name == "album":
        return write_report(solve("photo-censor", write_album(folder / "album"), folder / "out").folder)
    example = EXAMPLES[name]
    release = solve(example.mechanism, example.write(folder / "problem"), folder / "out", Options(**example.options))
    return write_report(release.folder)


def ran(page: str, folder: Path) -> Path:
    """Run a page of docs in a folder, and return the folder."""
    folder.mkdir(parents=True)
    Page(OUT.parent / page, folder).run()
    return folder


def write_explorer(folder: Path) -> Path:
    """Write the page of sliders for the example of docs/used-for/choose-epsilon.md."""
    folder.mkdir()
    city, problem = OUT.parent / "examples" / "city" / "points.csv", folder / "city.toml"
    init("optimal-lp", city, problem, within=0.5, factor=2.0)
    write_curves(problem, ["optimal-lp"], "0.5:8:5", None, folder / "explore.html", Options(gap=0.01))
    return folder / "explore.html"


def gallery(browser: Any, folder: Path) -> None:
    """Run docs/how-to/gallery.md, and take the first picture of each release's report."""
    ran("how-to/gallery.md", folder)
    for name in re.findall(r"img/gallery-(\w+)\.png", (OUT.parent / "how-to/gallery.md").read_text("utf-8")):
        page = browser.new_page(viewport={"width": 720, "height": 900}, color_scheme="light")
        page.goto(write_report(folder / name).as_uri())
        if page.locator("#map").count():
            page.wait_for_selector("#map[data-ready]")
        save(page.locator("main :is(figure, .album)").first.screenshot(), f"gallery-{name}")
        page.close()


def shoot(page: Any, first: int | None, count: int) -> bytes:
    """Return a picture of some sections of the page."""
    boxes = [page.locator("section").nth(n).bounding_box() for n in range(page.locator("section").count())]
    last = boxes[(first or 0) + count - 1]
    top = 0 if first is None else boxes[first]["y"] + 2
    clip = {"x": 0, "y": top, "width": 1000, "height": last["y"] + last["height"] - top}
    picture: bytes = page.screenshot(full_page=True, clip=clip)
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
        quantized = screenshot.convert("RGB").quantize(160, method=Image.Quantize.MAXCOVERAGE)
        quantized.save(OUT / f"{file}.png", optimize=True)
    print(file, (OUT / f"{file}.png").stat().st_size)


def main() -> None:
    """Take all pictures, or those named."""
    browser_at = shutil.which("chromium") or shutil.which("google-chrome")
    if browser_at is None:
        sys.exit("screenshots: no chromium on PATH")
    OUT.mkdir(exist_ok=True)
    pages: dict[str, Path] = {}
    folders: dict[str, Path] = {}

    def is_requested(file: str) -> bool:
        return len(sys.argv) == 1 or file in sys.argv[1:]

    with tempfile.TemporaryDirectory() as work, sync_playwright() as running:
        browser = running.chromium.launch(executable_path=browser_at, args=["--no-sandbox"])

        def take(file: str, report: Path, scheme: str, first: int | None, count: int) -> None:
            page = browser.new_page(viewport={"width": 1000, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
            page.goto(report.as_uri())
            if page.locator("#map").count():
                page.wait_for_selector("#map[data-ready]")
            save(shoot(page, first, count), file)
            page.close()

        def folder_of(page: str) -> Path:
            if page not in folders:
                folders[page] = ran(page, Path(work) / "pages" / Path(page).stem)
            return folders[page]

        for file, (name, scheme, first, count) in SHOTS.items():
            if is_requested(file):
                if name not in pages:
                    (Path(work) / name).mkdir()
                    pages[name] = report_of(name, Path(work) / name)
                take(file, pages[name], scheme, first, count)
        for file, (name, report, first, count) in REPORTS_OF_PAGES.items():
            if is_requested(file):
                take(file, folder_of(name) / report, "light", first, count)
        for file, (name, figure) in FIGURES_OF_PAGES.items():
            if is_requested(file):
                save((folder_of(name) / figure).read_bytes(), file)
        for scheme in ("light", "dark") if is_requested("client") else ():
            if "client" not in pages:
                release = release_of("streets anywhere", Path(work))
                pages["client"] = export(release, Path(work) / "client").folder / "index.html"
            page = browser.new_page(viewport={"width": 360, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
            page.goto(pages["client"].as_uri())
            save(shoot_client(page), f"client-{scheme}")
            page.close()
        if is_requested("anywhere"):
            export_modules(Path(work) / "modules")
            page = browser.new_page(viewport={"width": 700, "height": 800})
            page.goto((Path(work) / "modules" / "anywhere.html").as_uri())
            save(shoot_world(page), "anywhere")
            page.close()
        if is_requested("explore"):
            take("explore", write_explorer(Path(work) / "explore"), "light", 0, 1)
        if is_requested("gallery"):
            gallery(browser, Path(work) / "gallery")
        browser.close()


if __name__ == "__main__":
    main()
