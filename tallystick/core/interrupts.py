"""Ends that are asked for by a signal, and come as an exception: with everything cleaned up."""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

_MOMENT_SECONDS = 0.02


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM ends what is done inside by `SystemExit` (128 + its number), as Ctrl-C does by
    `KeyboardInterrupt`.

    Python swallows either of them where the signal comes while a finalizer runs, and only reports
    it (`sys.unraisablehook`). So that nobody must ask twice, it is then raised again a moment
    later. Outside the main thread, which alone hears signals, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    report, asked, told = sys.unraisablehook, signal.SIGTERM, False

    def stop(number: int, _: FrameType | None) -> None:
        nonlocal told
        told = True
        sys.exit(128 + number)

    def ask_again(_: int, __: FrameType | None) -> None:
        signal.raise_signal(asked)

    def swallowed(what: "sys.UnraisableHookArgs") -> None:
        nonlocal asked
        match what.exc_value:
            case KeyboardInterrupt():
                asked = signal.SIGINT
            case SystemExit() if told:
                asked = signal.SIGTERM
            case _:
                report(what)
                return
        signal.setitimer(signal.ITIMER_REAL, _MOMENT_SECONDS)  # nothing that could take a lock

    before = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, stop),
        signal.SIGALRM: signal.signal(signal.SIGALRM, ask_again),
    }
    sys.unraisablehook = swallowed
    try:
        yield
    finally:
        sys.unraisablehook = report
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
