"""The verbs that run something: worker, exporter, demo."""

import logging
import signal
from typing import Annotated

import typer

from tallystick.cli.common import Modules, app, console, opened
from tallystick.core.errors import ActionModuleError, InvalidInput, StoreError
from tallystick.jobs.states import OPEN, State
from tallystick.jobs.supervisor import Supervisor
from tallystick.jobs.worker import Work
from tallystick.telemetry import logs

log = logging.getLogger("tallystick.exporter")


@app.command()
def worker(
    processes: Annotated[
        int, typer.Option("--processes", "-n", min=1, max=256, help="Work-horses to run.")
    ] = 1,
    burst: Annotated[bool, typer.Option("--burst", help="End when no work is left.")] = False,
    isolation: Annotated[
        str,
        typer.Option(
            "--isolation",
            help="`process`: long-lived work-horses; `fork`: a fresh one for each action.",
        ),
    ] = "process",
    recycle: Annotated[
        int, typer.Option("--recycle", min=1, help="Replace a work-horse after so many actions.")
    ] = 1000,
    modules: Modules = None,
) -> None:
    """Run approved actions, and recover what dead workers left."""
    if isolation not in {"process", "fork"}:
        raise typer.BadParameter("use process or fork", param_hint="--isolation")
    with opened(modules) as tally:
        logs.configure(tally.settings.log_format, tally.settings.log_level)
        if not tally.registry.names():
            raise ActionModuleError(
                module="(none)", problem="no module is named, so this worker could run nothing"
            )
        most = 1 if isolation == "fork" else recycle
        work = Work(tally.settings, tally.registry, tally.keyring, tally.url, most)
        status = Supervisor(work, processes, burst=burst).run()
    raise typer.Exit(status)


@app.command()
def exporter(
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port.")] = 9464,
    modules: Modules = None,
) -> None:
    """Serve the metrics at /metrics for Prometheus."""
    from tallystick.metrics.collector import Collector
    from tallystick.metrics.exporter import serve

    with opened(modules) as tally:
        logs.configure(tally.settings.log_format, tally.settings.log_level)
        transport = tally.transport
        assert transport is not None
        collector = Collector(
            lambda: tally.store.snapshot(queue_depth=transport.depth()),
            tally.registry.names(),
            list(State),
            sorted(OPEN),
        )
        try:
            server = serve(collector, host, port)
        except OSError as error:
            raise InvalidInput(
                field="port",
                problem=f"{host}:{port} cannot be listened on ({error.strerror})",
                remedy="Choose another with --port, or --host.",
            ) from None
        if not tally.registry.names():
            log.warning("no action types are named: the first failure of a type starts a series")
        console.print(f"metrics at http://{host}:{server.port}/metrics")
        try:
            tally.store.ping()
        except StoreError as error:
            log.warning("tallystick_redis_up is 0 until the store answers: %s", error)
        try:
            signal.pause()
        finally:
            server.close()


@app.command()
def demo(
    story: Annotated[str | None, typer.Option("--story", help="Play only this one.")] = None,
    naive: Annotated[
        bool, typer.Option("--naive", help="The same kill against the naive order, side by side.")
    ] = False,
) -> None:
    """Play every ending on real targets with real workers, and check what the targets show."""
    from tallystick.demo import run

    raise typer.Exit(run(story=story, naive=naive, console=console))
