"""The run of one action: read this first.

A wake-up carries an id and nothing else. `Runner.run` reads the record, believes nothing that its
seals do not prove, asks the decision table, claims the action, and walks: look, intend, act, look
again, settle. Every way out of that walk is a stored move; a worker that dies anywhere leaves an
action that the next one finds and settles by the same table.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tallystick.approvals import Keyring
from tallystick.core.canonical import Json
from tallystick.core.errors import Conflict, LeaseLost, Stopped, StoreTrouble, UnknownId
from tallystick.jobs import telling
from tallystick.jobs.action import Protection
from tallystick.jobs.attempt import (
    AGAIN_SECONDS,
    Attempt,
    Look,
    Unwatched,
    Watch,
    Withheld,
    boottime,
)
from tallystick.jobs.authority import check_authority
from tallystick.jobs.decision import Lease, Reply, Seen, Situation, Stage, Step, decide
from tallystick.jobs.giving_up import KillsWorkers, give_up
from tallystick.jobs.judging import (
    before_intent,
    last_reply,
    made_up_intent,
    mismatch,
    missing_undo,
    our_own,
    stage_of,
    stricter_policy,
)
from tallystick.jobs.record import LeftAlone, Record, Stored, Tampered
from tallystick.jobs.registry import Registry, validate
from tallystick.jobs.resolution import closed_by_hand
from tallystick.jobs.seals import is_quarantined, tip_of_damage, unseal
from tallystick.jobs.settings import Settings
from tallystick.jobs.states import AT_REST, IN_FLIGHT, State
from tallystick.jobs.store import Store, new_owner
from tallystick.jobs.undo import (
    resume_undo,
    undo,
    waits_for_compensation,
)
from tallystick.metrics import counters
from tallystick.telemetry import traces
from tallystick.verifiers import Answer, Verdict

log = logging.getLogger("tallystick.run")

_STOPPED_SECONDS = 2
"""How soon an action that the stop switch holds is offered again."""

_UNKNOWN_TYPE_SECONDS = 60
"""The longest pause before an action of a type that nobody here knew is offered again."""


class Runner:
    """Runs actions in this process, one after the other.

    `checkpoint(point)` is called at each named point of a run, for tests that die there;
    `wake(id)` makes an action run soon.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        keyring: Keyring,
        settings: Settings,
        *,
        worker: str,
        watch: Watch | None = None,
        wake: Callable[[str], None] = lambda id: None,
        checkpoint: Callable[[str], None] = lambda point: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.store = store
        self.registry = registry
        self.keyring = keyring
        self.settings = settings
        self.worker = worker
        self.watch = watch or Unwatched()
        self.wake = wake
        self.checkpoint = checkpoint
        self.sleep = sleep

    def run(self, action_id: str) -> State | None:
        """Take one action as far as it goes now, and return the state it is left in.

        None if there is no such action, if a newer version wrote it, or if history was rewound.
        Raises `StoreError` if the store fails: then it is found again when its lease has run out.
        """
        try:
            stored = self.store.read_unless_rewound(action_id)
        except UnknownId:
            log.warning("wake-up for an action that does not exist: %s", action_id)
            self.store.unschedule(action_id)
            return None
        if stored is None:  # the worker parent halts what is open
            log.warning("action %s is not run: the store's history was rewound", action_id)
            return None
        self.watch.look(action_id)
        try:
            return self._run(stored)
        finally:
            self.watch.done()

    def _run(self, stored: Stored) -> State | None:
        try:
            record = self._believe(stored)
        except LeftAlone as unknown:
            self._leave_alone(stored, unknown.kind, str(unknown))
            return None
        except KillsWorkers:
            return give_up(self.store, unseal(stored), worker=self.worker)
        if record is None:
            return closed_by_hand(self.store.read(stored.id), self.keyring) or State.CORRUPT
        match self._first_step(record):
            case Step.NOTHING:
                self.store.unschedule(record.id)
                return record.state
            case Step.WAIT:
                return record.state
            case Step.CLOSE_UNSTARTED:
                return self._expire(record)
        if waits_for_compensation(self.store, record):
            return record.state
        try:
            attempt = self._claim(record, stored)
        except Tampered as problem:
            self._quarantine(stored, str(problem))
            return State.CORRUPT
        return self._walk(attempt) if attempt else record.state

    # --- before the claim --------------------------------------------------------------------

    def _believe(self, stored: Stored) -> Record | None:
        """The record, if everything about it checks; otherwise it is quarantined."""
        try:
            record = unseal(stored)
            check_authority(record, self.store, self.registry, self.keyring)
        except LeftAlone:
            raise
        except Tampered as problem:
            if closed_by_hand(stored, self.keyring) or is_quarantined(stored):
                self.store.unschedule(stored.id)
                return None
            self._quarantine(stored, str(problem))
            return None
        return record

    def _quarantine(self, stored: Stored, problem: str) -> None:
        remedy = f"Find out who wrote to Redis, then: tallystick history {stored.id}"
        log.error("action %s is corrupt: %s. %s", stored.id, problem, remedy)
        self.store.quarantine(stored, problem, worker=self.worker)

    def _first_step(self, record: Record) -> Step:
        return decide(
            Situation(
                stage=stage_of(record.state),
                protection=Protection(record.content.protection),
                lease=Lease.OTHER if record.leased else Lease.FREE,
                go=not record.expired,
            )
        ).step

    def _expire(self, record: Record) -> State:
        evidence = {"event": "expired", "why": "the approval window is over"}
        try:
            self.store.move(record, State.EXPIRED, who=self.worker, evidence=evidence, due_ms=-1)
        except (Conflict, LeaseLost):
            return self.store.load(record.id).state
        return State.EXPIRED

    def _claim(self, record: Record, stored: Stored) -> Attempt | None:
        """Hold the action, unless its type is not known here or someone else was faster."""
        spec = self.registry.find(record.content.action, record.content.version)
        problem = "this worker does not know it" if spec is None else mismatch(spec, record)
        problem = problem or missing_undo(self.registry, record.content)
        if spec is None or problem:
            self._leave_alone(stored, record.content.action, problem)
            return None
        if record.attempts:
            before = record.fact("intent", "before")
            if problem := made_up_intent(spec, record.content, before):
                raise Tampered(problem)
        params = validate(spec, record.content.params)[0]
        attempt = Attempt(
            self.store,
            self.settings,
            spec,
            replace(record, owner=new_owner()),
            params,
            self.worker,
            self.watch,
            self.checkpoint,
            self.sleep,
            self.registry,
            self.wake,
        )
        return attempt if self._held(attempt, record) else None

    def _held(self, attempt: Attempt, record: Record) -> bool:
        """Claim it; whether that worked."""
        owner = attempt.record.owner
        try:
            attempt.record = self.store.claim(
                record, worker=self.worker, lease_ms=attempt.lease_ms, owner=owner
            )
        except (LeaseLost, Conflict) as lost:
            log.info("action %s: not claimed, %s", record.id, lost)
            return False
        except Stopped:
            self.store.postpone(record.id, until_ms=record.now + _STOPPED_SECONDS * 1000)
            return False
        except StoreTrouble as trouble:
            attempt.disclaim(str(trouble))
            return False
        self.watch.hold(record.id, owner)
        self.checkpoint("after_claim")
        return True

    def _leave_alone(self, stored: Stored, kind: str, problem: str) -> None:
        """What this worker does not know waits for one that does, offered ever more slowly."""
        remedy = "Run a worker that knows it, or cancel it"
        log.warning("action %s (%s) is left alone: %s. %s", stored.id, kind, problem, remedy)
        self.store.bump(counters.unknown_type(kind))
        waited = (stored.now - tip_of_damage(stored).at) / 1000
        pause = min(max(waited / 4, 2), _UNKNOWN_TYPE_SECONDS)
        self.store.postpone(stored.id, until_ms=stored.now + int(pause * 1000))

    # --- the walk ------------------------------------------------------------------------------

    def _walk(self, attempt: Attempt) -> State:
        try:
            with telling.run(attempt.record, self.worker):
                match attempt.record.state:
                    case State.APPROVED:
                        start(attempt)
                    case State.ROLLING_BACK:
                        resume_undo(attempt)
                settle(attempt)
            return self._left(attempt.record)
        except Withheld:
            return attempt.record.state
        except (LeaseLost, Conflict) as lost:
            attempt.testify(lost)
            return self.store.load(attempt.record.id).state

    def _left(self, record: Record) -> State:
        parent = record.content.compensates
        if parent and record.state in AT_REST:
            self.wake(parent)
        return record.state


