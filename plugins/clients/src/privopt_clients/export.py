"""Export of a release as a client for browsers.

A client consists of an artefact and the JavaScript modules that read it. The artefact is certified in the form in which
the client computes rows.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, TypeAlias

import numpy as np
from attrs import evolve, frozen

from privopt.arrays import Floats, Ints, Unsigned
from privopt.errors import CertificationError, UsageError, number_of
from privopt.files.new_folder import check_target, new_folder
from privopt.interfaces import Progress
from privopt.report.promise_text import claim
from privopt.run.verify import OpenedFolder, open_verified
from privopt_clients.artefact import Everywhere, Mechanism, Places, Predictive, Rows, artefact
from privopt_clients.client import Client, open_artefact
from privopt_clients.column_weights import column_weights
from privopt_clients.coverage import reach_of
from privopt_clients.fewer_outputs import fewer_outputs
from privopt_metric_dp.matrix.certify import certify
from privopt_metric_dp.matrix.certify_region import certify_everywhere
from privopt_metric_dp.matrix.release import MatrixRelease, PositionRelease, matrix_of
from privopt_metric_dp.mechanisms.trace_dp import TraceRelease
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.problem.declared import Grid
from privopt_metric_dp.region.region import Plane
from privopt_metric_dp.region.snap_to_region import Snapper, read_positions
from privopt_metric_dp.space.places import Space

__all__ = ["MAX_ROW_BYTES", "ExportResult", "export", "export_modules"]

MAX_ROW_BYTES: Final = 1_000_000
"""The default for the largest size of whole rows, in bytes."""
MAX_LOSS_INCREASE: Final = 0.01
"""The largest relative increase in the loss that is allowed without explicit permission."""
MAX_EDGES_PER_RECORD: Final = 8
"""The largest number of pairs per record in a graph for column weights. A pair takes 12 bytes in the artefact."""
Form: TypeAlias = Literal["rows", "columns"]
SCOPES: Final = ("all-pairs", "neighbours", "everywhere")
"""The scopes of guarantees that a client supports. The last one covers every point in a region."""
NOTION_OF_TRACES: Final = "trace-dp"
"""The privacy notion of releases that repeat the last report as long as a private test finds it accurate enough."""
MAX_VECTORS: Final = 64
"""The number of test vectors in an export."""
CLIENT: Final = Path(__file__).parent / "js"
"""The folder with the JavaScript modules and the HTML pages."""
MODULE: Final = "privopt-client.mjs"
MODULES: Final = (
    MODULE,
    "privopt-prediction.mjs",
    "privopt-policy.mjs",
    "privopt-sphere.mjs",
    "privopt-points.mjs",
    "privopt-location.mjs",
)
"""The ES modules of a client. Each one only imports modules that precede it."""
WORLD_PAGE: Final = "anywhere.html"
OUTLINE: Final = "world-outline.txt"
"""The file with the outline of the world's land as an SVG path, written by tests/docs/draw_world.py."""
IMPORTED: Final = re.compile(r"^import .*\n", re.MULTILINE)
"""A pattern that matches the import lines of a module."""


@frozen(kw_only=True)
class ExportResult:
    """The result of an export: the folder, and the size, loss and reach of the client that was written to it.

    Attributes:
        folder: The folder that was written.
        size, zipped: The size of mechanism.bin in bytes, uncompressed and gzipped.
        digest: The SHA-256 of mechanism.bin, for :func:`privopt_clients.client.open_artefact`.
        form: "rows" or "columns".
        loss: The expected loss of the client's reports, in the release's unit of loss.
        price: The difference between ``loss`` and the loss of the release.
        reach_km: The distance in km beyond which the client rejects a position, measured from the nearest record or
            from the region.
        notes: Notes for the owner of the release.
    """

    folder: Path
    size: int
    zipped: int
    digest: str
    form: str
    loss: float
    price: float
    reach_km: float
    notes: tuple[str, ...]


