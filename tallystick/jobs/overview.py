"""How things stand, as a person on call wants to know it: is the world safe, and what is to do?

The same value is the screen of `tallystick status` and, with `--json`, a stable document.
"""

from collections.abc import Callable, Sequence

from pydantic import BaseModel, ConfigDict, computed_field

from tallystick.core.errors import UnknownId
from tallystick.jobs.record import Record, Stored, Tampered
from tallystick.jobs.seals import unseal
from tallystick.jobs.states import HALTED, OPEN, State
from tallystick.jobs.survey import Found, Survey, when
from tallystick.jobs.view import iso
from tallystick.metrics.counters import SEPARATOR, transition


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True)


class Problem(_Value):
    """Something that is not as it should be, and the command to run next."""

    name: str
    """`needs_a_person`, `no_workers` or `overdue`."""
    what: str
    next: str


class Waiting(_Value):
    """An action that waits for approval."""

    id: str
    action: str
    proposed_by: str
    quorum: int
    missing: int
    """Votes that it still lacks."""
    not_by: tuple[str, ...]
    """Who may not give them: who has voted, and the proposer unless the policy lets them."""
    since: str
    expires_at: str


class UnderWay(_Value):
    """An action that a worker is at, or was."""

    id: str
    action: str
    state: str
    since: str
    worker: str
    """Who claimed it last."""
    attempts: int
    lease_seconds: float | None
    """What is left of the lease; None if nobody holds it."""


class Calling(_Value):
    """An action that waits for a person."""

    id: str
    action: str
    state: str
    reason: str
    """Why it called; empty once it is acknowledged."""
    acknowledged: bool
    since: str
    next: str
    """The command to look at it with."""


class Stop(_Value):
    """A scope in which nothing new begins."""

    scope: str
    """An action type, or `*`."""
    who: str
    since: str
    why: str


class Overview(_Value):
    """How a namespace stands at one instant. Times are ISO 8601 in UTC, from the store's clock."""

    at: str
    server: str
    """Its URL, without credentials."""
    namespace: str
    problems: tuple[Problem, ...]
    actions: dict[str, int]
    """By state: how many are there now."""
    oldest: dict[str, str]
    """By state in which something still happens by itself: since when the oldest is there."""
    halted: int
    """Actions that only a person's decision can end."""
    unacknowledged: int
    """Actions that have called a person who has not answered."""
    calling: tuple[Calling, ...]
    waiting: tuple[Waiting, ...]
    """Whose approval window ends soonest comes first."""
    under_way: tuple[UnderWay, ...]
    """Oldest first."""
    workers: int
    """Work-horses that live."""
    worker_names: tuple[str, ...]
    """Their names, 50 at most."""
    stops: tuple[Stop, ...]
    last_hour: dict[str, int]
    """By state: how many came to rest there within the last hour."""
    entered: dict[str, int]
    """By state: how many have ever entered it. Two looks make a rate."""
    overdue: int
    """Actions that somebody should have looked at more than ten seconds ago."""
    oldest_due: str | None
    """When somebody should look, or should have, soonest of all."""
    queue_depth: int
    """Wake-ups in the RQ queue."""
    undelivered_alerts: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def safe(self) -> bool:
        """Whether nothing needs a person and nothing is stuck."""
        return not self.problems


def overview(
    survey: Survey,
    read: Callable[[str], Stored],
    *,
    server: str,
    namespace: str,
    stops: Sequence[Stop],
) -> Overview:
    """Tell a survey in full; `read` gets the actions that it names, to say what they are."""
    numbers = survey.numbers
    return Overview(
        at=iso(survey.now),
        server=server,
        namespace=namespace,
        problems=tuple(_problems(survey)),
        actions={state: numbers.actions.get(state, 0) for state in State},
        oldest={state: iso(when(at * 1000)) for state, at in sorted(numbers.oldest.items())},
        halted=_in(survey, HALTED),
        unacknowledged=survey.unacknowledged,
        calling=tuple(_calling(one, read) for one in survey.calling),
        waiting=tuple(row for id in survey.waiting if (row := _waiting(id, read))),
        under_way=tuple(_under_way(one, read) for one in survey.under_way),
        workers=numbers.workers,
        worker_names=tuple(sorted(survey.workers)),
        stops=tuple(stops),
        last_hour={state: n for state, n in survey.last_hour.items() if n},
        entered=_entered(survey),
        overdue=numbers.overdue,
        oldest_due=None if survey.oldest_due is None else iso(survey.oldest_due),
        queue_depth=numbers.queue_depth,
        undelivered_alerts=numbers.undelivered_alerts,
    )


