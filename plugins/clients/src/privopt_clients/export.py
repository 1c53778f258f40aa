"""Export a release as a client: the artefact, certified as the client draws from it, and what reads it."""

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
from privopt.errors import CertificationError, UsageError
from privopt.files.new_folder import new_folder
from privopt.files.targets import check_target
from privopt.interfaces import Progress
from privopt.report.promise_text import claim
from privopt.run.verify import OpenedFolder, open_verified
from privopt_clients.artefact import Everywhere, Mechanism, Places, Predictive, Rows, artefact
from privopt_clients.client import Client, open_artefact
from privopt_clients.column_weights import column_weights
from privopt_clients.fewer_outputs import fewer_outputs
from privopt_metric_dp.matrix.certify import certify
from privopt_metric_dp.matrix.certify_region import certify_everywhere
from privopt_metric_dp.matrix.release import MatrixRelease, matrix_of
from privopt_metric_dp.mechanisms.trace_dp import TraceRelease
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.region.region import Plane
from privopt_metric_dp.region.snap_to_region import Snapper, read_positions
from privopt_metric_dp.space.places import Space

__all__ = ["ExportResult", "export"]

MAX_ROW_BYTES: Final = 1_000_000
"""The greatest size of whole rows, in bytes."""
MAX_EDGES_PER_RECORD: Final = 8
"""The greatest number of pairs per record in a graph for column weights; a pair takes 12 bytes."""
Form: TypeAlias = Literal["rows", "columns"]
SCOPES: Final = ("all-pairs", "neighbours", "everywhere")
"""The scopes that a report can have; the last one is for the rows of arbitrary points."""
NOTION_OF_TRACES: Final = "trace-dp"
"""The notion of releases that repeat the last report while a test finds it good."""
MAX_VECTORS: Final = 64
"""The number of test vectors of an export."""
CLIENT: Final = Path(__file__).parent / "js"
MODULE: Final = "privopt-client.mjs"
MODULES: Final = (MODULE, "privopt-prediction.mjs", "privopt-policy.mjs", "privopt-location.mjs")
"""The modules of a client. Each one imports only those before it."""
IMPORTED: Final = re.compile(r"^import .*\n", re.MULTILINE)


@frozen(kw_only=True)
class ExportResult:
    """What was written.

    Attributes:
        folder: where.
        size, zipped: bytes of mechanism.bin, and of it gzipped.
        digest: SHA-256 of mechanism.bin, for :func:`privopt_clients.client.open_artefact`.
        form: "rows" or "columns".
        loss: of what the client draws, in the release's unit.
        price: how much more that is than the release's own loss.
        notes: what the owner should know, a sentence each.
    """

    folder: Path
    size: int
    zipped: int
    digest: str
    form: str
    loss: float
    price: float
    notes: tuple[str, ...]


def export(
    folder: Path | str,
    out: Path | str,
    *,
    force: bool = False,
    form: Form | None = None,
    largest: int = MAX_ROW_BYTES,
    progress: Progress | None = None,
) -> ExportResult:
    """Write a release as a client for browsers.

    Args:
        folder: DIR of the release; it is checked first.
        out: folder to write: client, artefact, vectors and a page.
        force: replace ``out``.
        form: "rows" for whole rows, with outputs joined until they fit; "columns" for column weights; default: the
            release's own rows where they fit, else what loses less.
        largest: bytes that whole rows take, at most.
        progress: hears what is checked.

    Raises:
        UsageError: a release without a matrix, or of a guarantee that these rows do not carry.
        DoesNotHoldError: the release does not hold.
        CertificationError: what the client would draw from does not certify.
    """
    check_target(Path(out).absolute(), force=force, known_by=MODULE)
    opened = open_verified(Path(folder), progress=progress)
    release, problem = matrix_of(opened)
    _check_scope(opened)
    data = problem.data
    release = release.for_every_record(data)
    if release.records.tolist() != list(data.records.ids) or release.outputs.tolist() != list(data.outputs.ids):
        actual = f"{len(release.records):,} rows for {len(data.records):,} records"
        raise UsageError(
            f"{folder}: export takes a row for every record of the problem, got {actual}: solve it for all"
        )
    # Whatever form is chosen is certified again, since its rows may differ from those of the release.
    client_form = _choose_form(release, data, form, largest)
    release_loss = _expected_loss(release.weights, data.weighted)
    contents = artefact(
        client_form.mechanism,
        _make_places(data, data.records),
        None if client_form.kept is None else _make_places(data, data.outputs, client_form.kept),
        claim(opened.result),
        release=_hash_file(opened.folder / "SHA256SUMS"),
        proof=_hash_file(opened.folder / "proof.npz"),
    )
    unit = opened.result.objective.unit
    price = f"the loss is {client_form.loss:.6g} {unit}, that of the release's rows {release_loss:.6g}"
    notes = (f"{client_form.note}: {price}",) if client_form.note else ()
    with new_folder(Path(out), force=force, known_by=MODULE) as work:
        _write_artefact(work, contents)
        _write_modules(work, contents)
    return ExportResult(
        folder=Path(out),
        size=len(contents),
        zipped=len(gzip.compress(contents, mtime=0)),
        digest=hashlib.sha256(contents).hexdigest(),
        form=client_form.form,
        loss=client_form.loss,
        price=client_form.loss - release_loss,
        notes=notes,
    )


