"""Accidents to order: kills and faults that the demo arms, each of which happens once.

An armed accident is a file in the targets' folder. Whoever removes it has the accident, right
there: the code under test has no crash hooks, and the processes die by a real SIGKILL.
"""

import functools
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

FOLDER = "TALLYSTICK_DEMO_TARGETS"
"""The environment variable that names the targets' folder."""

BEFORE_EFFECT, AFTER_EFFECT = "kill-before-effect", "kill-after-effect"
FEE, TORN, NO_WAY_BACK = "bank-takes-a-fee", "page-is-torn", "page-cannot-be-restored"

WORK_HORSE, WORKER = "work-horse", "worker"
"""Whom a kill takes: the process that runs the action, or its parent as well."""

Given = ParamSpec("Given")
Result = TypeVar("Result")


def folder() -> Path:
    """Where the targets of this demo are."""
    return Path(os.environ[FOLDER])


def arm(accident: str, detail: str = "") -> None:
    """Let the next one who comes by have this accident."""
    _file(accident).parent.mkdir(exist_ok=True)
    _file(accident).write_text(detail)


def disarm() -> None:
    """Forget every accident that was armed and has not happened."""
    for armed in (BEFORE_EFFECT, AFTER_EFFECT, FEE, TORN, NO_WAY_BACK):
        _file(armed).unlink(missing_ok=True)


def happens(accident: str) -> str | None:
    """The detail of this accident if it was armed, which it is no longer; else None."""
    try:
        detail = _file(accident).read_text()
        _file(accident).unlink()  # of two that come by, one fails here
    except FileNotFoundError:
        return None
    return detail


def accident_prone(effect: Callable[Given, Result]) -> Callable[Given, Result]:
    """A function that dies by SIGKILL right before or right after its effect, if so armed."""

    @functools.wraps(effect)
    def prone(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        _die(happens(BEFORE_EFFECT))
        result = effect(*args, **kwargs)
        _die(happens(AFTER_EFFECT))
        return result

    return prone


def killed_at() -> float | None:
    """When the last kill happened, on the clock of `time.time()`; None before the first."""
    try:
        return float(_file("killed-at").read_text())
    except (FileNotFoundError, ValueError):  # not yet, or just being written
        return None


def _die(whom: str | None) -> None:
    if whom is None:
        return
    _file("killed-at").write_text(repr(time.time()))
    if whom == WORKER:
        os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _file(accident: str) -> Path:
    return folder() / "accidents" / accident
