"""How long a scrape takes with many stored actions.

    python -m benchmarks.scrape [--actions 100000] [--scrapes 30]

It starts a private durable server, stores actions of 20 types in it (a third waits, a third was
rejected, a third was cancelled), and scrapes a real exporter over HTTP with a hundredth of them and
with all.
The aim: under 50 ms with 100,000 actions, and no more than with 1,000.
"""

import argparse
import http.client
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from tallystick import Action, Context, OutOfBand
from tallystick.jobs.connection import Client, connect
from tallystick.jobs.embedded import EmbeddedServer
from tallystick.jobs.registry import Registry
from tallystick.jobs.service import Tallystick
from tallystick.jobs.settings import Settings
from tallystick.jobs.states import OPEN, State
from tallystick.metrics.collector import Collector
from tallystick.metrics.exporter import Server, serve


class Nothing(Action):
    """Does nothing, nowhere."""

    name = "benchmark.nothing"
    rollback = OutOfBand("none: this is a benchmark")

    class Params(BaseModel):
        pass

    def execute(self, params: Any, context: Context) -> None: ...


TYPES = [type(f"Kind{n}", (Nothing,), {"name": f"benchmark.kind-{n}"}) for n in range(20)]
"""As many types as one team may have: the number of series follows from them."""

STATES = (State.WAITING_FOR_APPROVAL, State.REJECTED, State.CANCELLED)
_BATCH = 1000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--actions", type=int, default=100_000)
    parser.add_argument("--scrapes", type=int, default=30)
    given = parser.parse_args()
    table = Table(box=None, header_style="dim")
    for column in ("actions", "median ms", "slowest ms", "of it Redis, ms", "bytes", "series"):
        table.add_column(column, justify="right")
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer.join(Path(folder)) as server:
        settings = Settings.load(redis_url=server.url, data_dir=Path(folder))
        tally = Tallystick.from_settings(settings, actions=())
        tally.registry = Registry(TYPES)
        client = connect(server.url, timeout=60, retries=False, decode=True)
        client.config_set("appendfsync", "no")  # the copies need not outlive the benchmark
        with exporter(tally) as scraped:
            stored = 0
            for count in (max(given.actions // 100, 1), given.actions):
                store(tally, client, stored, count)
                stored = count
                table.add_row(*measured(scraped, count, given.scrapes))
        client.close()
        tally.close()
    Console().print(table)


def exporter(tally: Tallystick) -> Server:
    """A real one, on a free port."""
    transport = tally.transport
    assert transport is not None
    collector = Collector(
        lambda: tally.store.snapshot(queue_depth=transport.depth()),
        tally.registry.names(),
        list(State),
        sorted(OPEN),
    )
    return serve(collector, port=0)


def store(tally: Tallystick, client: Client, first: int, last: int) -> None:
    """Store actions with these numbers: one of each kind is real, the others are its copies."""
    originals = [original(tally, kind.name, state) for kind in TYPES for state in STATES]
    keys = tally.store.keys
    for begin in range(first, last, _BATCH):
        pipe = client.pipeline(transaction=False)
        for number in range(begin, min(begin + _BATCH, last)):
            id, state = originals[number % len(originals)]
            copy = f"{number:016x}"
            pipe.copy(keys.action(id), keys.action(copy))
            pipe.copy(keys.journal(id), keys.journal(copy))
            pipe.set(keys.idempotency(f"copy-{copy}"), f"{copy} sha256:{'0' * 64}")
            pipe.zadd(keys.index(state), {copy: number})
            if state is State.WAITING_FOR_APPROVAL:
                pipe.zadd(keys.due, {copy: 2e12})
        pipe.execute()


def original(tally: Tallystick, name: str, state: State) -> tuple[str, State]:
    """A real action of this type in this state."""
    key = f"{name}-{state}"
    id = tally.propose(name, {}, key=key, by="producer").id
    if state is State.REJECTED:
        tally.reject(id, by="approver", reason="no")
    elif state is State.CANCELLED:
        tally.cancel(id, by="producer")
    return id, state


def measured(server: Server, actions: int, scrapes: int) -> list[str]:
    """Scrape so often; a row of the table."""
    times, inner, body = [], [], b""
    for _ in range(scrapes):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        began = time.perf_counter()
        connection.request("GET", "/metrics", headers={"Accept": "application/openmetrics-text"})
        body = connection.getresponse().read()
        times.append((time.perf_counter() - began) * 1000)
        connection.close()
        inner.append(collect_seconds(body) * 1000)
    series = sum(1 for line in body.splitlines() if not line.startswith(b"#"))
    return [
        f"{actions:,}",
        f"{statistics.median(times):.1f}",
        f"{max(times):.1f}",
        f"{statistics.median(inner):.1f}",
        f"{len(body):,}",
        f"{series:,}",
    ]


def collect_seconds(body: bytes) -> float:
    name = b"tallystick_exporter_collect_duration_seconds "
    return next(float(line[len(name) :]) for line in body.splitlines() if line.startswith(name))


if __name__ == "__main__":
    main()
