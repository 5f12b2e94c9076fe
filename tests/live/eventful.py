"""A short life with everything in it: each way in which an action can end, wait or be refused.

Every part is a real action of real workers, or what somebody who writes to Redis could do; what is
left open stays open, so that dashboards have something to show.
"""

import contextlib
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from rq.job import Job
from rq.serializers import JSONSerializer

from tallystick import Context, NotApplied, Policy, State
from tallystick.canary import MODULE, Canary, Drill, beat, drill
from tallystick.core.errors import TallystickError
from tallystick.jobs.connection import connect
from tallystick.jobs.service import Tallystick
from tests.live.stack import Stack
from tests.server import actions
from tests.server.actions import SetBlind, SetItem, SetKeyed, SetWrong
from tests.server.conftest import eventually

__all__ = [
    "Canary",
    "Drill",
    "Perishable",
    "Refused",
    "SetBlind",
    "SetItem",
    "SetKeyed",
    "SetWrong",
    "Stubborn",
    "live_through",
]


class Stubborn(SetWrong):
    """Lands wrong, and does not let itself be undone."""

    name = "item.stubborn"

    def undo(self, params: Any, before: Any, result: Any, context: Context) -> None:
        """Does nothing, which the look at the target finds out."""


class Refused(SetItem):
    """The target says a definite no."""

    name = "item.refused"

    def execute(self, params: Any, context: Context) -> Any:
        raise NotApplied("not on a Sunday")


class Perishable(SetItem):
    """Must be decided at once."""

    name = "item.perishable"
    policy = Policy(expires_after=timedelta(milliseconds=200))


def live_through(stack: Stack) -> Mapping[str, str]:
    """Let all of it happen; the ids of some of the actions, by what became of them."""
    tally, found = stack.tally, {}

    def ends(name: str, item: str, state: str) -> str:
        id = stack.approved(name, item)
        assert tally.wait(id, timeout=40).state == state, tally.get(id)
        found[state] = id
        return id

    for number in range(3):
        ends("item.keyed", f"plain-{number}", "committed")
    again = tally.get(found["committed"])
    tally.propose(again.action, again.params, key=again.key, by="producer")  # the same key
    ends("item.wrong", "wrong", "rolled_back")
    ends("item.stubborn", "stubborn", "rollback_failed")
    ends("item.refused", "refused", "failed")
    actions.arm("kill-horse-after")
    unknown = ends("item.blind", "blind", "unknown")
    actions.arm("hang-before")  # until its deadline, so that its lease is seen
    ends("item.keyed", "hangs", "committed")
    undecided(tally)
    refused_moves(tally, unknown)
    stopped(stack)
    foreign_job(stack)
    unknown_type(stack)
    with Tallystick.from_settings(stack.settings, actions=[MODULE]) as player:
        assert beat(player, timeout=40).well
        assert drill(player, timeout=40).well
    return found


def undecided(tally: Tallystick) -> None:
    """What people do, and do not do, before anything begins."""
    params = {"item": "x", "value": "new"}
    tally.propose("item.keyed", params, key="waits", by="producer")
    rejected = tally.propose("item.keyed", params, key="rejected", by="producer")
    tally.reject(rejected.id, by="approver", reason="no")
    cancelled = tally.propose("item.keyed", params, key="cancelled", by="producer")
    tally.cancel(cancelled.id, by="producer")
    late = tally.propose("item.perishable", params, key="late", by="producer")
    eventually(lambda: tally.get(late.id).state == State.EXPIRED, "it expires")


def refused_moves(tally: Tallystick, unknown: str) -> None:
    """A move from a state that is over, and a reply of a worker whose lease had passed on."""
    params = {"item": "y", "value": "new"}
    id = tally.propose("item.keyed", params, key="moved-late", by="producer").id
    stale = tally.store.load(id)
    tally.reject(id, by="approver", reason="no")
    with contextlib.suppress(TallystickError):
        tally.store.move(stale, State.CANCELLED, who="late", evidence={"event": "cancelled"})
    record = tally.store.load(unknown)
    evidence = {"event": "late_evidence", "reply": "ok"}
    tally.store.move(record, record.state, who="worker", evidence=evidence)


def stopped(stack: Stack) -> None:
    """A stop; what was approved meanwhile meets a world that moved on, or bytes that changed."""
    tally = stack.tally
    tally.stop(by="on-call", reason="a look", action="item.readable")
    stale, spoilt = (stack.approved("item.readable", item) for item in ("stale", "spoilt"))
    with actions.target() as db:
        db.execute("INSERT INTO item (name, value, version) VALUES ('stale', 'other', 1)")
    client = connect(stack.server.url, timeout=5, retries=False, decode=True)
    with contextlib.closing(client):
        client.hset(tally.store.keys.action(spoilt), "content", "spoilt")
    tally.start(by="on-call", action="item.readable")
    assert tally.wait(stale, timeout=40).state == State.PRECONDITION_FAILED
    assert tally.wait(spoilt, timeout=40).state == State.CORRUPT
    tally.stop(by="on-call", reason="until Monday", action="item.readable")
    stack.approved("item.readable", "held")


def foreign_job(stack: Stack) -> None:
    """A job that is not ours, put straight into the queue."""
    client = connect(stack.server.url, timeout=5, retries=False, decode=False)
    with contextlib.closing(client):
        job = Job.create("os.system", args=("true",), connection=client, serializer=JSONSerializer)
        job.origin = "tallystick"
        job.save()
        client.sadd("rq:queues", "rq:queue:tallystick")
        client.rpush("rq:queue:tallystick", job.id)
    counted(stack, "security_events|foreign_job")


def unknown_type(stack: Stack) -> None:
    """An action of a type that no worker here knows."""
    other = "tests.server.other_actions"
    with Tallystick.from_settings(stack.settings, actions=[other]) as tally:
        found = tally.propose("other.shout", {"words": "hear"}, key="shout", by="producer")
        tally.approve(found.id, by="approver", answer="shout")
    counted(stack, "unknown_types|other.shout")


def counted(stack: Stack, field: str) -> None:
    eventually(lambda: stack.tally.store.snapshot().counters.get(field), f"{field} is counted")
