"""A folder is signed by OpenSSH over SHA256SUMS: who signed it is said, and another key or a change is refused."""

import json
import shutil
import subprocess

import pytest
from helpers.command import run
from helpers.mended_sums import edit, mend
from helpers.toys import write_toy

from privopt.checker.run import main as checker
from privopt.files.release_folder import check_sums
from privopt.run.signatures import NAMESPACE

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="signatures need ssh-keygen")


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Return a private key, who may sign with it, and who may sign with another one."""
    key_folder = tmp_path_factory.mktemp("keys")
    for name in ("alice", "bob"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", key_folder / name], check=True)
        (key_folder / f"{name}.signers").write_text(f"{name}@example.org {(key_folder / f'{name}.pub').read_text()}")
    return key_folder


@pytest.fixture(scope="module")
def signed_folder(solved_toy, keys, tmp_path_factory):
    """Return a DIR that alice signed; copy it before changing anything."""
    folder = shutil.copytree(solved_toy, tmp_path_factory.mktemp("signed") / "out")
    completed = run("sign", folder, keys / "alice")
    assert completed.exit_code == 0, completed.output
    return folder


def test_verify_says_who_signed(signed_folder, keys):
    completed = run("verify", signed_folder, "--signed-by", keys / "alice.signers")
    assert completed.exit_code == 0
    assert "by alice@example.org (ED25519" in completed.stdout
    summary = json.loads(run("verify", signed_folder, "--json", "--signed-by", keys / "alice.signers").stdout)
    assert summary["signed_by"].startswith("alice@example.org (ED25519 key")
    assert "signed_by" not in json.loads(run("verify", signed_folder, "--json").stdout)


def test_signers_may_have_several_names(signed_folder, keys, tmp_path):
    (tmp_path / "signers").write_text(f"# who may\nzoe,alice@example.org {(keys / 'alice.pub').read_text()}")
    completed = run("verify", signed_folder, "--signed-by", tmp_path / "signers")
    assert completed.exit_code == 0
    assert "by zoe (ED25519" in completed.stdout


@pytest.mark.parametrize("pattern", ["*", "*@example.org", "alice?example.org", "*,!bob"])
def test_pattern_of_signers_shows_only_the_key(signed_folder, keys, tmp_path, pattern):
    (tmp_path / "signers").write_text(f"{pattern} {(keys / 'alice.pub').read_text()}")
    completed = run("verify", signed_folder, "--signed-by", tmp_path / "signers")
    assert completed.exit_code == 0, completed.output
    assert "signed by ED25519" in completed.stdout
    assert "signed by *" not in completed.stdout


def test_signature_is_openssh_and_not_in_sums(signed_folder, keys):
    command = ["ssh-keygen", "-Y", "verify", "-n", NAMESPACE, "-I", "alice@example.org"]
    command += ["-f", keys / "alice.signers", "-s", signed_folder / "SHA256SUMS.sig"]
    subprocess.run(command, input=(signed_folder / "SHA256SUMS").read_bytes(), check=True, capture_output=True)
    assert "SHA256SUMS.sig" not in (signed_folder / "SHA256SUMS").read_text()
    assert check_sums(signed_folder) == []
    assert checker([str(signed_folder)]) == 0


def test_another_key_exits_1(signed_folder, keys):
    completed = run("verify", signed_folder, "--json", "--signed-by", keys / "bob.signers")
    assert completed.exit_code == 1
    assert json.loads(completed.stdout)["verdict"] is None
    assert "no signature by" in completed.stderr


def test_changed_folder_exits_1_even_with_new_sums(signed_folder, keys, tmp_path):
    folder = shutil.copytree(signed_folder, tmp_path / "changed")
    (folder / "problem" / "prior.csv").write_text("id,p\n")
    assert run("verify", folder, "--signed-by", keys / "alice.signers").exit_code == 1
    shutil.copytree(signed_folder, tmp_path / "mended")
    folder = edit(tmp_path / "mended", lambda result: result["time"].update(total=1.0))
    assert run("verify", folder).exit_code == 0
    assert run("verify", folder, "--signed-by", keys / "alice.signers").exit_code == 1


def test_signature_for_another_purpose_is_none(signed_folder, keys, tmp_path):
    folder = shutil.copytree(signed_folder, tmp_path / "out")
    command = ["ssh-keygen", "-Y", "sign", "-n", "git", "-f", keys / "alice"]
    signing = subprocess.run(command, input=(folder / "SHA256SUMS").read_bytes(), check=True, capture_output=True)
    (folder / "SHA256SUMS.sig").write_bytes(signing.stdout)
    assert run("verify", folder, "--signed-by", keys / "alice.signers").exit_code == 1


def test_unsigned_folder_exits_1(solved_toy, keys):
    completed = run("verify", solved_toy, "--signed-by", keys / "alice.signers")
    assert completed.exit_code == 1
    assert "privopt sign DIR" in completed.stderr


def test_does_not_sign_invalid_folders(solved_toy, keys, tmp_path):
    folder = shutil.copytree(solved_toy, tmp_path / "forged")
    edit(folder, lambda result: result["guarantee"].update(epsilon=0.1, epsilon_text="0.1"))
    assert run("sign", folder, keys / "alice").exit_code == 1
    assert not (folder / "SHA256SUMS.sig").exists()


def test_replaces_signature_only_with_force(signed_folder, keys, tmp_path):
    folder = shutil.copytree(signed_folder, tmp_path / "out")
    assert run("sign", folder, keys / "bob").exit_code == 2
    assert run("sign", folder, keys / "bob", "--force").exit_code == 0
    assert run("verify", folder, "--signed-by", keys / "bob.signers").exit_code == 0


def test_refuses_signature_file_in_private(signed_folder, tmp_path):
    folder = shutil.copytree(signed_folder, tmp_path / "out")
    (folder / "private").mkdir()
    (folder / "private" / "SHA256SUMS").write_text("")
    (folder / "private" / "SHA256SUMS.sig").write_text("")
    assert [line.partition(":")[0] for line in check_sums(mend(folder))] == ["private/SHA256SUMS.sig"]


def test_needs_ssh_keygen_and_a_key(signed_folder, keys, tmp_path, monkeypatch):
    problem = write_toy(tmp_path / "toy")
    without_key = run("solve", "optimal-lp", problem, "--out", tmp_path / "out", "--sign", tmp_path / "none")
    assert (without_key.exit_code, (tmp_path / "out").exists()) == (2, False)
    (tmp_path / "text").write_text("no key\n")
    assert run("sign", signed_folder, tmp_path / "text", "--force").exit_code == 2
    assert run("verify", signed_folder, "--signed-by", tmp_path / "none").exit_code == 2
    monkeypatch.setenv("PATH", str(tmp_path))
    completed = run("verify", signed_folder, "--signed-by", keys / "alice.signers")
    assert completed.exit_code == 2
    assert "install OpenSSH" in completed.stderr


def test_solve_signs_its_release(keys, tmp_path):
    problem = write_toy(tmp_path / "toy")
    command = ["solve", "optimal-lp", problem, "--out", tmp_path / "out", "--quiet", "--sign", keys / "alice"]
    assert run(*command).exit_code == 0
    assert run("verify", tmp_path / "out", "--signed-by", keys / "alice.signers").exit_code == 0