def _check_scope(opened: OpenedFolder) -> None:
    """Refuse releases whose guarantee a single report of a client does not have."""
    guarantee = opened.result.guarantee
    scopes = SCOPES[:2] if guarantee.kind == NOTION_OF_TRACES else SCOPES
    if guarantee.kind not in ("metric-dp", NOTION_OF_TRACES) or guarantee.scope not in scopes:
        raise UsageError(
            f"{opened.folder}: export takes metric-dp with scope {', '.join(SCOPES)}, or {NOTION_OF_TRACES} between "
            f"records, got {guarantee.kind} with scope {guarantee.scope}: solve the problem for records, or everywhere"
        )


@frozen(kw_only=True)
class _ClientForm:
    """A client's form and mechanism, the kept outputs (None for the records), its loss, and a note."""

    form: Form
    mechanism: Mechanism
    kept: Ints | None
    loss: float
    note: str = ""


def _choose_form(release: MatrixRelease, data: MetricData, form: Form | None, largest: int) -> _ClientForm:
    """Choose the form in which a client draws, and certify it.

    Raises:
        UsageError: The release has no such form.
        CertificationError: The form does not keep epsilon.
    """
    entry = 12 if isinstance(release, TraceRelease) else 8  # bytes: a weight, and a distance in steps
    max_outputs = largest // (entry * len(release.records))
    output_count = int(release.weights.any(axis=0).sum())
    # The release's own rows are best if they fit; else the form with the lower loss is taken.
    columns = None if form == "rows" or (form is None and output_count <= max_outputs) else _by_columns(release, data)
    if form == "columns":
        if columns is None:
            requirement = (
                "outputs that are the records, few pairs that imply all others and a graph of them that is whole"
            )
            raise UsageError(f"export: column weights must have {requirement}, got another release: take whole rows")
        return columns
    if columns is not None and not max_outputs:
        return columns
    rows = _by_rows(release, data, max_outputs)
    return columns if columns is not None and columns.loss < rows.loss else rows


def _by_columns(release: MatrixRelease, data: MetricData) -> _ClientForm | None:
    """Return column weights over the graph of the certificate's pairs; None if they are not possible."""
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
    loss = float((weights.probabilities() * data.weighted).sum())
    note = "rows are computed from one weight a place, in place of the release's own"
    return _ClientForm(form="columns", mechanism=weights, kept=None, loss=loss, note=note)


