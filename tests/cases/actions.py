"""Action types whose runs go as wrong as those of other systems did, and plain ones beside them.

A type does its mischief as long as a file of that name lies in the target's folder, so that a test
can propose first and let it go wrong in the workers only.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from pydantic import field_validator

from tallystick import Context, InBand, Verdict
from tests.server.actions import SetBlind, SetItem, SetKeyed, SetWrong, folder

__all__ = ["SetBlind", "SetItem", "SetKeyed", "SetWrong"]

MODULE = __name__

PARAMS, OBSERVE, VERIFY, UNDO = POINTS = ("params", "observe", "verify", "undo")
"""Where `case.poison` can kill its work-horse, each time it comes there."""


def begin(mischief: str, folder: Path) -> None:
    """Let it go wrong from now on."""
    (folder / mischief).touch()


def end(mischief: str, folder: Path) -> None:
    """Let it go right again."""
    (folder / mischief).unlink()


def _goes_on(mischief: str) -> bool:
    return (folder() / mischief).exists()


def _once(mischief: str) -> bool:
    """Whether it is to go wrong now, and not again."""
    try:
        (folder() / mischief).unlink()
    except FileNotFoundError:
        return False
    return True


class Frozen(SetKeyed):
    """While `freeze` is there, stops its worker and itself before the effect, once."""

    name = "case.frozen"

    def execute(self, params: Any, context: Context) -> Any:
        if _once("freeze"):
            os.kill(os.getppid(), signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
        return super().execute(params, context)


class Held(SetKeyed):
    """Waits before its effect while `slow` is there, at a target that refuses doubles."""

    name = "case.held"

    def execute(self, params: Any, context: Context) -> Any:
        while _goes_on("slow") and context.remaining() > 0:
            time.sleep(0.01)
        return super().execute(params, context)


class Shy(SetItem):
    """Its target cannot be read while `unreadable` is there."""

    name = "case.shy"

    def observe(self, params: Any) -> Any:
        if _goes_on("unreadable"):
            raise ConnectionError("the target does not answer")
        return super().observe(params)


class Poison(SetItem):
    """Kills the work-horse that runs it at one of `POINTS`, each time, as native code can."""

    name = "case.poison"

    class Params(SetItem.Params):
        """Already to read them can be deadly."""

        @field_validator("item")
        @classmethod
        def deadly(cls, item: str) -> str:
            """Kill whoever reads it."""
            Poison._point(PARAMS)
            return item

    def observe(self, params: Any) -> Any:
        self._point(OBSERVE)
        return super().observe(params)

    def verify(self, params: Any, before: Any, now: Any, result: Any) -> Verdict:
        self._point(VERIFY)
        if _goes_on(UNDO):
            return Verdict.fails(expected=params.value, observed=now)
        return super().verify(params, before, now, result)

    def undo(self, params: Any, before: Any, result: Any, context: Context) -> None:
        self._point(UNDO)

    def restored(self, params: Any, before: Any, now: Any) -> Verdict:
        self._point(UNDO)
        return super().restored(params, before, now)

    rollback = InBand("undo")

    @staticmethod
    def _point(point: str) -> None:
        if _goes_on(point):
            os.kill(os.getpid(), signal.SIGKILL)


PROGRAM = """
import os, pathlib, sqlite3, sys, time
folder, item, value, key = sys.argv[1:]
place = pathlib.Path(folder)
(place / "program.new").write_text(str(os.getpid()))
(place / "program.new").rename(place / "program")
while (place / "slow").exists():
    time.sleep(0.01)
with sqlite3.connect(place / "target.db", timeout=10) as db:
    db.execute("INSERT INTO item (name, value, version) VALUES (?, ?, 1)", (item, value))
    db.execute("INSERT INTO effect VALUES (?, ?, 'set', ?)", (item, key, os.getpid()))
"""
"""What `case.delegating` starts; it says who it is, and waits while `slow` is there."""


class Delegating(SetItem):
    """Leaves its effect to a program of its own."""

    name = "case.delegating"

    def execute(self, params: Any, context: Context) -> Any:
        given = [str(folder()), params.item, params.value, context.idempotency_key]
        subprocess.run([sys.executable, "-S", "-c", PROGRAM, *given], check=True)
        return {"set": params.value}
