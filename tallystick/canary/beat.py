"""One beat: propose, approve, wait until a worker has brought it to its end."""

import contextlib
import secrets
import time
from dataclasses import dataclass

from tallystick.core.errors import TallystickError, WaitTimeout
from tallystick.jobs.service import Tallystick
from tallystick.jobs.states import State
from tallystick.metrics import counters

MODULE = "tallystick.canary"
"""What a worker must have among its TALLYSTICK_ACTIONS to run canaries and drills."""

PROPOSER, APPROVER = "canary", "canary-approver"


@dataclass(frozen=True, slots=True)
class Beat:
    """How one canary, or one drill, went."""

    id: str
    action: str
    state: State
    seconds: float
    expected: State

    @property
    def well(self) -> bool:
        """Whether it ended as it must."""
        return self.state is self.expected


def beat(tally: Tallystick, *, timeout: float) -> Beat:
    """Send a canary through every stage; at most `timeout` seconds. Raises what `Tallystick` does.

    One that has not begun by then is cancelled, so that they do not pile up.
    """
    return _play(tally, counters.CANARY, State.COMMITTED, timeout)


def drill(tally: Tallystick, *, timeout: float) -> Beat:
    """Send an action that lands wrong, and must be rolled back; then take note of its call."""
    clear(tally)
    played = _play(tally, counters.DRILL, State.ROLLED_BACK, timeout)
    if played.well:
        tally.acknowledge(played.id, by=PROPOSER)
    return played


def clear(tally: Tallystick) -> None:
    """Take note of drills that went well and whose player died before it did so."""
    for record in tally.list(State.ROLLED_BACK, attention=True):
        if record.action == counters.DRILL:
            tally.acknowledge(record.id, by=PROPOSER)


def _play(tally: Tallystick, action: str, expected: State, timeout: float) -> Beat:
    name, began = secrets.token_hex(8), time.monotonic()
    proposed = tally.propose(
        action, {"beat": name}, key=f"canary-{name}", by=PROPOSER, reason="scheduled"
    )
    tally.approve(proposed.id, by=APPROVER)
    try:
        state = tally.wait(proposed.id, timeout=timeout).state
    except WaitTimeout:
        with contextlib.suppress(TallystickError):  # it has begun, or ends just now
            tally.cancel(proposed.id, by=PROPOSER, reason=f"no worker took it in {timeout:g} s")
        state = tally.get(proposed.id).state
    return Beat(proposed.id, action, state, time.monotonic() - began, expected)
