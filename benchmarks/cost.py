"""What one governed action costs, beside an ungoverned RQ job on the same server.

    python -m benchmarks.cost [--actions 300]

It starts a private durable server, runs the same effect (one INCR in that server) three ways in
this process, and prints round trips, CPU and the ratio to the cheapest. The machine's speed drifts
by a third; the ratios are what counts.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rq import Queue, SimpleWorker
from rq.serializers import JSONSerializer

from benchmarks.effects import COUNTER, Increment, increment
from tallystick.jobs.connection import Client, connect
from tallystick.jobs.embedded import EmbeddedServer
from tallystick.jobs.registry import Registry
from tallystick.jobs.run import Runner
from tallystick.jobs.service import Tallystick
from tallystick.jobs.settings import Settings
from tallystick.jobs.transport import perform_with


@dataclass(frozen=True)
class Cost:
    """What a way of doing it took, for each action."""

    name: str
    seconds: float
    cpu: float
    trips: float
    scripts: float


def measured(name: str, client: Client, count: int, work: Callable[[], None]) -> Cost:
    """Run `work` and divide what it took by `count`."""
    client.config_resetstat()
    began, cpu = time.perf_counter(), time.process_time()
    work()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    calls = client.info("commandstats")
    ignored = {
        "cmdstat_info",
        "cmdstat_config|resetstat",
        "cmdstat_hello",
        "cmdstat_client|setinfo",
    }
    scripts = sum(calls.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval"))
    total = sum(stat["calls"] for name, stat in calls.items() if name not in ignored)
    return Cost(name, seconds / count, cpu / count, total / count, scripts / count)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--actions", type=int, default=300)
    count = parser.parse_args().actions
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer.join(Path(folder)) as server:
        settings = Settings.load(redis_url=server.url, data_dir=Path(folder))
        Increment.url = server.url
        Increment.client = connect(server.url, timeout=5, retries=False, decode=True)
        tally = Tallystick.from_settings(settings, actions=())
        tally.registry = Registry([Increment])
        costs = [bare(count), governed(tally, count), in_rq(tally, count), ungoverned(count)]
        show(costs)
        tally.close()


def bare(count: int) -> Cost:
    """The effect alone: read, act, read."""
    client = Increment.client

    def work() -> None:
        for number in range(count):
            client.get(f"{COUNTER}:bare:{number}")
            client.incr(f"{COUNTER}:bare:{number}")
            client.get(f"{COUNTER}:bare:{number}")

    return measured("the effect alone (read, act, read)", client, count, work)


def governed(tally: Tallystick, count: int) -> Cost:
    """Our protocol, without a queue: the runner in a loop."""
    ids = approved(tally, count, "loop")
    runner = Runner(tally.store, tally.registry, tally.keyring, tally.settings, worker="bench")

    def work() -> None:
        for id in ids:
            runner.run(id)

    return measured("governed, in a bare loop", Increment.client, count, work)


def in_rq(tally: Tallystick, count: int) -> Cost:
    """Our protocol inside our RQ worker class."""
    ids = approved(tally, count, "rq")
    runner = Runner(tally.store, tally.registry, tally.keyring, tally.settings, worker="bench")
    perform_with(runner.run, refused=lambda why: None)
    assert tally.transport is not None
    for id in ids:
        tally.transport.wake(id, "bench")
    transport = tally.transport
    return measured(
        "governed, in Tallystick's worker",
        Increment.client,
        count,
        lambda: transport.work(name="bench", burst=True, max_jobs=None),
    )


def ungoverned(count: int) -> Cost:
    """A plain RQ job with the same effect and nothing else."""
    client = connect(Increment.url, timeout=10, retries=True, decode=False)
    queue = Queue("plain", connection=client, serializer=JSONSerializer)
    for number in range(count):
        queue.enqueue(increment, number)
    worker = SimpleWorker([queue], connection=client, serializer=JSONSerializer)
    worker.log_result_lifespan = False

    def work() -> None:
        worker.work(burst=True, logging_level="WARNING")

    return measured("ungoverned, in RQ's SimpleWorker", Increment.client, count, work)


def approved(tally: Tallystick, count: int, prefix: str) -> list[str]:
    """So many approved actions, not yet woken."""
    transport, tally.transport = tally.transport, None
    offset = {"loop": 0, "rq": count}[prefix]
    ids = []
    for number in range(offset, offset + count):
        found = tally.propose(Increment.name, {"number": number}, key=f"{number}", by="producer")
        ids.append(tally.approve(found.id, by="approver").id)
    tally.transport = transport
    return ids


def show(costs: list[Cost]) -> None:
    """The table, each way beside the first."""
    table = Table(title="one action, appendfsync always")
    for column in ("", "ms", "CPU ms here", "x CPU", "our scripts", "Redis commands"):
        table.add_column(column, justify="left" if not column else "right")
    for cost in costs:
        table.add_row(
            cost.name,
            f"{cost.seconds * 1000:.2f}",
            f"{cost.cpu * 1000:.2f}",
            f"{cost.cpu / costs[0].cpu:.1f}",
            f"{cost.scripts:.1f}",
            f"{cost.trips:.1f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
