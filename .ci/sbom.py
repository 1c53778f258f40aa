"""What privopt stands on in this environment, as CycloneDX 1.6: ``python .ci/sbom.py > sbom.cdx.json``.

Made from the metadata of what is installed, so run it with the python of the environment that is to be described. The
same environment gives the same bytes.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Any

from packaging.requirements import Requirement

ROOTS = ("privopt-core", "privopt-metric-dp",
         "privopt-tables", "privopt-lr-geo", "privopt-bd-mdp", "privopt-fl-linear",
         "privopt-hierarchical-dp", "privopt-photo-censor", "privopt-clients",
         "privopt-classics", "privopt-spherical-laplace")  # fmt: skip


def reference(found: Distribution) -> str:
    """Return the package URL of a distribution."""
    return f"pkg:pypi/{re.sub(r'[-_.]+', '-', found.name).lower()}@{found.version}"


def needed(found: Distribution) -> list[Distribution]:
    """Return the distributions that another one needs here, without extras."""
    wanted = map(Requirement, found.requires or [])
    here = [one.name for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]
    return sorted(map(distribution, here), key=reference)


def component(found: Distribution) -> dict[str, Any]:
    """One entry of the list: name, version, licence as its metadata state them."""
    entry: dict[str, Any] = {"type": "library", "bom-ref": reference(found), "name": found.name}
    entry |= {"version": found.version, "purl": reference(found)}
    said = found.metadata.get_all("License-Expression") or []
    classes = [text for text in found.metadata.get_all("Classifier") or [] if text.startswith("License ::")]
    if said:
        entry["licenses"] = [{"expression": said[0]}]
    elif classes:
        entry["licenses"] = [{"license": {"name": text.rpartition(" :: ")[2]}} for text in classes]
    return entry


def document() -> dict[str, Any]:
    """Return the whole bill of materials."""
    roots = []
    for name in ROOTS:
        try:
            roots.append(distribution(name))
        except PackageNotFoundError:  # a plugin that is not installed
            continue
    if not roots or roots[0].name != "privopt-core":
        sys.exit("privopt is not installed in this environment")
    found, left = {reference(root): root for root in roots}, list(roots)
    edges: dict[str, list[str]] = {}
    while left:
        one = left.pop()
        below = needed(one)
        edges[reference(one)] = [reference(other) for other in below]
        left += [other for other in below if reference(other) not in found]
        found |= {reference(other): other for other in below}
    body: dict[str, Any] = {
        "metadata": {"component": component(roots[0]) | {"type": "application"}},
        "components": [component(found[name]) for name in sorted(found) if name != reference(roots[0])],
        "dependencies": [{"ref": name, "dependsOn": edges[name]} for name in sorted(edges)],
    }
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(body, sort_keys=True))
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{number}", "version": 1, **body}


if __name__ == "__main__":
    print(json.dumps(document(), indent=2))
