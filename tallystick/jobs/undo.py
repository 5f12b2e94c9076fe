"""The undoing of one action: in-band, by a compensating action, or by calling a person.

A rollback has its own idempotency key, runs only over the state that our effect left, and is over
only when a look shows the world as it was before.
"""

from collections.abc import Mapping
from typing import Any

from tallystick.core import canonical
from tallystick.core.canonical import Json
from tallystick.core.errors import LeaseLost, StoreError, TallystickError, UnknownId
from tallystick.jobs.action import Action, Protection
from tallystick.jobs.attempt import Attempt, Look, boottime
from tallystick.jobs.decision import Reply, Seen, Situation, Stage, Step, decide
from tallystick.jobs.judging import made_up_intent
from tallystick.jobs.proposal import compensation, rollback_key
from tallystick.jobs.record import NewerSchema, Record, Tampered, UnknownParent
from tallystick.jobs.registry import Registry, undo_method, validate
from tallystick.jobs.states import CLOSED, OPEN, State
from tallystick.jobs.store import Store
from tallystick.rollback import Compensate, InBand, Irreversible, OutOfBand
from tallystick.telemetry import traces

_COMPENSATION_LOOK_MS = 2000
"""How soon a waiting action looks after its compensation, should the wake-up be lost."""


_NOT_OURS = "the target is not in the state that our effect left"


def undo(attempt: Attempt, look: Look, *, rule: int) -> None:
    """The effect landed wrong: undo it as declared and approved, or call a person."""
    facts: dict[str, Any] = {
        "verdict": look.verdict.as_json(),
        "wrong": look.now,
        "rule": rule,
    }
    key = rollback_key(attempt.record.id)
    match attempt.spec.rollback:
        case _ if attempt.record.content.compensates:
            why = "a compensation landed wrong; it is not compensated in turn"
            attempt.move(State.UNKNOWN, "refuted", lease="drop", refuted=True, why=why, **facts)
        case OutOfBand(runbook):
            why = "it landed wrong, and is undone by hand"
            attempt.move(
                State.UNKNOWN,
                "refuted",
                lease="drop",
                refuted=True,
                why=why,
                runbook=runbook,
                **facts,
            )
        case Irreversible(reason):
            why = f"it landed wrong, and cannot be undone: {reason}"
            attempt.move(State.UNKNOWN, "refuted", lease="drop", refuted=True, why=why, **facts)
        case InBand():
            plan = {"kind": "in_band", "key": key}
            attempt.move(State.ROLLING_BACK, "refuted", rollback=plan, **facts)
            attempt.checkpoint("after_rollback_intent")
            resume_undo(attempt)
        case Compensate() as declared:
            _begin_compensation(attempt, declared, key, facts)


def resume_undo(attempt: Attempt) -> None:
    """Bring an action that is rolling back to rest, whoever began it."""
    if isinstance(attempt.spec.rollback, Compensate):
        _finish_compensation(attempt, attempt.spec.rollback)
    else:
        _undo_in_band(attempt)


# --- in-band -----------------------------------------------------------------------------------


@traces.spanned("rollback")
def _undo_in_band(attempt: Attempt) -> None:
    record = attempt.record
    wrong = record.fact("refuted", "wrong")
    while attempt.record.state is State.ROLLING_BACK:
        undos, undone = attempt.record.sent("undo"), attempt.record.last("undone")
        sent = undos[-1] if undos else None
        answered = sent and undone and undone.seq > sent.seq
        reply = Reply(str(undone.evidence["reply"])) if answered and undone else Reply.NONE
        look = _look_back(attempt, wrong, once=sent is None)
        if sent is None and _may_begin(attempt, look):
            _send_undo(attempt, wrong)
            continue
        tries = len(undos)
        decided = decide(
            Situation(
                stage=Stage.UNDOING,
                protection=attempt.protection,
                seen=look.seen,
                reply=reply,
                attempts_left=tries < attempt.spec.max_attempts,
                only_sender=tries == 1,
            )
        )
        match decided.step:
            case Step.SETTLE:
                _restored(attempt, look)
            case Step.RAISE_READ_ACT | Step.RESEND_CONDITION | Step.RESEND_KEY if sent:
                _send_undo(attempt, wrong)
            case _ if sent is None:
                _failed(attempt, look, _NOT_OURS)
            case _:
                _failed(attempt, look, "the undo was sent, and the world is not as before")


