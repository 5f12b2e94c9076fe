"""What is found on this machine."""

import base64
from pathlib import Path

import pytest

from tallystick.approvals import create
from tallystick.jobs import doctor_local
from tallystick.jobs.checks.facts import Denied, KeyFolder
from tallystick.jobs.doctor_local import filesystem, key_folder, private_spellings


def folder_of(path: Path) -> KeyFolder:
    found = key_folder(path, chosen=True)
    assert isinstance(found, KeyFolder)
    return found


def test_an_empty_folder_has_neither_key(tmp_path: Path) -> None:
    found = folder_of(tmp_path)
    assert (found.mode, found.public, found.trusted) == (None, "", None)
    assert folder_of(tmp_path / "none").trusted is None


def test_keys_as_they_are_made_are_found_with_their_modes(tmp_path: Path) -> None:
    signer = create(tmp_path / "keys")
    found = folder_of(tmp_path / "keys")
    assert (found.mode, found.folder_mode, found.public) == (0o600, 0o700, signer.public)
    assert found.trusted == {signer.key_id: signer.public}


@pytest.mark.parametrize("text", ["", "zz", "abcd", "ü"])
def test_a_private_key_that_is_none_is_a_problem(tmp_path: Path, text: str) -> None:
    (tmp_path / "approval.key").write_text(text)
    assert "approval.key is not usable" in folder_of(tmp_path).private_problem
    assert private_spellings(tmp_path) == ()


@pytest.mark.parametrize("text", ["", "[]", "{", '"x"', "3"])
def test_a_list_of_trusted_keys_that_is_none_is_a_problem(tmp_path: Path, text: str) -> None:
    (tmp_path / "trusted.json").write_text(text)
    assert "trusted.json is not usable" in folder_of(tmp_path).trusted_problem


def test_a_folder_that_cannot_be_read_is_denied(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = key_folder(tmp_path / "file", chosen=True)
    assert found == Denied(f"read {tmp_path / 'file' / 'approval.key'}", "Not a directory")


def test_a_private_key_is_looked_for_as_people_would_have_written_it(tmp_path: Path) -> None:
    raw = bytes(create(tmp_path).key)
    for written in (raw, raw.hex().encode(), raw.hex().upper().encode(), base64.b64encode(raw)):
        assert any(spelling in b"key=" + written for spelling in private_spellings(tmp_path))
    assert private_spellings(tmp_path / "none") == ()


MOUNTS = """\
1 0 8:1 / / rw - ext4 /dev/root rw
2 1 0:1 / /run rw,nosuid shared:1 - tmpfs tmpfs rw
3 1 0:2 / /run/user\\040data rw - overlay none rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/x", "ext4"),
        ("/run/x", "tmpfs"),
        ("/run", "tmpfs"),
        ("/running", "ext4"),
        ("/run/user data/x", "overlay"),
    ],
)
def test_the_file_system_is_that_of_the_nearest_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, kind: str
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    monkeypatch.setattr(doctor_local, "_MOUNTS", mounts)
    assert filesystem(Path(path)) == kind


def test_where_the_kernel_does_not_tell_the_file_system_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_local, "_MOUNTS", tmp_path / "none")
    assert filesystem(tmp_path) == ""


def test_rq_is_the_installed_one() -> None:
    assert doctor_local.rq_version().startswith("3.")
