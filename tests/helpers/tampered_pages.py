"""What somebody may change in a page that proves a release: what it carries, and what comes of it."""

import base64
import json
import re

import numpy as np

DATA = re.compile(r'(<script type="application/json" id="check-data">)(.*?)(</script>)', re.DOTALL)


def tamper_page(path, target, change):
    """Return the page with something else in what it carries."""
    text = path.read_text()
    content = json.loads(DATA.search(text)[2])
    change(content)
    new_json = json.dumps(content).replace("<", "\\u003c")
    target.write_text(DATA.sub(lambda match: match[1] + new_json + match[3], text))
    return target


def array(content, name, kind, change):
    """One of the arrays that a page carries, changed."""
    values = np.frombuffer(base64.b64decode(content[name]), dtype=kind).copy()
    change(values)
    content[name] = base64.b64encode(values.tobytes()).decode()


def proof(content, name, change):
    """Change an array of proof.npz in the same way."""
    kind, raw = content["proof"][name]
    values = np.frombuffer(base64.b64decode(raw), dtype=kind).copy()
    change(values)
    content["proof"][name] = [kind, base64.b64encode(values.tobytes()).decode()]


def result_change(part, key, value):
    """Something else in result.json."""
    return lambda c: c["result"][part].update({key: value})


TOWN = {
    "integers": lambda c: array(c, "weights", "<u8", lambda w: w.__setitem__(0, w[0] + np.uint64(1))),
    "weights": lambda c: array(c, "weights", "<u8", lambda w: w.__setitem__(slice(None), np.roll(w, 1))),
    "distances": lambda c: array(c, "distances", "<f8", lambda d: d.__imul__(1.001)),
    "a distance, above": lambda c: array(c, "distances", "<f8", lambda d: d[:1].__imul__(1 + 2.0**-46)),
    "a distance, below": lambda c: array(c, "distances", "<f8", lambda d: d[:1].__imul__(1 - 1e-8)),
    "pairs": lambda c: c.update(pairs="", distances=""),
    "epsilon": lambda c: c["problem"]["privacy"].update(epsilon="1.4999"),
    "points": lambda c: c["files"].update({"points.csv": base64.b64encode(b"id,x,y\np0,0,0\n").decode()}),
    "loss": lambda c: c["result"]["objective"].update(value=c["result"]["objective"]["value"] * 0.99),
    "bound": lambda c: c["result"]["objective"].update(lower_bound=c["result"]["objective"]["value"]),
    "bound, its last bit": lambda c: c["result"]["objective"].update(
        lower_bound=float(np.nextafter(c["result"]["objective"]["lower_bound"], -np.inf))
    ),
    "unit": lambda c: proof(c, "unit", lambda u: u.__imul__(1.1)),
    "proof": lambda c: c.pop("proof"),
    "prices": lambda c: proof(c, "prices", lambda f: f.__imul__(0.9)),
    "a circle": lambda c: proof(c, "trees", lambda t: t[:2].__setitem__(slice(None), [2, 10])),
    "no trees": lambda c: proof(c, "trees", lambda t: t.fill(0)),
    "value_unit": lambda c: c["result"]["details"].update(value_unit=1.1 * c["result"]["details"]["value_unit"]),
    "value_unit, coarse": lambda c: c["result"]["details"].update(value_unit=1e3),
    "loss, its last bit": lambda c: c["result"]["objective"].update(
        value=float(np.nextafter(c["result"]["objective"]["value"], np.inf))
    ),
    "status": lambda c: c["result"].update(status="perfect"),
    "asked.gap": lambda c: c["result"]["asked"].update(gap=1.5),
    "epsilon_text": lambda c: c["result"]["guarantee"].update(epsilon_text="1.4"),
    **{
        f"{part}.{key} = {value}": result_change(part, key, value)
        for part, key, value in [
            ("objective", "gap", 1e-9),
            ("objective", "gap", 0.25),
            ("objective", "gap", None),
            ("objective", "unit", "m"),
            ("objective", "value", "1"),
            ("objective", "more", 1),
            ("guarantee", "kind", "geo-ind"),
            ("guarantee", "epsilon", 0.15),
            ("guarantee", "epsilon_text", 1.5),
            ("guarantee", "epsilon", 1.4999999999999998),
            ("guarantee", "unit", "per m"),
            ("guarantee", "scope", "everywhere"),
            ("guarantee", "neighbours_within", 5.0),
            ("guarantee", "statement", 3),
            ("guarantee", "seeded", True),
            ("certificate", "worst", 0.1),
            ("certificate", "allowed", 9.0),
            ("certificate", "checked", 10**6),
            ("certificate", "holds", False),
            ("certificate", "kind", "top-k"),
            ("certificate", "evidence", "declared"),
            ("certificate", "arithmetic", 1),
            ("certificate", "protected_k", 4),
        ]
    },
}


def swap_outputs(content):
    """Exchange outputs 0 and 1: as private as before, and no longer the best guesses."""
    array(
        content,
        "weights",
        "<u8",
        lambda w: w.reshape(6, 6).__setitem__(slice(None), w.reshape(6, 6)[:, [0, 2, 1, 3, 4, 5]]),
    )
    content["result"]["objective"].update(value=0.61, lower_bound=None, gap=None)


GUESSES = {("guesses", "others"): swap_outputs}
NOWHERE = {
    **{
        ("town", f"epsilon_text = {text!r}"): result_change("guarantee", "epsilon_text", text)
        for text in (["1.5"], "1.5 ", "\ufeff1.5", "\n1.5")
    },
    ("guesses", "remap"): lambda c: c["problem"]["utility"].update(remap="true"),
}


ROWS = {
    "multipliers": lambda c: proof(c, "values", lambda f: f.__imul__(0.9)),
    "a multiplier below 0": lambda c: proof(c, "values", lambda f: f.__setitem__(0, -f[0])),
    "starts": lambda c: proof(c, "starts", lambda s: s.__setitem__(-1, s[-1] - 1)),
    "a row of one record": lambda c: proof(c, "pairs", lambda p: p.__setitem__(1, p[0])),
    "a row that is none": lambda c: proof(c, "pairs", lambda p: p.__setitem__(0, 99)),
}


UNREADABLE = {
    "epsilon": lambda c: c["problem"]["privacy"].update(epsilon="1.5 or so"),
    "privacy": lambda c: c["problem"]["privacy"].update(everywhere=True),
    "distance": lambda c: c["problem"]["distance"].update(kind="taxicab"),
    "utility": lambda c: c["problem"]["utility"].update(kind="regret"),
    "points": lambda c: c["files"].update({"points.csv": base64.b64encode(b"id,x,y\np0,0\n").decode()}),
    "bytes": lambda c: c["files"].update({"points.csv": base64.b64encode(b"id,x,y\n\xff,0,0\n").decode()}),
    "problem": lambda c: c.pop("problem"),
    "prior": lambda c: c["files"].update({"prior.csv": base64.b64encode(b"id,p\np0,0.5\n").decode()}),
    "little": lambda c: c["result"]["objective"].update(value=1e-99),
    "certificate": lambda c: c["result"].pop("certificate"),
    "gap": lambda c: c["result"]["asked"].update(gap="1"),
}


FALSE = {("town", name): change for name, change in TOWN.items()} | GUESSES
FALSE |= {("soft", name): change for name, change in ROWS.items()}
UNREAD = {("town", name): change for name, change in UNREADABLE.items()} | NOWHERE
