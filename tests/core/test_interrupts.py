"""A signal ends what is stoppable, also where Python would forget it."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable

import pytest

from tallystick.core.interrupts import stoppable

SECONDS = 10


class Finalized:
    """Does something when it is gone, where no exception comes out."""

    def __init__(self, last: Callable[[], object]) -> None:
        self._last = last

    def __del__(self) -> None:
        self._last()


def wait() -> None:
    """What is interrupted."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        time.sleep(0.01)


def signalled(number: int) -> None:
    os.kill(os.getpid(), number)
    wait()


def in_a_finalizer(number: int) -> None:
    Finalized(lambda: signalled(number))
    wait()


@pytest.mark.parametrize("ended", [signalled, in_a_finalizer])
def test_sigterm_ends_it_with_its_status(ended: Callable[[int], None]) -> None:
    began = time.monotonic()
    with pytest.raises(SystemExit) as end, stoppable():
        ended(signal.SIGTERM)
    assert end.value.code == 143
    assert time.monotonic() - began < SECONDS


@pytest.mark.parametrize("ended", [signalled, in_a_finalizer])
def test_ctrl_c_ends_it(ended: Callable[[int], None]) -> None:
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), stoppable():
        ended(signal.SIGINT)
    assert time.monotonic() - began < SECONDS


def test_afterwards_everything_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[object] = []

    def report(what: "sys.UnraisableHookArgs") -> None:
        reported.append(what.exc_value)

    def fail() -> None:
        raise ValueError("of somebody else")

    def act() -> None:
        Finalized(fail)
        in_a_finalizer(signal.SIGTERM)

    monkeypatch.setattr(sys, "unraisablehook", report)
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM)]
    with pytest.raises(SystemExit), stoppable():
        act()
    assert [str(one) for one in reported] == ["of somebody else"]
    assert sys.unraisablehook is report
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM)] == handlers
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_thread_may_ask_for_it_and_changes_nothing() -> None:
    handlers = []

    def inside() -> None:
        with stoppable():
            handlers.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGTERM)]
