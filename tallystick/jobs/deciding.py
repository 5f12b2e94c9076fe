"""What approvers do: say yes or no to exactly what is stored, signed."""

from tallystick.approvals import APPROVE, REJECT, Objection, Outcome, Vote, objection, tally
from tallystick.core import canonical
from tallystick.core.errors import ActionExpired, ApproverNotAllowed, IllegalMove, WrongAnswer
from tallystick.jobs import view
from tallystick.jobs.desk import Desk
from tallystick.jobs.record import Record
from tallystick.jobs.states import State
from tallystick.jobs.view import ActionRecord

_WAKE_MS = 2000
"""How soon the recoverer looks after an approval whose wake-up was lost."""


class Deciding(Desk):
    """The approvers' part of the service."""

    def approve(self, id: str, *, by: str, answer: str | None = None) -> ActionRecord:
        """Say yes to exactly what is stored, signed with this process's approval key.

        `answer` is what the challenge of an irreversible action asks to type back. Raises
        `ApproverNotAllowed`, `WrongAnswer`, `ActionExpired`, `IllegalMove`, `NoSigningKey`.
        """
        by = canonical.label(by, field="by")
        if answer is not None:
            answer = canonical.text(answer, field="answer")

        def step(record: Record) -> ActionRecord:
            said = any(vote.who == by and vote.decision == APPROVE for vote in record.votes)
            if said and record.state is not State.REJECTED:
                return self._said_before(record)
            self._still_waiting(record, State.APPROVED)
            ballot = record.content.ballot
            match objection(ballot, record.votes, by, answer):
                case Objection.WRONG_ANSWER:
                    raise WrongAnswer(id=id, challenge=ballot.challenge)
                case Objection() as problem:
                    raise ApproverNotAllowed(who=by, id=id, problem=problem.value)
            vote = self._vote(record, APPROVE, by, answer)
            outcome = tally(ballot, [*record.votes, vote], self.keyring)
            if outcome.outcome in {Outcome.INVALID, Outcome.UNKNOWN_KEY}:
                raise ApproverNotAllowed(who=by, id=id, problem=outcome.problem)
            to = State.APPROVED if outcome.outcome is Outcome.APPROVED else record.state
            moved = self.store.move(
                record,
                to,
                who=by,
                evidence={"event": "vote", "vote": vote.as_json(), "missing": outcome.missing},
                due_ms=_WAKE_MS if to is State.APPROVED else None,
            )
            if self.transport and moved.state is State.APPROVED:
                self.transport.wake_soon(moved.id, str(moved.seq))
            return view.view(moved)

        return self._decided(id, "approve", step)

    def reject(self, id: str, *, by: str, reason: str) -> ActionRecord:
        """Say no; one no is enough, and it never has an effect. Raises like `approve`."""
        by = canonical.label(by, field="by")
        why = self._words(reason, "reason", needed=True)

        def step(record: Record) -> ActionRecord:
            if any(vote.who == by and vote.decision == REJECT for vote in record.votes):
                return self._said_before(record)
            self._still_waiting(record, State.REJECTED)
            vote = self._vote(record, REJECT, by, None)
            return view.view(
                self.store.move(
                    record,
                    State.REJECTED,
                    who=by,
                    evidence={"event": "vote", "vote": vote.as_json(), "why": why},
                    due_ms=-1,
                )
            )

        return self._decided(id, "reject", step)

    def _still_waiting(self, record: Record, to: State) -> None:
        if record.state is State.WAITING_FOR_APPROVAL and record.expired:
            evidence = {"event": "expired", "why": "the approval window is over"}
            self.store.move(record, State.EXPIRED, who="clock", evidence=evidence, due_ms=-1)
            raise ActionExpired(id=record.id, expires_at=view.iso(record.content.expires_at))
        decided = record.last("vote")
        by = f" It was decided by {decided.who}." if decided else ""
        if record.state is not State.WAITING_FOR_APPROVAL:
            raise IllegalMove(
                id=record.id,
                state=record.state,
                to=to,
                remedy=f"Only what waits for approval is decided.{by}",
            )

    def _vote(self, record: Record, decision: str, by: str, answer: str | None) -> Vote:
        vote = Vote(
            record.id, record.digest, decision, by, answer, record.now, self.settings.namespace
        )
        return vote.signed(self._signer())
