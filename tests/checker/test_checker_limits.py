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
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt_metric_dp.checkers.triangles import triangulates
from privopt_metric_dp.region.mesh import triangulate
from privopt_metric_dp.space.places import Space


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    return make("grid", tmp_path_factory.mktemp("grid"))


def check_edited(folder) -> tuple[int, str]:
    digest = hashlib.sha256((folder / "problem" / "problem.toml").read_bytes()).hexdigest()
    edit(folder, lambda r: r["problem"].update(sha256=digest))
    lines: list[str] = []
    return checker.check(folder, lines.append), lines[-1]


@pytest.mark.parametrize(
    ("old", "new", "keywords"),
    [
        ("41.86", "89.999", "passes a pole"),
        ("[41.86, 12.44]", "[-90.5, 0.0]", "passes a pole"),
        ("[41.86, 12.44]", "[41.86, 1e6]", "than once around"),
        ("cell_km = 0.5, south_west = [41.86", "cell_km = 15000, south_west = [-41.86", "passes a pole"),
        ("cols = 3", "cols = 3000000", "and at most"),
        ("rows = 2, cols = 3", "rows = 1000000000000, cols = -1", "integers above 0"),
        ("epsilon = 2.0", "", "an epsilon"),
        ("epsilon = 2.0", "neighbours_within = 2.0", "an epsilon"),
        ("epsilon = 2.0", "epsilon = 0", "numbers above 0"),
    ],
)
def test_names_invalid_values_of_the_problem(grid, tmp_path, old, new, keywords):
    import shutil

    folder = shutil.copytree(grid, tmp_path / "forged")
    file = folder / "problem" / "problem.toml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    code, line = check_edited(folder)
    assert code == 2
    assert keywords in line


@pytest.mark.parametrize(("road", "keywords"), [("d,c,1.0", "connect all records"), ("b,d,1.0", "at ['c']")])
def test_disconnected_roads_need_a_limit(tmp_path, road, keywords):
    (tmp_path / "points.csv").write_text("id\na\nb\nc\n")
    (tmp_path / "roads.csv").write_text("from,to,km\na,b,1.0\nb,c,1.0\n")
    np.save(tmp_path / "c.npy", 1 - np.eye(3))
    text = '[records]\npoints = "points.csv"\n[distance]\nkind = "graph"\nedges = "roads.csv"\n'
    text += '[privacy]\nepsilon = 1.0\n[utility]\nkind = "matrix"\ncost = "c.npy"\n'
    (tmp_path / "problem.toml").write_text(text)
    folder = solve("exponential", tmp_path / "problem.toml", tmp_path / "out", Options()).folder
    assert check_edited(folder)[0] == 0
    roads = folder / "problem" / "roads.csv"
    roads.write_text(roads.read_text().replace("b,c,1.0", road))
    code, line = check_edited(folder)
    assert code == 2
    assert keywords in line


@pytest.mark.parametrize(("outputs", "keywords"), [(None, "missing, twice, or"), (np.zeros(2), "not a list of texts")])
def test_chosen_outputs_are_texts(tmp_path, outputs, keywords):
    text = "[records]\ngrid = { rows = 2, cols = 2, cell_km = 1.0 }\n[outputs]\nchoose = 2\n[distance]\n"
    text += 'kind = "euclidean"\n[privacy]\nepsilon = 1.0\n[utility]\nkind = "distance"\n'
    (tmp_path / "problem.toml").write_text(text)
    folder = solve("optimal-lp", tmp_path / "problem.toml", tmp_path / "out", Options()).folder
    assert check_edited(folder)[0] == 0
    arrays = dict(np.load(folder / "mechanism.npz"))
    del arrays["outputs"]
    np.savez(folder / "mechanism.npz", **arrays, **({} if outputs is None else {"outputs": outputs}))
    code, line = check_edited(folder)
    assert code == 2
    assert keywords in line


def test_does_not_unpack_beyond_the_stated_size(tmp_path):
    import struct
    import zipfile

    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(4))
    with zipfile.ZipFile(tmp_path / "a.npz") as packed:
        contents = packed.read("x.npy")
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(contents + bytes(1 << 26)) + packer.flush()
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as forged_archive:
        forged_archive.writestr("x.npy", packed)
    raw = bytearray((tmp_path / "a.npz").read_bytes())
    central = raw.find(b"PK\x01\x02")
    for offset in (8, central + 10):  # method, sum and size in both headers
        struct.pack_into("<H", raw, offset, 8)
        struct.pack_into("<I", raw, offset + 6, zlib.crc32(contents))
        struct.pack_into("<I", raw, offset + 14, len(contents))
    (tmp_path / "a.npz").write_bytes(raw)
    with pytest.raises(checker.RefusedError, match="of complete arrays"):
        checker.read_npz(tmp_path / "a.npz", "x:f8:1", 1 << 20)
    with pytest.raises(InputError, match="CRC"):
        archive.read_npz(tmp_path / "a.npz", "x", largest=1 << 20)


def test_finds_wide_triangles_behind_an_arc():
    """Each corner of the arc is nearly flat; the triangles between them are not."""
    arc = [(0, 0), (793353, 608761), (1769649, 825201), (2745945, 608761), (3539299, 0)]
    other_points = [(-500000, 2200000), (4039299, 2200000), (1769649, 2400000), (-600000, 1000000), (4139299, 1000000)]
    points = [*arc, *other_points]
    places = Space(ids=map(str, range(10)), coordinates=np.array(points) / 1e6, kind="planar")
    triangles = [tuple(t) for t in triangulate(np.array(points), places).tolist()]
    assert triangulates(points, triangles)
    assert not triangulates(points, [t for t in triangles if not {*t} <= {*range(5)}])
