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
    place = tmp_path_factory.mktemp("keys")
    for name in ("alice", "bob"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", place / name], check=True)
        (place / f"{name}.signers").write_text(f"{name}@example.org {(place / f'{name}.pub').read_text()}")
    return place


@pytest.fixture(scope="module")
def signed(solved_toy, keys, tmp_path_factory):
    """Return a DIR that alice signed; copy it before changing anything."""
    folder = shutil.copytree(solved_toy, tmp_path_factory.mktemp("signed") / "out")
    done = run("sign", folder, keys / "alice")
    assert done.exit_code == 0, done.output
    return folder


def test_verify_says_who_signed(signed, keys):
    done = run("verify", signed, "--signed-by", keys / "alice.signers")
    assert done.exit_code == 0
    assert "signed by alice@example.org (ED25519 key SHA256:" in done.stdout
    shown = json.loads(run("verify", signed, "--json", "--signed-by", keys / "alice.signers").stdout)
    assert shown["signed_by"].startswith("alice@example.org (ED25519 key SHA256:")
    assert "signed_by" not in json.loads(run("verify", signed, "--json").stdout)


def test_signers_may_have_several_names(signed, keys, tmp_path):
    (tmp_path / "signers").write_text(f"# who may\nzoe,alice@example.org {(keys / 'alice.pub').read_text()}")
    done = run("verify", signed, "--signed-by", tmp_path / "signers")
    assert done.exit_code == 0
    assert "signed by zoe (ED25519 key" in done.stdout


@pytest.mark.parametrize("pattern", ["*", "*@example.org", "alice?example.org", "*,!bob"])
def test_key_and_no_name_is_said_of_a_pattern_of_signers(signed, keys, tmp_path, pattern):
    (tmp_path / "signers").write_text(f"{pattern} {(keys / 'alice.pub').read_text()}")
    done = run("verify", signed, "--signed-by", tmp_path / "signers")
    assert done.exit_code == 0, done.output
    assert "signed by ED25519 key SHA256:" in done.stdout
    assert "signed by *" not in done.stdout


def test_the_signature_is_openssh_s_own_and_no_part_of_the_sums(signed, keys):
    command = ["ssh-keygen", "-Y", "verify", "-n", NAMESPACE, "-I", "alice@example.org"]
    command += ["-f", keys / "alice.signers", "-s", signed / "SHA256SUMS.sig"]
    subprocess.run(command, input=(signed / "SHA256SUMS").read_bytes(), check=True, capture_output=True)
    assert "SHA256SUMS.sig" not in (signed / "SHA256SUMS").read_text()
    assert check_sums(signed) == []
    assert checker([str(signed)]) == 0


def test_another_key_ends_with_1(signed, keys):
    done = run("verify", signed, "--json", "--signed-by", keys / "bob.signers")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["verdict"] is None
    assert "no signature by whom" in done.stderr


def test_a_changed_folder_ends_with_1_with_mended_sums_too(signed, keys, tmp_path):
    folder = shutil.copytree(signed, tmp_path / "changed")
    (folder / "problem" / "prior.csv").write_text("id,p\n")
    assert run("verify", folder, "--signed-by", keys / "alice.signers").exit_code == 1
    shutil.copytree(signed, tmp_path / "mended")
    folder = edit(tmp_path / "mended", lambda result: result["time"].update(total=1.0))
    assert run("verify", folder).exit_code == 0
    assert run("verify", folder, "--signed-by", keys / "alice.signers").exit_code == 1


def test_a_signature_for_another_purpose_is_none(signed, keys, tmp_path):
    folder = shutil.copytree(signed, tmp_path / "out")
    command = ["ssh-keygen", "-Y", "sign", "-n", "git", "-f", keys / "alice"]
    made = subprocess.run(command, input=(folder / "SHA256SUMS").read_bytes(), check=True, capture_output=True)
    (folder / "SHA256SUMS.sig").write_bytes(made.stdout)
    assert run("verify", folder, "--signed-by", keys / "alice.signers").exit_code == 1


def test_an_unsigned_folder_ends_with_1(solved_toy, keys):
    done = run("verify", solved_toy, "--signed-by", keys / "alice.signers")
    assert done.exit_code == 1
    assert "privopt sign DIR KEY" in done.stderr


def test_a_folder_that_does_not_hold_is_not_signed(solved_toy, keys, tmp_path):
    folder = shutil.copytree(solved_toy, tmp_path / "forged")
    edit(folder, lambda result: result["guarantee"].update(epsilon=0.1, epsilon_text="0.1"))
    assert run("sign", folder, keys / "alice").exit_code == 1
    assert not (folder / "SHA256SUMS.sig").exists()


def test_a_signature_is_replaced_by_force_alone(signed, keys, tmp_path):
    folder = shutil.copytree(signed, tmp_path / "out")
    assert run("sign", folder, keys / "bob").exit_code == 2
    assert run("sign", folder, keys / "bob", "--force").exit_code == 0
    assert run("verify", folder, "--signed-by", keys / "bob.signers").exit_code == 0


def test_a_file_of_that_name_in_private_is_still_refused(signed, tmp_path):
    folder = shutil.copytree(signed, tmp_path / "out")
    (folder / "private").mkdir()
    (folder / "private" / "SHA256SUMS").write_text("")
    (folder / "private" / "SHA256SUMS.sig").write_text("")
    assert check_sums(mend(folder)) == ["private/SHA256SUMS.sig: not listed in SHA256SUMS"]


def test_without_ssh_keygen_or_a_key_nothing_is_begun(signed, keys, tmp_path, monkeypatch):
    problem = write_toy(tmp_path / "toy")
    none = run("solve", "optimal-lp", problem, "--out", tmp_path / "out", "--sign", tmp_path / "none")
    assert (none.exit_code, (tmp_path / "out").exists()) == (2, False)
    (tmp_path / "text").write_text("no key\n")
    assert run("sign", signed, tmp_path / "text", "--force").exit_code == 2
    assert run("verify", signed, "--signed-by", tmp_path / "none").exit_code == 2
    monkeypatch.setenv("PATH", str(tmp_path))
    done = run("verify", signed, "--signed-by", keys / "alice.signers")
    assert done.exit_code == 2
    assert "install OpenSSH" in done.stderr


def test_solve_signs_what_it_wrote(keys, tmp_path):
    problem = write_toy(tmp_path / "toy")
    command = ["solve", "optimal-lp", problem, "--out", tmp_path / "out", "--quiet", "--sign", keys / "alice"]
    assert run(*command).exit_code == 0
    assert run("verify", tmp_path / "out", "--signed-by", keys / "alice.signers").exit_code == 0
