"""A file is digested where it stands; what is not a regular file is named and never opened."""

import contextlib
import hashlib
import io
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tallystick.core.errors import InvalidInput
from tallystick.verifiers import Answer, Verdict
from tallystick.verifiers.files import FileUnreadable, file_state


def test_a_regular_file_shows_its_digest_size_and_mode(tmp_path: Path) -> None:
    path = tmp_path / "report.txt"
    path.write_bytes(b"paid\n")
    path.chmod(0o640)
    assert file_state(path) == {
        "kind": "file",
        "sha256": hashlib.sha256(b"paid\n").hexdigest(),
        "size": 5,
        "mode": "0640",
    }


def test_a_path_may_be_text(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    assert file_state(str(tmp_path / "a")) == file_state(tmp_path / "a")


def test_an_empty_file_is_there_and_not_absent(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    state = file_state(tmp_path / "empty")
    assert state is not None
    assert state["size"] == 0
    assert state["sha256"] == hashlib.sha256().hexdigest()


def test_a_file_of_many_pieces_has_the_digest_of_the_whole(tmp_path: Path) -> None:
    data = os.urandom(3 * 1024 * 1024 + 17)
    (tmp_path / "big").write_bytes(data)
    state = file_state(tmp_path / "big")
    assert state is not None
    assert state["sha256"] == hashlib.sha256(data).hexdigest()
    assert state["size"] == len(data)


def test_setuid_and_sticky_bits_show_in_the_mode(tmp_path: Path) -> None:
    path = tmp_path / "tool"
    path.touch()
    path.chmod(0o4755)
    state = file_state(path)
    assert state is not None
    assert state["mode"] == "4755"


def test_an_absent_file_is_an_answer(tmp_path: Path) -> None:
    assert file_state(tmp_path / "never") is None


def test_a_file_in_an_absent_folder_is_absent(tmp_path: Path) -> None:
    assert file_state(tmp_path / "no" / "folder") is None


def test_a_file_below_a_file_is_absent(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert file_state(tmp_path / "a" / "b") is None


def test_a_symbolic_link_is_named_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"secret")
    (tmp_path / "link").symlink_to("real")
    assert file_state(tmp_path / "link") == {"kind": "symlink", "target": "real"}


def test_a_link_to_nothing_is_there(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    assert file_state(tmp_path / "link") == {"kind": "symlink", "target": "nowhere"}


def test_a_folder_and_a_pipe_and_a_device_are_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert file_state(tmp_path) == {"kind": "directory"}
    assert file_state(tmp_path / "pipe") == {"kind": "fifo"}
    assert file_state("/dev/null") == {"kind": "device"}


def test_a_socket_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket may be 107 bytes long at most
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("s")
        assert file_state("s") == {"kind": "socket"}


def test_a_file_that_grows_under_the_reader_is_no_evidence() -> None:
    # The kernel says that this regular file has size 0, and more than that is read from it.
    path = Path("/proc/self/status")
    if not path.exists():
        pytest.skip("needs /proc")
    with pytest.raises(FileUnreadable, match="changed while it was being read"):
        file_state(path)


def test_a_file_that_is_rewritten_under_the_reader_is_no_evidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report"
    path.write_bytes(b"paid")
    digest = hashlib.file_digest

    def rewrite_and_digest(file: io.FileIO, name: str) -> object:
        path.write_bytes(b"owed")
        os.utime(path, (1, 1))  # so that the test does not hang on how fine the file's clock is
        return digest(file, name)

    with monkeypatch.context() as patched:
        patched.setattr(hashlib, "file_digest", rewrite_and_digest)
        with pytest.raises(FileUnreadable, match="changed while it was being read"):
            file_state(path)


@pytest.mark.parametrize("swap", ["link", "pipe"])
def test_a_file_that_is_swapped_before_it_is_opened_is_neither_followed_nor_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swap: str
) -> None:
    path = tmp_path / "report"
    path.write_bytes(b"paid")
    (tmp_path / "other").write_bytes(b"secret")
    look = os.lstat

    def look_and_swap(at: str) -> os.stat_result:
        seen = look(at)
        if at == str(path):
            path.unlink()
            path.symlink_to("other") if swap == "link" else os.mkfifo(path)
        return seen

    with monkeypatch.context() as patched:
        patched.setattr(os, "lstat", look_and_swap)
        with pytest.raises(FileUnreadable, match=r"replaced|symbolic links"):
            file_state(path)


def test_a_loop_of_links_above_the_file_is_an_error_that_names_the_path(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(FileUnreadable, match=r"loop/file'.*proves neither"):
        file_state(tmp_path / "loop" / "file")


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Root may read everything: for a while, be somebody else."""
    me = os.geteuid()
    if me == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(me)


def test_a_file_that_may_not_be_read_is_an_error_and_not_absent(tmp_path: Path) -> None:
    path = tmp_path / "closed"
    path.touch(mode=0o000)
    with as_nobody(), pytest.raises(FileUnreadable, match="Permission denied"):
        file_state(path)


def test_a_name_that_the_system_refuses_is_an_error_and_not_absent(tmp_path: Path) -> None:
    with pytest.raises(FileUnreadable, match="name too long"):
        file_state(tmp_path / ("x" * 300))


def test_a_path_with_a_nul_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"^path: 'a\\x00b' cannot exist"):
        file_state("a\x00b")


def test_a_replaced_file_fails_with_the_paths_that_differ(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_bytes(b"new")
    wanted = file_state(path)
    path.unlink()
    path.symlink_to("/etc/passwd")
    verdict = Verdict.equal(expected=wanted, observed=file_state(path))
    assert verdict.answer is Answer.FAILS
    assert verdict.difference["kind"] == {"expected": "file", "observed": "symlink"}