def _may_begin(attempt: Attempt, look: Look) -> bool:
    """Undo only what our effect left; a blind target cannot be asked, and was approved as such."""
    blind = attempt.protection is Protection.BLIND and look.seen is Seen.UNKNOWN
    return look.seen is Seen.ABSENT or blind


def _send_undo(attempt: Attempt, wrong: Json) -> None:
    assert isinstance(attempt.spec.rollback, InBand)
    method = undo_method(attempt.spec, attempt.spec.rollback)
    before = attempt.record.fact("intent", "before")
    result = attempt.record.fact("replied", "result")
    key = rollback_key(attempt.record.id)
    attempt.fresh_token()
    began = boottime()
    tries = len(attempt.record.sent("undo")) + 1
    attempt.intend(State.ROLLING_BACK, "undo", attempt=tries, key=key)
    if attempt.protection is Protection.FENCED:
        if problem := attempt.raise_fence():
            _failed(attempt, None, f"the fence cannot be raised: {problem}")
            return
        if _look_back(attempt, wrong, once=True).seen is not Seen.ABSENT:
            return
        began = boottime()
        attempt.last_look()
    attempt.checkpoint("before_undo")
    attempt.call(lambda context: method(attempt.params, before, result, context), began, key=key)
    attempt.checkpoint("after_undo")
    attempt.move(State.ROLLING_BACK, "undone", **attempt.learned)


def _look_back(attempt: Attempt, wrong: Json, *, once: bool = False) -> Look:
    before = attempt.record.fact("intent", "before")
    spec, params = attempt.spec, attempt.params
    return attempt.poll(lambda now: spec.restored(params, before, now), unchanged=wrong, once=once)


def _restored(attempt: Attempt, look: Look, **facts: Any) -> None:
    facts["restored"] = look.verdict.as_json()
    attempt.move(State.ROLLED_BACK, "restored", lease="drop", **facts)


def _failed(attempt: Attempt, look: Look | None, why: str, **facts: Any) -> None:
    if look:
        facts["restored"] = look.verdict.as_json()
    attempt.move(State.ROLLBACK_FAILED, "rollback_failed", lease="drop", why=why, **facts)


# --- by a compensating action ------------------------------------------------------------------


def _begin_compensation(
    attempt: Attempt, declared: Compensate, key: str, facts: dict[str, Any]
) -> None:
    record = attempt.record
    plan: dict[str, Any] = {"kind": "compensate", "key": key, "action": declared.action}
    problem = ""
    try:
        before, result = record.fact("intent", "before"), record.fact("replied", "result")
        params = declared.params(attempt.params, before, result)
        if not isinstance(params, Mapping):
            raise TypeError("the parameters of a compensation must be a mapping")
        plan["params"] = validate(_compensating_type(attempt, declared), params)[1]
    except Exception as error:  # whatever a user's function raises
        problem = f"its parameters could not be computed: {canonical.told(error)}"
    attempt.move(State.ROLLING_BACK, "refuted", rollback=plan, **facts)
    attempt.checkpoint("after_rollback_intent")
    if problem:
        _failed(attempt, None, problem)
    else:
        _finish_compensation(attempt, declared)


@traces.spanned("rollback")
def _finish_compensation(attempt: Attempt, declared: Compensate) -> None:
    """Enqueue the compensation, or judge by the world once it is at rest."""
    try:
        child = compensation_of(attempt.store, attempt.record)
    except NewerSchema:
        attempt.move(State.ROLLING_BACK, "waits", lease="drop", due_ms=_COMPENSATION_LOOK_MS)
        return
    except Tampered as problem:
        _failed(attempt, None, f"the compensation is corrupt: {problem}")
        return
    if child is None:
        _start_compensation(attempt, declared)
    elif child.state in OPEN:
        attempt.move(State.ROLLING_BACK, "waits", lease="drop", due_ms=_COMPENSATION_LOOK_MS)
    elif child.state is State.COMMITTED:
        look = _look_back(attempt, attempt.record.fact("refuted", "wrong"))
        if look.seen is Seen.OURS:
            _restored(attempt, look, compensation=child.id)
        else:
            why = f"compensation {child.id} ran, and the world is not as before"
            _failed(attempt, look, why, compensation=child.id)
    else:
        why = f"compensation {child.id} ended as {child.state}"
        _failed(attempt, None, why, compensation=child.id)


