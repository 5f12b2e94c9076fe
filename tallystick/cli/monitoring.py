"""The verbs that watch over the watching: audit, canary, rules."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tallystick.canary import MODULE, Beat, Drill, beat, drill
from tallystick.cli.common import AsJson, app, console, without_types
from tallystick.cli.render import print_json, styled, visible
from tallystick.core.errors import InvalidInput, TallystickError
from tallystick.jobs.audit import Report
from tallystick.jobs.audit import audit as recount
from tallystick.jobs.service import Tallystick
from tallystick.jobs.states import State
from tallystick.metrics.shipped import RECEIVERS, shipped


@app.command()
def audit(as_json: AsJson = False) -> None:
    """Recount every journal against counters, states and indexes; exit status 1 if they differ."""
    with without_types() as tally:
        report = recount(tally.store, tally.keyring)
    if as_json:
        print_json(report)
    else:
        _print_report(report)
    raise typer.Exit(int(bool(report.differences)))


def _print_report(report: Report) -> None:
    for id in report.unbelieved:
        told = f"{visible(id)} is not believed (corrupt, or of a newer version): counted apart"
        console.print(f"[yellow]note:[/] {told}", soft_wrap=True)
    if report.differences:
        table = Table(box=None, header_style="dim", pad_edge=False)
        for column in ("where", "stored", "by the journals"):
            table.add_column(column, overflow="fold")
        for one in report.differences:
            table.add_row(visible(one.where), visible(one.stored), visible(one.recounted))
        console.print(table)
    differ = len(report.differences)
    verdict = f"[bold red]{differ} differences[/]" if differ else "[bold green]no difference[/]"
    console.print(f"{verdict} in {report.actions} actions with {report.lines} journal lines")


@app.command()
def canary(
    every: Annotated[
        float | None,
        typer.Option("--every", min=1, metavar="S", help="Go on, one every so many seconds."),
    ] = None,
    with_drill: Annotated[
        bool, typer.Option("--drill", help="Also one that lands wrong and must be rolled back.")
    ] = False,
    drill_every: Annotated[
        float, typer.Option("--drill-every", min=1, metavar="S", help="With --every: how often.")
    ] = 86_400,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, metavar="S", help="What each may take, in seconds.")
    ] = 60,
) -> None:
    """Send an action through every stage: proposed, approved, run, verified; and rolled back."""
    with Tallystick.from_settings(actions=[MODULE]) as tally:
        if every is None:
            plays = [beat, drill] if with_drill else [beat]
            well = [_told(play(tally, timeout=timeout)) for play in plays]
            raise typer.Exit(int(not all(well)))
        drill_at = time.monotonic() if with_drill else float("inf")
        while True:
            began = time.monotonic()
            _go_on(lambda: beat(tally, timeout=timeout))
            if began >= drill_at:
                drill_at = began + drill_every
                _go_on(lambda: drill(tally, timeout=timeout))
            time.sleep(max(0.0, began + every - time.monotonic()))


def _told(played: Beat) -> bool:
    """Say how it went; whether it went well."""
    word = "drill" if played.action == Drill.name else "canary"
    took = f"in {played.seconds:.2f} s"
    if played.well:
        console.print(f"{word} {played.id} {styled(played.state)} {took}", soft_wrap=True)
        return True
    remedy = f"tallystick history {played.id}"
    if played.state is State.CANCELLED:
        remedy = f"is there a worker that knows {MODULE} (TALLYSTICK_ACTIONS)?"
    console.print(
        f"[bold red]{word} {played.id}[/] is {styled(played.state)} {took}, and not"
        f" {played.expected}: {remedy}",
        soft_wrap=True,
    )
    return False


def _go_on(play: Callable[[], Beat]) -> None:
    """Play, and say what went wrong; the next one may go better."""
    try:
        _told(play())
    except TallystickError as error:
        console.print(f"[bold red]error:[/] {visible(str(error))}", soft_wrap=True)


@app.command()
def rules(
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="The folder to write to.")],
    runbooks: Annotated[
        str, typer.Option("--runbooks", metavar="URL", help="Where your copy of the runbooks is.")
    ] = "",
    dashboards: Annotated[
        str, typer.Option("--dashboards", metavar="URL", help="Where the dashboards are: …/d/.")
    ] = "",
    receivers: Annotated[
        list[str] | None,
        typer.Option("--receiver", metavar="NAME=URL", help="Where one receiver is (repeatable)."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.")] = False,
) -> None:
    """Write out what comes for Prometheus, Alertmanager and Grafana."""
    texts = shipped(runbooks=runbooks, dashboards=dashboards, receivers=_receivers(receivers or []))
    _write(to, texts, force=force)
    for name in texts:
        console.print(str(to / name), soft_wrap=True, markup=False)


def _receivers(given: list[str]) -> dict[str, str]:
    named = dict(one.split("=", 1) for one in given if "=" in one)
    if len(named) != len(given) or named.keys() - set(RECEIVERS):
        raise InvalidInput(
            field="receiver",
            problem=f"{', '.join(given)} is not NAME=URL, each name once",
            remedy=f"The names are {', '.join(RECEIVERS)}.",
        )
    return named


def _write(to: Path, texts: Mapping[str, str], *, force: bool) -> None:
    """Write every file or none, as far as that can be known before."""
    taken = [name for name, text in texts.items() if _differs(to / name, text)]
    if taken and not force:
        raise InvalidInput(
            field="to",
            problem=f"{to} holds {', '.join(taken)} with other content",
            remedy="Choose another folder, or overwrite with --force.",
        )
    try:
        to.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (to / name).write_text(text, "utf-8")
    except OSError as error:
        raise InvalidInput(
            field="to",
            problem=f"{error.filename}: {error.strerror}",
            remedy="Name a folder that can be written to.",
        ) from None


def _differs(path: Path, text: str) -> bool:
    return path.exists() and not (path.is_file() and path.read_bytes() == text.encode())
