"""What `init` writes: never over what it reads, into new folders too, and over older files only once all is whole."""

import errno
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from helpers.charging import run_command
from helpers.mentions import assert_mentions

from privopt.run.solve import solve
from privopt.run.verify import verify

POINTS = "id,lat,lon\na,41.9,12.5\nb,41.91,12.5\nc,41.9,12.51\n"
POSITIONS = 'id,position\na,"41.9, 12.5"\nb,"41.91, 12.5"\nc,"41.9, 12.51"\n'
ROADS = "from,to,km\na,b,1\nb,c,1\nc,a,1\n"
PEOPLE = "level_1,level_2,sex\nall,x,m\nall,x,f\nall,y,m\n"
WORDS = "".join(f"word{n} {n} {n * n % 7} {n % 3}\n" for n in range(1, 25))

SOURCES = {
    "points": ("exponential", {"--points": ("t.csv", POINTS)}, ()),
    "roads": ("exponential", {"--points": ("t.csv", POINTS), "--roads": ("r.csv", ROADS)}, ()),
    "positions": ("exponential", {"--points": ("t.csv", POSITIONS)}, ("p-points.csv",)),
    "text vectors": ("exponential", {"--vectors": ("v.txt", WORDS)}, ("p-vectors.npy", "p-words.txt")),
    "people": ("hierarchical-tables", {"--points": ("t.csv", PEOPLE)}, ("p-regions.csv",)),
}
"""The mechanism, the options with the name and text of each input, and the files that come beside the problem."""


def write_inputs(folder, name):
    """Write the inputs of a case into a folder, and return the command without ``--out``."""
    mechanism, options, _ = SOURCES[name]
    words = ["init", mechanism]
    for option, (file_name, text) in options.items():
        (folder / file_name).write_text(text)
        words += [option, folder / file_name]
    return words


