"""Real primaries, replicas and sentinels on loopback, with a bad network between them."""

import contextlib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tallystick.core.errors import StoreError
from tallystick.jobs.connection import connect
from tallystick.jobs.store import Store
from tests.server.conftest import Launch, Server, command, eventually, program
from tests.server.link import Link
from tests.server.test_topologies import free_port


@dataclass
class Pair:
    """A primary, and a replica that follows it over a link."""

    primary: Server
    replica: Server
    link: Link

    def in_step(self) -> None:
        """Wait until the replica has all that the primary has."""
        eventually(lambda: _moves(self.replica) == _moves(self.primary), "the replica has it all")

    def fail_over(self) -> None:
        """The primary dies, and the replica is promoted as it is."""
        self.primary.stop()
        self.promote()

    def promote(self) -> None:
        """Make the replica a primary."""
        command(self.replica, "REPLICAOF", "NO", "ONE")


@contextmanager
def pair(launch: Launch, **options: str) -> Iterator[Pair]:
    """A pair that is in step; both have these options."""
    common = {"bind": "127.0.0.1", "repl_diskless_sync_delay": "0", **options}
    primary = launch(port=str(free_port()), **common)
    link = Link(("127.0.0.1", 0), ("127.0.0.1", int(primary.options["port"])))
    with contextlib.closing(link):
        replica = launch(port=str(free_port()), replicaof=f"127.0.0.1 {link.port}", **common)
        eventually(lambda: _online(primary), "the replica is online")
        yield Pair(primary, replica, link)


def follow(launch: Launch, primary: Server, **options: str) -> Server:
    """Another replica, straight at its primary."""
    place = f"127.0.0.1 {primary.options['port']}"
    replica = launch(port=str(free_port()), bind="127.0.0.1", replicaof=place, **options)
    eventually(lambda: _online(primary), "the new replica is online")
    return replica


@contextmanager
def watched(primary: Server, folder: Path, *, down_after_ms: int = 1500) -> Iterator[str]:
    """A sentinel that knows the primary and its replica; the URL to reach them by."""
    port, config = free_port(), folder / "sentinel.conf"
    config.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {folder}\n"
        f"sentinel monitor tally 127.0.0.1 {primary.options['port']} 1\n"
        f"sentinel down-after-milliseconds tally {down_after_ms}\n"
        "sentinel failover-timeout tally 2000\n"
    )
    command_line = [program(), str(config), "--sentinel"]
    watcher = subprocess.Popen(command_line, stdout=subprocess.DEVNULL, start_new_session=True)
    asked = connect(f"redis://127.0.0.1:{port}", timeout=2, retries=False, decode=True)

    def knows_the_replica() -> bool:
        with contextlib.suppress(Exception):
            return bool(asked.sentinel_slaves("tally"))
        return False

    try:
        eventually(knows_the_replica, "the sentinel knows the replica")
        yield f"redis+sentinel://127.0.0.1:{port}/tally/0"
    finally:
        asked.close()
        watcher.kill()
        watcher.wait(10)


def switched(store: Store) -> None:
    """Wait until whoever leads to the primary leads to one that takes writes."""

    def takes_writes() -> bool:
        with contextlib.suppress(StoreError):
            store.check_writable()
            return True
        return False

    eventually(takes_writes, "the replica is promoted", seconds=60)


def _online(primary: Server) -> bool:
    info = command(primary, "INFO", "replication")
    return bool(info.get("slave0", {}).get("state") == "online")


def _moves(server: Server) -> int:
    store = Store.connect(server.url, "tallystick", timeout=5)
    with contextlib.closing(store), contextlib.suppress(StoreError):
        return store.history().tail.moves
    return -1