def _in(survey: Survey, states: frozenset[State]) -> int:
    return sum(survey.numbers.actions.get(state, 0) for state in states)


def _problems(survey: Survey) -> list[Problem]:
    found = []
    halted, unacknowledged = _in(survey, HALTED), survey.unacknowledged
    if halted or unacknowledged:
        found.append(
            Problem(
                name="needs_a_person",
                what=f"{_many(halted, 'action')} halted, {unacknowledged} not acknowledged",
                next=_look(survey),
            )
        )
    work = _in(survey, OPEN - {State.WAITING_FOR_APPROVAL})
    if not survey.numbers.workers and (work or survey.numbers.undelivered_alerts):
        what = f"no worker lives; {_many(work, 'action')} and"
        what += f" {_many(survey.numbers.undelivered_alerts, 'alert')} wait for one"
        found.append(Problem(name="no_workers", what=what, next="tallystick worker"))
    elif survey.numbers.overdue:
        what = f"{_many(survey.numbers.overdue, 'action')} overdue by more than ten seconds"
        found.append(Problem(name="overdue", what=what, next="tallystick doctor"))
    return found


def _look(survey: Survey) -> str:
    """The command that shows what waits for a person."""
    if len(survey.calling) == 1:
        return f"tallystick show {survey.calling[0].id}"
    if survey.unacknowledged:
        return "tallystick list --attention"
    state = survey.calling[0].state if survey.calling else State.UNKNOWN
    return f"tallystick list --state {state}"


def _many(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _entered(survey: Survey) -> dict[str, int]:
    family = transition("", "").split(SEPARATOR)[0]
    entered = dict.fromkeys(map(str, State), 0)
    for field, count in survey.numbers.counters.items():
        head, *labels = field.split(SEPARATOR)
        if head == family and len(labels) == 2 and labels[1] in entered:
            entered[labels[1]] += count
    return entered


# --- rows ----------------------------------------------------------------------------------------


def _record(id: str, read: Callable[[str], Stored]) -> Record | None:
    """The action, or None of one that is gone, does not match its seals or cannot be judged."""
    try:
        return unseal(read(id))
    except (UnknownId, Tampered):
        return None


def _calling(found: Found, read: Callable[[str], Stored]) -> Calling:
    _, _, named = found.attention.partition(SEPARATOR)
    action, _, reason = named.rpartition(SEPARATOR)
    if not action:
        record = _record(found.id, read)
        action = record.content.action if record else ""
    return Calling(
        id=found.id,
        action=action,
        state=found.state,
        reason=reason,
        acknowledged=not found.attention,
        since=iso(found.since),
        next=f"tallystick show {found.id}",
    )


def _waiting(id: str, read: Callable[[str], Stored]) -> Waiting | None:
    record = _record(id, read)
    if record is None or record.state is not State.WAITING_FOR_APPROVAL:
        return None
    ballot = record.content.ballot
    voted = [vote.who for vote in record.votes]
    alone = [] if ballot.policy.proposer_may_approve else [record.content.proposed_by]
    return Waiting(
        id=id,
        action=record.content.action,
        proposed_by=record.content.proposed_by,
        quorum=ballot.policy.quorum,
        missing=max(ballot.policy.quorum - len(voted), 0),
        not_by=tuple(dict.fromkeys([*alone, *voted])),
        since=iso(record.lines[0].at),
        expires_at=iso(record.content.expires_at),
    )


def _under_way(found: Found, read: Callable[[str], Stored]) -> UnderWay:
    record = _record(found.id, read)
    claim = record.last("claimed") if record else None
    return UnderWay(
        id=found.id,
        action=record.content.action if record else "",
        state=found.state,
        since=iso(found.since),
        worker=claim.worker if claim else "",
        attempts=record.attempts if record else 0,
        lease_seconds=found.lease_ms / 1000 if found.lease_ms >= 0 else None,
    )
