"""A site whose workers know the action types of these cases."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tallystick.jobs.connection import connect
from tests.cases import actions
from tests.crash.processes import STOPPED, children, status
from tests.server.conftest import Server, Site, eventually, opened, server

__all__ = ["server", "site"]


@pytest.fixture
def lease() -> float:
    """Seconds; a test may ask for another by parametrizing it."""
    return 2


@pytest.fixture
def site(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, lease: float
) -> Iterator[Site]:
    with opened(tmp_path, server, actions.MODULE, monkeypatch, lease=lease) as found:
        yield found


# --- short forms ---------------------------------------------------------------------------------


def command(site: Site, *words: object) -> Any:
    """What the server answers to a command."""
    client = connect(site.server.url, timeout=5, retries=False, decode=True)
    try:
        return client.execute_command(*words)  # type: ignore[no-untyped-call]
    finally:
        client.close()


def forget_rq(site: Site) -> None:
    """Take away every key that RQ keeps."""
    if keys := command(site, "KEYS", "rq:*"):
        command(site, "DEL", *keys)


def depth(site: Site) -> int:
    """How many wake-ups lie in the queue."""
    assert site.tally.transport
    return site.tally.transport.depth()


def wake(site: Site, id: str, times: int) -> None:
    """Put so many wake-ups for one action into the queue."""
    assert site.tally.transport
    for number in range(times):
        site.tally.transport.wake(id, f"again-{number}")


def gone(site: Site, number: int = 0) -> bool:
    """Whether this worker has ended."""
    return site.workers[number].poll() is not None


def horse_of(worker: subprocess.Popen[bytes]) -> int:
    """The pid of the one work-horse of this worker, once it is up."""
    (pid,) = eventually(lambda: children(worker.pid), "the work-horse is up")
    return int(pid)


def frozen(worker: subprocess.Popen[bytes]) -> int:
    """The pid of its work-horse, once both have stopped."""
    horse = horse_of(worker)
    eventually(lambda: status(horse) in STOPPED, "worker and work-horse are frozen")
    return horse


def alerts(site: Site, id: str) -> list[str]:
    """The alerts of this action that some worker has delivered, or that still wait."""
    waiting = [text for text in site.tally.store.alerts() if id in text]
    lines = [line for number in range(len(site.workers)) for line in site.log(number).splitlines()]
    return waiting + [line for line in lines if "ALERT" in line and id in line]
