"""One worker's hold on one action: what it knows, and the few things it can do.

`run.py` tells the story with these; nothing here decides anything.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol, TypeVar

from pydantic import BaseModel

from tallystick.core import canonical
from tallystick.core.canonical import Json
from tallystick.core.errors import (
    Conflict,
    InvalidInput,
    LeaseLost,
    NotApplied,
    StaleFence,
    StoreTrouble,
    UnknownId,
)
from tallystick.jobs.action import Action, Context, Protection, protection_of
from tallystick.jobs.decision import Reply, Seen
from tallystick.jobs.record import Record, Tampered
from tallystick.jobs.registry import Registry
from tallystick.jobs.settings import MARGIN_SECONDS, Settings
from tallystick.jobs.states import HALTED, State
from tallystick.jobs.store import Store
from tallystick.telemetry import traces
from tallystick.verifiers import Answer, Verdict

log = logging.getLogger("tallystick.run")

Given = TypeVar("Given")

AGAIN_SECONDS = (1, 5, 15, 60, 300)
"""How soon an action that could not begin is offered again, the first time and so on."""

_PERSIST_SECONDS = 3600.0
_SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 0.5
_FIRST_POLL_SECONDS, _LAST_POLL_SECONDS = 0.02, 1.0
_RESULT_LIMIT = canonical.MAX_BYTES


class Watch(Protocol):
    """The worker parent, as its work-horse sees it: it renews the lease and kills overruns."""

    def look(self, action_id: str) -> None:
        """I look whether I can take this action; from here on code of its type may run."""

    def hold(self, action_id: str, owner: str) -> None:
        """I hold this action; renew its lease."""

    def effect(self, seconds: float | None) -> None:
        """An effect runs: kill me after `seconds`. None: it is over, renew again."""

    def done(self) -> None:
        """I hold nothing."""


class Withheld(Exception):
    """What was intended was not sent, and the action was let go."""


class Unwatched:
    """No parent (a stock RQ worker, or a test): the lease simply runs."""

    def look(self, action_id: str) -> None: ...

    def hold(self, action_id: str, owner: str) -> None: ...

    def effect(self, seconds: float | None) -> None: ...

    def done(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Look:
    """One reading of the target and what it means."""

    seen: Seen
    verdict: Verdict
    now: Json


@dataclass
class Attempt:
    """A claimed action in a worker's hands. `record` is replaced by every move."""

    store: Store
    settings: Settings
    spec: Action
    record: Record
    params: BaseModel
    worker: str
    watch: Watch
    checkpoint: Callable[[str], None]
    sleep: Callable[[float], None]
    registry: Registry
    wake: Callable[[str], None]
    unintended: Record = field(init=False, repr=False)
    """The record before the last intent."""
    intended: State = field(init=False, repr=False)
    """The state in which that intent is stored."""
    stopped: bool = False
    """The stop switch forbade another try."""
    learned: dict[str, Any] = field(default_factory=dict)
    """What this worker has seen since the last move that was stored: late evidence, if it turns
    out that the lease has passed on."""

    @property
    def protection(self) -> Protection:
        return protection_of(self.spec)

    @property
    def lease_ms(self) -> int:
        return int(self.settings.lease_seconds * 1000)

    @property
    def effect_seconds(self) -> float:
        """The deadline of one effect: the type's, but never more than the lease allows."""
        most = self.settings.effect_deadline
        return min(self.spec.effect_deadline or most, most)

    def move(
        self, to: State, event: str, *, lease: str = "keep", due_ms: int | None = None, **facts: Any
    ) -> None:
        """Store one step. A store in trouble is waited for: an effect may have happened, and
        nobody else knows. Raises `LeaseLost` or `Conflict` if the action is no longer ours."""
        self._persist(lambda: self._store(to, event, lease, due_ms, facts))

    def intend(self, to: State, event: str, **facts: Any) -> None:
        """Store that something will be sent now. If the store does not confirm it, nothing is.

        Raises `Withheld` then, and like `move`.
        """
        self.unintended, self.intended = self.record, to
        try:
            self._store(to, event, "hold", None, facts)
        except StoreTrouble as trouble:
            self.withhold(str(trouble))

    def withhold(self, why: str) -> NoReturn:
        """Say, as soon as the store answers, that what was intended was not sent: others would have
        to think that it was. The action is let go, and offered again.

        Raises `Withheld`, or `LeaseLost` if somebody has already had to think so.
        """
        before = self.unintended
        self.learned = {"withheld": True, "why": canonical.told(why)}
        log.warning("action %s: nothing is sent, %s", before.id, why)
        while True:
            try:
                self.record = found = self._persist(lambda: self.store.load(before.id))
            except (Tampered, UnknownId):  # whoever reads it next will say so
                raise Withheld from None
            if found.state in {State.CANCELLED, State.EXPIRED}:  # nobody thinks that it was sent
                raise Withheld
            if found.owner != before.owner or found.state not in {before.state, self.intended}:
                raise LeaseLost(id=before.id, what="owner", found=found.owner)
            times = len(self.record.events("withheld"))
            with contextlib.suppress(Conflict):  # the intent itself, which was on its way for long
                self.move(
                    State.APPROVED if before.state is State.APPROVED else self.record.state,
                    "withheld",
                    lease="drop",
                    due_ms=AGAIN_SECONDS[min(times, len(AGAIN_SECONDS) - 1)] * 1000,
                    after=before.seq,
                    why=canonical.told(why),
                )
                raise Withheld

    def disclaim(self, why: str) -> None:
        """The claim was not heard of. If it is there let it go, as soon as the store answers: who
        claims and says nothing more is taken for dead."""
        log.warning("action %s: not begun, %s", self.record.id, why)
        with contextlib.suppress(LeaseLost, Conflict, Tampered, UnknownId):
            found = self._persist(lambda: self.store.load(self.record.id))
            if (found.owner, found.state) == (self.record.owner, self.record.state):
                self.record, due_ms = found, AGAIN_SECONDS[0] * 1000
                facts = {"after": found.seq, "why": canonical.told(why)}
                self.move(found.state, "withheld", lease="drop", due_ms=due_ms, **facts)

    def _store(
        self, to: State, event: str, lease: str, due_ms: int | None, facts: dict[str, Any]
    ) -> None:
        runbook = self.record.content.rollback.get("runbook")
        if to in HALTED and runbook:
            facts.setdefault("runbook", runbook)
        if due_ms is None:
            due_ms = -1 if lease == "drop" else self.lease_ms
        self.record = self.store.move(
            self.record,
            to,
            who=self.worker,
            worker=self.worker,
            evidence={"event": event, **facts},
            lease=lease,
            lease_ms=self.lease_ms,
            due_ms=due_ms,
        )
        self.learned = {}

    def _persist(self, call: Callable[[], Given]) -> Given:
        deadline = time.monotonic() + _PERSIST_SECONDS
        pause = _SHORTEST_PAUSE_SECONDS
        while True:
            try:
                return call()
            except StoreTrouble:
                if time.monotonic() > deadline:
                    raise
                self.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def last_look(self) -> None:
        """The lease is still ours, and is so for its whole length. Raises `LeaseLost`, and
        `Withheld` if nobody can say."""
        record = self.record
        try:
            ours = self.store.renew(record.id, record.owner, lease_ms=self.lease_ms)
        except StoreTrouble as trouble:
            self.withhold(str(trouble))
        if not ours:
            raise LeaseLost(id=self.record.id, what="lease", found="another owner")

    def fresh_token(self) -> None:
        """Draw the next fencing token if something was sent under this one: it may still be on its
        way, and the target cannot tell two sends under one token apart. It is drawn before the
        next intent, so that no loss of that line alone brings it back. Raises `LeaseLost`."""
        if self.protection is not Protection.FENCED:
            return
        sent, claimed = self.record.last("intent", "undo"), self.record.last("claimed")
        if sent and claimed and sent.seq > claimed.seq:
            self.record = self.store.claim(
                self.record, worker=self.worker, lease_ms=self.lease_ms, again=True
            )

    def context(self, deadline: float, *, key: str | None = None) -> Context:
        """What the target is to be told. A rollback (which has its own key) is conditional on the
        version that our effect left, an effect on the version that was approved."""
        version = None
        if self.protection is Protection.VERSIONED:
            wrong = self.record.fact("refuted", "wrong")
            version = self.spec.version_of(wrong if key else self.record.content.observed)
        return Context(
            action_id=self.record.id,
            idempotency_key=key or self.record.content.key,
            fencing_token=self.record.token,
            deadline=deadline,
            attempt=self.record.attempts,
            expected_version=version,
        )

    def call(
        self, effect: Callable[[Context], Any], began: float, *, key: str | None = None
    ) -> Reply:
        """Call the target once, under the deadline. `began` is when the lease was last known ours,
        on `boottime()`. What it answered is in `learned`."""
        with traces.span("undo" if key else "effect", attempt=self.record.attempts) as span:
            reply = self._call(effect, began, key)
            span.note(reply=reply.value)
            return reply

    def _call(self, effect: Callable[[Context], Any], began: float, key: str | None) -> Reply:
        seconds = self.effect_seconds - (boottime() - began)
        self.watch.effect(max(seconds, 0.001) + MARGIN_SECONDS / 2)
        # Armed first, looked at second: whoever is frozen between the two is killed on waking.
        if boottime() - began > self.effect_seconds:
            self.watch.effect(None)
            self.withhold("it is too late to begin, the lease may end before the effect")
        context = self.context(time.monotonic() + seconds, key=key)
        try:
            result, reply, why = evidence(effect(context)), Reply.OK, ""
        except NotApplied as refusal:
            result, reply, why = None, Reply.REFUSED, canonical.told(str(refusal))
        except StaleFence as stale:
            raise LeaseLost(id=self.record.id, what="fence", found=str(stale)) from stale
        except Exception as error:  # whatever it was, the effect may have happened
            said = f"What it said: tallystick history {self.record.id}"
            log.warning("action %s: the effect raised. %s", self.record.id, said, exc_info=True)
            result, reply, why = None, Reply.UNCLEAR, canonical.told(error)
        finally:
            self.watch.effect(None)
        self.learned = {"reply": reply.value, "result": result, "why": why}
        return reply

    def raise_fence(self) -> str:
        """Make a fenced target refuse older tokens; for other targets nothing.

        Returns why it could not be done, empty if it is. Raises `LeaseLost` if the target has seen
        a higher token: then we are the zombie.
        """
        if self.protection is not Protection.FENCED:
            return ""
        try:
            self.spec.raise_fence(self.params, self.record.token)
        except StaleFence as stale:
            raise LeaseLost(id=self.record.id, what="fence", found=str(stale)) from stale
        except Exception as error:  # the target does not answer: nothing may be sent
            log.warning("action %s: the fence cannot be raised", self.record.id, exc_info=True)
            return canonical.told(error)
        return ""

    def observe(self) -> Json:
        """Read the target. Raises whatever the type's `observe` raises, or `InvalidInput`."""
        return canonical.normalise(self.spec.observe(self.params), field="observed")

    def poll(
        self, judge: Callable[[Json], Verdict], unchanged: Json, *, once: bool = False
    ) -> Look:
        """Look until `judge` holds or the verification deadline is over; the last look counts.

        `unchanged` is the state that means "nothing happened". With `once`, the first look that
        proves anything counts.
        """
        with traces.span("verification") as span:
            look = self._poll(judge, unchanged, once)
            span.note(seen=look.seen.value, answer=look.verdict.answer.value)
            return look

    def _poll(self, judge: Callable[[Json], Verdict], unchanged: Json, once: bool) -> Look:
        seconds = self.spec.verify_deadline
        seconds = self.settings.verify_deadline_seconds if seconds is None else seconds
        deadline = time.monotonic() + seconds
        pause = _FIRST_POLL_SECONDS
        while True:
            look = self.look(judge, unchanged)
            left = deadline - time.monotonic()
            proven = look.seen is Seen.OURS or (once and look.seen is not Seen.UNKNOWN)
            if proven or left <= 0:
                self.learned |= {"seen": look.seen.value, "verdict": look.verdict.as_json()}
                return look
            self.sleep(min(pause, left))
            pause = min(pause * 2, _LAST_POLL_SECONDS)

    def look(self, judge: Callable[[Json], Verdict], unchanged: Json) -> Look:
        """Read once and judge; a target that cannot be read proves nothing."""
        now: Json = None
        try:
            now = None if self.protection is Protection.BLIND else self.observe()
            verdict = judge(now)
            if not isinstance(verdict, Verdict):
                raise TypeError(f"{verdict!r} is no Verdict")
        except Exception as error:  # a look that fails is an answer: inconclusive
            return Look(Seen.UNKNOWN, Verdict.inconclusive(reason=canonical.told(error)), now)
        return Look(self._seen(verdict, now, unchanged), verdict, now)

    def _seen(self, verdict: Verdict, now: Json, unchanged: Json) -> Seen:
        if verdict.answer is Answer.HOLDS:
            return Seen.OURS
        if verdict.answer is Answer.INCONCLUSIVE:
            return Seen.UNKNOWN
        readable = self.protection is not Protection.BLIND
        same = readable and canonical.dumps(now) == canonical.dumps(unchanged)
        return Seen.ABSENT if same else Seen.FOREIGN

    def testify(self, lost: Exception) -> None:
        """Append what we learned to an action that is no longer ours, and alert again if it
        waits for a person. Nothing else may be done with a late result."""
        log.warning("action %s: stopped, %s", self.record.id, lost)
        if not self.learned:
            return
        for _ in range(10):
            fresh = self._persist(lambda: self.store.load(self.record.id))
            facts: Mapping[str, Any] = {
                "event": "late_evidence",
                "lost": canonical.told(str(lost)),
                "late_token": self.record.token,
                **{name: value for name, value in self.learned.items() if name != "verdict"},
            }
            try:
                self.store.move(
                    fresh, fresh.state, who=self.worker, worker=self.worker, evidence=facts
                )
                return
            except (LeaseLost, Conflict):
                continue


def evidence(value: Any) -> Json:
    """A reply as it can be kept: its JSON form; what has none, or is too large, by description."""
    try:
        form = canonical.normalise(value, field="result")
        data = canonical.dumps(form)
    except InvalidInput:
        return {"not_json": canonical.told(repr(value))}
    if len(data) > _RESULT_LIMIT:
        return {"too_large": len(data), "sha256": canonical.digest(data)}
    return form


def boottime() -> float:
    """Seconds on a clock that also counts while the host is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
