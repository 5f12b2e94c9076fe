"""Who must say yes: quorum, separation of duties, expiry and challenge."""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from tallystick.approvals.keys import Keyring
from tallystick.approvals.votes import APPROVE, REJECT, Vote
from tallystick.core.canonical import Json

_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Policy:
    """What an action type asks of its approvers.

    `quorum` different people must approve; the proposer counts only if `proposer_may_approve`
    (separation of duties, NIST SP 800-53 AC-5 and AC-3(2)); nothing runs once `expires_after` has
    passed since the proposal.
    """

    quorum: int = 1
    proposer_may_approve: bool = False
    expires_after: timedelta = timedelta(hours=24)

    def __post_init__(self) -> None:
        if isinstance(self.quorum, bool) or not isinstance(self.quorum, int) or self.quorum < 1:
            raise ValueError("quorum must be a whole number from 1: nothing runs unapproved")
        if self.expires_after < _MILLISECOND:
            raise ValueError("expires_after must be at least a millisecond")

    def as_json(self) -> dict[str, Json]:
        """The form that the digest covers."""
        return {
            "quorum": self.quorum,
            "proposer_may_approve": self.proposer_may_approve,
            "expires_after_ms": self.expires_after // _MILLISECOND,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Json]) -> "Policy":
        """The policy that was stored with an action. Raises ValueError if it is not one."""
        quorum, alone = stored.get("quorum"), stored.get("proposer_may_approve")
        window = stored.get("expires_after_ms")
        if not isinstance(alone, bool) or not _whole(quorum) or not _whole(window):
            raise ValueError("the stored policy is malformed")
        try:
            return cls(int(str(quorum)), alone, timedelta(milliseconds=int(str(window))))
        except OverflowError:
            raise ValueError("the stored policy is malformed") from None

    def strictest(self, other: "Policy") -> "Policy":
        """The policy that satisfies both: what was approved, and what the code asks today."""
        return Policy(
            max(self.quorum, other.quorum),
            self.proposer_may_approve and other.proposer_may_approve,
            min(self.expires_after, other.expires_after),
        )


@dataclass(frozen=True, slots=True)
class Ballot:
    """What is voted on."""

    action_id: str
    digest: str
    proposed_by: str
    policy: Policy
    challenge: str | None
    """The text that an approver must type back, for what cannot be undone."""
    namespace: str
    """The product stage in which the votes count."""


class Objection(StrEnum):
    """Why a vote may not be cast."""

    OWN_PROPOSAL = "the proposer may not approve (separation of duties)"
    ALREADY_VOTED = "they have voted already"
    WRONG_ANSWER = "the challenge was not answered as shown"


class Outcome(StrEnum):
    """Where a ballot stands."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    UNKNOWN_KEY = "unknown_key"
    """A stored vote is signed with a key that is not trusted here."""
    INVALID = "invalid"
    """A stored vote does not prove what it claims."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of a ballot, who brought it about, and what is wrong with it if invalid."""

    outcome: Outcome
    approved_by: tuple[str, ...] = ()
    rejected_by: str | None = None
    missing: int = 0
    """Approvals that the quorum still lacks."""
    problem: str = ""


def objection(
    ballot: Ballot, cast: Sequence[Vote], who: str, answer: str | None
) -> Objection | None:
    """Why `who` may not approve this ballot with this answer, or None if they may."""
    if any(_same(vote.who, who) for vote in cast):
        return Objection.ALREADY_VOTED
    if _same(ballot.proposed_by, who) and not ballot.policy.proposer_may_approve:
        return Objection.OWN_PROPOSAL
    if ballot.challenge is not None and answer != ballot.challenge:
        return Objection.WRONG_ANSWER
    return None


def tally(ballot: Ballot, cast: Sequence[Vote], keys: Keyring) -> Decision:
    """Count the votes, each checked anew: signature, digest, person, answer.

    A vote that does not check makes the whole ballot `INVALID`: what is stored is not what people
    signed, and nothing may run on it. Nor does anything on an `UNKNOWN_KEY`, until it is trusted.
    """
    yes: dict[str, str] = {}
    for vote in cast:
        if vote.key_id not in keys.trusted:
            problem = f"vote of {vote.who!r}: signed by the unknown key {vote.key_id!r}"
            return Decision(Outcome.UNKNOWN_KEY, problem=problem)
        if problem := _defect(ballot, vote, keys):
            return Decision(Outcome.INVALID, problem=f"vote of {vote.who!r}: {problem}")
        if vote.decision == REJECT:
            return Decision(Outcome.REJECTED, tuple(yes.values()), rejected_by=vote.who)
        yes.setdefault(identity(vote.who), vote.who)
    missing = max(0, ballot.policy.quorum - len(yes))
    outcome = Outcome.PENDING if missing else Outcome.APPROVED
    return Decision(outcome, tuple(yes.values()), missing=missing)


def _defect(ballot: Ballot, vote: Vote, keys: Keyring) -> str:
    if vote.action_id != ballot.action_id or vote.digest != ballot.digest:
        return "it was cast on other content"
    if vote.namespace != ballot.namespace:
        return f"it was cast in the namespace {vote.namespace!r}"
    if problem := keys.defect(vote.payload(), vote.key_id, vote.signature):
        return problem
    if vote.decision == REJECT:
        return ""
    if vote.decision != APPROVE:
        return f"{vote.decision!r} is no decision"
    if _same(vote.who, ballot.proposed_by) and not ballot.policy.proposer_may_approve:
        return Objection.OWN_PROPOSAL.value
    if ballot.challenge is not None and vote.answer != ballot.challenge:
        return Objection.WRONG_ANSWER.value
    return ""


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def identity(who: str) -> str:
    """One person, however they are written: case, blanks and invisible characters do not count."""
    folded = unicodedata.normalize("NFKC", who).casefold()
    return "".join(char for char in folded if unicodedata.category(char) != "Cf").strip()


def _same(one: str, other: str) -> bool:
    return identity(one) == identity(other)