def _by_rows(release: MatrixRelease, data: MetricData, max_outputs: int) -> _ClientForm:
    """Return whole rows of at most ``max_outputs`` outputs, certified for the release's own pairs or region."""
    weights, kept_outputs = fewer_outputs(release.weights, data.weighted, max_outputs)
    rows = Rows(weights=weights)
    mechanism: Mechanism = rows
    if isinstance(release, TraceRelease):
        numbers = release.prediction
        mechanism = Predictive(rows=rows, prediction=evolve(numbers, steps=numbers.steps[:, kept_outputs]))
    if data.region is None:
        measured = certify(weights, release.pairs, data.not_above(release.pairs, release.distances), data.epsilon)
    else:
        measured = certify_everywhere(weights, data.region, data.epsilon)
        mechanism = Everywhere(rows=rows, snapper=Snapper.of(data.region, data.epsilon))
    if not measured.holds:
        actual = f"{measured.failed:,} pairs or simplices and {len(measured.wrong_rows):,} rows that do not hold"
        raise CertificationError(f"export: rows must keep epsilon {float(data.epsilon):g}, got {actual}")
    dropped = int(release.weights.any(axis=0).sum()) - len(kept_outputs)
    note = (
        f"{dropped:,} of {dropped + len(kept_outputs):,} outputs were joined to others, so that rows fit"
        if dropped
        else ""
    )
    loss = _expected_loss(weights, data.weighted[:, kept_outputs])
    return _ClientForm(form="rows", mechanism=mechanism, kept=kept_outputs, loss=loss, note=note)


def _expected_loss(weights: Unsigned, weighted: Floats) -> float:
    """Return the expected loss of rows of weights that add up to 2**63."""
    return float((weights / 2.0**63 * weighted).sum())


def _make_places(data: MetricData, space: Space, rows: Ints | None = None) -> Places:
    """Return the places of a problem, or some of them, in the artefact's form; in degrees if positions are."""
    selection = slice(None) if rows is None else rows
    ids, points = np.asarray(space.ids, dtype=np.str_)[selection].tolist(), space.on_map
    if points is None:
        return Places.of(ids, None, degrees=False)
    on_earth = data.region.projection if isinstance(data.region, Plane) else None
    if on_earth is not None and space.kind == "planar":
        points = on_earth.to_earth(read_positions(points, None))
    return Places.of(ids, points[selection], degrees=space.kind == "geographic" or on_earth is not None)


def _hash_file(path: Path) -> str:
    """Return the SHA-256 of a file, or ``""`` if there is no file."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _write_artefact(folder: Path, contents: bytes) -> None:
    """Write the artefact, and the test vectors that every client of it must reproduce."""
    (folder / "mechanism.bin").write_bytes(contents)
    vectors = json.dumps(list(_iter_vectors(open_artefact(contents), contents)), indent=1, ensure_ascii=False)
    (folder / "vectors.json").write_text(vectors + "\n", "utf-8")


def _write_modules(folder: Path, contents: bytes) -> None:
    """Write the ES modules and their types, and a page that contains the modules and the artefact."""
    for path in (CLIENT / name for name in MODULES):
        shutil.copyfile(path, folder / path.name)
        for ending in (".d.ts", ".d.mts"):  # TypeScript looks for the second next to an .mjs
            shutil.copyfile(path.with_suffix(".d.ts"), folder / (path.stem + ending))
    page = (CLIENT / "index.html").read_text("utf-8")
    modules = "\n".join(IMPORTED.sub("", (CLIENT / name).read_text("utf-8")) for name in MODULES)
    page = page.replace("/* MODULES */", modules)
    page = page.replace("<!-- MECHANISM -->", base64.b64encode(contents).decode("ascii"))
    (folder / "index.html").write_text(page, "utf-8")


def _iter_vectors(client: Client, contents: bytes) -> Iterator[dict[str, object]]:
    """Yield inputs, entropy and the reports that every client must give for them; all follow from the artefact."""
    ids, points = client.ids, client.positions
    for number in range(MAX_VECTORS):
        entropy = hashlib.shake_256(b"vector" + number.to_bytes(4, "little") + contents).digest(client.entropy)
        row = number * 7919 % len(ids)
        secret: str | list[float] = ids[row]
        if number % 2 and points:
            shifted = (points[row][0] + (number % 5 - 2) * 1e-3, points[row][1] + (number % 3 - 1) * 1e-3)
            limits = zip(shifted, client.limits, strict=True)
            secret = [
                min(max(coordinate, lower), upper) for coordinate, (lower, upper) in limits
            ]  # a place may lie at a pole
        yield {"input": secret, "entropy": entropy.hex(), "report": client.report_from(secret, entropy)}
