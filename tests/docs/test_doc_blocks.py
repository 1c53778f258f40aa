"""Every code block of README and documentation runs."""

import doctest
from importlib import import_module

import pytest
from doc_blocks import ROOT, Page, blocks, commands, matches, pages, session

SOURCES = [*ROOT.glob("privopt/**/*.py"), *ROOT.glob("plugins/*/src/**/*.py")]


def _module(path):
    """Return a module's name from its file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[parts.index("src") + 1 :] if "src" in parts else parts).removesuffix(".__init__")


MODULES = sorted(_module(path) for path in SOURCES if ">>>" in path.read_text("utf-8"))


LONG = {ROOT / "docs" / "papers" / name for name in ("fl-linear.md", "hierarchical-dp.md")}
USES = ("bd-mdp", "census-table", "choose-epsilon", "fl-linear", "flows", "hierarchical-dp", "stations")
LONG |= {ROOT / "docs" / "used-for" / f"{name}.md" for name in USES}
LONG |= {ROOT / "docs" / "guide" / f"{name}.md" for name in ("everywhere", "large-city")}
LONG |= {ROOT / "docs" / "how-to" / f"{name}.md" for name in ("gallery", "judge", "reports", "tables", "warehouse")}
LONG |= {ROOT / "docs" / "tutorials" / f"{name}.md" for name in ("every-night", "write-a-plugin")}
LONG |= {ROOT / "docs" / "reference" / "files.md"}
"""Pages whose blocks take more than three seconds of a processor, and run what no other page rests on."""


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.slow] * (path in LONG)) for path in pages()],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_every_block_runs(path, tmp_path):
    Page(path, tmp_path).run()


@pytest.mark.parametrize(("page", "max_lines"), [("README.md", 120), ("docs/index.md", 100)])
def test_first_pages_show_example_and_install(page, max_lines):
    text = (ROOT / page).read_text("utf-8")
    assert len(text.splitlines()) <= max_lines
    for required_text in ("\n![", "uv pip install . ./plugins/*", "make demo", "$ privopt solve ", "how-to/gallery.md"):
        assert required_text in text


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name):
    ran = doctest.testmod(import_module(name))
    assert ran.attempted > 0
    assert ran.failed == 0


def run(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text)
    folder = tmp_path / "folder"
    folder.mkdir()
    page_runner = Page(page, folder)
    page_runner.path = page
    page_runner.run()
    return page_runner


@pytest.mark.parametrize(
    "text",
    [
        "```python\n1 / 0\n```\n",
        "```python\nprint(1)\n```\n\n```text\n2\n```\n",
        "```bash\nfalse\n```\n",
        "```bash\nprivopt describe nothing-like-it\n```\n",
        "```bash\n$ privopt list\nnothing is installed\n```\n",
        "```toml\n[privacy]\nepsilom = 1\n```\n",
        "```toml\n[privacy\n```\n",
        "```text\n$ privopt list\n```\n",
        "```sh\nls\n```\n",
        "```python\nx = 1\n",
    ],
)
def test_finds_wrong_blocks(tmp_path, text):
    with pytest.raises((AssertionError, ZeroDivisionError, ValueError)):
        run(tmp_path, text)


def test_blocks_share_a_page(tmp_path):
    text = "```python\nx = 2\n```\n\n```python\nprint(x + 1)\n```\n\n```text\n3\n```\n"
    text += "```toml\n# a/b.toml\nx = 1\n```\n```bash\n$ cat a/b.toml\n...\nx = 1\n```\n"
    assert run(tmp_path, text).ran == 4


def test_commands_of_a_block():
    assert [block.line for block in blocks("a\n```text\nx\n```\n  ```bash\n  ls\n  ```\n", "p")] == [2, 5]
    assert list(commands("# why\nls \\\n -l\ncat <<'E'\nx\nE\n")) == ["ls  -l", "cat <<'E'\nx\nE"]
    assert list(session("$ ls\na\nb\n$ pwd\n")) == [("ls", "a\nb"), ("pwd", "")]
    assert matches("a ... c\n...\nz", "a b c\n1\n2\nz\n")
    assert not matches("a ... c", "a b d")
