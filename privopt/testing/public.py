"""What of a DIR is public: the files outside ``private/``, as an outsider compares them."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

from privopt.run.folder import PRIVATE, RESULT, SUMS

__all__ = ["artefact", "public_bytes", "published"]


def public_bytes(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Contents of the files outside ``private/``, the members of archives included."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or name.split("/")[0] == PRIVATE:
            continue
        contents = path.read_bytes()
        yield name, contents
        if zipfile.is_zipfile(io.BytesIO(contents)):
            with zipfile.ZipFile(io.BytesIO(contents)) as archive:
                for member in archive.namelist():
                    yield f"{name}:{member}", archive.read(member)


def artefact(folder: Path) -> dict[str, bytes]:
    """What was released: public files but result.json and the sums, archives by their members."""
    found = dict(public_bytes(folder))
    archives = {name.partition(":")[0] for name in found if ":" in name}
    return {name: contents for name, contents in found.items() if name not in {SUMS, RESULT} | archives}


def published(folder: Path) -> dict[str, bytes]:
    """Everything public, in parts that can be compared: files, row labels of tables, members, keys of result.json.

    Left out is what differs between two runs on the same input for no fault of theirs: times, and the sums that
    follow from them.
    """
    files = artefact(folder)
    parts = {"the list of public files": "\n".join(files).encode(), **files}
    for name, contents in files.items():
        if name.endswith(".csv"):
            rows = [row[0] for row in csv.reader(io.StringIO(contents.decode("utf-8", "replace"))) if row]
            parts[f"{name}, first column"] = "\n".join(rows).encode()
    result = json.loads((folder / RESULT).read_text("utf-8"))
    parts |= {
        f"{RESULT}: {key}": json.dumps(value, indent=1).encode() for key, value in result.items() if key != "time"
    }
    return parts