def export(
    folder: Path | str,
    out: Path | str,
    *,
    force: bool = False,
    form: Form | None = None,
    max_bytes: int = MAX_ROW_BYTES,
    allow_larger_loss: bool = False,
    reach_km: float | None = None,
    progress: Progress | None = None,
) -> ExportResult:
    """Write a release as a client for browsers.

    Args:
        folder: The release folder, which is verified first.
        out: The folder to write. It receives the modules, the artefact, test vectors and a page.
        force: Whether to replace ``out`` if it exists.
        form: "rows" for whole rows, with outputs merged until the rows fit into ``max_bytes``; "columns" for column
            weights. By default, the rows of the release if they fit, otherwise the form with the smaller loss.
        max_bytes: The largest size of whole rows in bytes.
        allow_larger_loss: Whether the client's loss may exceed the release's by more than 1 %, to save space.
        reach_km: The distance in km beyond which the client rejects a position, measured from the nearest record or
            from the region. By default, the result of :func:`privopt_clients.coverage.reach_of`.
        progress: Called with the progress of verification.

    Raises:
        UsageError: The release has no matrix, has no row for some record, or has a guarantee that does not cover single
            reports. The error is also raised if ``reach_km`` is negative or the client's loss is too large.
        DoesNotHoldError: The release fails verification.
        CertificationError: The client's rows do not satisfy epsilon.
    """
    # The condition is negated because it also has to refuse NaN, which the command's option accepts.
    if reach_km is not None and not reach_km >= 0.0:
        raise UsageError("export: reach must be a distance of 0 km or more, got another number")
    check_target(Path(out).absolute(), force=force, known_by=MODULE, read=[Path(folder)])
    opened = open_verified(Path(folder), progress=progress)
    if isinstance(opened.release, PositionRelease):
        raise UsageError(
            f"{folder}: export takes a release with a matrix, got a law for any position, which needs no artefact: "
            "export without DIR writes the modules, and fromEpsilon of privopt-sphere.mjs draws from such a law"
        )
    release, problem = matrix_of(opened)
    _check_scope(opened)
    data = problem.data
    release = release.for_every_record(data)
    if release.records.tolist() != list(data.records.ids) or release.outputs.tolist() != list(data.outputs.ids):
        actual = f"{number_of(len(release.records), 'row')} for {number_of(len(data.records), 'record')}"
        raise UsageError(
            f"{folder}: export takes a row for every record of the problem, got {actual}: solve it for all records"
        )
    # The chosen form is certified again, because its rows may differ from those in the release.
    client_form = _choose_form(release, data, form, max_bytes)
    release_loss = _expected_loss(release.weights, data.weighted)
    unit = opened.result.objective.unit
    comparison = f"the loss is {client_form.loss:.6g} {unit}, that of the release's rows {release_loss:.6g}"
    if client_form.loss > release_loss * (1 + MAX_LOSS_INCREASE) and not allow_larger_loss:
        raise UsageError(f"{folder}: {_describe_remedies(release, data, max_bytes)}. In this size {comparison}")
    reach = reach_of(data, _grid_of(problem.declared)) if reach_km is None else reach_km
    # The artefact identifies the release and its proof by their checksums, so that anybody can find them.
    contents = artefact(
        client_form.mechanism,
        _make_places(data, data.records),
        None if client_form.kept is None else _make_places(data, data.outputs, client_form.kept),
        claim(opened.result),
        reach_km=reach,
        release=_hash_file(opened.folder / "SHA256SUMS"),
        proof=_hash_file(opened.folder / "proof.npz"),
    )
    notes = (f"{client_form.note}: {comparison}",) if client_form.note else ()
    with new_folder(Path(out), force=force, known_by=MODULE) as work:
        _write_artefact(work, contents)
        _copy_modules(work)
        _write_page(work, contents)
    return ExportResult(
        folder=Path(out),
        size=len(contents),
        zipped=len(gzip.compress(contents, mtime=0)),
        digest=hashlib.sha256(contents).hexdigest(),
        form=client_form.form,
        loss=client_form.loss,
        price=client_form.loss - release_loss,
        reach_km=reach,
        notes=notes,
    )


