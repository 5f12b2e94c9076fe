"""One work-horse, as its worker parent knows it."""

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tallystick.jobs.settings import MARGIN_SECONDS

LONGEST_HOLD_LEASES = 8
"""A work-horse that holds one action for so many leases outside an effect hangs."""


@dataclass
class Horse:
    """One work-horse, as its parent knows it."""

    pid: int
    pipe: int
    name: str
    born: float
    heard: bytes = b""
    action_id: str = ""
    """What it holds, or looks at if it has no `owner`."""
    owner: str = ""
    renew_at: float = 0.0
    kill_at: float = float("inf")
    killed_for: str = ""
    ends: tuple[str, str, bool] | None = None
    """Why the store lets it do nothing more, as `Patience.hear` takes it."""
    dismissed: bool = False

    @property
    def acting(self) -> bool:
        """Whether it is inside an effect."""
        return self.renew_at == float("inf") and bool(self.owner)

    @property
    def age(self) -> float:
        """In seconds."""
        return time.monotonic() - self.born

    @property
    def holding(self) -> str:
        """In words for a log line: what it holds; empty if that is nothing."""
        if not self.action_id:
            return ""
        return f", {'holding' if self.owner else 'about to take'} action {self.action_id}"

    def fields(self, **more: str) -> dict[str, str]:
        """What a log line says of it beside its words."""
        held = {"action_id": self.action_id} if self.action_id else {}
        return held | {"worker": self.name} | more

    def hear(self, message: Mapping[str, Any], now: float, lease: float) -> None:
        """Take in what it says (see `PipeWatch`); `now` is monotonic, both are in seconds."""
        if "look" in message:
            self.action_id, self.owner = message["look"], ""
            self.must_end(now, lease)
        elif "hold" in message:
            self.action_id, self.owner = message["hold"], message["owner"]
            self.renew_at = now + lease / 3
            self.must_end(now, lease)
        elif message.get("effect"):
            self.kill_at = now + message["effect"] + MARGIN_SECONDS / 4
            self.renew_at = float("inf")
        elif "effect" in message:
            self.renew_at = now
            self.must_end(now, lease)
        elif "ends" in message:
            self.ends = tuple(message["ends"])
        else:
            self.action_id = self.owner = ""
            self.kill_at = self.renew_at = float("inf")

    def must_end(self, now: float, lease: float) -> None:
        """Outside an effect it is given a while, and then it hangs."""
        self.kill_at = now + LONGEST_HOLD_LEASES * lease


def reason(status: int) -> str:
    """Why a process ended, as a metric label; empty if it ended by itself."""
    if os.WIFSIGNALED(status):
        return "deadline" if os.WTERMSIG(status) == signal.SIGALRM else "signal"
    return "error" if os.WEXITSTATUS(status) else ""