def start(attempt: Attempt) -> None:
    """Approved, nothing sent: is the world still as approved? Then intend and act."""
    record, spec = attempt.record, attempt.spec
    approved = record.content.observed
    with traces.span("precondition"):
        look = attempt.look(
            lambda now: spec.precondition(attempt.params, approved, now), unchanged=approved
        )
    decided = decide(
        Situation(
            stage=Stage.APPROVED,
            protection=attempt.protection,
            seen=before_intent(attempt, look),
        )
    )
    facts: dict[str, Any] = {"precondition": look.verdict.as_json(), "rule": decided.rule}
    match decided.step:
        case Step.ACT if reason := stricter_policy(attempt):
            attempt.move(State.PRECONDITION_FAILED, "stale", lease="drop", why=reason, **facts)
        case Step.ACT:
            try:
                act(attempt, before=look.now, **facts)
            except Stopped:
                wait = _STOPPED_SECONDS * 1000
                attempt.move(State.APPROVED, "held", lease="drop", due_ms=wait)
        case Step.STALE:
            why = "the world has moved on since the approval"
            attempt.move(State.PRECONDITION_FAILED, "stale", lease="drop", why=why, **facts)
        case Step.LOOK_AGAIN:
            looks = len(record.events("looked"))
            wait = AGAIN_SECONDS[min(looks, len(AGAIN_SECONDS) - 1)]
            attempt.move(State.APPROVED, "looked", lease="drop", due_ms=wait * 1000, **facts)
        case _:
            why = "the effect is there without an intent: state was lost, or it was done by hand"
            attempt.move(State.UNKNOWN, "halted", lease="drop", why=why, **facts)