def _start_compensation(attempt: Attempt, declared: Compensate) -> None:
    """Enqueue the compensation, over the state that our effect left and no other."""
    look = _look_back(attempt, attempt.record.fact("refuted", "wrong"), once=True)
    if look.seen is Seen.OURS:
        _restored(attempt, look)
        return
    if not _may_begin(attempt, look):
        _failed(attempt, look, _NOT_OURS)
        return
    try:
        _enqueue_compensation(attempt, declared)
    except (StoreError, LeaseLost):
        raise
    except TallystickError as error:
        _failed(attempt, None, f"the compensation could not be enqueued: {error}")


def _enqueue_compensation(attempt: Attempt, declared: Compensate) -> None:
    plan = attempt.record.fact("refuted", "rollback")
    child = compensation(
        attempt.store,
        attempt.registry,
        _compensating_type(attempt, declared),
        plan["params"],
        parent=attempt.record,
        by=attempt.worker,
    )
    attempt.checkpoint("after_compensation")
    attempt.move(
        State.ROLLING_BACK,
        "compensating",
        lease="drop",
        due_ms=_COMPENSATION_LOOK_MS,
        compensation=child,
    )
    attempt.wake(child)


def _compensating_type(attempt: Attempt, declared: Compensate) -> Action:
    """The type and version that were approved as the rollback."""
    version = int(str(attempt.record.content.rollback["version"]))
    found = attempt.registry.find(declared.action, version)
    assert found is not None  # an action is claimed only where what would undo it is known
    return found


def compensation_of(store: Store, record: Record) -> Record | None:
    """The action that undoes this one, if it is stored. Raises `Tampered` if it is damaged."""
    owner, _ = store.owner_of(rollback_key(record.id))
    if owner is None:
        return None
    try:
        return store.load(owner[0])
    except UnknownId:
        raise Tampered(f"the compensation {owner[0]!r} does not exist") from None


def waits_for_compensation(store: Store, record: Record) -> bool:
    """Whether there is nothing to do but wait for a compensation that is still under way."""
    plan = record.fact("refuted", "rollback")
    if record.state is not State.ROLLING_BACK or not isinstance(plan, dict):
        return False
    try:
        child = compensation_of(store, record) if plan.get("kind") == "compensate" else None
    except NewerSchema:
        return True  # the version that wrote it will finish it
    except Tampered:
        return False
    return child is not None and child.state in OPEN


def parent_of(store: Store, record: Record) -> Record:
    """The action that this compensation undoes, which must have asked for exactly this.

    Raises `Tampered` if it has not: then nobody approved the compensation.
    """
    try:
        parent = store.load(str(record.content.compensates))
    except UnknownId:
        raise Tampered("the action that it claims to undo does not exist") from None
    plan = parent.fact("refuted", "rollback")
    if parent.content.namespace != record.content.namespace:
        raise Tampered(f"action {parent.id} belongs to another namespace")
    asked = isinstance(plan, dict) and (
        plan.get("key") == record.content.key
        and plan.get("action") == record.content.action == parent.content.rollback.get("action")
        and plan.get("params") == record.content.params
    )
    if not asked or parent.state not in {State.ROLLING_BACK, *CLOSED, State.ROLLBACK_FAILED}:
        raise Tampered(f"action {parent.id} did not ask for this compensation")
    return parent


def check_asked(registry: Registry, parent: Record, record: Record) -> None:
    """The parent's own code must ask for exactly this compensation, from what its journal holds.

    Raises `Tampered` if it does not, `UnknownParent` if its type is not known here.
    """
    spec = registry.find(parent.content.action, parent.content.version)
    child = registry.find(record.content.action, record.content.version)
    if spec is None or child is None or not isinstance(spec.rollback, Compensate):
        raise UnknownParent(f"it undoes {parent.content.action}, which this worker does not know")
    try:
        params = validate(spec, parent.content.params)[0]
        before, result = parent.fact("intent", "before"), parent.fact("replied", "result")
        asked = validate(child, spec.rollback.params(params, before, result))[1]
    except Exception as error:  # whatever a user's function raises
        raise Tampered(f"its parameters cannot be derived ({type(error).__name__})") from None
    if problem := made_up_intent(spec, parent.content, before):
        raise Tampered(problem)
    if canonical.dumps(asked) != canonical.dumps(record.content.params):
        raise Tampered(f"action {parent.id} would ask for another compensation")