def contents_of(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("link", ["same", "hard", "symbolic", "folder"])
@pytest.mark.parametrize("name", SOURCES)
def test_inputs_are_not_overwritten(tmp_path, name, link):
    home = tmp_path / "home"
    home.mkdir()
    words = write_inputs(home, name)
    for number, source in enumerate(word for word in words if isinstance(word, Path)):
        target = source if link == "same" else tmp_path / f"link-{number}" / source.name
        if link == "folder":
            target.parent.symlink_to(home)
        elif link != "same":
            target.parent.mkdir()
            target.hardlink_to(source) if link == "hard" else target.symlink_to(source)
        before = contents_of(home)
        code, _, err = run_command(*words, "--out", target, "--force")
        assert code == 2, err
        assert_mentions(err, f"--out {target}", "is an input")
        assert contents_of(home) == before


@pytest.mark.parametrize("name", [name for name, case in SOURCES.items() if case[2]])
def test_inputs_are_not_overwritten_by_tables_beside_the_problem(tmp_path, name):
    words = write_inputs(tmp_path, name)
    for file_name in SOURCES[name][2]:
        # The input gets the name that a table beside the problem file would have.
        renamed = tmp_path / file_name
        shutil.copyfile(words[-1], renamed)
        before = contents_of(tmp_path)
        code, _, err = run_command(*words[:-1], renamed, "--out", tmp_path / "p.toml", "--force")
        assert code == 2, err
        assert "is an input" in err
        assert contents_of(tmp_path) == before
        renamed.unlink()


@pytest.mark.parametrize("name", SOURCES)
def test_folders_of_the_problem_are_created(tmp_path, name, monkeypatch):
    words = write_inputs(tmp_path, name)
    monkeypatch.chdir(tmp_path)
    relative = [word.name if isinstance(word, Path) else word for word in words]
    code, _, err = run_command(*relative, "--out", "new/folder/p.toml")
    assert code == 0, err
    assert {path.name for path in Path("new/folder").iterdir()} == {"p.toml", *SOURCES[name][2]}
    if name != "people":
        solve("exponential", Path("new/folder/p.toml"), Path("out"))
        assert verify(Path("out")).holds


@pytest.mark.parametrize("name", ["points", "positions", "text vectors"])
def test_refused_drafts_leave_no_folder(tmp_path, name):
    words = write_inputs(tmp_path, name)
    words[-1].write_text(words[-1].read_text().partition("\n")[0] + "\n")
    before = contents_of(tmp_path)
    code, _, err = run_command(*words, "--out", tmp_path / "new" / "folder" / "p.toml")
    assert code == 2, err
    assert contents_of(tmp_path) == before
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", [name for name, case in SOURCES.items() if case[2]])
@pytest.mark.parametrize("fault", ["refused", "full disk"])
def test_older_files_stay_if_the_draft_fails(tmp_path, name, fault, monkeypatch):
    words = write_inputs(tmp_path, name)
    code, _, err = run_command(*words, "--out", tmp_path / "p.toml")
    assert code == 0, err
    older = {file_name: (tmp_path / file_name).read_bytes() for file_name in ("p.toml", *SOURCES[name][2])}
    if fault == "refused":
        # The tables are recognised and converted, but the problem is refused: all places are one, and so are all words.
        # A table of people is refused earlier.
        first, *lines = words[-1].read_text().splitlines()
        cells = first.split(" ", 1)[1] if name == "text vectors" else '"41.9, 12.5"'
        text = {
            "positions": "\n".join([first, *(f"{line.split(',')[0]},{cells}" for line in lines)]),
            "text vectors": "\n".join(f"{line.split(' ')[0]} {cells}" for line in [first, *lines]),
            "people": "level_1,level_2,sex\n",
        }[name]
        words[-1].write_text(f"{text}\n")
    else:
        words[-1].write_text(words[-1].read_text().replace("b,", "z,").replace("word3", "zebra").replace("y,m", "z,m"))
        original = Path.write_bytes, Path.write_text

        def refuse(path, contents, *arguments, **options):
            if path.parent.name.endswith(".writing") and path.name == "p.toml":
                raise OSError(errno.ENOSPC, "No space left on device", str(path))
            return original[isinstance(contents, str)](path, contents, *arguments, **options)

        monkeypatch.setattr(Path, "write_bytes", refuse)
        monkeypatch.setattr(Path, "write_text", refuse)
    code, _, err = run_command(*words, "--out", tmp_path / "p.toml", "--force")
    assert code == (2 if fault == "refused" else 5), err
    assert {file_name: (tmp_path / file_name).read_bytes() for file_name in older} == older
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_force_replaces_all_files_together(tmp_path):
    words = write_inputs(tmp_path, "text vectors")
    assert run_command(*words, "--out", tmp_path / "p.toml")[0] == 0
    words[-1].write_text(WORDS.replace("word3 ", "zebra "))
    code, _, err = run_command(*words, "--out", tmp_path / "p.toml", "--force")
    assert code == 0, err
    assert "zebra" in (tmp_path / "p-words.txt").read_text().split()
    assert np.load(tmp_path / "p-vectors.npy").shape == (24, 3)
    solve("exponential", tmp_path / "p.toml", tmp_path / "out")


@pytest.mark.parametrize(
    ("first", "second"), [("--lat", "--lon"), ("--lat", "--id"), ("--lon", "--id"), ("--id", "--geometry")]
)
def test_one_column_is_not_taken_twice(tmp_path, first, second):
    columns = {"--lat": "lat", "--lon": "lon", "--id": "id", "--geometry": "place"}
    given = {first: columns[first], second: columns[first]}
    for axis, other in (("--lat", "--lon"), ("--lon", "--lat")):
        if axis in given:
            given.setdefault(other, columns[other])
    table = pl.DataFrame({"id": ["a", "b"], "lat": [41.9, 41.91], "lon": [12.5, 12.51], "place": ["41.9, 12.5"] * 2})
    table.write_csv(tmp_path / "t.csv")
    options = [word for pair in given.items() for word in pair]
    code, _, err = run_command(
        "init", "exponential", "--points", tmp_path / "t.csv", *options, "--out", tmp_path / "p.toml"
    )
    assert code == 2, err
    assert_mentions(err, first, second, "must name different columns", given[first])
    assert not (tmp_path / "p.toml").exists()
