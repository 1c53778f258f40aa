"""The button that proves a release in the reader's browser accepts what holds, and no page that was tampered with."""

import base64
import json
import re
import shutil

import numpy as np
import pytest
from forgeries import BASES, make

from privopt.run.report.make import write_report

pytestmark = pytest.mark.xdist_group("reports")

METRIC = [base for base, (mechanism, _) in BASES.items() if mechanism != "photo-censor"]
DATA = re.compile(r'(<script type="application/json" id="check-data">)(.*?)(</script>)', re.DOTALL)


@pytest.fixture(scope="session")
def checked(tmp_path_factory):
    made = {}

    def of(base):
        if base not in made:
            made[base] = write_report(make(base, tmp_path_factory.mktemp("check")))
        return made[base]

    return of


def verdict(watched, path):
    """What the button comes to, and its lines."""
    seen = watched()
    page = seen.open(path)
    page.click("#check-run")
    page.wait_for_selector('#check-claims[data-verdict]:not([data-verdict="running"])', timeout=60_000)
    assert seen.complaints == []
    assert seen.outside == []
    claims = page.locator("#check-claims")
    return claims.get_attribute("data-verdict"), claims.locator("li").all_inner_texts()


def tampered(path, target, change):
    """The page with something else in what it carries."""
    text = path.read_text()
    content = json.loads(DATA.search(text)[2])
    change(content)
    made = json.dumps(content).replace("<", "\\u003c")
    target.write_text(DATA.sub(lambda found: found[1] + made + found[3], text))
    return target


def array(content, name, kind, change):
    """One of the arrays that a page carries, changed."""
    values = np.frombuffer(base64.b64decode(content[name]), dtype=kind).copy()
    change(values)
    content[name] = base64.b64encode(values.tobytes()).decode()


@pytest.mark.parametrize("base", METRIC)
def test_the_browser_proves_every_claim(base, checked, watched):
    said, lines = verdict(watched, checked(base))
    assert said == "holds", lines
    assert [line.split(":")[0] for line in lines] == [
        "✓ integers",
        "✓ privacy",
        "✓ loss",
        "✓ bound",
        "✓ statements",
    ]


@pytest.mark.parametrize("name", ["optimal-lp", "words", "bd-mdp"])
def test_examples_hold_in_the_browser(name, example, tmp_path, watched):
    said, lines = verdict(watched, write_report(shutil.copytree(example(name), tmp_path / "out")))
    assert said == "holds", lines


TAMPERED = {
    "integers": lambda c: array(c, "weights", "<u8", lambda w: w.__setitem__(0, w[0] + np.uint64(1))),
    "weights": lambda c: array(c, "weights", "<u8", lambda w: w.__setitem__(slice(None), np.roll(w, 1))),
    "distances": lambda c: array(c, "distances", "<f8", lambda d: d.__imul__(1.001)),
    "pairs": lambda c: c.update(pairs="", distances=""),
    "epsilon": lambda c: c["problem"]["privacy"].update(epsilon="1.4999"),
    "points": lambda c: c["files"].update({"points.csv": base64.b64encode(b"id,x,y\np0,0,0\n").decode()}),
    "loss": lambda c: c["result"]["objective"].update(value=c["result"]["objective"]["value"] * 0.99),
    "bound": lambda c: c["result"]["objective"].update(lower_bound=c["result"]["objective"]["value"]),
    "proof": lambda c: c.pop("proof"),
    "multipliers": lambda c: array(c["proof"], "values", f"<{c['proof']['kind']}", lambda f: f.__imul__(0.9)),
    "status": lambda c: c["result"].update(status="perfect"),
    "epsilon_text": lambda c: c["result"]["guarantee"].update(epsilon_text="1.4"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_page_that_was_tampered_with_fails(name, checked, tmp_path, watched):
    said, lines = verdict(watched, tampered(checked("town"), tmp_path / "report.html", TAMPERED[name]))
    assert said == "does not hold", lines
    assert lines[-1].startswith("✗")
