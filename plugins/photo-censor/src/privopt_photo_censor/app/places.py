"""The table of places of an embedding model, from photos of known places: a folder for each place."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt.declare import key, load_problem
from privopt.declare.schema import positive
from privopt.errors import Fault, InputError
from privopt.numbers import distances as formulas
from privopt.run.publish import check_file, new_file
from privopt_photo_censor.app.cells import Centres, read_cells
from privopt_photo_censor.app.classifier import Model, ModelSettings, directions, open_model
from privopt_photo_censor.app.folder import entries
from privopt_photo_censor.app.opening import opened, readable
from privopt_photo_censor.app.picture import flattened
from privopt_photo_censor.app.positions import gps

__all__ = ["PlaceTable", "TableSettings", "place_table"]


@frozen(kw_only=True)
class TableSettings(ModelSettings):
    """The TOML next to a model that embeds, whose table of places is still to be written."""

    output: Literal["embedding"] = key(help="what the model returns")
    cells: str = key(help="CSV of the places: taken where it is there, with names; else written")
    places: str = key(help="table of the places' embeddings, .npy, to be written")
    temperature: float = key(0.07, help="of the scores later", check=positive)


@frozen(kw_only=True, eq=False)
class PlaceTable:
    """Places as a model sees them.

    Attributes:
        names: (M,) of the places.
        vectors: (M, D) mean directions of their photos' embeddings, of length 1.
        points: (M, 2) latitude and longitude: the middle of their photos' positions; None where a table of cells has
            them already.
        counts: (M,) photos of each.
        right: photos whose nearest place is their own, each held out of it, of places with two photos or more.
        tried: such photos.
    """

    names: tuple[str, ...]
    vectors: Floats
    points: Floats | None
    counts: Ints
    right: int
    tried: int

    def write(self, beside: Path, settings: TableSettings, *, force: bool) -> list[Path]:
        """Write the files that the TOML names, completely or not at all; return their paths.

        Raises:
            UsageError: one is there already, and ``force`` is not given.
        """
        table, cells = beside / settings.places, beside / settings.cells
        check_file(table, force=force)
        if self.points is not None:
            check_file(cells, force=force)
            rows = Centres(points=self.points).rows()
            text = io.StringIO()
            named = [[*rows[0], "name"], *([*row, name] for row, name in zip(rows[1:], self.names, strict=True))]
            csv.writer(text, lineterminator="\n").writerows(named)
            with new_file(cells, force=force) as work:
                work.write_text(text.getvalue(), "utf-8")
        with new_file(table, force=force) as work, work.open("wb") as file:
            np.save(file, self.vectors)
        return [table] if self.points is None else [cells, table]


def place_table(path: Path, references: Path) -> tuple[PlaceTable, TableSettings]:
    """Embed photos of each place.

    Args:
        path: the TOML next to the model, with ``output = "embedding"``, ``cells`` and ``places``.
        references: a folder of photos for each place, of its name.

    Returns:
        The table, in the order of the cells where there is a table of these, else of the folders' names; and what the
        TOML says.

    Raises:
        InputError: every fault found: the model will not do, a photo cannot be read, folders are not places, or a place
            has no photo with a position.
        UsageError: onnxruntime is not installed.
    """
    settings = load_problem(TableSettings, path)
    names = _places(path.parent / settings.cells, references)
    known = (path.parent / settings.cells).exists()
    model = open_model(settings)
    seen: list[Floats] = []
    points: list[tuple[float, float]] = []
    faults: list[Fault] = []
    for name in names:
        vectors, found = _embedded(model, references / name)
        seen.append(vectors)
        if found is None and not known:
            faults.append(Fault(f"{references.name}/{name}", "GPS", "no photo with a position", "one at least"))
        points.append(found or (0.0, 0.0))
    if faults:
        raise InputError(faults[:20])
    sums = np.array([vectors.sum(axis=0) for vectors in seen])
    right, tried = _left_out(seen, sums)
    return (
        PlaceTable(
            names=names,
            vectors=directions(sums, settings.model.name),
            points=None if known else np.array(points),
            counts=np.array([len(vectors) for vectors in seen]),
            right=right,
            tried=tried,
        ),
        settings,
    )


def _places(cells: Path, references: Path) -> tuple[str, ...]:
    """Names of the places, in order."""
    try:
        folders = sorted(entry.name for entry in references.iterdir() if entry.is_dir() and entry.name[0] != ".")
    except OSError as error:
        raise InputError([Fault(str(references), "", error.strerror or "unreadable", "folders of photos")]) from None
    if len(folders) < 2:
        found = f"{len(folders)} folders" if folders else "no folder"
        raise InputError([Fault(references.name, "", found, "a folder of photos for each place, two at least")])
    if not cells.exists():
        return tuple(folders)
    names = read_cells(cells).names
    if sorted(names) != folders:
        lacking = sorted({*names} - {*folders}) or sorted({*folders} - {*names}) or ["one twice"]
        found = f"not the folders of {references.name} ({', '.join(lacking[:5])})"
        raise InputError([Fault(cells.name, "column name", found, "the name of each folder once")])
    return names


def _embedded(model: Model, folder: Path) -> tuple[Floats, tuple[float, float] | None]:
    """(n, D) directions of a folder's photos, and the middle of their positions on the globe, if any."""
    tensors, positions = [], []
    for name, path in entries(folder, subfolders=True)[0]:
        with readable(f"{folder.name}/{name}"), opened(path.read_bytes()) as photo:
            upright = flattened(photo)
            positions.append(gps(photo))
        tensors.append(model.tensor(upright))
    there = np.array([point for point in positions if point is not None])
    vectors = directions(model.outputs(tensors), model.settings.model.name)
    if not len(there):
        return vectors, None
    x, y, z = formulas.directions(there).mean(axis=0)
    return vectors, (float(np.degrees(np.arctan2(z, np.hypot(x, y)))), float(np.degrees(np.arctan2(y, x))))


def _left_out(seen: Sequence[Floats], sums: Floats) -> tuple[int, int]:
    """Count the photos that are nearest to their own place, each held out of it, and the photos tried."""
    right = tried = 0
    for place, vectors in enumerate(seen):
        for own in vectors if len(vectors) > 1 else ():
            others = sums.copy()
            others[place] -= own
            cosines = others @ own / np.maximum(np.linalg.norm(others, axis=1), 1e-300)
            right += int(cosines.argmax()) == place
            tried += 1
    return right, tried
