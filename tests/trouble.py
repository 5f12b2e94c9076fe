"""`python -m tests.trouble`: long outages under many workers, and what they cost.

Exit 1 if anything was doubled, lost, or given up.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.server.conftest import Server, opened_site
from tests.server.outage import AWAY, UNWILLING, Outage, Trouble

console = Console()


def main(words: Sequence[str] | None = None) -> int:
    """Play what is asked for; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.trouble", description=__doc__)
    kinds = AWAY | UNWILLING
    parser.add_argument("--seconds", type=float, default=60, help="how long each outage lasts (60)")
    parser.add_argument("--workers", type=int, default=8, help="how many workers there are (8)")
    parser.add_argument("--processes", type=int, default=1, help="work-horses of each (1)")
    parser.add_argument("--kind", choices=sorted(kinds), action="append", help="only this outage")
    given = parser.parse_args(words)
    table = Table(title=f"{given.seconds:g} s, {given.workers} workers")
    for heading in (
        "the store is",
        "committed",
        "effects each",
        "attempts each",
        "lines of a worker",
        "CPU of a worker, ms/s",
        "all at rest after, s",
    ):
        table.add_column(heading, justify="right")
    bad = 0
    for name in given.kind or kinds:
        outage = played(kinds[name], given.seconds, given.workers, given.processes)
        many = len(outage.actions)
        well = outage.states == {"committed": many}
        once = outage.effects == outage.attempts == {1: many}
        bad += not (well and once and outage.dead == {})
        table.add_row(
            name,
            f"{outage.states['committed']} of {many}",
            ", ".join(map(str, sorted(outage.effects))),
            ", ".join(map(str, sorted(outage.attempts))),
            f"{min(outage.lines)} to {max(outage.lines)}",
            f"{outage.cpu / given.workers / given.seconds * 1000:.1f}",
            f"{outage.settled:.1f}",
        )
    console.print(table)
    return min(bad, 1)


def played(trouble: Trouble, seconds: float, workers: int, processes: int) -> Outage:
    """One outage on a server of its own; it is over when this returns, and can still be read."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        os.environ["TARGET_DIR"] = place
        server = Server(folder)
        server.start()
        try:
            with opened_site(folder, server) as site:
                outage = Outage(site, workers, processes)
                outage.play(lambda: trouble.begin(server), seconds, lambda: trouble.end(server))
                return outage
        finally:
            server.stop()


if __name__ == "__main__":
    sys.exit(main())