def export_modules(out: Path | str, *, force: bool = False) -> None:
    """Write the JavaScript modules without a release, and a demonstration page with a world map.

    The modules' function ``fromEpsilon`` draws reports for any position on Earth. The page, ``anywhere.html``, works
    offline.

    Args:
        out: The folder to write.
        force: Whether to replace ``out`` if it exists.
    """
    check_target(Path(out).absolute(), force=force, known_by=MODULE)
    with new_folder(Path(out), force=force, known_by=MODULE) as work:
        _copy_modules(work)
        outline = (CLIENT / OUTLINE).read_text("utf-8").strip()
        page = _inline_modules((CLIENT / WORLD_PAGE).read_text("utf-8")).replace("<!-- OUTLINE -->", outline)
        (work / WORLD_PAGE).write_text(page, "utf-8")


def _check_scope(opened: OpenedFolder) -> None:
    """Check that the release's guarantee covers single reports from a client.

    Raises:
        UsageError: The privacy notion or the scope of the guarantee is not supported.
    """
    guarantee = opened.result.guarantee
    scopes = SCOPES[:2] if guarantee.kind == NOTION_OF_TRACES else SCOPES
    if guarantee.kind not in ("metric-dp", NOTION_OF_TRACES) or guarantee.scope not in scopes:
        raise UsageError(
            f"{opened.folder}: export takes metric-dp with scope {', '.join(SCOPES)}, or {NOTION_OF_TRACES} between "
            f"records, got {guarantee.kind} with scope {guarantee.scope}: solve the problem for records, or everywhere"
        )


@frozen(kw_only=True)
class _ClientForm:
    """A certified mechanism in the form in which a client stores it.

    Attributes:
        form: "rows" or "columns".
        mechanism: The mechanism to write to the artefact.
        kept: The indices of the problem's outputs that the client can report; None if the outputs are the records.
        loss: The expected loss of the client's reports, in the release's unit of loss.
        note: A clause that explains how the rows differ from the release's; an empty string if they are the same.
    """

    form: Form
    mechanism: Mechanism
    kept: Ints | None
    loss: float
    note: str = ""


def _grid_of(declared: object) -> Grid | None:
    """Return the grid that declares a problem's records, or None if they are declared in another way."""
    grid = getattr(getattr(declared, "records", None), "grid", None)
    return grid if isinstance(grid, Grid) else None


def _count_row_bytes(release: MatrixRelease) -> tuple[int, int]:
    """Return the size of one output's column in bytes, and the number of outputs in use.

    An output is in use if some row has a positive weight for it.
    """
    # A weight takes 8 bytes, and a distance for the test that decides whether to repeat the last report takes 4.
    entry = 12 if isinstance(release, TraceRelease) else 8
    return entry * len(release.records), int(release.weights.any(axis=0).sum())


def _describe_remedies(release: MatrixRelease, data: MetricData, max_bytes: int) -> str:
    """Return an error message that suggests what to do about rows that are too large.

    Rows are too large if they exceed ``max_bytes``, or if making them fit would increase the loss too much.

    Args:
        release: The release, with a row for each record.
        data: The problem's data, which determine the remedies that apply.
        max_bytes: The largest size of whole rows in bytes.
    """
    column_bytes, output_count = _count_row_bytes(release)
    size = column_bytes * output_count
    if size <= max_bytes:
        return "export needs --allow-larger-loss for this form; the rows of the release would fit"
    remedies = [f"--max-bytes {size}"]
    if max_outputs := max_bytes // column_bytes:
        remedies.append(f"a release with at most {max_outputs:,} outputs (coarser ones, or [outputs] choose)")
    if data.region is None and data.within is None and not isinstance(release, TraceRelease):
        remedies.append("one with few required pairs ([privacy] neighbours_within), whose rows a client can compute")
    if data.records.kind == "geographic":
        remedies.append("spherical-laplace, which needs no artefact and takes any position on Earth")
    return (
        f"export takes rows of at most {max_bytes:,} bytes, got {size:,} of {len(release.records):,} records and "
        f"{output_count:,} outputs. What fits: {'; '.join(remedies)}; or fewer outputs that lose more, with "
        "--allow-larger-loss"
    )


