"""`solve` names the files that are published with a release, and no secret file among them."""

from types import SimpleNamespace

from privopt.command.terminal import _describe_published_files


def test_secret_files_are_counted_and_not_named(tmp_path):
    for name in ("p.toml", "sites.csv"):
        (tmp_path / name).write_text("")
    outcome = SimpleNamespace(is_private=False, secret_names=("sites.csv",))
    row = _describe_published_files(outcome, tmp_path)
    assert row == ("published", "with the release: p.toml, and noisy results from 1 secret file")
    open_outcome = SimpleNamespace(is_private=False, secret_names=())
    assert _describe_published_files(open_outcome, tmp_path)[1] == "with the release: p.toml, sites.csv"
    assert "p.toml" not in "".join(_describe_published_files(SimpleNamespace(is_private=True), tmp_path))
