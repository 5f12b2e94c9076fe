"""The verbs that look at everything at once: status, and top, which goes on looking."""

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.live import Live

from tallystick.cli.common import AsJson, app, console, without_types
from tallystick.cli.render import print_json, visible
from tallystick.cli.screen import clock, screen
from tallystick.core.errors import StoreError
from tallystick.core.interrupts import stoppable
from tallystick.jobs.overview import Overview
from tallystick.jobs.service import Tallystick

_KEYS = "[dim]q quits · tallystick show ID · tallystick status --json[/]"
_MOST_ROWS = 30

Limit = Annotated[
    int, typer.Option("--limit", min=1, max=100, help="Show at most so many actions of a kind.")
]


@app.command()
def status(
    check: Annotated[
        bool, typer.Option("--check", help="Exit with status 1 unless everything is safe.")
    ] = False,
    limit: Limit = 10,
    as_json: AsJson = False,
) -> None:
    """Show on one screen whether everything is safe, what waits for whom, and what runs."""
    with without_types() as tally:
        found = tally.overview(limit=limit)
    if as_json:
        print_json(found)
    else:
        console.print(screen(found, width=console.width))
    if check and not found.safe:
        raise typer.Exit(1)


@app.command()
def top(
    interval: Annotated[
        float, typer.Option("--interval", "-i", min=0.2, max=3600, help="Seconds between looks.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Show one frame, and end.")] = False,
) -> None:
    """Show the same as status, and go on doing so; q or Ctrl-C ends it."""
    with without_types() as tally:
        view = _View(tally)
        if once or not console.is_terminal:
            console.print(view.frame())
            return
        with (
            contextlib.suppress(KeyboardInterrupt),  # a way to quit, and no failure
            stoppable(),
            _keys() as pressed,
            Live(view.frame(), console=console, screen=True, auto_refresh=False) as live,
        ):
            while "q" not in pressed(interval):
                live.update(view.frame(), refresh=True)


class _View:
    """What is on the screen, look after look; a store that is away is told on it."""

    def __init__(self, tally: Tallystick) -> None:
        self._tally = tally
        self._last: Overview | None = None
        self._rates: Mapping[str, float] | None = None
        self._at = 0.0

    def frame(self) -> RenderableType:
        """Look, and draw what is to be seen, within the height of the terminal.

        Raises `StoreError` only if there was nothing to see yet.
        """
        notice = _KEYS
        try:
            found = self._tally.overview(limit=_MOST_ROWS)
        except StoreError as error:
            if self._last is None:
                raise
            found = self._last
            notice = f"[bold red]{clock()} not seen anew:[/] {visible(str(error))}"
        else:
            self._rates = self._rate(found)
            self._last, self._at = found, time.monotonic()
        width, height = console.size
        return screen(found, width=width, rates=self._rates, notice=notice, height=height)

    def _rate(self, found: Overview) -> Mapping[str, float] | None:
        """Moves per second into each state since the last look."""
        seconds = time.monotonic() - self._at
        if self._last is None or not seconds:
            return None
        before = self._last.entered
        return {
            state: max(count - before.get(state, 0), 0) / seconds
            for state, count in found.entered.items()
        }


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """A function that waits so many seconds for keys and gives what was pressed, or nothing."""
    if not sys.stdin.isatty():
        yield _no_keys
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    mode = termios.tcgetattr(terminal)
    mode[tty.LFLAG] &= ~(termios.ECHO | termios.ICANON)
    mode[tty.CC][termios.VSUSP] = b"\0"  # Ctrl-Z would leave the shell on our screen
    termios.tcsetattr(terminal, termios.TCSAFLUSH, mode)

    def pressed(seconds: float) -> str:
        readable, _, _ = select.select([terminal], [], [], seconds)
        # A terminal that has gone is at its end: nobody looks any more.
        return (os.read(terminal, 64).decode("ascii", "replace") or "q") if readable else ""

    try:
        yield pressed
    finally:
        termios.tcsetattr(terminal, termios.TCSAFLUSH, before)


def _no_keys(seconds: float) -> str:
    time.sleep(seconds)
    return ""