def act(attempt: Attempt, *, before: Json, **facts: Any) -> None:
    """Store the intent, then call the target once, then store what it said."""
    spec, params = attempt.spec, attempt.params
    attempt.fresh_token()
    began = boottime()
    number = attempt.record.attempts + 1
    attempt.intend(State.RUNNING, "intent", attempt=number, before=before, **facts)
    attempt.checkpoint("after_intent")
    if attempt.protection is Protection.FENCED:
        if attempt.raise_fence():
            return  # nothing was sent; what is there decides
        look = attempt.look(lambda now: Verdict.equal(expected=before, observed=now), before)
        if look.verdict.answer is not Answer.HOLDS:
            return  # not as it was: settle by what is there now, under the raised fence
        began = boottime()
        attempt.last_look()
    attempt.checkpoint("before_effect")
    reply = attempt.call(lambda context: spec.execute(params, context), began)
    attempt.checkpoint("after_effect")
    to = State.RUNNING if reply is Reply.REFUSED else State.VERIFYING
    attempt.move(to, "replied", **attempt.learned)
    attempt.checkpoint("after_reply")


def settle(attempt: Attempt) -> None:
    """An intent without an outcome, ours or a dead worker's: look, and decide by the table.

    Nothing is sent before a look, and nothing is sent again but where the target refuses doubles.
    """
    while attempt.record.state in IN_FLIGHT:
        reply, result = last_reply(attempt.record)
        before = attempt.record.fact("intent", "before")
        look = verify(attempt, before, result, reply)
        attempt.checkpoint("after_verify")
        decided = decide(
            Situation(
                stage=Stage.ACTING,
                protection=attempt.protection,
                seen=look.seen,
                reply=our_own(reply, attempt.record),
                attempts_left=attempt.record.attempts < attempt.spec.max_attempts,
                go=not (attempt.record.expired or attempt.stopped),
                only_sender=attempt.record.attempts == 1,
            )
        )
        facts: dict[str, Any] = {"verdict": look.verdict.as_json(), "rule": decided.rule}
        match decided.step:
            case Step.SETTLE:
                attempt.move(State.COMMITTED, "verified", lease="drop", **facts)
            case Step.NOT_APPLIED:
                why = str(attempt.record.fact("replied", "why") or "the target refused")
                attempt.move(State.FAILED, "not_applied", lease="drop", why=why, **facts)
            case Step.UNDO:
                undo(attempt, look, rule=decided.rule)
            case Step.RAISE_READ_ACT | Step.RESEND_CONDITION | Step.RESEND_KEY:
                try:
                    act(attempt, before=before, rule=decided.rule)
                except Stopped:
                    attempt.stopped = True
            case Step.RAISE_READ_CLOSE:
                close_under_fence(attempt, before, facts)
            case _:
                why = "it may have happened, or may still happen"
                attempt.move(State.UNKNOWN, "halted", lease="drop", why=why, **facts)


def close_under_fence(attempt: Attempt, before: Json, facts: dict[str, Any]) -> None:
    """No further try is allowed: forbid late effects, then say what is there."""
    attempt.fresh_token()
    problem = attempt.raise_fence()
    look = attempt.look(lambda now: Verdict.equal(expected=before, observed=now), before)
    if look.verdict.answer is Answer.HOLDS and not problem:
        why = "not applied, and older tokens are refused from now on"
        attempt.move(State.FAILED, "not_applied", lease="drop", why=why, **facts)
    else:
        why = problem or "no further try is allowed, and the target is not as before"
        attempt.move(State.UNKNOWN, "halted", lease="drop", why=why, **facts)


def verify(attempt: Attempt, before: Json, result: Json, reply: Reply) -> Look:
    """Re-read the target until the effect shows or the deadline is over."""
    spec, params = attempt.spec, attempt.params
    if attempt.protection is Protection.BLIND and reply is not Reply.OK:
        return Look(Seen.UNKNOWN, Verdict.inconclusive(reason="the reply was lost"), None)
    return attempt.poll(
        lambda now: spec.verify(params, before, now, result),
        unchanged=before,
        once=reply is Reply.REFUSED,
    )
