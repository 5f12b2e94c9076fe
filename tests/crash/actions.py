"""The action types of the matrix: for each protection one whose effect holds, one that is undone
in-band, one that is compensated, and the compensation.

`types` binds them to a target; the names of this module are bound to the target in the folder
`TARGET_DIR`, for real workers. There, an *arm* (see `arm`) makes the next process that passes a
point do something drastic, once.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, cast

from pydantic import BaseModel

from tallystick import Action, Compensate, Context, InBand, OutOfBand, Protection, Verdict
from tests.crash.target import RESTORE, SET, UNDO, Target

COMMIT, IN_BAND, COMPENSATED = PATHS = ("commit", "undo", "compensate")
"""What becomes of an action if nothing crashes: its effect holds, or lands wrong and is undone."""

WRONG = "!"
"""What an effect that lands wrong appends to the value."""

MODULE = __name__


class Change(BaseModel):
    """The item and its new value."""

    item: str
    value: str


class Item(Action):
    """What all types share."""

    Params = Change
    verify_deadline = 0
    target: ClassVar[Target]
    what: ClassVar[str] = SET
    lands: ClassVar[str] = ""
    kind: ClassVar[Protection]

    def execute(self, params: Change, context: Context) -> Any:
        value = params.value + self.lands
        return self.target.call(self.kind, params.item, value, self.what, context)

    def verify(self, params: Change, before: Any, now: Any, result: Any) -> Verdict:
        seen = result if self.kind is Protection.BLIND else now
        if seen is None:
            return Verdict.inconclusive(reason="there is no reply, and no way to look")
        return Verdict.equal(expected=params.value, observed=seen["value"])

    def undo(self, params: Change, before: Any, result: Any, context: Context) -> Any:
        value = before["value"] if before else "old"
        return self.target.call(self.kind, params.item, value, UNDO, context)


class Seen(Item):
    """Of a target that can be read."""

    def observe(self, params: Change) -> Any:
        value, version = self.target.read(params.item)
        return {"value": value} | (
            {"version": version} if self.kind is Protection.VERSIONED else {}
        )

    def raise_fence(self, params: Change, token: int) -> None:
        self.target.raise_fence(params.item, token)


def as_before(params: Any, before: Any, result: Any) -> dict[str, Any]:
    """The parameters of the compensation."""
    return {"item": params.item, "value": before["value"] if before else "old"}


def types(target: Target, protection: Protection) -> list[type[Action]]:
    """The types of this protection, at this target."""
    base = Item if protection is Protection.BLIND else Seen
    restore = f"{RESTORE}.{protection}"
    bodies: dict[str, dict[str, Any]] = {
        COMMIT: {"rollback": InBand("undo")},
        IN_BAND: {"rollback": InBand("undo"), "lands": WRONG},
        COMPENSATED: {"rollback": Compensate(restore, as_before), "lands": WRONG},
        RESTORE: {"rollback": OutOfBand("docs/runbooks/item.md"), "what": RESTORE},
    }
    shared = {
        "target": target,
        "kind": protection,
        "protection": protection.value,
        "__module__": __name__,
    }
    made: list[type[Action]] = []
    for path, body in bodies.items():
        named = {"name": f"{path}.{protection}"} | shared | body
        made.append(cast("type[Action]", type(f"{path.title()}_{protection}", (base,), named)))
    return made


# --- for real workers ----------------------------------------------------------------------------


def arm(folder: Path, point: str, *signals: tuple[int | str, int]) -> None:
    """Have the next process that passes the point send these signals, once: pairs of a pid (or
    `self`, `parent`) and a signal number. The last one should be for itself."""
    text = "\n".join(f"{pid} {number:d}" for pid, number in signals)
    scratch = folder / f"{point}.new"
    scratch.write_text(text)
    scratch.rename(folder / f"arm-{point}")


def armed(point: str) -> None:
    """The point is passed in a real worker: if it is armed, do it."""
    file = Path(os.environ["TARGET_DIR"]) / f"arm-{point}"
    with contextlib.suppress(FileNotFoundError):
        text = file.read_text()
        file.unlink()
        for line in text.splitlines():
            who, number = line.split()
            pid = {"self": os.getpid(), "parent": os.getppid()}.get(who) or int(who)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.Signals(int(number)))


def _of_workers() -> Iterator[type[Action]]:
    target = Target(Path(os.environ.get("TARGET_DIR", ".")), armed)
    for protection in Protection:
        yield from types(target, protection)


globals().update({kind.__name__: kind for kind in _of_workers()})
