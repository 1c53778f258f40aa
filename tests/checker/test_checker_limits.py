"""What a folder says of itself is held to what it weighs before anything is made of it: the checker ends, and soon."""

from __future__ import annotations

import hashlib
import zlib

import numpy as np
import pytest
from helpers.forgeries import make
from helpers.mended_sums import edit

from privopt import checker
from privopt.errors import InputError
from privopt.files import archive
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt_metric_dp.checkers.triangles import triangulates
from privopt_metric_dp.region.mesh import triangulate
from privopt_metric_dp.space.places import Space


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    return make("grid", tmp_path_factory.mktemp("grid"))


def said(folder) -> tuple[int, str]:
    digest = hashlib.sha256((folder / "problem" / "problem.toml").read_bytes()).hexdigest()
    edit(folder, lambda r: r["problem"].update(sha256=digest))
    lines: list[str] = []
    return checker.check(folder, lines.append), lines[-1]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("41.86", "89.999", "beyond a pole"),
        ("[41.86, 12.44]", "[-90.5, 0.0]", "beyond a pole"),
        ("[41.86, 12.44]", "[41.86, 1e6]", "farther than once around"),
        ("cell_km = 0.5, south_west = [41.86", "cell_km = 15000, south_west = [-41.86", "beyond a pole"),
        ("cols = 3", "cols = 3000000", "expected one of grid"),
        ("rows = 2, cols = 3", "rows = 1000000000000, cols = -1", "expected one of grid"),
    ],
)
def test_places_and_losses_that_are_none_are_named(grid, tmp_path, old, new, why):
    import shutil

    folder = shutil.copytree(grid, tmp_path / "forged")
    file = folder / "problem" / "problem.toml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    code, line = said(folder)
    assert code == 2
    assert why in line


@pytest.mark.parametrize(
    ("road", "why"), [("d,c,1.0", "do not join all records"), ("b,d,1.0", "no road begins or ends at ['c']")]
)
def test_roads_that_do_not_join_all_records_need_a_limit(tmp_path, road, why):
    (tmp_path / "points.csv").write_text("id\na\nb\nc\n")
    (tmp_path / "roads.csv").write_text("from,to,km\na,b,1.0\nb,c,1.0\n")
    np.save(tmp_path / "c.npy", 1 - np.eye(3))
    text = '[records]\npoints = "points.csv"\n[distance]\nkind = "graph"\nedges = "roads.csv"\n'
    text += '[privacy]\nepsilon = 1.0\n[utility]\nkind = "matrix"\ncost = "c.npy"\n'
    (tmp_path / "problem.toml").write_text(text)
    folder = solve("exponential", tmp_path / "problem.toml", tmp_path / "out", Options()).folder
    assert said(folder)[0] == 0
    roads = folder / "problem" / "roads.csv"
    roads.write_text(roads.read_text().replace("b,c,1.0", road))
    code, line = said(folder)
    assert code == 2
    assert why in line


@pytest.mark.parametrize(("outputs", "why"), [(None, "missing, twice, or too large"), (np.zeros(2), "no texts")])
def test_outputs_that_were_chosen_are_texts(tmp_path, outputs, why):
    text = "[records]\ngrid = { rows = 2, cols = 2, cell_km = 1.0 }\n[outputs]\nchoose = 2\n[distance]\n"
    text += 'kind = "euclidean"\n[privacy]\nepsilon = 1.0\n[utility]\nkind = "distance"\n'
    (tmp_path / "problem.toml").write_text(text)
    folder = solve("optimal-lp", tmp_path / "problem.toml", tmp_path / "out", Options()).folder
    assert said(folder)[0] == 0
    arrays = dict(np.load(folder / "mechanism.npz"))
    del arrays["outputs"]
    np.savez(folder / "mechanism.npz", **arrays, **({} if outputs is None else {"outputs": outputs}))
    code, line = said(folder)
    assert code == 2
    assert why in line


def test_more_of_a_member_than_it_states_is_not_unpacked(tmp_path):
    import struct
    import zipfile

    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(4))
    with zipfile.ZipFile(tmp_path / "a.npz") as packed:
        inside = packed.read("x.npy")
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(inside + bytes(1 << 26)) + packer.flush()
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as forged:
        forged.writestr("x.npy", packed)
    raw = bytearray((tmp_path / "a.npz").read_bytes())
    central = raw.find(b"PK\x01\x02")
    for at in (8, central + 10):  # method, sum and size in both headers
        struct.pack_into("<H", raw, at, 8)
        struct.pack_into("<I", raw, at + 6, zlib.crc32(inside))
        struct.pack_into("<I", raw, at + 14, len(inside))
    (tmp_path / "a.npz").write_bytes(raw)
    with pytest.raises(checker.RefusedError, match="no archive of whole arrays"):
        checker.read_npz(tmp_path / "a.npz", "x:f8:1", 1 << 20)
    with pytest.raises(InputError, match="CRC"):
        archive.read_npz(tmp_path / "a.npz", "x", largest=1 << 20)


def test_an_arc_at_the_rim_hides_no_wide_triangles():
    """Each corner of the arc is nearly flat; the triangles between them are not."""
    arc = [(0, 0), (793353, 608761), (1769649, 825201), (2745945, 608761), (3539299, 0)]
    rest = [(-500000, 2200000), (4039299, 2200000), (1769649, 2400000), (-600000, 1000000), (4139299, 1000000)]
    at = [*arc, *rest]
    places = Space(ids=map(str, range(10)), coordinates=np.array(at) / 1e6, kind="planar")
    triangles = [tuple(t) for t in triangulate(np.array(at), places).tolist()]
    assert triangulates(at, triangles)
    assert not triangulates(at, [t for t in triangles if not {*t} <= {*range(5)}])
