"""What stored facts, and a look at the target, mean to the decision table."""

from tallystick.approvals import Policy, identity
from tallystick.core import canonical
from tallystick.core.canonical import Json
from tallystick.jobs.action import Action, protection_of
from tallystick.jobs.attempt import Attempt, Look
from tallystick.jobs.decision import Reply, Seen, Stage
from tallystick.jobs.record import Content, Record
from tallystick.jobs.registry import Registry, validate
from tallystick.jobs.states import CLOSED, HALTED, State
from tallystick.rollback import plan
from tallystick.verifiers import Answer, Verdict


def before_intent(attempt: Attempt, look: Look) -> Seen:
    """What the precondition's look means while nothing has been sent by this record.

    A world that no longer fits the precondition but does fit the *verification* shows our effect
    without our intent: the store was rewound, or somebody did it by hand. A verification that
    also holds for the approved state tells nothing, and is not asked.
    """
    answer = look.verdict.answer
    if answer is Answer.HOLDS:
        return Seen.ABSENT
    if answer is Answer.INCONCLUSIVE:
        return Seen.UNKNOWN
    approved = attempt.record.content.observed

    def holds(now: Json) -> bool:
        try:
            verdict = attempt.spec.verify(attempt.params, approved, now, None)
        except Exception:  # it cannot judge without a reply
            return False
        return verdict.answer is Answer.HOLDS

    return Seen.OURS if holds(look.now) and not holds(approved) else Seen.FOREIGN


def our_own(reply: Reply, record: Record) -> Reply:
    """The reply as evidence for an undo: an answer to a dead worker's call proves no more that
    what is there now is ours, since others may have acted in between."""
    replied = record.last("replied")
    ours = replied is not None and replied.token == record.token
    return reply if ours or reply is not Reply.OK else Reply.UNCLEAR


def last_reply(record: Record) -> tuple[Reply, Json]:
    """What the target answered to the last intent, if that is known."""
    sent, replied = record.sent("intent"), record.last("replied")
    if not sent or replied is None or replied.seq < sent[-1].seq:
        return Reply.NONE, None
    return Reply(str(replied.evidence["reply"])), replied.evidence.get("result")


def stage_of(state: State) -> Stage:
    """The state as the decision table sees it."""
    if state in CLOSED:
        return Stage.CLOSED
    if state in HALTED:
        return Stage.HALTED
    return {
        State.WAITING_FOR_APPROVAL: Stage.WAITING,
        State.APPROVED: Stage.APPROVED,
        State.RUNNING: Stage.ACTING,
        State.VERIFYING: Stage.ACTING,
        State.ROLLING_BACK: Stage.UNDOING,
    }[state]


def mismatch(spec: Action, record: Record) -> str:
    """Why this code is not what was approved although name and version agree; empty if it is."""
    if protection_of(spec) != record.content.protection:
        return (
            f"it was approved as {record.content.protection}, the code says {protection_of(spec)}"
        )
    version = record.content.rollback.get("version")
    coded_plan = plan(
        spec.rollback, compensation_version=version if isinstance(version, int) else None
    )
    if coded_plan.as_json() != record.content.rollback:
        return "the code would undo it in another way than was approved"
    try:
        form = validate(spec, record.content.params)[1]
    except Exception as error:  # whatever a user's model raises
        return f"its parameters do not fit the code: {canonical.told(error)}"
    if canonical.dumps(form) != canonical.dumps(record.content.params):
        return "the code reads its parameters differently"
    return ""


def missing_undo(registry: Registry, content: Content) -> str:
    """Why this worker could not have it undone by the action that was approved for that; empty if
    it could."""
    name, version = content.rollback.get("action"), content.rollback.get("version")
    if name is None or (isinstance(version, int) and registry.find(str(name), version)):
        return ""
    return f"this worker does not know version {version} of {name}, which would undo it"


def made_up_intent(spec: Action, content: Content, before: Json) -> str:
    """Why the state "from before" of an intent cannot be what a worker saw; empty if it can.

    No intent is stored unless the precondition holds of it, so a forger of the journal (who cannot
    forge the votes) cannot have a state restored that nobody approved.
    """
    try:
        params = validate(spec, content.params)[0]
        verdict = spec.precondition(params, content.observed, before)
        held = isinstance(verdict, Verdict) and verdict.answer is Answer.HOLDS
    except Exception as error:  # whatever a user's method raises
        return f"its precondition cannot be checked again ({type(error).__name__})"
    return "" if held else "its intent was stored over a state that does not fit the approval"


def stricter_policy(attempt: Attempt) -> str:
    """Why the votes do not satisfy the policy that the code asks today; empty if they do."""
    content = attempt.record.content
    if content.compensates is not None:
        return ""
    policy = Policy.from_json(content.policy).strictest(attempt.spec.policy)
    yes = {identity(vote.who) for vote in attempt.record.votes}
    if len(yes) < policy.quorum:
        return f"the policy asks for {policy.quorum} approvals by now; propose it again"
    if not policy.proposer_may_approve and identity(content.proposed_by) in yes:
        return "the proposer may not approve any more; propose it again"
    return ""