def _choose_form(release: MatrixRelease, data: MetricData, form: Form | None, max_bytes: int) -> _ClientForm:
    """Convert a release to the form in which a client stores it, and certify the result.

    Args:
        release: The release, with a row for each record.
        data: The problem's data.
        form: The requested form. If None, the rows of the release are used if they fit, and otherwise the form with the
            smaller loss.
        max_bytes: The largest size of whole rows in bytes.

    Raises:
        UsageError: The requested form is not possible for this release, or not even one output fits.
        CertificationError: The mechanism in this form does not satisfy epsilon.
    """
    column_bytes, output_count = _count_row_bytes(release)
    max_outputs = max_bytes // column_bytes
    # The rows of the release are best if they fit; otherwise the form with the lower loss is used.
    columns = (
        None if form == "rows" or (form is None and output_count <= max_outputs) else _make_columns_form(release, data)
    )
    if form == "columns":
        if columns is None:
            requirement = (
                "outputs that are the records, few pairs that imply all others, and a connected graph of these pairs"
            )
            raise UsageError(f"export: column weights need {requirement}, got another release: export whole rows")
        return columns
    if not max_outputs:
        if columns is not None:
            return columns
        raise UsageError(_describe_remedies(release, data, max_bytes))
    rows = _make_rows_form(release, data, max_outputs)
    return columns if columns is not None and columns.loss < rows.loss else rows


def _make_columns_form(release: MatrixRelease, data: MetricData) -> _ClientForm | None:
    """Return a form with column weights on the graph of the certificate's pairs, or None if this is not possible.

    Column weights require that the outputs are the records. They also require few pairs, because the client searches
    the graph for each report, and each edge takes 12 bytes in the artefact. Regions and traces require whole rows.

    Args:
        release: The release, whose pairs imply all required pairs.
        data: The problem's data, with the distances and the losses.
    """
    pairs, distances = release.pairs, data.not_above(release.pairs, release.distances)
    if data.region is not None or isinstance(release, TraceRelease):
        return None
    if release.outputs.tolist() != release.records.tolist():
        return None
    if len(pairs) > MAX_EDGES_PER_RECORD * len(release.records):
        return None
    weights = column_weights(pairs, distances, len(release.records), data.epsilon)
    if weights is None:
        return None
    # ``weighted`` is the loss of each output for each record, times the record's prior.
    loss = float((weights.probabilities() * data.weighted).sum())
    note = "rows are computed from one weight per place, instead of the release's own"
    return _ClientForm(form="columns", mechanism=weights, kept=None, loss=loss, note=note)


def _make_rows_form(release: MatrixRelease, data: MetricData, max_outputs: int) -> _ClientForm:
    """Return a form with whole rows, certified for the release's pairs or its region.

    Args:
        release: The release, with a row for each record.
        data: The problem's data.
        max_outputs: The largest number of outputs to keep. Each less frequent output is replaced by a kept one.

    Raises:
        UsageError: Not even one output fits.
        CertificationError: The rows do not satisfy metric DP.
    """
    weights, kept_outputs = fewer_outputs(release.weights, data.weighted, max_outputs)
    rows = Rows(weights=weights)
    mechanism: Mechanism = rows
    if isinstance(release, TraceRelease):
        # The test for a trace compares the position with the last report, so it needs the distances to the kept
        # outputs.
        numbers = release.prediction
        mechanism = Predictive(rows=rows, prediction=evolve(numbers, steps=numbers.steps[:, kept_outputs]))
    if data.region is None:
        measured = certify(weights, release.pairs, data.not_above(release.pairs, release.distances), data.epsilon)
    else:
        measured = certify_everywhere(weights, data.region, data.epsilon)
        mechanism = Everywhere(rows=rows, snapper=Snapper.of(data.region, data.epsilon))
    if not measured.holds:
        actual = f"{measured.failed:,} pairs or simplices and {len(measured.wrong_rows):,} rows that fail"
        raise CertificationError(f"export: rows must satisfy epsilon {float(data.epsilon):g}, got {actual}")
    dropped = int(release.weights.any(axis=0).sum()) - len(kept_outputs)
    note = (
        f"{dropped:,} of {number_of(dropped + len(kept_outputs), 'output')} merged into others, so that rows fit"
        if dropped
        else ""
    )
    loss = _expected_loss(weights, data.weighted[:, kept_outputs])
    return _ClientForm(form="rows", mechanism=mechanism, kept=kept_outputs, loss=loss, note=note)


