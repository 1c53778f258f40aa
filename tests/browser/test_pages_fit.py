"""The most read pages at three widths, light and dark: they fit, can be read, and pass axe and the keyboard."""

from helpers.browser_axe import faults
from helpers.grids import often
from helpers.page_checks import clipped_elements, keyboard_faults

PAGES = [
    "index",
    "how-to/gallery",
    "tutorials/ten-minutes",
    "how-to/tables",
    "explanation/guarantees",
    "how-to/install",
    "how-to/report-again",
    "used-for/choose-epsilon",
    "explanation/data-protection-officers",
    "reference/measured",
    "how-to/reports",
    "reference/command-line",
    "reference/files",
    "reference/python",
]
MEASURE = """() => {
  const luminance = (colour) => {
    const [r, g, b, a = 1] = colour.match(/[\\d.]+/g).map(Number);
    const linear = (x) => (x / 255 <= 0.03928 ? x / 255 / 12.92 : ((x / 255 + 0.055) / 1.055) ** 2.4);
    return [0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b), a];
  };
  const behind = (element) => {
    for (; element; element = element.parentElement) {
      const [value, alpha] = luminance(getComputedStyle(element).backgroundColor);
      if (alpha > 0.5) return value;
    }
    return 1;
  };
  const faint = [];
  for (const element of document.querySelectorAll("body *")) {
    const style = getComputedStyle(element);
    const shown = element.offsetParent && style.visibility !== "hidden";
    if (!shown || ![...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())) continue;
    const [one, other] = [luminance(style.color)[0], behind(element)];
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (contrast < 4.5) faint.push(element.tagName + " " + style.color);
  }
  const cut = [...document.querySelectorAll("table")].filter((table) => {
    const box = table.parentElement;
    return table.scrollWidth > box.clientWidth + 1 && getComputedStyle(box).overflowX !== "auto";
  });
  return [document.documentElement.scrollWidth - innerWidth, cut.length, [...new Set(faint)]];
}"""
WHITE = """[...document.querySelectorAll("main img")].filter((image) => image.offsetParent &&
  image.className !== "in-dark" && getComputedStyle(image).filter === "none").map((image) => image.src)"""
"""Pictures that stay white on a dark page."""


VIEWS = tuple((width, scheme) for width in (390, 768, 1280) for scheme in ("light", "dark"))
AXE = {(390, "light"), (768, "dark"), (1280, "light")}
"""Each width and each scheme once: axe takes longer than all else that a page is asked."""
OFTEN = ("index", "tutorials/ten-minutes", "reference/command-line")
"""A page of cards, one of prose, code and pictures, one of wide tables: the suite's; the others' are in make slow."""


@often("name", PAGES, OFTEN)
def test_pages_fit_and_pass_axe(browser, site, axe, name):
    page = browser.new_page()
    page.goto((site / f"{name}.html").as_uri())
    assert keyboard_faults(page) == []
    for width, scheme in VIEWS:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        wider, cut, faint = page.evaluate(MEASURE)
        assert (wider <= 0, cut, faint, clipped_elements(page)) == (True, 0, [], []), f"{width} pixels, {scheme}"
        assert scheme == "light" or page.evaluate(WHITE) == []
        assert (width, scheme) not in AXE or faults(page, axe, all_of_them=True) == [], f"{width} pixels, {scheme}"
    page.close()