def _expected_loss(weights: Unsigned, weighted: Floats) -> float:
    """Return the expected loss of a matrix under the prior, in the problem's unit of loss.

    Args:
        weights: (N, K) The matrix as integer weights, which sum to 2**63 in each row.
        weighted: (N, K) The loss of each output for each record, times the record's prior.
    """
    return float((weights / 2.0**63 * weighted).sum())


def _make_places(data: MetricData, space: Space, rows: Ints | None = None) -> Places:
    """Convert a problem's places to the artefact's form.

    Coordinates are in degrees if the places are geographic, or if the region is a projection of the Earth.

    Args:
        data: The problem's data.
        space: The records or the outputs of the problem.
        rows: The indices of the places to convert; None for all.
    """
    selection = slice(None) if rows is None else rows
    ids, points = np.asarray(space.ids, dtype=np.str_)[selection].tolist(), space.on_map
    if points is None:
        return Places.of(ids, None, degrees=False)
    on_earth = data.region.projection if isinstance(data.region, Plane) else None
    # The problem for a region on the Earth is solved on a plane in km, so its places are converted back to latitudes
    # and longitudes.
    if on_earth is not None and space.kind == "planar":
        points = on_earth.to_earth(read_positions(points, None))
    return Places.of(ids, points[selection], degrees=space.kind == "geographic" or on_earth is not None)


def _hash_file(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits, or an empty string if the file does not exist."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _write_artefact(folder: Path, contents: bytes) -> None:
    """Write mechanism.bin, and the file vectors.json with test vectors that every client must reproduce."""
    (folder / "mechanism.bin").write_bytes(contents)
    vectors = json.dumps(list(_iter_vectors(open_artefact(contents), contents)), indent=1, ensure_ascii=False)
    (folder / "vectors.json").write_text(vectors + "\n", "utf-8")


def _copy_modules(folder: Path) -> None:
    """Copy the ES modules and their TypeScript declarations to a folder."""
    for path in (CLIENT / name for name in MODULES):
        shutil.copyfile(path, folder / path.name)
        for ending in (".d.ts", ".d.mts"):  # TypeScript looks for the second next to an .mjs
            shutil.copyfile(path.with_suffix(".d.ts"), folder / (path.stem + ending))


def _write_page(folder: Path, contents: bytes) -> None:
    """Write index.html, a self-contained page with the modules and the artefact inlined."""
    page = _inline_modules((CLIENT / "index.html").read_text("utf-8"))
    page = page.replace("<!-- MECHANISM -->", base64.b64encode(contents).decode("ascii"))
    (folder / "index.html").write_text(page, "utf-8")


def _inline_modules(page: str) -> str:
    """Return an HTML page in which the code of the modules replaces the placeholder ``/* MODULES */``."""
    # Browsers do not let a page that is opened from a file import modules, so the modules are put into the page,
    # without their import lines.
    modules = "\n".join(IMPORTED.sub("", (CLIENT / name).read_text("utf-8")) for name in MODULES)
    return page.replace("/* MODULES */", modules)


def _iter_vectors(client: Client, contents: bytes) -> Iterator[dict[str, object]]:
    """Yield test vectors: an input, entropy, and the report that every client must draw from the two.

    Args:
        client: The reference client for the artefact.
        contents: The contents of the artefact, from which the entropy is derived.
    """
    ids, points = client.ids, client.positions
    for number in range(MAX_VECTORS):
        # The entropy is derived from the artefact, so that a repeated export is identical bit by bit.
        entropy = hashlib.shake_256(b"vector" + number.to_bytes(4, "little") + contents).digest(client.entropy)
        # Steps by a prime number spread the vectors over the records. Every second input is a position near its record.
        row = number * 7919 % len(ids)
        secret: str | list[float] = ids[row]
        if number % 2 and points:
            shifted = (points[row][0] + (number % 5 - 2) * 1e-3, points[row][1] + (number % 3 - 1) * 1e-3)
            limits = zip(shifted, client.limits, strict=True)
            # A record may lie at a pole, so the shifted position is clamped to the valid range.
            position = [min(max(coordinate, lower), upper) for coordinate, (lower, upper) in limits]
            # A position next to a record on the boundary may lie outside the region.
            secret = next((place for place in (position, [*points[row]]) if client.covers(place)), ids[row])
        yield {"input": secret, "entropy": entropy.hex(), "report": client.report_from(secret, entropy)}
